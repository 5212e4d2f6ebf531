//! Messages of children about files: present, removed, absent; and their reports to the parents.
//!
//! A child's message changes the cache and settles queries. Parents have their own caches, so this
//! file also decides which changes go up to them.

use std::sync::Arc;
use std::time::Duration;

use super::checked_path::checked;
use super::parent_queries::presence;
use super::queries::Settle;
use super::{LocationResolver, ResolverAction};
use crate::cache::CachedLocation;
use crate::slots::{Slot, SlotMask};

impl LocationResolver {
    /// Records that a child has a path, or that the path is being staged there. The message is kept
    /// even without a query if there are parents, because their knowledge may be older, and live
    /// longer, than the memory of this node.
    pub fn have(
        &mut self,
        slot: Slot,
        path: &[u8],
        pending: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if let Some(path) = self.unknown(slot, path, now) {
            let bounces = self.cell.bounces();
            self.shared.cache.enter(path, now, bounces, |location| location.found(slot, pending));
            self.reliance.note(path, now);
            actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
            return self.look_at_path(path, now, actions);
        }
        self.end_rival(slot, path, now, actions);
        self.holders(Some(slot), path, |location| location.found(slot, pending), now, actions);
    }

    /// Returns a path of this child that only parents may know.
    fn unknown<'a>(&self, slot: Slot, path: &'a [u8], now: Duration) -> Option<&'a [u8]> {
        if !self.settings.has_parents {
            return None;
        }
        let path = checked(path).ok()?;
        let is_known = self.queries.find(path).is_some()
            || self.shared.cache.lookup(path, now, self.cell.bounces()).is_some();
        let is_exported = || self.cell.paths().rights(path).is_some_and(|rights| rights.read.contains(slot));
        (!is_known && is_exported()).then_some(path)
    }

    /// Records that a path is below a child, but only at draining nodes.
    pub fn have_draining(
        &mut self,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.end_rival(slot, path, now, actions);
        self.holders(Some(slot), path, |location| location.found_draining(slot), now, actions);
    }

    /// Records that a child has a name, or is about to have it, for as long as the location is
    /// kept.
    fn note_name(&self, slot: Slot, path: &[u8]) {
        if self.cell.child(slot).is_some_and(|child| child.lists_all) {
            self.shared.inventories.add(slot, path);
        }
    }

    /// Records the holders of a path, from the message of a child or from an own look-up.
    pub(super) fn holders(
        &mut self,
        said_by: Option<Slot>,
        path: &[u8],
        note: impl Fn(&mut CachedLocation),
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        if let Some(slot) = said_by {
            self.note_name(slot, path);
        }
        let query = self.queries.find(path);
        let bounces = self.cell.bounces();
        let found = |location: &mut CachedLocation| {
            let before = *location;
            note(location);
            (before, *location)
        };
        let cache = &self.shared.cache;
        let changed = cache.update(path, now, bounces, found).or_else(|| {
            // The location was evicted during its query.
            query.is_some().then(|| cache.enter(path, now, bounces, found))
        });
        let Some((before, after)) = changed else { return };
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        let said = presence(&after, rights);
        let same = said == presence(&before, rights)
            && self.only_draining(&after, rights) == self.only_draining(&before, rights);
        let news = self.settings.has_parents && !same;
        if let Some(pending) = said.filter(|_| news) {
            self.reliance.note(path, now);
            actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
        }
        let why = if news { Settle::Announced } else { Settle::Heard };
        match (said_by, query) {
            (Some(slot), query) => self.settle_reply(query, slot, why, now, actions),
            (None, Some(id)) => self.settle(id, why, now, actions),
            (None, None) => {}
        }
        self.look_at_path(path, now, actions);
    }

    /// Records a path of the inventory of a child that logged in. It works as [`Self::have`], but
    /// the path is kept even without a query.
    pub fn inventory(
        &mut self,
        slot: Slot,
        path: &[u8],
        pending: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        self.note_name(slot, path);
        let bounces = self.cell.bounces();
        if self.shared.cache.update(path, now, bounces, |_| ()).is_some() || self.queries.find(path).is_some()
        {
            self.have(slot, path, pending, now, actions);
        } else if self.cell.paths().rights(path).is_some_and(|rights| rights.read.contains(slot)) {
            self.shared.cache.enter(path, now, bounces, |location| location.found(slot, pending));
            if self.settings.has_parents {
                // The parents receive the inventory, too.
                self.reliance.note(path, now);
            }
            self.look_at_path(path, now, actions);
        }
    }

    /// Begins the inventory of a child.
    pub fn begin_list(&mut self, slot: Slot) {
        self.cell.begin_list(slot);
    }

    /// Ends the inventory of files of a child that logged in.
    pub fn listed(&mut self, slot: Slot) {
        self.cell.list(slot);
        self.shared.publish(&self.cell);
    }

    /// Ends a complete inventory: the child has listed all files and all other names, and reports
    /// each new name (decision 002).
    pub fn listed_completely(&mut self, slot: Slot) {
        self.cell.list_completely(slot);
        self.shared.publish(&self.cell);
    }

    /// Records that a child no longer has a path. The message of an inner node does not cover nodes
    /// below it whose replies are outstanding. Until the child has confirmed its lease of the path,
    /// the message counts as older than the lease.
    pub fn gone(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<ResolverAction>) {
        let Ok(path) = checked(path) else { return };
        if self.unconfirmed.contains(slot, path, now) {
            return;
        }
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        let definite = self.cell.definite();
        let inner = !self.cell.servers().contains(slot);
        if self.is_placement_kept(slot, path, now) {
            return self.settle_reply(self.queries.find(path), slot, Settle::Heard, now, actions);
        }
        let shared = self.shared.chooser.policy().shared.is_some();
        let changed = self.shared.cache.update(path, now, self.cell.bounces(), |location| {
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
        });
        if changed.is_none() && self.may_be_relied_on(slot, path, now) {
            return self.gone_unknown(slot, path, now, actions);
        }
        if let Some((before, after)) = changed.filter(|_| self.settings.has_parents) {
            match presence(&after, rights) {
                None => actions.push(ResolverAction::Retract { path: Arc::from(path) }),
                // The remaining holders are draining.
                Some(pending)
                    if self.only_draining(&after, rights) != self.only_draining(&before, rights) =>
                {
                    actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
                }
                Some(_) => {}
            }
        }
        let query = self.queries.find(path);
        let was_placed = changed.is_some_and(|(before, _)| before.placed == Some(slot));
        if was_placed && self.settings.supervises {
            // Parents receive "not here", so clients that they sent here for the file arrive too
            // late.
            self.leases.ended_below(path, now);
        }
        if let Some(id) = query.filter(|_| was_placed) {
            // The requests that wait to create the file need the replies of all children once more.
            self.ask(path, false, false, now, actions);
            self.settle(id, Settle::Heard, now, actions);
        } else if !inner {
            self.settle_reply(query, slot, Settle::Heard, now, actions);
        } else if let Some(id) = query {
            // If the child was queried, its reply is still outstanding.
            self.settle(id, Settle::Heard, now, actions);
        }
    }

    /// Reports whether parents may know a path of this child that this node has forgotten.
    fn may_be_relied_on(&mut self, slot: Slot, path: &[u8], now: Duration) -> bool {
        let is_exported = || self.cell.paths().rights(path).is_some_and(|rights| rights.read.contains(slot));
        self.settings.has_parents && is_exported() && self.reliance.contains(path, now)
    }

    /// Handles the loss of a path that this node has forgotten and on which parents rely. A real
    /// parent applies "gone" to all nodes below this one, so the other children are queried first.
    fn gone_unknown(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<ResolverAction>) {
        let is_server = self.cell.servers().contains(slot);
        self.shared.cache.enter(path, now, self.cell.bounces(), |location| {
            if is_server {
                location.missed(slot);
            }
        });
        self.ask(path, false, false, now, actions);
        let query = self.queries.find(path);
        match query.and_then(|id| self.queries.get_mut(id)) {
            Some(query) => query.retracts = true,
            None => actions.push(ResolverAction::Retract { path: Arc::from(path) }),
        }
        if is_server {
            self.settle_reply(query, slot, Settle::Heard, now, actions);
        }
    }

    /// Ends a query that was made for parents: they receive "gone" if no child has the path.
    pub(super) fn retract_unknown(&mut self, id: usize, now: Duration, actions: &mut Vec<ResolverAction>) {
        let Some(query) = self.queries.get(id).filter(|query| query.retracts) else { return };
        let path = query.path.clone();
        let rights = self.cell.paths().rights(&path).unwrap_or_default();
        if presence(&self.known(&path, now), rights).is_none() {
            actions.push(ResolverAction::Retract { path });
        }
    }

    /// Records the reply of a child that it does not have a path.
    pub fn not_here(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<ResolverAction>) {
        let Ok(path) = checked(path) else { return };
        // The reply counts however late it is, because a child sends it only for a query.
        self.unresponsive.note_reply(slot, path);
        if self.unconfirmed.contains(slot, path, now) {
            return;
        }
        // A server with leases would have replied with its lease. Below an inner node there may be
        // real daemons.
        let is_certain = (self.cell.servers() & self.cell.lessees()).contains(slot);
        let known = self.shared.cache.update(path, now, self.cell.bounces(), |location| {
            let before = (location.have, location.pending);
            if is_certain {
                location.missed(slot);
            } else {
                location.absent(slot);
            }
            before == (location.have, location.pending)
        });
        let query = self.queries.find(path);
        if known == Some(true) {
            self.settle_absence(query, slot, now, actions);
        } else {
            self.settle_reply(query, slot, Settle::Heard, now, actions);
        }
    }
}
