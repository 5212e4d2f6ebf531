//! Files that no process has open, so that they can be removed.

use crate::Metadata;
use std::io;

/// A file that no process on this machine has open. As long as this exists, the system makes each open
/// of the file wait or fail with `EAGAIN`, so nobody writes to it unnoticed.
pub trait UnusedFile: Send {
    /// Returns the status of the file.
    fn stat(&self) -> io::Result<Metadata>;
    /// Returns an extended attribute by its full local name; `None` if there is none.
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Removes the file. `EBUSY` if a process wants to open it, and `ESTALE` if its name leads to
    /// something else by now; the file stays in both cases.
    fn remove(self: Box<Self>) -> io::Result<()>;
}
