//! A lock on a directory, which one process has at a time.

use crate::PrivateDirectory;
use crate::incoming::lock_file;
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
}
