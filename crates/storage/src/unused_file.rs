//! Files that no process has open, so that they can be removed.

use crate::Metadata;
use std::io;

/// The end of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileRemoval {
    /// The file is gone, and nothing had its name at that moment.
    Removed,
    /// A new file has got the name during the removal, and the former file is gone.
    Replaced,
}

/// A file that no process on this machine has open. As long as this exists, the system makes each open
/// of the file wait or fail with `EAGAIN`, so nobody writes to it unnoticed.
pub trait UnusedFile: Send {
    /// Returns the status of the file.
    fn stat(&self) -> io::Result<Metadata>;
    /// Returns the bytes that the file takes on its file system. A removal may give them back late.
    fn allocated(&self) -> io::Result<u64>;
    /// Returns the full local names of all extended attributes.
    fn attributes(&self) -> io::Result<Vec<String>>;
    /// Returns an extended attribute by its full local name; `None` if there is none.
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Removes the file. `EBUSY` if a process wants to open it, and `ESTALE` if its name leads to
    /// something else by now; the file stays in both cases.
    fn remove(self: Box<Self>) -> io::Result<FileRemoval>;
}
