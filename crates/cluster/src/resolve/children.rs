//! Events of the tree about children: joined, changed, lost, left; and their messages about files.
//!
//! The tree decides about membership; this file applies its decisions to the cell, to open queries
//! and to the leases of absent children.

use std::collections::BTreeSet;
use std::time::Duration;

use super::child_messages::ChildMessage;
use super::limits::{EXPECTED_BACK, SEATED_WITHIN};
use super::missed::MissedUntil;
use super::{LocationResolver, ResolverAction};
use crate::cell::{CellChild, ChildKind, ChildState, Interface, Newness};
use crate::lease_number::LeaseReport;
use crate::leases::LEASE;
use crate::paths::ChildExport;
use crate::slots::Slot;
use crate::tree::{ChildChange, ClusterMember, Extensions};

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
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.have(pending);
        }
    }

    /// Records that a path is below a child, but only at draining nodes.
    pub fn have_draining(
        &mut self,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.have_draining();
        }
    }

    /// Records that a child confirms the lease of a path, or reports that a client is on its way to
    /// create the path there. If the path exists elsewhere, or is leased to another child, one of
    /// the two leases ends.
    pub fn have_leased(
        &mut self,
        slot: Slot,
        path: &[u8],
        lease: LeaseReport,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.have_leased(lease);
        }
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
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.inventory(pending);
        }
    }

    /// Records that a child no longer has a path.
    pub fn gone(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<ResolverAction>) {
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.gone();
        }
    }

    /// Records the reply of a child that it does not have a path.
    pub fn not_here(&mut self, slot: Slot, path: &[u8], now: Duration, actions: &mut Vec<ResolverAction>) {
        if let Some(mut message) = ChildMessage::new(&mut self.engine, slot, path, now, actions) {
            message.not_here();
        }
    }

    /// Begins the inventory of a child.
    pub fn begin_list(&mut self, slot: Slot) {
        self.engine.locations.cell_mut().begin_list(slot);
    }

    /// Ends the inventory of files of a child that logged in.
    pub fn listed(&mut self, slot: Slot) {
        self.engine.locations.change_cell(|cell| cell.list(slot));
    }

    /// Ends a complete inventory: the child has listed all files and all other names, and reports
    /// each new name (decision 002).
    pub fn listed_completely(&mut self, slot: Slot) {
        self.engine.locations.change_cell(|cell| cell.list_completely(slot));
    }

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
                    self.engine.locations.cell_mut().miss_lessee(slot, now.saturating_add(LEASE));
                    self.miss(slot, now);
                } else if self.cell().connected().contains(slot) {
                    self.send_away(slot, now);
                }
                self.connections.forget(slot);
                self.leave(slot, now, actions);
            }
            (ChildChange::Reset, _) => self.bounce(slot),
            (ChildChange::Figures, Some(member)) => self.measure(slot, member),
            (ChildChange::Lost, _) => {
                self.engine.locations.cell_mut().miss_lessee(slot, now.saturating_add(LEASE));
                let expected = self.connections.expect(slot, now);
                let away = |child: &mut CellChild| {
                    child.state.connected = false;
                    child.state.expected = expected;
                };
                self.change(slot, away, now, actions);
            }
            (ChildChange::Joined { .. } | ChildChange::Condition | ChildChange::Draining, Some(member)) => {
                self.update(slot, change, member, interfaces, now, actions);
            }
        }
    }

    /// Applies the current state of a connected child.
    fn update(
        &mut self,
        slot: Slot,
        change: ChildChange,
        member: &ClusterMember,
        interfaces: Vec<Interface>,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let fresh = change == ChildChange::Joined { fresh: true } || self.cell().child(slot).is_none();
        let mut child = child(member, interfaces);
        let cell = self.engine.locations.cell();
        child.state.newness = self.connections.newness(cell, slot, &child, change, now);
        self.note_arrival(child.id);
        self.measure(slot, member);
        if fresh {
            self.connections.forget_loss(slot);
            // The tree refuses lists that cannot be read; a child without paths gets no requests.
            let exports = ChildExport::parse_list(member.paths.as_bytes()).unwrap_or_default();
            self.join(slot, child, &exports, now, actions);
        } else {
            self.change(slot, |known| *known = child, now, actions);
        }
        let is_reconnected = self.connections.attach(slot, member.link, now) && !fresh;
        if is_reconnected {
            // The child reconnected, or an alternate took its place: messages on the old connection
            // may be lost. Most likely its process was restarted, and works.
            self.engine.queries.unresponsive.reset(slot);
            self.engine.locations.change_cell(|cell| cell.invalidate(slot));
            self.engine.lose_child(slot, now, actions);
        }
    }

    /// Chooses children for new files that have been known to all managers for a moment.
    fn choose_announced(&mut self, now: Duration) {
        for slot in self.connections.take_announced(now) {
            self.engine.review_held();
            self.engine.locations.change_cell(|cell| {
                cell.change(slot, |child| {
                    if child.state.newness == Newness::Announced {
                        child.state.newness = Newness::None;
                    }
                });
            });
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
        let engine = &mut self.engine;
        engine.queries.unresponsive.reset(slot);
        engine.review_held();
        let before = engine.locations.cell().child(slot);
        if before.is_none_or(|before| before.interfaces != child.interfaces || before.port != child.port) {
            engine.note_replaced(slot);
        }
        engine.locations.change_cell(|cell| cell.join(slot, child, exports));
        engine.locations.shared().inventories.clear(slot);
        engine.queries.unresponsive.left(slot);
        self.note_idle(slot, now);
        // Queries to its predecessor will not be answered.
        self.engine.lose_child(slot, now, actions);
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
        let before = self.cell().connected();
        self.engine.review_held();
        self.engine.locations.change_cell(|cell| cell.change(slot, change));
        self.note_idle(slot, now);
        if (before - self.cell().connected()).contains(slot) {
            self.engine.lose_child(slot, now, actions);
        }
    }

    /// Records whether the child is out of service. Clients are not sent to such a child, and it
    /// may be unable to report the absence of files meanwhile.
    fn note_idle(&mut self, slot: Slot, now: Duration) {
        let idle = |child: &CellChild| child.kind == ChildKind::Inner && child.state.suspended;
        let is_idle = self.cell().child(slot).is_some_and(idle);
        self.engine.queries.unresponsive.note(slot, is_idle, now);
    }

    /// Records that the nodes below the child in `slot` changed.
    pub fn bounce(&mut self, slot: Slot) {
        self.engine.locations.change_cell(|cell| cell.bounce(slot));
    }

    /// Frees the slot.
    pub fn leave(&mut self, slot: Slot, now: Duration, actions: &mut Vec<ResolverAction>) {
        self.engine.review_held();
        self.engine.locations.change_cell(|cell| cell.leave(slot));
        self.engine.queries.unresponsive.left(slot);
        self.engine.lose_child(slot, now, actions);
    }

    /// Sets whether the quorum of children is present, as needed for answers that depend on all of
    /// them.
    pub fn set_quorum(&mut self, quorum: bool) {
        self.connections.has_quorum = quorum;
        self.apply_quorum();
    }

    /// Applies the quorum to the cell. It counts as missing while requests of clients wait for a
    /// missed child.
    fn apply_quorum(&mut self) {
        let quorum = self.connections.has_quorum && !self.engine.missed.hold_clients();
        if quorum != self.cell().quorum() {
            self.engine.review_held();
            self.engine.locations.change_cell(|cell| cell.set_quorum(quorum));
        }
    }

    /// Records a lost child whose slot is not kept. Most likely it will reconnect with its files
    /// and leases.
    fn miss(&mut self, slot: Slot, now: Duration) {
        if let Some(id) = self.cell().child(slot).map(|child| child.id) {
            let until = MissedUntil {
                clients: now.saturating_add(SEATED_WITHIN),
                parents: now.saturating_add(EXPECTED_BACK),
            };
            self.engine.missed.miss(id, until, self.connections.has_stayed(slot, now));
            self.apply_quorum();
        }
    }

    /// Records a child that was redirected to a cell below, or elsewhere. Until it has arrived,
    /// queries for its files and leases are not answered.
    fn send_away(&mut self, slot: Slot, now: Duration) {
        self.engine.locations.cell_mut().miss_lessee(slot, now.saturating_add(LEASE));
        if let Some(id) = self.cell().child(slot).map(|child| child.id) {
            let until = now.saturating_add(SEATED_WITHIN);
            self.engine.missed.miss(id, MissedUntil { clients: until, parents: until }, true);
            self.apply_quorum();
        }
    }

    /// Records that a missed node has a place, here or below.
    fn note_arrival(&mut self, id: u64) {
        if self.engine.missed.note_arrival(id) {
            self.engine.review_held();
            self.apply_quorum();
        }
    }

    /// Expects children of an earlier run of this node, by the numbers that [`Self::lessees`]
    /// returned there. They may have leases that this run does not know. New files wait until all
    /// these children have reconnected, or until the leases have ended. An inner node reports no
    /// file as missing until then, because its parents would choose another node.
    pub fn await_lessees(&mut self, ids: impl IntoIterator<Item = u64>, now: Duration) {
        let until = now.saturating_add(LEASE);
        for id in ids {
            if self.engine.locations.cell_mut().await_lessee(id, until) && self.engine.has_parents() {
                self.engine.missed.miss(id, MissedUntil { clients: now, parents: until }, true);
            }
        }
        self.apply_quorum();
        self.engine.locations.publish();
    }

    /// Records that cells below have accepted the nodes with these numbers of system ids. Their
    /// leases need no wait, because the supervisors report them. Returns whether [`Self::lessees`]
    /// changed.
    pub fn found_below(&mut self, ids: &[u64]) -> bool {
        ids.iter().for_each(|id| self.note_arrival(*id));
        let cell = self.engine.locations.cell_mut();
        let found = ids.iter().filter(|id| cell.found_below(**id)).count() > 0;
        if found {
            self.engine.review_held();
            self.engine.locations.publish();
        }
        found
    }

    /// Returns the numbers of the system ids of all nodes that may have leases of this one, for its
    /// next start. An inner node includes real daemons, because it must not report their files as
    /// missing.
    pub fn lessees(&self) -> BTreeSet<u64> {
        let (cell, connected) = (self.cell(), self.cell().connected());
        let lessees = if self.engine.has_parents() { connected } else { cell.lessees() & connected };
        let here = cell.children().filter(|(slot, _)| lessees.contains(*slot));
        here.map(|(_, child)| child.id).chain(cell.absent().iter().map(|one| one.id)).collect()
    }

    /// Returns the time of the next work for [`Self::review_children`].
    pub(super) fn next_child_deadline(&self) -> Option<Duration> {
        let cell = self.cell();
        let times = [
            self.connections.next_overdue(cell),
            self.connections.next_announced(),
            self.engine.missed.next_deadline(),
            cell.absent().next_deadline(),
        ];
        times.into_iter().flatten().min()
    }

    /// Gives up children that were lost long ago, and chooses new ones for files that have been
    /// known for long enough.
    pub(super) fn review_children(&mut self, now: Duration) {
        self.give_up_lost(now);
        self.choose_announced(now);
    }

    fn give_up_lost(&mut self, now: Duration) {
        if self.engine.missed.give_up(now) {
            self.engine.review_held();
        }
        self.apply_quorum();
        if self.engine.locations.cell_mut().forget_absent(now) {
            self.engine.review_held();
            self.engine.locations.publish();
        }
        for slot in self.connections.overdue(self.engine.locations.cell(), now) {
            self.engine.review_held();
            let give_up = |child: &mut CellChild| child.state.expected = false;
            self.engine.locations.change_cell(|cell| cell.change(slot, give_up));
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
