//! Decides whether a file needs a copy in mass storage.

use crate::ports::ResidencyPaths;
use crate::staging::SETTLED_SECONDS;
use base::LogicalPath;
use std::io;
use storage::{CopyRecord, CopyTime, Metadata};

/// The begin of records in the form that this version knows.
const RECORD_VERSION: &[u8] = b"1 ";

/// `st_mode`: the type of a file, that of a regular file, and the mark of an unfinished one.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_REGULAR: u32 = 0o100_000;
const MODE_UNFINISHED: u32 = 0o1000;

/// The number of seconds by which a clock was ahead at most, if files are to be idle by that clock.
const CLOCK_ERROR_MAX: i64 = 86_400;

/// The need of a file for a copy in mass storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyNeed {
    /// It has one, or it is not to have one.
    Never,
    /// Its modification time has the value that means "never copied".
    Impossible,
    /// It is not idle for long enough before this time, in seconds since the epoch.
    NotBefore(i64),
    /// It needs one.
    Now,
}

/// Returns the need of a file with this attribute, at the time `now` in seconds since the epoch. `idle`
/// is the number of seconds for which a file must not have been changed.
pub(crate) fn copy_need(attribute: Option<&[u8]>, metadata: &Metadata, now: i64, idle: i64) -> CopyNeed {
    if metadata.mode & TYPE_MASK != TYPE_REGULAR || metadata.mode & MODE_UNFINISHED != 0 {
        return CopyNeed::Never;
    }
    // A server that was killed between the creation and the attribute leaves a file without one.
    let copied = attribute.and_then(CopyTime::decode).unwrap_or(CopyTime::NEVER);
    if copied == CopyTime::PLACEHOLDER || copied.has_copy(metadata.modified) {
        return CopyNeed::Never;
    }
    if metadata.modified <= CopyTime::NEVER.0 {
        return CopyNeed::Impossible;
    }
    let mut changed = metadata.modified;
    if changed > now {
        // A program has set the time, or the clock was wrong.
        changed = changed.min(metadata.changed);
        if changed > now.saturating_add(CLOCK_ERROR_MAX) {
            return CopyNeed::Now;
        }
    }
    // Within the second of the last change, another one could leave the time as it is.
    let ready = changed.saturating_add(idle.max(SETTLED_SECONDS));
    if now < ready { CopyNeed::NotBefore(ready) } else { CopyNeed::Now }
}

/// Reports whether a file with a copy was renamed by a local program, or copied with its attributes. On an export that
/// is not purged this makes no difference, and `record` is not called.
///
/// # Errors
/// Those of `record`, which returns the record of the copy.
pub(crate) fn has_foreign_copy(
    paths: &dyn ResidencyPaths,
    (path, metadata): (&LogicalPath, &Metadata),
    attribute: Option<&[u8]>,
    record: impl FnOnce() -> io::Result<Option<Vec<u8>>>,
) -> io::Result<bool> {
    if !CopyTime::shows_copy(attribute, metadata.modified) || !paths.of(path).purge {
        return Ok(false);
    }
    Ok(has_foreign_record(record()?.as_deref(), path, metadata))
}

/// Reports whether the record of a copy is that of another file: a local program has renamed this one or copied it
/// with its attributes, or a backup was restored. Then mass storage may not have it under its name. A file
/// without a record, or with one of a later version, is that of another program.
fn has_foreign_record(record: Option<&[u8]>, path: &LogicalPath, metadata: &Metadata) -> bool {
    let record = record.filter(|record| record.starts_with(RECORD_VERSION));
    record.is_some_and(|record| record != CopyRecord::new(path, metadata).encode())
}

