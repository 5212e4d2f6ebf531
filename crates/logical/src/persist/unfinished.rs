//! An unfinished file as an administrator sees it.

use base::LogicalPath;

/// An unfinished file, or a record without its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnfinishedFile {
    /// The path.
    pub path: LogicalPath,
    /// The state.
    pub state: UnfinishedState,
}

/// The state of an unfinished file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnfinishedState {
    /// Clients have it open.
    Open {
        /// Number of handles that write it.
        handles: u32,
    },
    /// It is kept for its creator until the hold time ends, and then removed.
    Held {
        /// Remaining hold time in seconds.
        seconds: u64,
    },
    /// There is only a record, and the file cannot be found.
    Absent {
        /// The directory that has changed.
        directory: LogicalPath,
    },
    /// It has the mark, but this server has no record of it.
    Unknown,
}
