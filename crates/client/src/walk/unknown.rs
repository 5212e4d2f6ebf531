//! Entries that were seen, but are unreliable.

use crate::failure::Error;
use crate::path::RelativePath;

/// Maximum number of entries of a directory that are reported as unknown one by one. If there are
/// more, no absence in the directory can be relied on.
pub const UNKNOWN_MAX: usize = 1000;

/// An entry or a directory that was seen, but is unreliable.
#[derive(Clone, Debug)]
pub struct UnreliableEntry {
    /// The directory itself, or the one that contains the entry, relative to the root of the walk.
    pub directory: RelativePath,
    /// The text of its name; `None` for the directory itself, or for further entries that it may
    /// have.
    pub name: Option<String>,
    /// The reason.
    pub error: Error,
}

/// Creates the record that a directory may have more entries than known.
pub(super) fn whole(directory: &RelativePath, error: Error) -> UnreliableEntry {
    UnreliableEntry { directory: directory.clone(), name: None, error }
}
