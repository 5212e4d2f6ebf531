//! A lock on a directory, which one process has at a time.

use crate::incoming::lock_file;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Mode of a new directory: its content names clients and files.
const DIRECTORY_MODE: u32 = 0o750;

/// The lock. Dropping it, or the end of the process, releases it.
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing, and locks the file `name` in it. Returns `None` if
    /// another process has the lock.
    pub fn claim(directory: &Path, name: &str) -> io::Result<Option<Self>> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(directory.join(name))?;
        Ok(lock_file(file.as_fd())?.then_some(Self { _file: file }))
    }
}
