//! The absent files: unfinished files of earlier runs that cannot be found. Operations on their
//! paths end or move their records here.

use super::absent::{AbsentRecord, AbsentRecords};
use super::log::UnfinishedRecord;
use super::shared_journal::{SharedJournal, sync_removal};
use super::unfinished::{UnfinishedFile, UnfinishedState};
use crate::config::Durability;
use base::LogicalPath;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use storage::{Backend, StorageUser};

/// The records of files that cannot be found, with the journal that preserves them.
pub(crate) struct AbsentFiles {
    records: AbsentRecords,
    journal: Arc<SharedJournal>,
}

impl AbsentFiles {
    /// Creates the absent files of these records, which are in the journal.
    pub(super) fn new(records: AbsentRecords, journal: Arc<SharedJournal>) -> Self {
        Self { records, journal }
    }

    /// Reports whether a path has a record whose file cannot be found. Never blocks.
    pub(crate) fn has(&self, path: &LogicalPath) -> bool {
        self.records.at(path, |_| ()).is_some()
    }

    /// Reports whether there are no such records. Never blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Reports whether a path has a record with an identity. Then a file there may be unfinished
    /// although it has no mark, and no file may be created there, because the unfinished one may
    /// reappear. A record without an identity proves too little for either. Never blocks.
    pub(crate) fn has_identified(&self, path: &LogicalPath) -> bool {
        self.records.at(path, AbsentRecord::is_identified) == Some(true)
    }

    /// Adds a file that cannot be found any longer. The journal has its record.
    pub(super) fn add(&self, record: UnfinishedRecord, directory: LogicalPath) {
        self.records.insert(record, directory);
    }

    /// Returns the files in no particular order, as an administrator sees them. Never blocks.
    pub(super) fn list(&self) -> impl Iterator<Item = UnfinishedFile> {
        self.records.all().into_iter().map(|absent| UnfinishedFile {
            path: absent.record.path,
            state: UnfinishedState::Absent { directory: absent.directory },
        })
    }

    /// Ends the record of a path at which a file was created or marked, after `make_durable` has
    /// synced that. A record without an identity is kept for the next start, because nothing else
    /// shows that its file is unfinished.
    pub(super) fn end_identified(&self, path: &LogicalPath, make_durable: impl FnOnce() -> io::Result<()>) {
        let choose = |absent: &AbsentRecord| absent.record.path == *path && absent.is_identified();
        self.end_chosen(path, choose, make_durable);
    }

    /// Returns the account in the record of a path. Never blocks.
    pub(super) fn account_at(&self, path: &LogicalPath) -> Option<Arc<StorageUser>> {
        self.records.at(path, |absent| absent.record.account.clone()).flatten()
    }

    /// Ends the record of a path at which a file was created without a mark. That file is not the
    /// unfinished one of an earlier run. May wait for a disk.
    pub(crate) fn end_created(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end_identified(path, || sync_removal(backend, path));
    }

    /// Ends the record of a path that was removed. Records below a removed directory stay: the
    /// directory was empty, but it may have been the mount point of their file system. May wait for
    /// a disk.
    pub(crate) fn end_removed(&self, path: &LogicalPath, backend: &dyn Backend) {
        self.end(path, || sync_removal(backend, path));
    }

    /// Ends the records at and below the new path of a rename whose names exist there now, because
    /// they came with the rename. May wait for a disk.
    pub(crate) fn end_replaced(&self, path: &LogicalPath, backend: &dyn Backend) {
        let below = self.records.all().into_iter().map(|absent| absent.record.path);
        // The lookup is made without the lock, because event loops take it.
        let replaced: HashSet<LogicalPath> =
            below.filter(|one| one.is_within(path) && backend.has_name(one).unwrap_or(false)).collect();
        let choose = |absent: &AbsentRecord| replaced.contains(&absent.record.path);
        self.end_chosen(path, choose, || sync_removal(backend, path));
    }

    /// Ends the record of a path after `make_durable` has synced the reason.
    pub(super) fn end(&self, path: &LogicalPath, make_durable: impl FnOnce() -> io::Result<()>) {
        self.end_chosen(path, |absent| absent.record.path == *path, make_durable);
    }

    fn end_chosen(
        &self,
        path: &LogicalPath,
        choose: impl Fn(&AbsentRecord) -> bool,
        make_durable: impl FnOnce() -> io::Result<()>,
    ) {
        let mut numbers = Vec::new();
        for absent in self.records.take(choose) {
            tracing::info!(path = %absent.record.path.shown(), "ended the record of an absent unfinished file");
            numbers.push(absent.record.number);
        }
        self.journal.end_once_durable(path, &numbers, make_durable);
    }

    /// Moves the records below `from` to `to` after a rename. May wait for a disk.
    pub(crate) fn move_records(&self, from: &LogicalPath, to: &LogicalPath, backend: &dyn Backend) {
        let moved = self.records.take(|absent| absent.record.path.is_within(from));
        // A power failure must not leave a file under its old name and its record under the new
        // one.
        if !moved.is_empty()
            && self.journal.durability() != Durability::Relaxed
            && let Err(error) = sync_removal(backend, to)
        {
            tracing::warn!(path = %to.shown(), %error, "cannot sync a rename; after a power failure the record of an unfinished file may have the wrong path");
        }
        for absent in moved {
            let Some(path) = absent.record.path.moved(from, to) else { continue };
            let record = UnfinishedRecord { path, also: None, ..absent.record };
            if let Err(error) = self.journal.pending(&record) {
                tracing::warn!(path = %record.path.shown(), %error, "cannot write a rename to the journal of unfinished files; after a restart the record has the old path");
            }
            self.records.insert(record, absent.directory);
        }
    }
}
