//! The journal of unfinished files, as all operations share it: they add records and end them.
//!
//! The line that ends a record must survive a power failure. Otherwise the record would reappear,
//! and after a copy of the tree nothing would show that it is obsolete. The fact that the line
//! states is synced before it. Otherwise a removed file could reappear without its record, and if
//! it had no mark, it would count as complete.

use super::log::{UnfinishedJournal, UnfinishedRecord};
use crate::config::Durability;
use base::LogicalPath;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use storage::Backend;

/// The journal of unfinished files behind its lock.
pub(super) struct SharedJournal {
    /// Locked on pool threads only, because its holder may wait for a disk.
    journal: Mutex<UnfinishedJournal>,
    durability: Durability,
    location: String,
}

impl SharedJournal {
    /// Shares a journal. `location` is for log messages.
    pub(super) fn new(journal: UnfinishedJournal, durability: Durability, location: String) -> Self {
        Self { journal: Mutex::new(journal), durability, location }
    }

    fn lock(&self) -> MutexGuard<'_, UnfinishedJournal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its location, for log messages.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// Returns whether files and ends of records are synced.
    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    /// Reports whether a record is active.
    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().has(number)
    }

    /// Writes the record of an unfinished file. After the return, a restarted server will know it.
    pub(super) fn pending(&self, record: &UnfinishedRecord) -> io::Result<()> {
        self.lock().pending(record)
    }

    /// Ends records, because their files are complete or removed, and waits until that survives a
    /// power failure.
    pub(super) fn end(&self, numbers: impl IntoIterator<Item = u64>) {
        // Others may write to the journal meanwhile, so that one sync serves many.
        let last = numbers.into_iter().filter_map(|number| self.lock().end_record(number)).last();
        if self.durability == Durability::Relaxed {
            return;
        }
        if let Some(line) = last
            && let Err(error) = self.lock().sync_through(line)
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
        if self.durability != Durability::Relaxed
            && let Err(error) = make_durable()
        {
            tracing::warn!(
                path = %path.shown(), %error,
                "cannot sync the removal or completion of an unfinished file; its record is kept until the next start"
            );
            return;
        }
        self.end(numbers.iter().copied());
    }
}

/// Waits until the removal of a name is durable. If its directory was removed too, the nearest
/// existing ancestor is synced.
pub(super) fn sync_removal(backend: &dyn Backend, path: &LogicalPath) -> io::Result<()> {
    let mut at = path.clone();
    loop {
        match backend.sync_name(&at) {
            Err(error) if storage::is_missing(&error) => at = at.parent().ok_or(error)?,
            other => return other,
        }
    }
}
