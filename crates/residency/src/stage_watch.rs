//! [`FileWatch`]: looks whether a program has completed a file, for programs that do not report it.
//!
//! A file that is there can be a part of one: a program may set its size first, write its pieces in any order, or end in
//! between. So only the checksum of the file in mass storage shows that it is complete. It is computed when the file has its
//! size, two looks in a row find it unchanged, and no process has it open.

use crate::content_check::compute;
use crate::entry::{CopyFailure, FailureReason};
use crate::ports::RemoteStatus;
use digest::Checksum;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum number of intervals between two looks, after which a file with a wrong checksum is read again.
const INTERVALS_MAX: u32 = 64;

/// Device, inode, size and time of the last change, which each write changes.
type FileVersion = (u64, u64, i64, i64, i64);

/// The result of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FileLook {
    /// It is not complete, as far as the look shows.
    Incomplete,
    /// It has the size and the checksum of the file in mass storage.
    Complete,
    /// No look can show it, for this reason.
    Unjudged(String),
}

/// The looks at one file.
pub(crate) struct FileWatch {
    path: PathBuf,
    size: u64,
    checksum: Checksum,
    interval: Duration,
    /// The time of the next look.
    next: Instant,
    /// The file at the last look, if it could have been complete.
    last: Option<FileVersion>,
    /// A file with another checksum.
    differing: Option<FileVersion>,
    /// Number of intervals until the look after the next wrong checksum.
    intervals: u32,
    found: &'static str,
}

impl FileWatch {
    /// Creates the watch of a file with a status in mass storage.
    ///
    /// # Errors
    /// Nothing shows that the file is complete.
    pub(crate) fn new(
        path: PathBuf,
        status: Option<&RemoteStatus>,
        interval: Duration,
    ) -> Result<Self, CopyFailure> {
        let checksum = status.and_then(|status| Some((status.size, status.checksum.ok()??)));
        let Some((size, checksum)) = checksum else {
            let text = "oss.rsscmd returns no checksum of the file, and without one nothing shows that it is complete, because \
                        the program of oss.stagecmd does not report it (async)";
            return Err(CopyFailure::new(FailureReason::Permanent, text));
        };
        let (next, found) = (Instant::now(), "nothing is there");
        Ok(Self { path, size, checksum, interval, next, last: None, differing: None, intervals: 1, found })
    }

