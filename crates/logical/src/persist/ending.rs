//! Ends records in the journal of unfinished files.
//!
//! The line that ends a record must survive a power failure. Otherwise the record would reappear,
//! and after a copy of the tree nothing would show that it is obsolete. The fact that the line
//! states is synced before it. Otherwise a removed file could reappear without its record, and if
//! it had no mark, it would count as complete.

use super::Persist;
use crate::config::Durability;
use crate::proof;
use base::LogicalPath;
use std::io;
use storage::Backend;

impl Persist {
    /// Ends records in the journal, because their files are complete or removed, and waits until
    /// that survives a power failure.
    pub(super) fn end_in_journal(&self, numbers: impl IntoIterator<Item = u64>) {
        // Others may write to the journal meanwhile, so that one sync serves many.
        let last = numbers.into_iter().filter_map(|number| self.log().done(number)).last();
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
