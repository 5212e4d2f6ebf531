//! The locations known to this node: the cell of its children and the cache, read together.
//!
//! A cached location counts only for slots that have not bounced since, and only for children that
//! export the path. So the cache is always read with the bounces and the exports of the cell, and
//! one object holds both.

use std::sync::Arc;
use std::time::Duration;

use super::ResolverShared;
use super::select::Question;
use crate::cache::CachedLocation;
use crate::cell::Cell;
use crate::paths::Rights;
use crate::request::{Intent, RetryReason};
use crate::selection::Policy;
use crate::slots::{Slot, SlotMask};

/// The cell, and the cache that is shared with readers.
pub(super) struct Locations {
    cell: Cell,
    shared: Arc<ResolverShared>,
}

impl Locations {
    /// Creates the locations of this cell; `shared` has the same cell.
    pub(super) const fn new(cell: Cell, shared: Arc<ResolverShared>) -> Self {
        Self { cell, shared }
    }

    pub(super) const fn cell(&self) -> &Cell {
        &self.cell
    }

    pub(super) const fn shared(&self) -> &Arc<ResolverShared> {
        &self.shared
    }

    pub(super) fn policy(&self) -> &Policy {
        self.shared.chooser.policy()
    }

    /// Reports whether all servers see the same files (`cms.dfs`).
    pub(super) fn is_file_system_shared(&self) -> bool {
        self.policy().shared.is_some()
    }

    /// Returns the cell for a change that readers do not need, or that [`Self::publish`] follows.
    pub(super) const fn cell_mut(&mut self) -> &mut Cell {
        &mut self.cell
    }

    /// Changes the cell and publishes it to readers.
    pub(super) fn change_cell(&mut self, change: impl FnOnce(&mut Cell)) {
        change(&mut self.cell);
        self.publish();
    }

    /// Publishes the cell to readers.
    pub(super) fn publish(&self) {
        self.shared.publish(&self.cell);
    }

    /// Returns the children that export a path; `None` if no child does.
    pub(super) fn rights(&self, path: &[u8]) -> Option<Rights> {
        self.cell.paths().rights(path)
    }

    /// Reports whether a child exports a path.
    pub(super) fn is_exported_by(&self, slot: Slot, path: &[u8]) -> bool {
        self.rights(path).is_some_and(|rights| rights.read.contains(slot))
    }

    /// Returns the cached location of a path.
    pub(super) fn lookup(&self, path: &[u8], now: Duration) -> Option<CachedLocation> {
        self.shared.cache.lookup(path, now, self.cell.bounces())
    }

