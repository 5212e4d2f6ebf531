//! Ends records in the journal of unfinished files.
//!
//! The line that ends a record must survive a power failure. Otherwise the record would reappear,
//! and after a copy of the tree nothing would show that it is obsolete. The fact that the line
//! states is synced before it. Otherwise a removed file could reappear without its record, and if
//! it had no mark, it would count as complete.

use super::UnfinishedFiles;
use super::absent::AbsentRecord;
use super::log::UnfinishedRecord;
use crate::config::Durability;
use crate::proof;
use base::LogicalPath;
use std::collections::HashSet;
use std::io;
use storage::Backend;

impl UnfinishedFiles {
    /// Ends records in the journal, because their files are complete or removed, and waits until
    /// that survives a power failure.
    pub(super) fn end_in_journal(&self, numbers: impl IntoIterator<Item = u64>) {
        // Others may write to the journal meanwhile, so that one sync serves many.
        let last = numbers.into_iter().filter_map(|number| self.log().end_record(number)).last();
        if self.config.durability == Durability::Relaxed {
            return;
        }
        if let Some(line) = last
            && let Err(error) = self.log().sync_through(line)
        {
            tracing::warn!(%error, "cannot sync the journal of unfinished files; after a power failure an ended record may reappear");
        }
    }

    /// Ends records of a path after `make_durable` has synced the reason. If that fails, the
    /// journal keeps them for the next start.
    pub(super) fn end_once_durable(
        &self,
        path: &LogicalPath,
        numbers: &[u64],
        make_durable: impl FnOnce() -> io::Result<()>,
    ) {
        if numbers.is_empty() {
            return;
        }
        if self.config.durability != Durability::Relaxed
            && let Err(error) = make_durable()
        {
            tracing::warn!(
                path = %path.shown(), %error,
                "cannot sync the removal or completion of an unfinished file; its record is kept until the next start"
            );
            return;
        }
        self.end_in_journal(numbers.iter().copied());
    }

    /// Ends the record of a file that was removed or replaced. The record is selected by number,
    /// because the path may have another unfinished file by now. May wait for a disk.
    pub(crate) fn forget(&self, number: Option<u64>, path: &LogicalPath, backend: &dyn Backend) {
        let Some(number) = number else { return };
        self.forget_number(number);
        if self.log().has(number) {
            self.end_once_durable(path, &[number], || sync_removal(backend, path));
        }
    }
}

/// Absent records.
impl UnfinishedFiles {
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
            let record = UnfinishedRecord { path, also: None, ..absent.record };
            if let Err(error) = self.log().pending(&record) {
                tracing::warn!(path = %record.path.shown(), %error, "cannot write a rename to the journal of unfinished files; after a restart the record has the old path");
            }
            self.absent.insert(record, absent.directory);
        }
    }
}

/// Waits until the removal of a name is durable. If its directory was removed too, the nearest
/// existing ancestor is synced.
pub(super) fn sync_removal(backend: &dyn Backend, path: &LogicalPath) -> io::Result<()> {
    let mut at = path.clone();
    loop {
        match backend.sync_name(&at) {
            Err(error) if proof::is_missing(&error) => at = at.parent().ok_or(error)?,
            other => return other,
        }
    }
}
