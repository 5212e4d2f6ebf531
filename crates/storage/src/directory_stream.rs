//! [`DirectoryStream`]: the entries of an open directory.

use crate::{Metadata, Pool};
use std::io;
use std::sync::Arc;

/// One name in a directory; never `.`, `..` or a name that the backend reserves for itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawEntry {
    /// The name: a single path component.
    pub name: Vec<u8>,
    /// The entry is a symbolic link, or may be one.
    pub link: bool,
    /// The entry is a directory; `None` if only its status shows that.
    pub is_directory: Option<bool>,
}

/// A place in a directory, which other streams of the same directory know too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryPosition(pub(crate) i64);

/// An open directory whose entries are read in batches.
pub trait DirectoryStream: Send {
    /// Returns up to `most` further names; empty at the end of the directory.
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>>;

    /// Returns the place behind the names that were returned; `None` if the stream has no such places, or
    /// is at the begin.
    fn position(&self) -> Option<DirectoryPosition> {
        None
    }

    /// Goes to a place of a stream of the same directory.
    fn go_to(&mut self, position: DirectoryPosition) -> io::Result<()> {
        let _ = position;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the pool in which to call [`DirectoryStream::stat`] and
    /// [`DirectoryStream::attribute`] for this entry. `None` means the pool in which the directory
    /// is read. It differs for a link to another file system and for a mount point.
    fn other_pool(&self, entry: &RawEntry) -> Option<Arc<Pool>> {
        let _ = entry;
        None
    }

    /// Reports whether an entry is a link that may lead to another name below the root. The target
    /// of such a link has two paths.
    fn is_alias(&self, entry: &RawEntry) -> bool {
        entry.link
    }

    /// Returns the status of an entry. A link that leads out of the export is not followed.
    fn stat(&self, name: &[u8]) -> io::Result<Metadata>;

    /// Returns an extended attribute of an entry by its full local name; `None` if there is none.
    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>>;
}
