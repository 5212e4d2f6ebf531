//! The choice of a place for a newcomer: in the own cell, in one below, or none yet.
//!
//! A root fills its own cell first while the cluster is small. Beyond that its free places are for
//! supervisors, and servers go straight to their final cell. A login without a place waits, so that
//! it does not try every full cell.

use std::time::Duration;

use super::super::action::{NodeAction, Notice, RefusalReason};
use super::super::address::Address;
use super::super::connection_id::ConnectionId;
use super::super::limits::{FLAT_MAX, SETTLE};
use super::super::member::ClusterMember;
use super::super::member_slots::SlotOffer;
use super::super::message::NodeMessage;
use super::super::parking::Parked;
use super::super::role::AcceptorRole;
use super::{ConnectionRole, Members, RootDistance};
use crate::Slot;

/// The place of a newcomer.
enum NewcomerPlacement {
    /// In the own cell; a child in the slot has to leave.
    Here(Slot),
    /// In this cell below.
    Below(u64),
    /// None yet.
    Wait,
    /// None.
    Nowhere,
}

impl Members {
    /// Assigns a place to a newcomer without a slot. `returned`: it was redirected a moment ago and
    /// has come back.
    pub(super) fn seat(
        &mut self,
        member: Box<ClusterMember>,
        returned: bool,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(link) = member.link else { return };
        match self.find_seat(&member, returned, now) {
            NewcomerPlacement::Here(slot) => {
                let displaced = self.make_room(slot, &member, now, out);
                let cell = member.identity.id.digest();
                self.admit(slot, *member, now, out);
                if let Some(node) = displaced {
                    self.directory.sent(node, cell, now);
                }
            }
            NewcomerPlacement::Below(cell) => self.send_below(link, &member, cell, now, out),
            NewcomerPlacement::Wait => self.hold(link, member, returned, now, out),
            NewcomerPlacement::Nowhere => {
                self.turn_away(link, member.address.host(), RefusalReason::Full, out)
            }
        }
    }

    fn find_seat(&self, member: &ClusterMember, returned: bool, now: Duration) -> NewcomerPlacement {
        let place = self.cell.place(&member.identity, member.role, now);
        let here = match place {
            SlotOffer::Free(slot) | SlotOffer::Displace(slot) | SlotOffer::Return(slot) => Some(slot),
            _ => None,
        };
        match self.settings.acceptor {
            AcceptorRole::MetaManager | AcceptorRole::Server => {
                here.map_or(NewcomerPlacement::Nowhere, NewcomerPlacement::Here)
            }
            AcceptorRole::Supervisor => {
                let too_deep = member.role.has_children() && self.standing != RootDistance::Near;
                here.filter(|_| !too_deep).map_or(NewcomerPlacement::Nowhere, NewcomerPlacement::Here)
            }
            AcceptorRole::Manager | AcceptorRole::ProxyManager => {
                self.seat_at_root(member, here, returned, now)
            }
        }
    }

    fn seat_at_root(
        &self,
        member: &ClusterMember,
        here: Option<Slot>,
        returned: bool,
        now: Duration,
    ) -> NewcomerPlacement {
        let node = member.identity.id.digest();
        // A real node that returns over the own address at the end of a list treats this node as an
        // inner node, and would leave the other managers.
        let here = here.filter(|_| !(returned && self.settings.replicas && !member.is_own()));
        if member.role.has_children() {
            let below = || self.directory.cell_for_parent(node, now).map(NewcomerPlacement::Below);
            return here.map(NewcomerPlacement::Here).or_else(below).unwrap_or(NewcomerPlacement::Wait);
        }
        let free = here.filter(|slot| !self.cell.online().contains(*slot));
        if let Some(slot) = free.filter(|_| !self.needs_tree()) {
            return NewcomerPlacement::Here(slot);
        }
        if let Some(cell) = self.directory.cell_for_server(node, now) {
            return NewcomerPlacement::Below(cell);
        }
        match free {
            Some(slot) if now >= self.last_parent + SETTLE => NewcomerPlacement::Here(slot),
            _ => NewcomerPlacement::Wait,
        }
    }

    /// Reports whether the cluster is larger than one cell, so that free places at the root are for
    /// supervisors.
    fn needs_tree(&self) -> bool {
        // The newcomer itself is not among the known nodes.
        self.settings.expected > FLAT_MAX || self.cell.used().len() >= FLAT_MAX || self.known() >= FLAT_MAX
    }

