//! Checksums of local files, for the comparison with those that mass storage knows.

use crate::entry::{CopyFailure, EntryKey, FailureReason};
use crate::ports::StopSignal;
use crate::queue::CopyOutcome;
use crate::staging::{failed, seconds_since_epoch};
use digest::{Algorithm, Checksum, ChecksumRecord, RunningChecksum};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use storage::Metadata;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// Number of differences that are remembered.
const DIFFERENCES_MAX: usize = 10_000;

/// Computes the checksum of a file through a function that reads at an offset. `None` if `stops` returned `true`.
pub(crate) fn compute(
    algorithm: Algorithm,
    read_at: &dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    stops: &dyn Fn() -> bool,
) -> io::Result<Option<Checksum>> {
    let mut running = RunningChecksum::new(algorithm);
    let (mut piece, mut offset) = (vec![0; PIECE_BYTES], 0u64);
    loop {
        if stops() {
            return Ok(None);
        }
        match read_at(&mut piece, offset)? {
            0 => return Ok(Some(running.finish())),
            length => {
                running.update(piece.get(..length).unwrap_or_default());
                offset += length as u64;
            }
        }
    }
}

/// Returns the checksum that is stored with a file in this value of its attribute, if it is valid for the file.
fn stored(attribute: Option<&[u8]>, algorithm: Algorithm, file: &Metadata) -> Option<Checksum> {
    let record = ChecksumRecord::decode(attribute?)?;
    let fits = record.fits(file.modified, file.modified_nanoseconds, file.size);
    (fits && record.checksum.algorithm() == algorithm).then_some(record.checksum)
}

/// Returns the name and the value of the attribute that stores the checksum of a file with this status.
pub(crate) fn attribute_of(checksum: Checksum, file: &Metadata) -> (String, Vec<u8>) {
    let record = ChecksumRecord::new(checksum, file.modified, seconds_since_epoch());
    let record = record.of_file(file.size, file.modified_nanoseconds);
    (ChecksumRecord::attribute(checksum.algorithm()), record.encode().to_vec())
}

/// The result of a comparison.
pub(crate) enum ContentCheck {
    /// The file has this checksum.
    Same,
    /// It has another one.
    Differs(Checksum),
    /// The comparison was stopped.
    Stopped,
}

/// Compares the content of a file with a checksum, without trust in a stored one.
pub(crate) fn check_content(
    wanted: Checksum,
    read_at: &dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    stop: &StopSignal,
) -> io::Result<ContentCheck> {
    Ok(match compute(wanted.algorithm(), read_at, &|| stop.wait(Duration::ZERO))? {
        None => ContentCheck::Stopped,
        Some(found) if found == wanted => ContentCheck::Same,
        Some(found) => ContentCheck::Differs(found),
    })
}

/// Compares a file that is held open with a checksum. The stored checksum of the file decides if it is valid, because it
/// may be older than a fault of the disk; otherwise the file is read, and its checksum is stored, so that the next
/// comparison does not read it again.
pub(crate) fn check_held(
    wanted: Checksum,
    file: &dyn storage::HeldFile,
    stops: &dyn Fn() -> bool,
) -> io::Result<ContentCheck> {
    let algorithm = wanted.algorithm();
    let attribute = file.attribute(&ChecksumRecord::attribute(algorithm))?;
    let (version, status) = (file.version()?, file.stat()?);
    let found = match stored(attribute.as_deref(), algorithm, &status) {
        Some(found) => Some(found),
        None => {
            let found = compute(algorithm, &|piece, offset| file.read_at(piece, offset), stops)?;
            // It is valid for the version that was read.
            if let Some((name, value)) = found.map(|found| attribute_of(found, &status))
                && file.version()?.has_content_of(&version)
            {
                // A file system that is full may refuse it.
                file.set_attribute(&name, &value).ok();
            }
            found
        }
    };
    Ok(match found {
        None => ContentCheck::Stopped,
        Some(found) if found == wanted => ContentCheck::Same,
        Some(found) => ContentCheck::Differs(found),
    })
}

