//! The table of open files, by path and by identity. Components that change or read files without
//! opening them use it to detect writers.

use crate::lock::Locks;
use crate::names::NameTable;
use crate::writers::{FileKey, Writers};
use base::LogicalPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::Metadata;

/// All open files of a server.
pub(crate) struct OpenTable {
    pub(crate) locks: Arc<Locks>,
    /// Files that are open for writing, by identity and therefore independent of their names.
    pub(crate) writers: Arc<Writers>,
    /// The names of these files.
    pub(crate) names: Arc<NameTable>,
    /// Number of open handles, for the administrator.
    handles: AtomicUsize,
}

impl OpenTable {
    pub(crate) fn new() -> Self {
        Self {
            locks: Locks::new(),
            writers: Writers::new(),
            names: Arc::default(),
            handles: AtomicUsize::new(0),
        }
    }

    /// Reports whether a file is open for writing, under this name or another.
    pub(crate) fn has_writer(&self, path: &LogicalPath, metadata: &Metadata) -> bool {
        self.locks.has_writer(path) || self.writers.has_any(FileKey::from(metadata))
    }

    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_handle(&self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open handles.
    pub(crate) fn handles(&self) -> usize {
        self.handles.load(Ordering::Relaxed)
    }
}
