//! Events of the tree about children: joined, changed, lost, left.
//!
//! The tree decides about membership; this file applies its decisions to the cell, to open queries
//! and to the leases of absent children.

use std::collections::BTreeSet;
use std::time::Duration;

use super::limits::{ANNOUNCED, EXPECTED_BACK, SEATED_WITHIN, STEPS_AT_ONCE};
use super::missed::MissedUntil;
use super::queries::Settle;
use super::{AttachedChild, LocationResolver, ResolverAction};
use crate::cell::{CellChild, ChildKind, ChildState, Interface, Newness};
use crate::leases::LEASE;
use crate::paths::ChildExport;
use crate::slots::{Slot, SlotMask};
use crate::tree::limits::STABLE;
use crate::tree::{ChildChange, ClusterMember, Extensions};

impl LocationResolver {
    /// Applies a change of the child in `slot`, as reported by the tree. `member` is the child in
    /// the tree, `None` if the slot is free; `interfaces` are its addresses, which only the driver
    /// can determine.
    pub fn follow(
        &mut self,
        slot: Slot,
        change: ChildChange,
        member: Option<&ClusterMember>,
        interfaces: Vec<Interface>,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        match (change, member) {
            (ChildChange::Freed, _) | (_, None) => {
                if change == ChildChange::Lost {
                    self.cell.miss_lessee(slot, now.saturating_add(LEASE));
                    self.miss(slot, now);
                } else if self.cell.connected().contains(slot) {
                    self.send_away(slot, now);
                }
                self.links.remove(&slot);
                self.expected.retain(|(_, other)| *other != slot);
                self.leave(slot, now, actions);
            }
            (ChildChange::Reset, _) => self.bounce(slot),
            (ChildChange::Figures, Some(member)) => self.measure(slot, member),
            (ChildChange::Lost, _) => {
                self.cell.miss_lessee(slot, now.saturating_add(LEASE));
                let expected = self.expect(slot, now);
                let away = |child: &mut CellChild| {
                    child.state.connected = false;
                    child.state.expected = expected;
                };
                self.change(slot, away, now, actions);
            }
            (ChildChange::Joined { .. } | ChildChange::Condition | ChildChange::Draining, Some(member)) => {
                let fresh =
                    change == ChildChange::Joined { fresh: true } || self.cell().child(slot).is_none();
                let mut child = child(member, interfaces);
                child.state.newness = self.newness(slot, &child, change, now);
                self.note_arrival(child.id);
                self.measure(slot, member);
                if fresh {
                    self.expected.retain(|(_, other)| *other != slot);
                    // The tree refuses lists that cannot be read; a child without paths gets no
                    // requests.
                    let exports = ChildExport::parse_list(member.paths.as_bytes()).unwrap_or_default();
                    self.join(slot, child, &exports, now, actions);
                } else {
                    self.change(slot, |known| *known = child, now, actions);
                }
                let before = self.links.get(&slot).map(|attached| attached.link);
                match member.link {
                    Some(link) if before != Some(link) => {
                        self.links.insert(slot, AttachedChild { link, since: now });
                    }
                    Some(_) => {}
                    None => drop(self.links.remove(&slot)),
                }
                if !fresh && before != member.link {
                    // The child reconnected, or an alternate took its place: messages on the old
                    // connection may be lost. Most likely its process was restarted, and works.
                    self.unresponsive.reset(slot);
                    self.cell.invalidate(slot);
                    self.shared.publish(&self.cell);
                    self.lost(slot, now, actions);
                }
            }
        }
    }

    /// Returns how well the other managers know a child. A new child that reports that all of them
    /// know it gets no files for a moment. A child that an earlier run of this node has chosen is
    /// not new.
    fn newness(&mut self, slot: Slot, child: &CellChild, change: ChildChange, now: Duration) -> Newness {
        let before = self.cell.child(slot).filter(|before| before.id == child.id);
        let is_login = matches!(change, ChildChange::Joined { .. });
        let is_of_earlier_run = self.cell.absent().iter().any(|one| one.id == child.id && one.seat.is_none());
        match (before.map(|before| before.state.newness), child.state.newness) {
            (_, Newness::Unknown) if is_login && is_of_earlier_run => Newness::None,
            (Some(Newness::None), Newness::Unknown) if !is_login => Newness::None,
            (Some(Newness::Unknown), Newness::None) => {
                self.announced.retain(|(_, other)| *other != slot);
                self.announced.push((now.saturating_add(ANNOUNCED), slot));
                Newness::Announced
            }
            (Some(Newness::Announced), Newness::None) => Newness::Announced,
            (_, newness) => newness,
        }
    }

    /// Chooses children for new files that have been known to all managers for a moment.
    pub(super) fn choose_announced(&mut self, now: Duration) {
        for (_, slot) in self.announced.extract_if(.., |(until, _)| *until <= now).collect::<Vec<_>>() {
            self.review_held();
            self.cell.change(slot, |child| {
                if child.state.newness == Newness::Announced {
                    child.state.newness = Newness::None;
                }
            });
            self.shared.publish(&self.cell);
        }
    }

