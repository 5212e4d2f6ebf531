//! What children say of files: that they have one, have it no more, do not have it; and what goes up to the parents from it.

use std::sync::Arc;
use std::time::Duration;

use super::state::presence;
use super::{Action, Resolver, Settle, checked};
use crate::cache::Location;
use crate::slots::{Slot, SlotMask};

impl Resolver {
    /// A child says that it has a path, or that it is on its way there. It is kept although nobody asked, where parents
    /// are told: what they know may be older, and live longer, than what this node remembers.
    pub fn have(&mut self, slot: Slot, path: &[u8], pending: bool, now: Duration, actions: &mut Vec<Action>) {
        if let Some(path) = self.unknown(slot, path, now) {
            let bounces = self.cell.bounces();
            self.shared.cache.enter(path, now, bounces, |location| location.found(slot, pending));
            self.reliance.note(path, now);
            actions.push(Action::Announce { path: Arc::from(path), pending });
            return self.look_at_path(path, now, actions);
        }
        self.end_rival(slot, path, now, actions);
        self.holders(Some(slot), path, |location| location.found(slot, pending), now, actions);
    }

    /// A path of this child that only parents may know.
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

    /// A child says that a path is below it, at nodes alone whose clients are being moved away.
    pub fn have_draining(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
        self.end_rival(slot, path, now, actions);
        self.holders(Some(slot), path, |location| location.found_draining(slot), now, actions);
    }

    /// Notes that a child has a path, or is about to, however long the location is kept.
    fn note_name(&self, slot: Slot, path: &[u8]) {
        if self.cell.child(slot).is_some_and(|child| child.lists_all) {
            self.shared.inventories.add(slot, path);
        }
    }

    /// Who has it became known, by the word of a child or by an own look.
    pub(super) fn holders(
        &mut self,
        said_by: Option<Slot>,
        path: &[u8],
        note: impl Fn(&mut Location),
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Ok(path) = checked(path) else { return };
        if let Some(slot) = said_by {
            self.note_name(slot, path);
        }
        let query = self.queries.find(path);
        let bounces = self.cell.bounces();
        let found = |location: &mut Location| {
            let before = *location;
            note(location);
            (before, *location)
        };
        let cache = &self.shared.cache;
        let changed = cache.update(path, now, bounces, found).or_else(|| {
            // Evicted while it was asked for.
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
            actions.push(Action::Announce { path: Arc::from(path), pending });
        }
        let why = if news { Settle::Announced } else { Settle::Heard };
        match (said_by, query) {
            (Some(slot), query) => self.heard(query, slot, why, now, actions),
            (None, Some(id)) => self.settle(id, why, now, actions),
            (None, None) => {}
        }
        self.look_at_path(path, now, actions);
    }

    /// A child that logged in lists what it has: as [`Self::have`], but kept although nobody asked.
    pub fn inventory(
        &mut self,
        slot: Slot,
        path: &[u8],
        pending: bool,
        now: Duration,
        actions: &mut Vec<Action>,
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
                // The list goes on to them.
                self.reliance.note(path, now);
            }
            self.look_at_path(path, now, actions);
        }
    }

    /// A child begins to list what it has.
    pub fn begin_list(&mut self, slot: Slot) {
        self.cell.begin_list(slot);
    }

    /// A child that logged in has listed all that it has.
    pub fn listed(&mut self, slot: Slot) {
        self.cell.list(slot);
        self.shared.publish(&self.cell);
    }

    /// A child that has listed all its files has listed everything else that has a name there, too, and reports all that comes.
    pub fn listed_completely(&mut self, slot: Slot) {
        self.cell.list_completely(slot);
        self.shared.publish(&self.cell);
    }

    /// A child says that it does not have a path any more. From an inner node this says nothing of those below it that it
    /// has yet to hear itself. Before it has confirmed its lease of the path, it is older than that.
    pub fn gone(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
        let Ok(path) = checked(path) else { return };
        if self.unconfirmed.contains(slot, path, now) {
            return;
        }
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        let definite = self.cell.definite();
        let inner = !self.cell.servers().contains(slot);
        if self.is_placement_kept(slot, path, now) {
            return self.heard(self.queries.find(path), slot, Settle::Heard, now, actions);
        }
        let shared = self.shared.chooser.policy().shared.is_some();
        let changed = self.shared.cache.update(path, now, self.cell.bounces(), |location| {
            let whole = *location;
            let before = presence(location, rights);
            let had = location.have.contains(slot) && definite.contains(slot);
            // A lease may have followed that the child did not know when it sent this.
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
                // Somebody else may have got it in silence: whoever asks next asks once more those that answer at once.
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
                None => actions.push(Action::Retract { path: Arc::from(path) }),
                // Those that are left are being emptied.
                Some(pending)
                    if self.only_draining(&after, rights) != self.only_draining(&before, rights) =>
                {
                    actions.push(Action::Announce { path: Arc::from(path), pending });
                }
                Some(_) => {}
            }
        }
        let query = self.queries.find(path);
        let was_placed = changed.is_some_and(|(before, _)| before.placed == Some(slot));
        if was_placed && self.settings.supervises {
            // Parents are told that the file is not here, so clients that they sent here for it are late.
            self.leases.ended_below(path, now);
        }
        if let Some(id) = query.filter(|_| was_placed) {
            // Those who wait to create it need the answers of all once more.
            self.ask(path, false, false, now, actions);
            self.settle(id, Settle::Heard, now, actions);
        } else if !inner {
            self.heard(query, slot, Settle::Heard, now, actions);
        } else if let Some(id) = query {
            // If it was asked, its answer is still to come.
            self.settle(id, Settle::Heard, now, actions);
        }
    }

    /// Reports whether parents may have been told of a path of this child which this node has forgotten.
    fn may_be_relied_on(&mut self, slot: Slot, path: &[u8], now: Duration) -> bool {
        let is_exported = || self.cell.paths().rights(path).is_some_and(|rights| rights.read.contains(slot));
        self.settings.has_parents && is_exported() && self.reliance.contains(path, now)
    }

    /// A child no longer has a path that this node has forgotten and parents rely on. A real parent would take "gone" for all that
    /// is below this node, so the other children are asked first.
    fn gone_unknown(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
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
            None => actions.push(Action::Retract { path: Arc::from(path) }),
        }
        if is_server {
            self.heard(query, slot, Settle::Heard, now, actions);
        }
    }

    /// A query is over that was begun for parents: they are told if no child has the path.
    pub(super) fn retract_unknown(&mut self, id: usize, now: Duration, actions: &mut Vec<Action>) {
        let Some(query) = self.queries.get(id).filter(|query| query.retracts) else { return };
        let path = query.path.clone();
        let rights = self.cell.paths().rights(&path).unwrap_or_default();
        if presence(&self.known(&path, now), rights).is_none() {
            actions.push(Action::Retract { path });
        }
    }

    /// A child that was asked says that it does not have a path.
    pub fn not_here(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<Action>) {
        let Ok(path) = checked(path) else { return };
        // However late: it says so only when it was asked.
        self.mute.heard(slot, path);
        if self.unconfirmed.contains(slot, path, now) {
            return;
        }
        // A server that takes leases would have answered that it has one. Below an inner node there may be real daemons.
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
            self.heard_absence(query, slot, now, actions);
        } else {
            self.heard(query, slot, Settle::Heard, now, actions);
        }
    }
}
