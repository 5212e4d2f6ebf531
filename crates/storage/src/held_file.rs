//! A file that is held open, so that it stays the same file whatever becomes of its name.

use crate::Metadata;
use std::io;
use std::path::PathBuf;

/// Identifies the content and the status of a file. It differs after each write, truncation, rename,
/// and change of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileVersion {
    /// Device and inode number.
    pub file: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification, in seconds since the epoch and nanoseconds.
    pub modified: (i64, u64),
    /// Time of the last status change, in seconds since the epoch and nanoseconds.
    pub changed: (i64, u64),
}

impl FileVersion {
    /// Reports whether this is the same file with the same content. The time of the last status change
    /// does not count, because programs that only read a file change it too: they reset the access
    /// time, make links, or set attributes.
    #[must_use]
    pub fn has_content_of(&self, other: &Self) -> bool {
        (self.file, self.size, self.modified) == (other.file, other.size, other.modified)
    }
}

/// A regular file that is held open. Its attributes are those of this file, and not of another one that
/// got its name meanwhile.
pub trait HeldFile: Send {
    /// Returns the status.
    fn stat(&self) -> io::Result<Metadata>;
    /// Returns the version of the content.
    fn version(&self) -> io::Result<FileVersion>;
    /// Returns an extended attribute by its full local name; `None` if there is none.
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Sets an extended attribute by its full local name. A file of the server does not need write
    /// permission for it.
    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()>;
    /// Removes an extended attribute. A missing one is no error.
    fn remove_attribute(&self, name: &str) -> io::Result<()>;
    /// Reports whether the path by which the file was opened still leads to it.
    fn has_name(&self) -> io::Result<bool>;
    /// Returns the local path at which the file was opened, for a program that reads it.
    fn local_path(&self) -> io::Result<PathBuf>;
    /// Returns the local path of the file itself, which is not a link: that of the data of a file in a space. `ESTALE` if
    /// the path by which the file was opened leads to another file.
    fn data_path(&self) -> io::Result<PathBuf> {
        self.local_path()
    }
    /// Reads content at an offset, and returns the number of bytes; 0 at the end. The access time stays as it is if the
    /// file belongs to the user of the server.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _ = (buffer, offset);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Waits until content and attributes have reached stable storage.
    fn sync(&self) -> io::Result<()>;
}
