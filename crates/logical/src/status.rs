//! Counters for the administrator, collected from all components by [`crate::Logical::status`].

/// The counters at one moment.
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
