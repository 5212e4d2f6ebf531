//! [`FileWatch`]: looks whether a program has completed a file, for programs that do not report it.
//!
//! A file that is there can be a part of one. It counts as complete when it has its size in mass storage, and two looks in a
//! row find it unchanged and open in no process. Only a file system that no other machine uses shows who has a file open.

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

/// What a change of a file changes.
type FileVersion = (u64, u64, i64, i64);

/// The looks at one file.
pub(crate) struct FileWatch {
    size: u64,
    /// The file at the last look, if it had all of its bytes and was not open.
    last: Option<FileVersion>,
}

impl FileWatch {
    /// Creates the watch of a file that has this number of bytes in mass storage.
    pub(crate) const fn new(size: u64) -> Self {
        Self { size, last: None }
    }

    /// Looks at the file. Returns whether it is complete.
    ///
    /// # Errors
    /// Errors of the operating system, after which no look can show it.
    pub(crate) fn look(&mut self, path: &Path) -> io::Result<bool> {
        let last = self.last.take();
        // Neither a link nor a pipe is followed or waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match open(path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::AGAIN) => return Ok(false),
            other => other?,
        };
        let status = fstat(&file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        if !self.has_all_bytes(&status) || !storage::is_open_only_here(file.as_fd())? {
            return Ok(false);
        }
        // It cannot change between the lease and this call by a process that had it open before.
        let status = fstat(&file)?;
        if self.has_all_bytes(&status) {
            self.last = Some((status.st_dev, status.st_ino, status.st_ctime, status.st_ctime_nsec as i64));
        }
        Ok(self.last.is_some() && self.last == last)
    }

    fn has_all_bytes(&self, status: &Stat) -> bool {
        u64::try_from(status.st_size).is_ok_and(|size| size == self.size)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    fn place(name: &str) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("residency-watch-{name}-{}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(&directory).unwrap();
        directory.join("f")
    }

    #[test]
    fn a_file_is_complete_when_it_has_its_size_and_nobody_has_it_open() {
        let path = place("complete");
        let mut watch = FileWatch::new(4);
        assert!(!watch.look(&path).unwrap(), "nothing is there");
        let mut writer = fs::File::create(&path).unwrap();
        writer.write_all(b"abc").unwrap();
        for _ in 0..2 {
            assert!(!watch.look(&path).unwrap(), "a byte is missing");
        }
        writer.write_all(b"d").unwrap();
        for _ in 0..2 {
            assert!(!watch.look(&path).unwrap(), "it is still written");
        }
        drop(writer);
        assert!(!watch.look(&path).unwrap(), "the first look of two");
        assert!(watch.look(&path).unwrap() && watch.look(&path).unwrap());
        let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(!watch.look(&path).unwrap());
        writer.write_all(b"e").unwrap();
        drop(writer);
        for _ in 0..2 {
            assert!(!watch.look(&path).unwrap(), "it is too long");
        }
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_file_that_is_replaced_between_two_looks_is_looked_at_again() {
        let path = place("replaced");
        let mut watch = FileWatch::new(3);
        for content in [b"abc", b"def"] {
            fs::write(path.with_extension("new"), content).unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
            assert!(!watch.look(&path).unwrap());
        }
        assert!(watch.look(&path).unwrap());
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let path = place("odd");
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(FileWatch::new(1).look(&path).is_err());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(FileWatch::new(1).look(&path).is_err());
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
