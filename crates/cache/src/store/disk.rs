//! [`CacheDisk`]: the system calls that the cache makes. Tests replace them by a disk in memory that loses what
//! is not synced.

use base::LogicalPath;
use std::io::{self, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use storage::{PlainFile, PlainKind, PlainStatus, PlainTree};

/// The entries of a directory.
pub type CacheDiskEntries = Box<dyn Iterator<Item = io::Result<(Vec<u8>, PlainKind)>> + Send>;

/// The disk of a cache: regular files below a directory, reached without following links.
pub trait CacheDisk: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>>;
    /// Creates a file, and missing directories above it. It must not exist.
    fn create(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>>;
    /// Renames a file and replaces an existing one.
    fn rename(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()>;
    /// Gives a file a second name, and creates missing directories above it. The name must not exist.
    fn add_name(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &LogicalPath) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()>;
    /// Waits until the names in a directory are durable.
    fn sync_directory(&self, path: &LogicalPath) -> io::Result<()>;
    /// Waits until everything on the disk is durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Lists a directory.
    fn list(&self, path: &LogicalPath) -> io::Result<CacheDiskEntries>;
    /// Returns the total and the used space of the file system, in bytes.
    fn usage(&self) -> io::Result<(u64, u64)>;
    /// Returns a number that another disk has not. The file at this path is one that stays.
    fn identity(&self, path: &LogicalPath) -> io::Result<u64>;
    /// Returns a number that the disk has until the machine starts again, or the file system is mounted again; `None` if
    /// that is not known.
    fn mounted(&self) -> Option<u64>;
}

/// An open file of a [`CacheDisk`].
pub trait CacheDiskFile: Send + Sync {
    /// Reads. Fewer bytes than requested mean the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Reads a range that is in memory into several buffers, in order, without waiting. Returns whether all of them
    /// were filled.
    fn read_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> bool;
    /// Writes all bytes.
    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()>;
    /// Frees the space of a range, which reads as zeros afterwards. The size stays. `EOPNOTSUPP` if the file system cannot.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Waits until data and size are durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns the status.
    fn status(&self) -> io::Result<PlainStatus>;
    /// Sets an extended attribute.
    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()>;
    /// Reports whether there is an extended attribute.
    fn has_attribute(&self, name: &str) -> io::Result<bool>;
    /// Removes an extended attribute, if there is one.
    fn remove_attribute(&self, name: &str) -> io::Result<()>;
    /// Reports whether the file is also open elsewhere.
    fn is_open_elsewhere(&self) -> io::Result<bool>;
    /// Locks the file until it is closed. Returns whether no other process has it.
    fn try_lock(&self) -> io::Result<bool>;
}

/// Opens the disk below a directory, which must exist.
///
/// # Errors
/// Errors of the operating system.
pub fn open_disk(directory: &Path) -> io::Result<Arc<dyn CacheDisk>> {
    Ok(Arc::new(PlainTree::open(directory)?))
}

impl CacheDisk for PlainTree {
    fn open(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>> {
        Ok(Arc::new(self.open_file(path)?))
    }

    fn create(&self, path: &LogicalPath) -> io::Result<Arc<dyn CacheDiskFile>> {
        Ok(Arc::new(self.create_file(path)?))
    }

    fn rename(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        Self::rename(self, from, to)
    }

    fn add_name(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        Self::add_name(self, from, to)
    }

    fn remove(&self, path: &LogicalPath) -> io::Result<()> {
        self.remove_file(path)
    }

    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        Self::remove_directory(self, path)
    }

    fn sync_directory(&self, path: &LogicalPath) -> io::Result<()> {
        Self::sync_directory(self, path)
    }

    fn sync_all(&self) -> io::Result<()> {
        Self::sync_all(self)
    }

    fn list(&self, path: &LogicalPath) -> io::Result<CacheDiskEntries> {
        Ok(Box::new(Self::list(self, path)?))
    }

    fn usage(&self) -> io::Result<(u64, u64)> {
        Self::usage(self)
    }

    fn identity(&self, path: &LogicalPath) -> io::Result<u64> {
        Self::identity(self, path)
    }

    fn mounted(&self) -> Option<u64> {
        Self::mounted(self)
    }
}

impl CacheDiskFile for PlainFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        Self::read_at(self, offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> bool {
        Self::read_now(self, offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        Self::write_at(self, offset, from)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        Self::discard(self, offset, length)
    }

    fn sync(&self) -> io::Result<()> {
        Self::sync(self)
    }

    fn status(&self) -> io::Result<PlainStatus> {
        Self::status(self)
    }

    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        Self::set_attribute(self, name, value)
    }

    fn has_attribute(&self, name: &str) -> io::Result<bool> {
        Self::has_attribute(self, name)
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        Self::remove_attribute(self, name)
    }

    fn is_open_elsewhere(&self) -> io::Result<bool> {
        Self::is_open_elsewhere(self)
    }

    fn try_lock(&self) -> io::Result<bool> {
        Self::try_lock(self)
    }
}