/// Returns the need of a file with a foreign record. The arguments are those of [`copy_need`].
pub(crate) fn need_of_foreign(metadata: &Metadata, now: i64, idle: i64) -> CopyNeed {
    copy_need(Some(&CopyTime::NEVER.encode()), metadata, now, idle)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn a_record_is_that_of_one_file() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let file = metadata(0o100_644, 1000);
        let record = CopyRecord::new(&path("/f"), &file);
        let is_foreign =
            |name: &str, file: &Metadata| has_foreign_record(Some(record.encode()), &path(name), file);
        assert!(!is_foreign("/f", &file));
        assert!(is_foreign("/g", &file), "it was renamed");
        assert!(is_foreign("/f", &Metadata { inode: 9, ..file }), "it was copied");
        assert!(is_foreign("/f", &Metadata { modified_nanoseconds: 9, ..file }), "it was changed");
        for other in [None, Some(&b"2 later"[..]), Some(b"")] {
            assert!(!has_foreign_record(other, &path("/f"), &file));
        }
        assert_eq!(need_of_foreign(&file, 9999, 0), CopyNeed::Now);
        assert_eq!(need_of_foreign(&file, 1001, 0), CopyNeed::NotBefore(1002));
    }

    fn metadata(mode: u32, modified: i64) -> Metadata {
        Metadata {
            device: 1,
            inode: 2,
            mode,
            size: 3,
            uid: 0,
            gid: 0,
            modified,
            modified_nanoseconds: 0,
            changed: modified,
            accessed: modified,
            offline: false,
        }
    }

    #[test]
    fn new_and_changed_files_need_a_copy_when_they_are_idle() {
        let need = |copied: CopyTime, modified: i64, now: i64, idle: i64| {
            copy_need(Some(&copied.encode()), &metadata(0o100_644, modified), now, idle)
        };
        assert_eq!(need(CopyTime::NEVER, 1000, 1600, 600), CopyNeed::Now);
        assert_eq!(need(CopyTime::NEVER, 1000, 1599, 600), CopyNeed::NotBefore(1600));
        assert_eq!(need(CopyTime::NEVER, 1000, 1001, 0), CopyNeed::NotBefore(1002), "in the same second");
        assert_eq!(need(CopyTime::NEVER, 1000, 900, 0), CopyNeed::NotBefore(1002), "the clock was set back");
        assert_eq!(need(CopyTime(1000), 1000, 9999, 0), CopyNeed::Never);
        assert_eq!(need(CopyTime(1000), 1001, 9999, 0), CopyNeed::Now);
        assert_eq!(need(CopyTime(1000), 999, 9999, 0), CopyNeed::Now, "it was written by a clock set back");
        assert_eq!(need(CopyTime::PLACEHOLDER, 1000, 9999, 0), CopyNeed::Never);
        assert_eq!(need(CopyTime::NEVER, 1, 9999, 0), CopyNeed::Impossible);
        assert_eq!(need(CopyTime::PLACEHOLDER, 1, 9999, 0), CopyNeed::Never);
    }

    #[test]
    fn a_time_in_the_future_does_not_last_until_then() {
        let need = |modified: i64, changed: i64| {
            let metadata = Metadata { changed, ..metadata(0o100_644, modified) };
            copy_need(Some(&CopyTime::NEVER.encode()), &metadata, 1_000_000, 600)
        };
        assert_eq!(need(9_000_000, 999_400), CopyNeed::Now, "a program has set it");
        assert_eq!(need(9_000_000, 999_401), CopyNeed::NotBefore(1_000_001));
        assert_eq!(need(9_000_000, 8_000_000), CopyNeed::Now, "the clock was wrong");
        assert_eq!(need(1_000_100, 1_000_100), CopyNeed::NotBefore(1_000_700), "it was a little ahead");
    }

    #[test]
    fn other_objects_and_unfinished_files_need_none_and_unmarked_ones_need_one() {
        let value = CopyTime::NEVER.encode();
        for mode in [0o040_755, 0o120_777, 0o101_600] {
            assert_eq!(copy_need(Some(&value), &metadata(mode, 1000), 9999, 0), CopyNeed::Never);
        }
        for value in [None, Some(&[0; 3][..])] {
            assert_eq!(copy_need(value, &metadata(0o100_644, 1000), 9999, 0), CopyNeed::Now);
        }
    }
}
