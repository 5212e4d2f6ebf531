//! The end of records in the journal.
//!
//! The line that ends a record survives a loss of power; otherwise the record would come back, and after a copy of the tree
//! nothing would show that it is over. What the line states is made durable before it. Otherwise a file that was removed could
//! come back without its record, and where it bears no mark it would be taken for whole.

use super::Persist;
use crate::config::Durability;
use crate::proof;
use base::LogicalPath;
use std::io;
use storage::Backend;

impl Persist {
    /// States in the journal that files are whole or gone for good, and waits until that survives a loss of power.
    pub(super) fn end_in_journal(&self, numbers: impl IntoIterator<Item = u64>) {
        // Others may write to the journal in between, so that one sync serves many.
        let last = numbers.into_iter().filter_map(|number| self.log().done(number)).last();
        if self.config.durability == Durability::Relaxed {
            return;
        }
        if let Some(line) = last
            && let Err(error) = self.log().sync_through(line)
        {
            tracing::warn!(%error, "the journal of pending files cannot be synced");
        }
    }

    /// Ends records of a path once `make_durable` has made stable what ended them. If that fails, the journal keeps them for
    /// the next start.
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
                "the end of an unfinished file cannot be synced; its record is kept until the next start"
            );
            return;
        }
        self.end_in_journal(numbers.iter().copied());
    }

    /// Ends the record of a file that was removed from a path or replaced there. Another file may be pending there by now, so it
    /// goes by number. May wait for a disk.
    pub(crate) fn forget(&self, number: Option<u64>, path: &LogicalPath, backend: &dyn Backend) {
        let Some(number) = number else { return };
        self.forget_number(number);
        if self.log().has(number) {
            self.end_once_durable(path, &[number], || sync_removal(backend, path));
        }
    }
}

/// Waits until it is stable that a name no longer leads to what it led to. If its directory was removed too, the nearest one
/// that is there is synced.
pub(super) fn sync_removal(backend: &dyn Backend, path: &LogicalPath) -> io::Result<()> {
    let mut at = path.clone();
    loop {
        match backend.sync_name(&at) {
            Err(error) if proof::is_missing(&error) => at = at.parent().ok_or(error)?,
            other => return other,
        }
    }
}