/// Reports whether a file has this checksum. A valid checksum that is stored with it counts. Blocks for long.
pub fn has_content(file: &dyn storage::HeldFile, checksum: Checksum) -> io::Result<bool> {
    Ok(matches!(check_held(checksum, file, &|| false)?, ContentCheck::Same))
}

/// The last differences of copies. A copy that differs may come from a fault of a drive or a network. One that differs
/// twice in the same way shows that mass storage has another checksum than content, so a further copy would not help.
#[derive(Default)]
pub struct CopyDifferences(Mutex<BTreeMap<EntryKey, Checksum>>);

impl CopyDifferences {
    /// Returns the outcome of a copy whose content was compared; `None` if it is right.
    pub(crate) fn outcome_of(
        &self,
        key: &EntryKey,
        check: io::Result<ContentCheck>,
        wanted: Checksum,
    ) -> Option<CopyOutcome> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match check {
            Ok(ContentCheck::Same) => {
                known.remove(key);
                None
            }
            Ok(ContentCheck::Stopped) => Some(CopyOutcome::Stopped),
            Ok(ContentCheck::Differs(found)) => {
                if known.len() >= DIFFERENCES_MAX {
                    known.pop_first();
                }
                let (reason, end) = match known.insert(key.clone(), found) == Some(found) {
                    true => (FailureReason::Permanent, ", twice in succession"),
                    false => (FailureReason::Temporary, ""),
                };
                let text = format!("{}{end}", difference(found, wanted));
                Some(CopyOutcome::Failed(CopyFailure::new(reason, text)))
            }
            Err(error) => Some(failed("read the file for its checksum", &error)),
        }
    }
}

/// Describes a difference.
pub(crate) fn difference(found: Checksum, wanted: Checksum) -> String {
    let algorithm = wanted.algorithm();
    format!(
        "the file on disk has the {algorithm} checksum {}, but the one in mass storage {}",
        found.hex(),
        wanted.hex()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    fn read_from(content: &[u8]) -> impl Fn(&mut [u8], u64) -> io::Result<usize> {
        move |piece, offset| {
            let rest = content.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            // Short reads are no end.
            let length = rest.len().min(piece.len()).min(1000);
            piece[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }
    }

    #[test]
    fn the_whole_content_is_compared_until_a_stop() {
        let content: Vec<u8> = (0..2500u32).map(|number| number as u8).collect();
        let stop = StopSignal::new().unwrap();
        for algorithm in Algorithm::ALL {
            let wanted = RunningChecksum::of(algorithm, &content);
            let check = check_content(wanted, &read_from(&content), &stop).unwrap();
            assert!(matches!(check, ContentCheck::Same), "{algorithm}");
            let mut other = content.clone();
            other[2499] ^= 1;
            let check = check_content(wanted, &read_from(&other), &stop).unwrap();
            assert!(matches!(check, ContentCheck::Differs(_)), "{algorithm}");
        }
        stop.send();
        let wanted = RunningChecksum::of(Algorithm::Adler32, &content);
        let check = check_content(wanted, &read_from(&content), &stop).unwrap();
        assert!(matches!(check, ContentCheck::Stopped));
    }

    #[test]
    fn a_stored_checksum_of_another_version_is_not_used() {
        let file = Metadata {
            device: 1,
            inode: 2,
            mode: 0o100_644,
            size: 3,
            uid: 0,
            gid: 0,
            modified: 4,
            modified_nanoseconds: 5,
            changed: 4,
            accessed: 4,
            offline: false,
        };
        let checksum = RunningChecksum::of(Algorithm::Adler32, b"abc");
        let (name, value) = attribute_of(checksum, &file);
        assert_eq!(name, "user.XrdCks.adler32");
        assert_eq!(stored(Some(&value), Algorithm::Adler32, &file), Some(checksum));
        assert_eq!(stored(Some(&value), Algorithm::Md5, &file), None);
        assert_eq!(stored(None, Algorithm::Adler32, &file), None);
        for other in [Metadata { size: 4, ..file }, Metadata { modified_nanoseconds: 6, ..file }] {
            assert_eq!(stored(Some(&value), Algorithm::Adler32, &other), None);
        }
    }
}