    fn measure(&self, slot: Slot, member: &ClusterMember) {
        self.cell().meters().set_load(slot, member.load);
        self.cell().meters().set_free_mb(slot, member.space.free_mb);
    }

    /// Adds a child in `slot`, new or with other paths than before.
    pub fn join(
        &mut self,
        slot: Slot,
        child: CellChild,
        exports: &[ChildExport],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.unresponsive.reset(slot);
        self.review_held();
        if self
            .cell
            .child(slot)
            .is_none_or(|before| before.interfaces != child.interfaces || before.port != child.port)
        {
            self.replaced.note(slot);
        }
        self.cell.join(slot, child, exports);
        self.shared.publish(&self.cell);
        self.shared.inventories.clear(slot);
        self.unresponsive.left(slot);
        self.note_idle(slot, now);
        // Queries to its predecessor will not be answered.
        self.lost(slot, now, actions);
    }

    /// Changes the state of the child in `slot`, but not its files: reconnected, lost, suspended,
    /// with another port.
    pub fn change(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut CellChild),
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let before = self.cell.connected();
        self.review_held();
        self.cell.change(slot, change);
        self.shared.publish(&self.cell);
        self.note_idle(slot, now);
        if (before - self.cell.connected()).contains(slot) {
            self.lost(slot, now, actions);
        }
    }

    /// Records whether the child is out of service. Clients are not sent to such a child, and it
    /// may be unable to report the absence of files meanwhile.
    fn note_idle(&mut self, slot: Slot, now: Duration) {
        let idle = |child: &CellChild| child.kind == ChildKind::Inner && child.state.suspended;
        self.unresponsive.note(slot, self.cell.child(slot).is_some_and(idle), now);
    }

    /// Records that the nodes below the child in `slot` changed.
    pub fn bounce(&mut self, slot: Slot) {
        self.cell.bounce(slot);
        self.shared.publish(&self.cell);
    }

    /// Frees the slot.
    pub fn leave(&mut self, slot: Slot, now: Duration, actions: &mut Vec<ResolverAction>) {
        self.review_held();
        self.cell.leave(slot);
        self.shared.publish(&self.cell);
        self.unresponsive.left(slot);
        self.lost(slot, now, actions);
    }

    /// Sets whether the quorum of children is present, as needed for answers that depend on all of
    /// them.
    pub fn set_quorum(&mut self, quorum: bool) {
        self.enough = quorum;
        let quorum = quorum && !self.missed.hold_clients();
        if quorum != self.cell.quorum() {
            self.review_held();
            self.cell.set_quorum(quorum);
            self.shared.publish(&self.cell);
        }
    }

    /// Records a lost child whose slot is not kept. Most likely it will reconnect with its files
    /// and leases.
    fn miss(&mut self, slot: Slot, now: Duration) {
        if let Some(id) = self.cell.child(slot).map(|child| child.id) {
            let until = MissedUntil {
                clients: now.saturating_add(SEATED_WITHIN),
                parents: now.saturating_add(EXPECTED_BACK),
            };
            self.missed.miss(id, until, self.stayed(slot, now));
            self.set_quorum(self.enough);
        }
    }

    /// Records a child that was redirected to a cell below, or elsewhere. Until it has arrived,
    /// queries for its files and leases are not answered.
    fn send_away(&mut self, slot: Slot, now: Duration) {
        self.cell.miss_lessee(slot, now.saturating_add(LEASE));
        if let Some(id) = self.cell.child(slot).map(|child| child.id) {
            let until = now.saturating_add(SEATED_WITHIN);
            self.missed.miss(id, MissedUntil { clients: until, parents: until }, true);
            self.set_quorum(self.enough);
        }
    }

    /// Records that a missed node has a place, here or below.
    fn note_arrival(&mut self, id: u64) {
        if self.missed.note_arrival(id) {
            self.review_held();
            self.set_quorum(self.enough);
        }
    }

    /// Expects children of an earlier run of this node, by the numbers that [`Self::lessees`]
    /// returned there. They may have leases that this run does not know. New files wait until all
    /// these children have reconnected, or until the leases have ended. An inner node reports no
    /// file as missing until then, because its parents would choose another node.
    pub fn await_lessees(&mut self, ids: impl IntoIterator<Item = u64>, now: Duration) {
        let until = now.saturating_add(LEASE);
        for id in ids {
            if self.cell.await_lessee(id, until) && self.settings.has_parents {
                self.missed.miss(id, MissedUntil { clients: now, parents: until }, true);
            }
        }
        self.set_quorum(self.enough);
        self.shared.publish(&self.cell);
    }

    /// Expects clients with leases of an earlier run of this node for `time`, see
    /// [`crate::Leases::recover`].
    pub fn recover_leases(&mut self, time: Duration, now: Duration) {
        self.leases.recover(time, now);
    }

    /// Sets whether a parent that grants no leases is connected, see
    /// [`crate::Leases::set_plain_parent`].
    pub fn set_plain_parent(&mut self, is_connected: bool) {
        self.leases.set_plain_parent(is_connected);
    }

    /// Records that cells below have accepted the nodes with these numbers of system ids. Their
    /// leases need no wait, because the supervisors report them. Returns whether [`Self::lessees`]
    /// changed.
    pub fn found_below(&mut self, ids: &[u64]) -> bool {
        ids.iter().for_each(|id| self.note_arrival(*id));
        let found = ids.iter().filter(|id| self.cell.found_below(**id)).count() > 0;
        if found {
            self.review_held();
            self.shared.publish(&self.cell);
        }
        found
    }

    /// Returns the numbers of the system ids of all nodes that may have leases of this one, for its
    /// next start. An inner node includes real daemons, because it must not report their files as
    /// missing.
    pub fn lessees(&self) -> BTreeSet<u64> {
        let connected = self.cell.connected();
        let lessees = if self.settings.has_parents { connected } else { self.cell.lessees() & connected };
        let here = self.cell.children().filter(|(slot, _)| lessees.contains(*slot));
        here.map(|(_, child)| child.id).chain(self.cell.absent().iter().map(|one| one.id)).collect()
    }

    /// Reports whether a lost child is expected to reconnect. The time counts from its first loss,
    /// however often it reconnected briefly since (flapping).
    fn expect(&mut self, slot: Slot, now: Duration) -> bool {
        let known = self.expected.iter().find(|(_, other)| *other == slot).map(|(until, _)| *until);
        if let Some(until) = known.filter(|_| !self.stayed(slot, now)) {
            return until > now;
        }
        self.expected.retain(|(_, other)| *other != slot);
        self.expected.push((now.saturating_add(EXPECTED_BACK), slot));
        true
    }

    /// Reports whether the lost child had been connected for more than a moment.
    fn stayed(&self, slot: Slot, now: Duration) -> bool {
        self.links.get(&slot).is_none_or(|attached| now >= attached.since.saturating_add(STABLE))
    }

    /// Records that a child will not reply to its queries: it has to be queried again if it
    /// reconnects.
    fn lost(&mut self, slot: Slot, now: Duration, actions: &mut Vec<ResolverAction>) {
        self.unconfirmed.forget(slot);
        self.queries.lose(slot);
        self.settle_lost(now, actions);
    }

    /// Settles a limited number of the queries of lost children. The next tick continues with the
    /// others; until then they count as open.
    pub(super) fn settle_lost(&mut self, now: Duration, actions: &mut Vec<ResolverAction>) {
        let before = self.steps();
        while self.steps() - before < STEPS_AT_ONCE {
            let Some((slot, id)) = self.queries.next_lost() else { return };
            let Some(query) = self.queries.get(id) else { continue };
            let (path, outstanding) = (query.path.clone(), query.outstanding() - slot.mask());
            self.queries.set_outstanding(id, outstanding);
            // With a shared file system only this server was queried.
            let shared = self.shared.chooser.policy().shared.is_some();
            let unasked = if shared { SlotMask::ALL } else { slot.mask() };
            self.shared.cache.update(&path, now, self.cell.bounces(), |location| {
                location.unasked |= unasked;
            });
            self.settle(id, Settle::Heard, now, actions);
        }
    }

    /// Returns the next time at which a lost child is given up.
    pub(super) fn next_given_up(&self) -> Option<Duration> {
        let expected = self.expected.iter().filter(|(_, slot)| self.cell.expected().contains(*slot));
        let absent = self.cell.absent().next_deadline();
        expected.map(|(until, _)| *until).chain(self.missed.next_deadline()).chain(absent).min()
    }

    /// Gives up children that were lost long ago.
    pub(super) fn give_up_lost(&mut self, now: Duration) {
        if self.missed.give_up(now) {
            self.review_held();
        }
        self.set_quorum(self.enough);
        if self.cell.forget_absent(now) {
            self.review_held();
            self.shared.publish(&self.cell);
        }
        let expected = self.cell.expected();
        let over = self.expected.iter().filter(|(until, slot)| *until <= now && expected.contains(*slot));
        let over: Vec<Slot> = over.map(|(_, slot)| *slot).collect();
        for slot in over {
            self.review_held();
            self.cell.change(slot, |child| child.state.expected = false);
            self.shared.publish(&self.cell);
        }
    }
}

fn child(member: &ClusterMember, interfaces: Vec<Interface>) -> CellChild {
    let can = |extension| member.extensions.contains(extension);
    CellChild {
        kind: if member.is_leaf() { ChildKind::Server } else { ChildKind::Inner },
        state: ChildState {
            connected: member.is_online(),
            suspended: member.condition.suspended,
            draining: member.condition.drains(),
            nostage: member.condition.nostage,
            newness: if member.condition.newcomer { Newness::Unknown } else { Newness::None },
            ..ChildState::default()
        },
        interfaces,
        port: member.data.port(),
        cid: member.identity.id.cluster().into(),
        says_not_here: can(Extensions::NOT_HERE),
        lists_all: can(Extensions::COMPLETE),
        takes_leases: can(Extensions::LEASES),
        digest: member.identity.digest(),
        id: member.identity.id.digest(),
        min_free_mb: member.space.minimum_mb,
        share: Some(member.share).filter(|share| *share > 0),
    }
}
