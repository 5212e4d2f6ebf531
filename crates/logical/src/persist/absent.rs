//! Records of unfinished files that cannot be found, because their directory has changed: its file
//! system is not mounted, or the tree was moved by a copy.
//!
//! Such a record is kept until the file appears at a later start. It also ends when its name is
//! completely written, removed or replaced here, or when an administrator ends it.

use super::log::UnfinishedRecord;
use base::LogicalPath;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A record whose file cannot be found.
#[derive(Clone)]
pub(super) struct AbsentRecord {
    pub(super) record: UnfinishedRecord,
    /// The directory that has changed.
    pub(super) directory: LogicalPath,
}

impl AbsentRecord {
    /// Reports whether the record has an identity. Without one it proves too little to block
    /// anything.
    pub(super) fn is_identified(&self) -> bool {
        self.record.proof.is_some()
    }
}

/// All absent records by path.
#[derive(Default)]
pub(super) struct AbsentRecords {
    by_path: Mutex<HashMap<LogicalPath, AbsentRecord>>,
    /// Number of records; lets the common case of none pass without the lock.
    count: AtomicUsize,
}

impl AbsentRecords {
    fn with<T>(&self, change: impl FnOnce(&mut HashMap<LogicalPath, AbsentRecord>) -> T) -> T {
        let mut by_path = self.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut by_path);
        self.count.store(by_path.len(), Ordering::Release);
        result
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Calls `look` with the record of a path. Never blocks.
    pub(super) fn at<T>(&self, path: &LogicalPath, look: impl FnOnce(&AbsentRecord) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.with(|by_path| by_path.get(path).map(look))
    }

    /// Adds a record and replaces an earlier one of the same path.
    pub(super) fn insert(&self, record: UnfinishedRecord, directory: LogicalPath) {
        let path = record.path.clone();
        self.with(|by_path| by_path.insert(path, AbsentRecord { record, directory }));
    }

    /// Removes and returns the records that `choose` selects.
    pub(super) fn take(&self, choose: impl Fn(&AbsentRecord) -> bool) -> Vec<AbsentRecord> {
        if self.is_empty() {
            return Vec::new();
        }
        self.with(|by_path| {
            by_path.extract_if(|_, absent| choose(absent)).map(|(_, absent)| absent).collect()
        })
    }

    /// Returns all records in no particular order.
    pub(super) fn all(&self) -> Vec<AbsentRecord> {
        if self.is_empty() { Vec::new() } else { self.with(|by_path| by_path.values().cloned().collect()) }
    }
}

/// Logs the record and what an administrator can do about it.
pub(super) fn warn_of_absent(record: &UnfinishedRecord, directory: &LogicalPath, journal: &str) {
    tracing::warn!(
        path = %record.path.shown(), directory = %directory.shown(), journal,
        "an unfinished file is missing, and its directory has changed: mount its file system and restart the server; \
         until then the record is kept, a file without a mark at this path is not served, and the file is created only by \
         force (xrdcp --coerce); if the tree was moved, run: scalla admin unfinished clear {}", record.path.shell_word()
    );
}
