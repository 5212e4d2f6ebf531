//! What the administrator sees.

/// A moment's figures.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Status {
    /// Files that are open, counting each handle.
    pub open_files: usize,
    /// Paths that have a reader or writer.
    pub open_paths: usize,
    /// Handles for reading.
    pub readers: usize,
    /// Handles for writing.
    pub writers: usize,
    /// Files that persist only on a close that has not come yet.
    pub pending_files: usize,
    /// Files with a checkpoint.
    pub checkpoints: usize,
    /// Checksums in the making.
    pub checksums: usize,
    /// Directories that are being read for listings, or are to be.
    pub scans: usize,
}