    /// Returns the time until the next look.
    pub(crate) fn time_left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Reports whether a look is due. The next one is an interval later, whatever becomes of this one.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.time_left().is_zero();
        if is_due {
            self.next = Instant::now() + self.interval;
        }
        is_due
    }

    /// Returns the result of the last look in words.
    pub(crate) fn last_found(&self) -> &'static str {
        self.found
    }

    /// Looks at the file, and reads it if it could be complete. The look has no result if `stops` returns `true`. Blocks.
    pub(crate) fn look(&mut self, stops: &dyn Fn() -> bool) -> FileLook {
        let last = self.last.take();
        match self.candidate() {
            Err(look) => look,
            Ok((_, version)) if last != Some(version) => {
                self.incomplete_with(version, "it was changed just now")
            }
            Ok((_, version)) if self.differing == Some(version) => {
                self.incomplete_with(version, "its checksum is not that in mass storage")
            }
            Ok((file, version)) => {
                let look = self.compare(&file, version, stops);
                if look == FileLook::Incomplete {
                    self.next = Instant::now() + self.interval * self.intervals;
                    self.intervals = (self.intervals * 2).min(INTERVALS_MAX);
                }
                look
            }
        }
    }

    fn incomplete(&mut self, found: &'static str) -> FileLook {
        self.found = found;
        FileLook::Incomplete
    }

    /// Notes a version that could be complete.
    fn incomplete_with(&mut self, version: FileVersion, found: &'static str) -> FileLook {
        self.last = Some(version);
        self.incomplete(found)
    }

    /// Opens a file that could be complete: it has its size, and no process has it open.
    fn candidate(&mut self) -> Result<(OwnedFd, FileVersion), FileLook> {
        let status = match statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Err(self.incomplete("nothing is there")),
            Err(_) => return Err(self.incomplete("its status cannot be read")),
            Ok(status) => status,
        };
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(FileLook::Unjudged("it is not a regular file".to_owned()));
        }
        let user = rustix::process::geteuid();
        if !user.is_root() && status.st_uid != user.as_raw() {
            return Err(unjudged(Errno::ACCESS));
        }
        // Neither a link nor a pipe that has replaced it is followed or waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(file) = openat(CWD, &self.path, flags, Mode::empty()) else {
            return Err(self.incomplete("it cannot be opened"));
        };
        self.check_unused(&file)?;
        match fstat(&file) {
            Ok(status) if u64::try_from(status.st_size).is_ok_and(|size| size == self.size) => {
                Ok((file, version_of(&status)))
            }
            _ => Err(self.incomplete("it has not its size in mass storage")),
        }
    }

    /// Checks that no process has a file open. A part of it shows too that this can be known.
    fn check_unused(&mut self, file: &OwnedFd) -> Result<(), FileLook> {
        match storage::is_open_only_here(file.as_fd()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.incomplete("a process has it open")),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(errno @ (Errno::OPNOTSUPP | Errno::ACCESS)) => Err(unjudged(errno)),
                _ => Err(self.incomplete("it is not known who has it open")),
            },
        }
    }

    /// Compares the content of a file with its checksum in mass storage.
    fn compare(&mut self, file: &OwnedFd, version: FileVersion, stops: &dyn Fn() -> bool) -> FileLook {
        let read_at =
            |piece: &mut [u8], offset| -> io::Result<usize> { Ok(rustix::io::pread(file, piece, offset)?) };
        // A file that changes meanwhile is not read to its end.
        let changes = || stops() || fstat(file).map(|status| version_of(&status)) != Ok(version);
        match compute(self.checksum.algorithm(), &read_at, &changes) {
            Ok(Some(found)) if found == self.checksum => {}
            Ok(Some(_)) => {
                self.differing = Some(version);
                return self.incomplete("its checksum is not that in mass storage");
            }
            Ok(None) => return self.incomplete("it was changed just now"),
            Err(_) => return self.incomplete("it cannot be read"),
        }
        // The file can have been opened or replaced while its checksum was calculated.
        if let Err(look) = self.check_unused(file) {
            return look;
        }
        let named = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW).map(|status| version_of(&status));
        if named == Ok(version) { FileLook::Complete } else { self.incomplete("it was changed just now") }
    }
}

fn version_of(status: &Stat) -> FileVersion {
    (status.st_dev, status.st_ino, status.st_size, status.st_ctime, status.st_ctime_nsec as i64)
}

