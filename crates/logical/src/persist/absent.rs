//! Records of unfinished files that cannot be looked for, because their directory is not the one that it was: its file system is
//! not mounted, or the tree was moved by a copy.
//!
//! Such a record is kept until the file turns up at a later start, or until it no longer matters: its name was written whole,
//! removed or replaced here, or an administrator ended it.

use super::ending::sync_removal;
use super::{Persist, Record};
use crate::config::Durability;
use base::LogicalPath;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use storage::Backend;

/// A record whose file cannot be looked for.
#[derive(Clone)]
pub(super) struct AbsentRecord {
    pub(super) record: Record,
    /// The directory that is not the one it was.
    pub(super) directory: LogicalPath,
}

impl AbsentRecord {
    /// Reports whether the record has an identity. Without one it proves too little to block anything.
    fn is_identified(&self) -> bool {
        self.record.proof.is_some()
    }
}

/// All of them, by path.
#[derive(Default)]
pub(super) struct AbsentRecords {
    by_path: Mutex<HashMap<LogicalPath, AbsentRecord>>,
    /// So that the many opens while there is none pass without the lock.
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

    /// Adds one in the place of an earlier one of its path.
    pub(super) fn insert(&self, record: Record, directory: LogicalPath) {
        let path = record.path.clone();
        self.with(|by_path| by_path.insert(path, AbsentRecord { record, directory }));
    }

    /// Takes out those that `choose` names.
    pub(super) fn take(&self, choose: impl Fn(&AbsentRecord) -> bool) -> Vec<AbsentRecord> {
        if self.is_empty() {
            return Vec::new();
        }
        self.with(|by_path| {
            by_path.extract_if(|_, absent| choose(absent)).map(|(_, absent)| absent).collect()
        })
    }

    /// All, in no order.
    pub(super) fn all(&self) -> Vec<AbsentRecord> {
        if self.is_empty() { Vec::new() } else { self.with(|by_path| by_path.values().cloned().collect()) }
    }
}

impl Persist {
    /// Reports whether an unfinished file belongs here that cannot be looked for. Never blocks.
    pub(crate) fn is_absent(&self, path: &LogicalPath) -> bool {
        self.absent.at(path, |_| ()).is_some()
    }

    /// Reports whether there are such records at all. Never blocks.
    pub(crate) fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Reports whether what is at a path may be an unfinished file although it bears no mark, and whether nothing must be created
    /// there because the file may turn up. A record without an identity proves too little for either. Never blocks.
    pub(crate) fn has_identified_record(&self, path: &LogicalPath) -> bool {
        self.absent.at(path, AbsentRecord::is_identified) == Some(true)
    }

    /// A file was made or marked here: a record of an absent one is over, once `make_durable` has made that stable. One without an
    /// identity is kept for the next start, because nothing else would show that the file it names is unfinished.
    pub(super) fn end_absent_at(&self, path: &LogicalPath, make_durable: impl FnOnce() -> io::Result<()>) {
        let choose = |absent: &AbsentRecord| absent.record.path == *path && absent.is_identified();
        self.end_absent(path, choose, make_durable);
    }

    /// A file was made here without a mark, so it is not the unfinished one of an earlier run. May wait for a disk.
    pub(crate) fn end_absent_created(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end_absent_at(path, || sync_removal(backend, path));
    }

    /// What lay at a path was removed here. A directory had nothing in it, but it may have been the empty mount point of the one
    /// that a record means, so records below it stay. May wait for a disk.
    pub(crate) fn end_absent_removed(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end_absent_of(path, || sync_removal(backend, path));
    }

    /// Something was renamed to a path, so what lies there and below it now came along. May wait for a disk.
    pub(crate) fn end_absent_replaced(&self, path: &LogicalPath, backend: &dyn Backend) {
        let below = self.absent.all().into_iter().map(|absent| absent.record.path);
        // Looked up without the lock, which loops take.
        let replaced: HashSet<LogicalPath> =
            below.filter(|one| one.is_within(path) && backend.has_name(one).unwrap_or(false)).collect();
        let choose = |absent: &AbsentRecord| replaced.contains(&absent.record.path);
        self.end_absent(path, choose, || sync_removal(backend, path));
    }

    /// Ends the record of a path once `make_durable` has made stable what ended it.
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
            tracing::info!(path = %absent.record.path.shown(), "the record of an absent unfinished file was ended");
            numbers.push(absent.record.number);
        }
        self.end_once_durable(path, &numbers, make_durable);
    }

    /// Names below `from` lead to what is below `to` now, so records of absent files go along. May wait for a disk.
    pub(crate) fn move_absent(&self, from: &LogicalPath, to: &LogicalPath, backend: &dyn Backend) {
        let moved = self.absent.take(|absent| absent.record.path.is_within(from));
        // A loss of power must not leave a file under its old name, and its record under the new one.
        if !moved.is_empty()
            && self.config.durability != Durability::Relaxed
            && let Err(error) = sync_removal(backend, to)
        {
            tracing::warn!(path = %to.shown(), %error, "a rename cannot be synced");
        }
        for absent in moved {
            let Some(path) = absent.record.path.moved(from, to) else { continue };
            let record = Record { path, also: None, ..absent.record };
            if let Err(error) = self.log().pending(&record) {
                tracing::warn!(path = %record.path.shown(), %error, "a rename is not in the journal");
            }
            self.absent.insert(record, absent.directory);
        }
    }
}

/// Logs what an administrator can do about it.
pub(super) fn warn_of_absent(record: &Record, directory: &LogicalPath, journal: &str) {
    tracing::warn!(
        path = %record.path.shown(), directory = %directory.shown(), journal,
        "an unfinished file is not there, and its directory is not what it was: mount its file system and restart the server; \
         until then the record is kept, what lies there without a mark is not served, and the file is created anew only by \
         force (xrdcp --coerce); if the tree was moved, run: scalla admin unfinished clear {}", record.path.shell_word()
    );
}
