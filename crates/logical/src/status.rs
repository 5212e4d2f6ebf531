//! Counters of the file system, collected from all components.

use crate::ThirdPartyCounts;

/// Numbers at one moment, collected by [`crate::Logical::status`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogicalStatus {
    /// Open handles.
    pub open_files: usize,
    /// Paths with a reader or writer.
    pub open_paths: usize,
    /// Handles for reading.
    pub readers: usize,
    /// Handles for writing.
    pub writers: usize,
    /// Unfinished files with a record (persist on successful close).
    pub pending_files: usize,
    /// Files with an active checkpoint.
    pub checkpoints: usize,
    /// Checksums in progress.
    pub checksums: usize,
    /// Directories that are being read for listings, or will be.
    pub scans: usize,
}

/// Numbers since the start, collected by [`crate::Logical::totals`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogicalTotals {
    /// Unfinished files that were removed.
    pub undone_files: u64,
    /// Third-party copies.
    pub third_party: ThirdPartyCounts,
}