/// Returns the result for a file whose opens cannot be known.
fn unjudged(errno: Errno) -> FileLook {
    FileLook::Unjudged(match errno {
        Errno::ACCESS => "it belongs to another user".to_owned(),
        _ => "its file system does not show who has it open".to_owned(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use digest::{Algorithm, RunningChecksum};
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    const NEVER: &dyn Fn() -> bool = &|| false;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("residency-watch-{name}-{}", std::process::id()));
            fs::remove_dir_all(&directory).ok();
            fs::create_dir_all(&directory).unwrap();
            Self(directory.join("f"))
        }

        fn watch(&self, content: &[u8]) -> FileWatch {
            let checksum = RunningChecksum::of(Algorithm::Adler32, content);
            let status = status(content.len() as u64, Some(checksum));
            FileWatch::new(self.0.clone(), Some(&status), Duration::ZERO).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(self.0.parent().unwrap()).ok();
        }
    }

    fn status(size: u64, checksum: Option<Checksum>) -> RemoteStatus {
        RemoteStatus { is_directory: false, size, mode: 0o644, modified: 0, checksum: Ok(checksum) }
    }

    /// Looks twice, and returns what was found if the file is not complete.
    fn looks(watch: &mut FileWatch) -> &'static str {
        for _ in 0..2 {
            match watch.look(NEVER) {
                FileLook::Complete => return "complete",
                FileLook::Incomplete => {}
                FileLook::Unjudged(reason) => panic!("{reason}"),
            }
        }
        watch.last_found()
    }

    #[test]
    fn a_file_is_complete_when_it_has_its_checksum_and_nobody_has_it_open() {
        let place = Place::new("complete");
        let mut watch = place.watch(b"abcd");
        assert_eq!(looks(&mut watch), "nothing is there");
        let mut writer = File::create(&place.0).unwrap();
        writer.write_all(b"abc").unwrap();
        assert_eq!(looks(&mut watch), "a process has it open");
        drop(writer);
        assert_eq!(looks(&mut watch), "it has not its size in mass storage");
        let mut writer = fs::OpenOptions::new().append(true).open(&place.0).unwrap();
        writer.write_all(b"d").unwrap();
        assert_eq!(looks(&mut watch), "a process has it open");
        drop(writer);
        assert_eq!(watch.look(NEVER), FileLook::Incomplete, "the first look of two");
        assert_eq!(watch.look(NEVER), FileLook::Complete);
    }

    /// Programs that write pieces in any order set the size before.
    #[test]
    fn a_part_with_the_size_of_the_file_is_not_taken() {
        let place = Place::new("part");
        let mut watch = place.watch(b"abcdef");
        let writer =
            || fs::OpenOptions::new().write(true).create(true).truncate(false).open(&place.0).unwrap();
        writer().set_len(6).unwrap();
        assert_eq!(looks(&mut watch), "its checksum is not that in mass storage");
        writer().write_all_at(b"def", 3).unwrap();
        assert_eq!(looks(&mut watch), "its checksum is not that in mass storage");
        assert_eq!(looks(&mut watch), "its checksum is not that in mass storage");
        writer().write_all_at(b"abc", 0).unwrap();
        assert_eq!(looks(&mut watch), "complete");
    }

    #[test]
    fn an_empty_file_is_complete_if_mass_storage_has_an_empty_one() {
        let place = Place::new("empty");
        File::create(&place.0).unwrap();
        assert_eq!(looks(&mut place.watch(b"")), "complete");
        // A placeholder whose size is not known there.
        let checksum = RunningChecksum::of(Algorithm::Adler32, b"abc");
        let mut watch =
            FileWatch::new(place.0.clone(), Some(&status(0, Some(checksum))), Duration::ZERO).unwrap();
        assert_eq!(looks(&mut watch), "its checksum is not that in mass storage");
    }

    #[test]
    fn a_look_is_due_once_in_each_interval() {
        let place = Place::new("due");
        let mut watch = place.watch(b"abc");
        watch.interval = Duration::from_secs(3600);
        assert!(watch.is_due() && !watch.is_due());
        assert!(!watch.time_left().is_zero(), "its thread sleeps, also without a look");
    }

    #[test]
    fn a_file_that_is_replaced_between_two_looks_is_looked_at_again() {
        let place = Place::new("replaced");
        let mut watch = place.watch(b"def");
        for content in [b"abc", b"def"] {
            fs::write(place.0.with_extension("new"), content).unwrap();
            fs::rename(place.0.with_extension("new"), &place.0).unwrap();
            assert_eq!(watch.look(NEVER), FileLook::Incomplete);
        }
        assert_eq!(watch.look(NEVER), FileLook::Complete);
    }

    #[test]
    fn a_file_that_is_written_while_it_is_read_is_not_complete() {
        let place = Place::new("written");
        fs::write(&place.0, b"abc").unwrap();
        let mut watch = place.watch(b"abc");
        assert_eq!(watch.look(NEVER), FileLook::Incomplete);
        let write = || {
            fs::write(&place.0, b"xyz").unwrap();
            false
        };
        assert_eq!(watch.look(&write), FileLook::Incomplete);
        fs::write(&place.0, b"abc").unwrap();
        assert_eq!(looks(&mut watch), "complete");
        assert_eq!((watch.look(NEVER), watch.look(&|| true)), (FileLook::Incomplete, FileLook::Incomplete));
    }

    #[test]
    fn what_is_not_a_file_or_has_no_checksum_is_refused() {
        let place = Place::new("odd");
        std::os::unix::fs::symlink("/etc/hostname", &place.0).unwrap();
        let odd = FileLook::Unjudged("it is not a regular file".to_owned());
        assert_eq!(place.watch(b"a").look(NEVER), odd);
        fs::remove_file(&place.0).unwrap();
        fs::create_dir(&place.0).unwrap();
        assert_eq!(place.watch(b"a").look(NEVER), odd);
        for status in [None, Some(&status(3, None))] {
            let failure = FileWatch::new(place.0.clone(), status, Duration::ZERO).err().unwrap();
            assert_eq!(failure.reason, FailureReason::Permanent);
        }
        let mut elsewhere = place.watch(b"a");
        elsewhere.path = "/proc/version".into();
        let FileLook::Unjudged(reason) = elsewhere.look(NEVER) else {
            panic!("a file system without leases")
        };
        assert!(reason.contains("file system") || reason.contains("another user"), "{reason}");
    }
}