    /// Redirects the child in a slot: to a cell with room by the directory, or into the newcomer's
    /// cell. Returns the child that was sent to the newcomer.
    fn make_room(
        &mut self,
        slot: Slot,
        newcomer: &ClusterMember,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) -> Option<u64> {
        let displaced = self.cell.get(slot)?;
        let Some(link) = displaced.link else {
            self.free(slot, now, out);
            return None;
        };
        let (node, own, ip) = (displaced.identity.id.digest(), displaced.is_own(), displaced.identity.ip);
        let mut to = Vec::new();
        let known = self.directory.cell_for_server(node, now);
        if let Some(cell) = known {
            to.extend(self.directory.address(cell).map(|address| address.toward(ip)));
            self.directory.sent(node, cell, now);
        }
        if newcomer.role.has_children() {
            to.push(newcomer.address.toward(ip));
        }
        self.redirect(link, &to, own, out);
        self.free(slot, now, out);
        known.is_none().then_some(node)
    }

    fn send_below(
        &mut self,
        link: ConnectionId,
        member: &ClusterMember,
        cell: u64,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let node = member.identity.id.digest();
        let second =
            if member.role.has_children() { None } else { self.directory.second_choice(node, cell, now) };
        let to: Vec<Address> = [Some(cell), second]
            .into_iter()
            .flatten()
            .filter_map(|cell| Some(self.directory.address(cell)?.toward(member.identity.ip)))
            .collect();
        self.directory.sent(node, cell, now);
        self.redirect(link, &to, member.is_own(), out);
    }

    /// Holds a login back until there is room.
    fn hold(
        &mut self,
        link: ConnectionId,
        member: Box<ClusterMember>,
        returned: bool,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let host = member.address.host().to_owned();
        let parents = member.role.has_children();
        if self.waiting.of_mut(parents).park(link, member, returned, now).is_err() {
            return self.refuse(link, &host, RefusalReason::Full, out);
        }
        self.links.insert(link, ConnectionRole::Parked);
        self.relax_at.get_or_insert(now + SETTLE);
        if !std::mem::replace(&mut self.warned_full, true) {
            out.push(NodeAction::Notice(Notice::Full { waiting: self.waiting() }));
        }
    }

    /// Assigns places to waiting logins while there is room, the longest wait first.
    pub(super) fn release(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        // Assigning a place may call this function again: one round at a time.
        if self.waiting() == 0 || std::mem::replace(&mut self.releasing, true) {
            return;
        }
        for parents in [true, false] {
            while let Some(link) = self.next_to_seat(parents, now) {
                let Some(parked) = self.waiting.of_mut(parents).release(link) else { break };
                self.links.remove(&link);
                // Its identity may have received a slot by another connection meanwhile.
                self.seat_or_contest(parked, now, out);
            }
        }
        self.releasing = false;
        self.warned_full = self.waiting() > 0;
        let relaxed = self.last_parent + SETTLE;
        if self.warned_full {
            let next = [Some(relaxed).filter(|at| *at > now), self.cell.next_lost(now)];
            self.relax_at = next.into_iter().flatten().chain(self.relax_at).min();
        }
    }

    /// Returns the login that has waited longest, if there is a place for it. A login that came
    /// back may have none where others have one.
    fn next_to_seat(&self, parents: bool, now: Duration) -> Option<ConnectionId> {
        let waiting = self.waiting.of(parents);
        let first = waiting.oldest()?;
        let seated = |parked: &&Parked| {
            !matches!(self.find_seat(&parked.member, parked.returned, now), NewcomerPlacement::Wait)
        };
        let next = Some(first)
            .filter(seated)
            .or_else(|| waiting.oldest_new().filter(|_| first.returned).filter(seated))?;
        next.member.link
    }

    fn seat_or_contest(&mut self, parked: Parked, now: Duration, out: &mut Vec<NodeAction>) {
        let Parked { member, returned, .. } = parked;
        match self.cell.place(&member.identity, member.role, now) {
            SlotOffer::Contested(_) | SlotOffer::Alternate(_) => {
                if let Some(link) = member.link {
                    self.turn_away(link, member.address.host(), RefusalReason::Twin, out);
                }
            }
            _ => self.seat(member, returned, now, out),
        }
    }

    /// Sends due notices to waiting logins, and releases those that waited for too long. The own
    /// address restarts the clock of a real node without the pause that a refusal costs it.
    pub(super) fn check_waiting(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        for parents in [true, false] {
            while let Some(link) = self.waiting.of_mut(parents).notice(now) {
                out.push(NodeAction::Send { link, message: NodeMessage::Ping });
            }
            while let Some(member) = self.waiting.of_mut(parents).overdue(now) {
                let Some(link) = member.link else { continue };
                if self.settings.replicas && !member.is_own() {
                    // Over the own address it would arrive as at an inner node, which has no place
                    // for it.
                    self.turn_away(link, member.address.host(), RefusalReason::Full, out);
                } else {
                    self.redirect(link, &[], member.is_own(), out);
                }
            }
        }
    }
}