    /// Changes the cached location of a path; `None` if there is none.
    pub(super) fn update<R>(
        &self,
        path: &[u8],
        now: Duration,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> Option<R> {
        self.shared.cache.update(path, now, self.cell.bounces(), change)
    }

    /// Changes the location of a path, cached or new, and starts its window again.
    pub(super) fn enter<R>(
        &self,
        path: &[u8],
        now: Duration,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> R {
        self.shared.cache.enter(path, now, self.cell.bounces(), change)
    }

    /// Changes the cached location of a path, or enters a new one.
    pub(super) fn update_or_enter<R>(
        &self,
        path: &[u8],
        now: Duration,
        change: impl Fn(&mut CachedLocation) -> R,
    ) -> R {
        self.update(path, now, &change).unwrap_or_else(|| self.enter(path, now, &change))
    }

    /// Sets the age of the lease under which a child was chosen for a path.
    pub(super) fn set_placement_age(&self, path: &[u8], slot: Slot, age: Duration, now: Duration) {
        self.shared.cache.set_placement_age(path, slot, age, now, self.cell.bounces());
    }

    /// Records that a child has a name, or is about to have it, for as long as the location is
    /// kept.
    pub(super) fn note_name(&self, slot: Slot, path: &[u8]) {
        if self.cell.child(slot).is_some_and(|child| child.lists_all) {
            self.shared.inventories.add(slot, path);
        }
    }

    /// Reports whether all holders of a path are draining.
    pub(super) fn only_draining(&self, location: &CachedLocation, rights: Rights) -> bool {
        let have = location.have & rights.read;
        !have.is_empty() && have.within(self.cell.draining() | location.draining)
    }

    /// Reports whether a path was placed at a child that was lost since, and may still be created
    /// there.
    pub(super) fn is_placed_at_absent(&self, location: &CachedLocation) -> bool {
        location.placed.is_some_and(|slot| self.cell.absent().was_in(slot))
    }

    /// Returns another child than this one that takes leases and was chosen to create the file.
    pub(super) fn rival(&self, location: &CachedLocation, slot: Slot) -> Option<Slot> {
        let is_shared = self.is_file_system_shared();
        let lessees = self.cell.lessees();
        location.placed.filter(|placed| *placed != slot && lessees.contains(*placed) && !is_shared)
    }

    /// Settles which child has failed if the client names only its host, where several run, and all of them serve
    /// all files: the one that was chosen for the new file. Without this, it would be chosen again.
    pub(super) fn settle_failed(&self, path: &[u8], question: &mut Question, now: Duration) {
        let options = &question.options;
        let unchecked = self.policy().shared.is_some_and(|shared| shared.unchecked);
        let last = question.avoided.last;
        if !unchecked || last.is_empty() || !options.intent.creates() || options.reason != RetryReason::Server
        {
            return;
        }
        let failed = self.update(path, now, |location| {
            let placed = location.placed.filter(|slot| last.contains(*slot))?;
            let before = location.failed.replace(placed).filter(|slot| last.contains(*slot));
            Some(placed.mask() | before.map(Slot::mask).unwrap_or_default())
        });
        if let Some(failed) = failed.flatten().filter(|failed| !last.within(*failed)) {
            question.avoided.never |= failed;
            question.avoided.last -= failed;
        }
    }

    /// Invalidates the state of the children that a client avoids or that are creating the file:
    /// the client returned from them, or wants to create a file that another client is creating.
    /// Returns the child that was chosen for the file and keeps its lease, if the client tried it.
    pub(super) fn invalidate_tried(&self, path: &[u8], question: &Question, now: Duration) -> Option<Slot> {
        let options = &question.options;
        let tried = question.avoided.never;
        let creates = options.intent == Intent::Create;
        if tried.is_empty() && !creates {
            return None;
        }
        let missing = options.reason == RetryReason::Missing;
        let failed = options.intent.writes() && (!missing || options.intent.creates() && !tried.is_empty());
        let shared = self.is_file_system_shared();
        let lessees = self.cell.lessees();
        let left = self.update(path, now, |location| {
            let placed = location.placed.map(Slot::mask).unwrap_or_default();
            let kept = if failed { placed & lessees } else { placed };
            let invalidated = match missing {
                // With a shared file system the report of one child was valid for all.
                true if shared && !tried.is_empty() => location.have,
                true => tried & location.have,
                false => tried & placed,
            } - kept;
            if !invalidated.is_empty() {
                location.invalidate(invalidated);
            }
            if !shared {
                location.unasked |= if creates { kept } else { kept & tried };
            }
            location.placed.filter(|slot| (kept & tried).contains(*slot))
        });
        left.flatten()
    }

    /// Records that a child no longer has a path. Returns the location before and after.
    pub(super) fn holder_gone(
        &self,
        slot: Slot,
        path: &[u8],
        rights: Rights,
        now: Duration,
    ) -> Option<(CachedLocation, CachedLocation)> {
        let definite = self.cell.definite();
        let inner = !self.cell.servers().contains(slot);
        let shared = self.is_file_system_shared();
        self.update(path, now, |location| {
            let whole = *location;
            let before = presence(location, rights);
            let had = location.have.contains(slot) && definite.contains(slot);
            // The child may have received a lease after it sent this message.
            let placed = location.placed == Some(slot);
            if placed {
                location.failed = Some(slot);
            }
            let again = placed || inner && (had || location.unasked.contains(slot));
            let others = if shared { location.have } else { SlotMask::EMPTY };
            others.iter().for_each(|other| location.missed(other));
            location.missed(slot);
            let lost = presence(location, rights).is_none();
            if lost && before.is_some() {
                // Another child may have received the file without a report, so the next request
                // queries the children that send NOT_HERE replies once more.
                location.unasked |= definite - slot.mask();
            }
            if again {
                location.unasked.insert(slot);
            }
            (whole, *location)
        })
    }
}

/// Reports whether a path is here; `Some(true)` if every holder is still staging it.
pub(super) fn presence(location: &CachedLocation, rights: Rights) -> Option<bool> {
    let have = location.have & rights.read;
    (!have.is_empty()).then(|| have.within(location.pending))
}
