//! Messages of children about files: present, leased, removed, absent; and their reports to the
//! parents.
//!
//! A child's message changes the cache and settles queries. Parents have their own caches, so this
//! file also decides which changes go up to them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::ResolverAction;
use super::checked_path::checked;
use super::engine::AnswerEngine;
use super::lease_book::end_below;
use super::locations::presence;
use super::queries::Settle;
use crate::cache::CachedLocation;
use crate::lease_number::{LeaseNumber, LeaseReport};
use crate::leases::LEASE;
use crate::slots::Slot;

/// One message of one child about one path.
pub(super) struct ChildMessage<'a> {
    engine: &'a mut AnswerEngine,
    actions: &'a mut Vec<ResolverAction>,
    slot: Slot,
    path: &'a [u8],
    now: Duration,
}

impl<'a> ChildMessage<'a> {
    /// Creates a message; `None` if the path is not valid.
    pub(super) fn new(
        engine: &'a mut AnswerEngine,
        slot: Slot,
        path: &'a [u8],
        now: Duration,
        actions: &'a mut Vec<ResolverAction>,
    ) -> Option<Self> {
        let path = checked(path).ok()?;
        Some(Self { engine, actions, slot, path, now })
    }

    /// Records that the child has the path, or is staging it.
    pub(super) fn have(&mut self, pending: bool) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        if self.is_known_to_parents_only() {
            self.engine.locations.enter(path, now, |location| location.found(slot, pending));
            self.engine.note_reliance(path, now);
            self.actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
            return self.engine.look_at_path(path, now, self.actions);
        }
        self.record_only_holder(|location| location.found(slot, pending));
    }

    /// Reports whether only parents may know this path of the child.
    fn is_known_to_parents_only(&self) -> bool {
        let engine = &*self.engine;
        if !engine.has_parents() {
            return false;
        }
        let is_known = engine.queries.open.find(self.path).is_some()
            || engine.locations.lookup(self.path, self.now).is_some();
        !is_known && engine.locations.is_exported_by(self.slot, self.path)
    }

    /// Records that the path is below the child, but only at draining nodes.
    pub(super) fn have_draining(&mut self) {
        let slot = self.slot;
        self.record_only_holder(|location| location.found_draining(slot));
    }

    fn record_holder(&mut self, note: impl Fn(&mut CachedLocation)) {
        self.engine.record_holders(Some(self.slot), self.path, note, self.now, self.actions);
    }

    /// Records that this child has the path, and ends the lease of another child.
    fn record_only_holder(&mut self, note: impl Fn(&mut CachedLocation)) {
        let before = Cell::new(None);
        let first = self.actions.len();
        self.record_holder(|location| {
            before.set(Some(*location));
            note(location);
        });
        let locations = &self.engine.locations;
        let rival = before.get().and_then(|before| locations.rival(&before, self.slot));
        if let Some(rival) = rival {
            let mut ends = Vec::new();
            end_below(locations.cell(), rival, self.path, LeaseNumber::CREATING, &mut ends);
            // The lease ends before others learn of the file.
            self.actions.splice(first..first, ends);
        }
    }

    /// Records that the path is in the inventory of the child, which logged in. It works as
    /// [`Self::have`], but the path is kept even without a query.
    pub(super) fn inventory(&mut self, pending: bool) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        let locations = &self.engine.locations;
        locations.note_name(slot, path);
        if locations.update(path, now, |_| ()).is_some() || self.engine.queries.open.find(path).is_some() {
            self.have(pending);
        } else if locations.is_exported_by(slot, path) {
            locations.enter(path, now, |location| location.found(slot, pending));
            if self.engine.has_parents() {
                // The parents receive the inventory, too.
                self.engine.note_reliance(path, now);
            }
            self.engine.look_at_path(path, now, self.actions);
        }
    }

    /// Records that the child confirms its lease of the path, or reports that a client is on its
    /// way to create the path there. If the path exists elsewhere, or is leased to another child,
    /// one of the two leases ends. The age of the lease decides later whether it ended by itself,
    /// so it counts from the grant also if this node learns of the lease at a return of the child.
    pub(super) fn have_leased(&mut self, lease: LeaseReport) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        let number = lease.number;
        if self.engine.leases.confirm(slot, path, number, now) {
            return;
        }
        let before = self.engine.known(path, now);
        let locations = &self.engine.locations;
        let cell = locations.cell();
        let rival = locations.rival(&before, slot);
        let placed = before.placed.map(Slot::mask).unwrap_or_default();
        let exists = !((before.have & cell.connected()) - placed - slot.mask()).is_empty();
        if exists && !locations.is_file_system_shared() {
            end_below(cell, slot, path, LeaseNumber::CREATING, self.actions);
        } else if let Some(rival) = rival {
            // If the rival lease is the later one, the rival reports it.
            end_below(cell, rival, path, number, self.actions);
        }
        self.engine.leases.note_placed(path, lease, now);
        let announced = self.actions.len();
        self.record_holder(|location| {
            location.invalidate(rival.map(Slot::mask).unwrap_or_default());
            location.place(slot);
        });
        if let Some(left) = lease.left {
            self.engine.locations.set_placement_age(path, slot, LEASE.saturating_sub(left), now);
        }
        let is_announcement = |action: &ResolverAction| matches!(action, ResolverAction::Announce { .. });
        let is_announced = self.actions.iter().skip(announced).any(is_announcement);
        if self.engine.has_parents() && !is_announced && before.have.contains(slot) {
            // The child keeps its lease, or has another one.
            self.actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
        }
    }

    /// Records that the child no longer has the path. The message of an inner node does not cover
    /// nodes below it whose replies are outstanding. Until the child has confirmed its lease of the
    /// path, the message counts as older than the lease.
    pub(super) fn gone(&mut self) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        if self.engine.leases.is_unconfirmed(slot, path, now) {
            return;
        }
        if self.is_placement_kept() {
            return self.settle_reply(self.engine.queries.open.find(path));
        }
        let rights = self.engine.locations.rights(path).unwrap_or_default();
        let changed = self.engine.locations.holder_gone(slot, path, rights, now);
        if changed.is_none() && self.engine.may_be_relied_on(slot, path, now) {
            return self.gone_unknown();
        }
        if let Some((before, after)) = changed.filter(|_| self.engine.has_parents()) {
            let locations = &self.engine.locations;
            match presence(&after, rights) {
                None => self.actions.push(ResolverAction::Retract { path: Arc::from(path) }),
                // The remaining holders are draining.
                Some(pending)
                    if locations.only_draining(&after, rights)
                        != locations.only_draining(&before, rights) =>
                {
                    self.actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
                }
                Some(_) => {}
            }
        }
        let was_placed = changed.is_some_and(|(before, _)| before.placed == Some(slot));
        self.settle_gone(was_placed);
    }

    /// Settles the query for the path after the child reported it as gone. `was_placed`: the child
    /// had been chosen to create it.
    fn settle_gone(&mut self, was_placed: bool) {
        let (path, now) = (self.path, self.now);
        let query = self.engine.queries.open.find(path);
        if was_placed && self.engine.supervises() {
            // Parents receive "not here", so clients that they sent here for the file arrive too
            // late.
            self.engine.leases.own_mut().ended_below(path, now);
        }
        if let Some(id) = query.filter(|_| was_placed) {
            // The requests that wait to create the file need the replies of all children once more.
            self.engine.ask(path, false, false, now, self.actions);
            self.engine.settle(id, Settle::Heard, now, self.actions);
        } else if self.is_from_server() {
            self.settle_reply(query);
        } else if let Some(id) = query {
            // If the child was queried, its reply is still outstanding.
            self.engine.settle(id, Settle::Heard, now, self.actions);
        }
    }

    /// Reports whether the absence of a file at a child that was chosen for it is ignored, because
    /// the client that creates the file may be on its way.
    fn is_placement_kept(&self) -> bool {
        !self.engine.locations.cell().lessees().contains(self.slot)
            && self.engine.known(self.path, self.now).placed == Some(self.slot)
    }

    /// Handles the loss of a path that this node has forgotten and on which parents rely. A real
    /// parent applies "gone" to all nodes below this one, so the other children are queried first.
    fn gone_unknown(&mut self) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        let is_server = self.is_from_server();
        self.engine.locations.enter(path, now, |location| {
            if is_server {
                location.missed(slot);
            }
        });
        self.engine.ask(path, false, false, now, self.actions);
        let query = self.engine.queries.open.find(path);
        match query.and_then(|id| self.engine.queries.open.get_mut(id)) {
            Some(query) => query.retracts = true,
            None => self.actions.push(ResolverAction::Retract { path: Arc::from(path) }),
        }
        if is_server {
            self.settle_reply(query);
        }
    }

    /// Records the reply of the child that it does not have the path.
    pub(super) fn not_here(&mut self) {
        let (slot, path, now) = (self.slot, self.path, self.now);
        // The reply counts however late it is, because a child sends it only for a query.
        self.engine.queries.unresponsive.note_reply(slot, path);
        if self.engine.leases.is_unconfirmed(slot, path, now) {
            return;
        }
        // A server with leases would have replied with its lease. Below an inner node there may be
        // real daemons.
        let is_certain = self.is_from_server() && self.engine.locations.cell().lessees().contains(slot);
        let known = self.engine.locations.update(path, now, |location| {
            let before = (location.have, location.pending);
            if is_certain {
                location.missed(slot);
            } else {
                location.absent(slot);
            }
            before == (location.have, location.pending)
        });
        let query = self.engine.queries.open.find(path);
        if known == Some(true) {
            self.engine.settle_absence(query, slot, now, self.actions);
        } else {
            self.settle_reply(query);
        }
    }

    fn is_from_server(&self) -> bool {
        self.engine.locations.cell().servers().contains(self.slot)
    }

    /// Judges the requests that wait for a query again, because the child replied to it.
    fn settle_reply(&mut self, query: Option<usize>) {
        self.engine.settle_reply(query, self.slot, Settle::Heard, self.now, self.actions);
    }
}
