//! A lock on a directory, which one process has at a time.

use crate::PrivateDirectory;
use crate::incoming::{is_file_locked, lock_file};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

/// The lock. Dropping it, or the end of the process, releases it.
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks the file `name` in a directory, and creates it if it is missing. Returns `None` if
    /// another process has the lock.
    pub fn claim(directory: &PrivateDirectory, name: &str) -> io::Result<Option<Self>> {
        let file = directory.open_or_create(name)?;
        Ok(lock_file(file.as_fd())?.then_some(Self { _file: file }))
    }

    /// Reports whether anybody has the lock.
    pub fn is_claimed(directory: &PrivateDirectory, name: &str) -> io::Result<bool> {
        is_file_locked(directory.open_or_create(name)?.as_fd())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_without_being_taken() {
        let path = std::env::temp_dir().join(format!("storage-directory-lock-{}", std::process::id()));
        let directory = PrivateDirectory::create(&path).unwrap();
        assert!(!DirectoryLock::is_claimed(&directory, "l").unwrap());
        let lock = DirectoryLock::claim(&directory, "l").unwrap().unwrap();
        assert!(DirectoryLock::is_claimed(&directory, "l").unwrap());
        assert!(DirectoryLock::claim(&directory, "l").unwrap().is_none());
        drop(lock);
        assert!(!DirectoryLock::is_claimed(&directory, "l").unwrap());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
