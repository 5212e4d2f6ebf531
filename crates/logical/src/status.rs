//! What the administrator sees.

use crate::file_system::Logical;
use std::sync::atomic::Ordering;

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

impl Logical {
    /// The present figures.
    pub fn status(&self) -> Status {
        let locks = self.shared.locks.counts();
        Status {
            open_files: self.shared.open_files.load(Ordering::Relaxed),
            open_paths: locks.paths,
            readers: locks.readers,
            writers: locks.writers,
            pending_files: self.shared.persist.count(),
            checkpoints: self.shared.checkpoints.count(),
            checksums: self.shared.checksums.count(),
            scans: self.shared.scans.count(),
        }
    }
}
