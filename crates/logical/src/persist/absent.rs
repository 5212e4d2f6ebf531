//! Records of unfinished files that cannot be found, because their directory has changed: its file
//! system is not mounted, or the tree was moved by a copy.
//!
//! Such a record is kept until the file appears at a later start. It also ends when its name is
//! completely written, removed or replaced here, or when an administrator ends it.

use super::ending::sync_removal;
use super::{Persist, Record};
use crate::config::Durability;
use base::LogicalPath;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use storage::Backend;

/// A record whose file cannot be found.
#[derive(Clone)]
pub(super) struct AbsentRecord {
    pub(super) record: Record,
    /// The directory that has changed.
    pub(super) directory: LogicalPath,
}

impl AbsentRecord {
    /// Reports whether the record has an identity. Without one it proves too little to block
    /// anything.
    fn is_identified(&self) -> bool {
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

    fn is_empty(&self) -> bool {
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
    pub(super) fn insert(&self, record: Record, directory: LogicalPath) {
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

impl Persist {
    /// Reports whether a path has a record whose file cannot be found. Never blocks.
    pub(crate) fn is_absent(&self, path: &LogicalPath) -> bool {
        self.absent.at(path, |_| ()).is_some()
    }

    /// Reports whether there are any such records. Never blocks.
    pub(crate) fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Reports whether a path has a record with an identity. Then a file there may be unfinished
    /// although it has no mark, and no file may be created there, because the unfinished one may
    /// reappear. A record without an identity proves too little for either. Never blocks.
    pub(crate) fn has_identified_record(&self, path: &LogicalPath) -> bool {
        self.absent.at(path, AbsentRecord::is_identified) == Some(true)
    }

    /// Ends the record of a path at which a file was created or marked, after `make_durable` has
    /// synced that. A record without an identity is kept for the next start, because nothing else
    /// shows that its file is unfinished.
    pub(super) fn end_absent_at(&self, path: &LogicalPath, make_durable: impl FnOnce() -> io::Result<()>) {
        let choose = |absent: &AbsentRecord| absent.record.path == *path && absent.is_identified();
        self.end_absent(path, choose, make_durable);
    }

    /// Ends the record of a path at which a file was created without a mark. That file is not the
    /// unfinished one of an earlier run. May wait for a disk.
    pub(crate) fn end_absent_created(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end_absent_at(path, || sync_removal(backend, path));
    }

    /// Ends the record of a path that was removed. Records below a removed directory stay: the
    /// directory was empty, but it may have been the mount point of their file system. May wait for
    /// a disk.
    pub(crate) fn end_absent_removed(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end_absent_of(path, || sync_removal(backend, path));
    }

    /// Ends the records at and below the new path of a rename whose names exist there now, because
    /// they came with the rename. May wait for a disk.
    pub(crate) fn end_absent_replaced(&self, path: &LogicalPath, backend: &dyn Backend) {
        let below = self.absent.all().into_iter().map(|absent| absent.record.path);
        // The lookup is made without the lock, because event loops take it.
        let replaced: HashSet<LogicalPath> =
            below.filter(|one| one.is_within(path) && backend.has_name(one).unwrap_or(false)).collect();
        let choose = |absent: &AbsentRecord| replaced.contains(&absent.record.path);
        self.end_absent(path, choose, || sync_removal(backend, path));
    }

    /// Ends the record of a path after `make_durable` has synced the reason.
    pub(super) fn end_absent_of(&self, path: &LogicalPath, make_durable: impl FnOnce() -> io::Result<()>) {
        self.end_absent(path, |absent| absent.record.path == *path, make_durable);
    }

    fn end_absent(
        &self,
        path: &LogicalPath,
        choose: impl Fn(&AbsentRecord) -> bool,
        make_durable: impl FnOnce() -> io::Result<()>,
    ) {
        let mut numbers = Vec::new();
        for absent in self.absent.take(choose) {
            tracing::info!(path = %absent.record.path.shown(), "ended the record of an absent unfinished file");
            numbers.push(absent.record.number);
        }
        self.end_once_durable(path, &numbers, make_durable);
    }

    /// Moves the records of absent files below `from` to `to` after a rename. May wait for a disk.
    pub(crate) fn move_absent(&self, from: &LogicalPath, to: &LogicalPath, backend: &dyn Backend) {
        let moved = self.absent.take(|absent| absent.record.path.is_within(from));
        // A power failure must not leave a file under its old name and its record under the new
        // one.
        if !moved.is_empty()
            && self.config.durability != Durability::Relaxed
            && let Err(error) = sync_removal(backend, to)
        {
            tracing::warn!(path = %to.shown(), %error, "cannot sync a rename; after a power failure the record of an unfinished file may have the wrong path");
        }
        for absent in moved {
            let Some(path) = absent.record.path.moved(from, to) else { continue };
            let record = Record { path, also: None, ..absent.record };
            if let Err(error) = self.log().pending(&record) {
                tracing::warn!(path = %record.path.shown(), %error, "cannot write a rename to the journal of unfinished files; after a restart the record has the old path");
            }
            self.absent.insert(record, absent.directory);
        }
    }
}

/// Logs the record and what an administrator can do about it.
pub(super) fn warn_of_absent(record: &Record, directory: &LogicalPath, journal: &str) {
    tracing::warn!(
        path = %record.path.shown(), directory = %directory.shown(), journal,
        "an unfinished file is missing, and its directory has changed: mount its file system and restart the server; \
         until then the record is kept, a file without a mark at this path is not served, and the file is created only by \
         force (xrdcp --coerce); if the tree was moved, run: scalla admin unfinished clear {}", record.path.shell_word()
    );
}
