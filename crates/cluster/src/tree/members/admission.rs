//! A login from its arrival to its place: own cell, a cell below, or the wait for one.

use std::time::Duration;

use super::super::action::{ChildChange, NodeAction, Notice, RefusalReason};
use super::super::address::Address;
use super::super::blacklist::BlacklistVerdict;
use super::super::cell_directory::FreeSlots;
use super::super::connection_id::ConnectionId;
use super::super::identity::NodeId;
use super::super::limits::{CONTEST, ORPHANED, SETTLE};
use super::super::member::ClusterMember;
use super::super::member_slots::SlotOffer;
use super::super::message::{LoginMessage, LoginRefusal, NodeMessage, ParentReply, StatusMessage};
use super::super::parking::Parked;
use super::super::peer_address::PeerAddress;
use super::super::role::{RoleError, role};
use super::connections::ConnectionRole;
use super::contests::Contest;
use super::seating::{NewcomerPlacement, SeatChooser};
use super::{Members, RootDistance};
use crate::{EXPECTED_BACK, Slot};

use wire::cms::login::Role;
use wire::cms::{Extensions, PROTOCOL_VERSION};

impl Members {
    /// Returns the role of a node from its login. Redirectors are handled elsewhere.
    pub fn role(&self, login: &LoginMessage) -> Result<Role, RoleError> {
        role(login.mode, self.settings.acceptor)
    }

    /// Handles the login of a node.
    pub fn login(
        &mut self,
        link: ConnectionId,
        peer: &PeerAddress,
        login: &LoginMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let role = match self.role(login) {
            Ok(role) => role,
            Err(reason) => return self.turn_down(link, peer, login, RefusalReason::Role(reason), out),
        };
        match self.orders.blacklist.verdict(peer) {
            BlacklistVerdict::Fine => {}
            BlacklistVerdict::Banned => {
                let refusal =
                    LoginRefusal { banned: true, text: "this node is on the black list".to_owned() };
                out.push(NodeAction::Send { link, message: NodeMessage::Refusal(refusal) });
                return self.links.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
            BlacklistVerdict::Elsewhere(hosts) => {
                out.push(NodeAction::Send { link, message: NodeMessage::Try { hosts, permanent: true } });
                return self.links.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
        }
        let Some(id) = NodeId::new(&login.id) else {
            return self.turn_down(link, peer, login, RefusalReason::NoId, out);
        };
        if matches!(self.standing, RootDistance::Alone(since) if now >= since + ORPHANED) {
            return self.links.turn_away(link, &peer.host, RefusalReason::Orphaned, out);
        }
        let extensions = login.extensions.common(self.settings.extensions);
        let member = ClusterMember::from_login(link, peer, login, id, role, extensions, now);
        self.service.note_arrival(now);
        if role.has_children() {
            self.last_parent = now;
        }
        self.receive(Box::new(member), now, out);
    }

    /// Assigns a place: the former one, a contested one, that of an alternate, or a new one.
    fn receive(&mut self, member: Box<ClusterMember>, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(link) = member.link else { return };
        match self.cell.place(&member.identity, member.role, now) {
            SlotOffer::Return(slot) => self.admit(slot, *member, now, out),
            SlotOffer::Contested(slot) => self.contest(slot, member, now, out),
            SlotOffer::Alternate(slot) => {
                self.greet(link, member.version, member.extensions, out);
                self.links.assign(link, ConnectionRole::Alternate(slot));
                self.cell.stand_by(slot, *member);
            }
            SlotOffer::Free(_) | SlotOffer::Displace(_) | SlotOffer::None => {
                let returned = self.directory.came_back(member.identity.id.digest(), now);
                self.seat(member, returned, now, out);
            }
        }
    }

    /// Handles a second connection of one identity, see `contests`.
    fn contest(&mut self, slot: Slot, member: Box<ClusterMember>, now: Duration, out: &mut Vec<NodeAction>) {
        let (Some(link), Some(older)) = (member.link, self.cell.get(slot).and_then(|member| member.link))
        else {
            return;
        };
        if let Some(before) = self.contests.take(slot) {
            self.links.close(before.link, out);
        }
        out.push(NodeAction::Send { link: older, message: NodeMessage::Ping });
        self.links.assign(link, ConnectionRole::Contest);
        self.contests.add(Contest { link, member, slot, due: now + CONTEST });
    }

    /// Refuses the newcomer, because the older connection is alive: the node id is a duplicate.
    pub(super) fn contest_lost(&mut self, slot: Slot, out: &mut Vec<NodeAction>) {
        while let Some(contest) = self.contests.take(slot) {
            let (id, host) = (&contest.member.identity.id, contest.member.address.host());
            out.push(NodeAction::Notice(Notice::Twins { id: id.as_str().to_owned(), host: host.to_owned() }));
            self.greet(contest.link, contest.member.version, contest.member.extensions, out);
            self.links.close(contest.link, out);
        }
    }

    /// Accepts the newcomer, because the older connection has ended.
    pub(super) fn contest_won(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(contest) = self.contests.take(slot) {
            self.links.remove(contest.link);
            self.receive(contest.member, now, out);
        }
    }

    pub(super) fn settle_contests(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        while let Some(slot) = self.contests.overdue(now) {
            if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
                self.links.close(link, out);
            }
            self.lost(slot, now, out);
        }
    }

    /// Gives a slot to a node. A previous child has already been removed from it.
    fn admit(&mut self, slot: Slot, mut member: ClusterMember, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(link) = member.link else { return };
        (member.since, member.heard, member.pinged) = (now, now, now);
        let before = self.cell.get(slot);
        let fresh = before
            .is_none_or(|before| before.paths != member.paths || !before.identity.same(&member.identity));
        member.condition.draining = self.orders.is_drained(&member);
        member.condition.newcomer = is_newcomer(&member, before, now);
        let node = member.identity.id.digest();
        if member.role == Role::Supervisor || member.role == Role::ProxyManager {
            // A node of our own reports its places soon; until then no node is redirected there.
            let places = if member.is_own() { FreeSlots::default() } else { FreeSlots::UNKNOWN };
            self.directory.report(node, &member.address, 1, slot, places, member.is_own());
        }
        self.directory.arrived(node);
        self.elsewhere.remove(&slot);
        if let Some(before) = before.filter(|before| before.identity.same(&member.identity)) {
            member.service = before.service;
            // A real node reports its load only on request, so its last known load applies until
            // then.
            if !member.is_own() {
                member.load = before.load;
            }
        }
        if before.is_none_or(|before| !before.identity.same(&member.identity)) {
            self.liveness.note_login(slot);
        }
        self.links.assign(link, ConnectionRole::Child(slot));
        self.liveness.wake(now + self.liveness.interval(&member));
        self.greet(link, member.version, member.extensions, out);
        if member.condition.draining && member.is_own() {
            let status = StatusMessage { drains: Some(true), ..StatusMessage::default() };
            out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
        }
        self.cell.put(slot, member);
        self.reporter.joined(node, now);
        out.push(NodeAction::Child { slot, change: ChildChange::Joined { fresh } });
        self.review(now, out);
    }

    /// Returns the reply to a login.
    fn greet(&self, link: ConnectionId, version: u16, extensions: Extensions, out: &mut Vec<NodeAction>) {
        // Older nodes expect neither an id nor a text at the end.
        let modern = version >= PROTOCOL_VERSION;
        let reply = ParentReply {
            suspended: !self.service.serves(),
            hold_ms: u32::try_from(self.settings.hold.as_millis()).unwrap_or(u32::MAX),
            id: if modern { self.settings.id.as_str().to_owned() } else { String::new() },
            site: self.settings.site.clone().filter(|_| modern),
            door: self.settings.door.clone().filter(|_| extensions.is_own()),
            extensions,
        };
        out.push(NodeAction::Send { link, message: NodeMessage::Reply(reply) });
    }

    /// Refuses a login as real parents do: with a reply and the end of the connection.
    fn turn_down(
        &mut self,
        link: ConnectionId,
        peer: &PeerAddress,
        login: &LoginMessage,
        reason: RefusalReason,
        out: &mut Vec<NodeAction>,
    ) {
        self.greet(link, login.version, login.extensions.common(self.settings.extensions), out);
        self.links.refuse(link, &peer.host, reason, out);
    }

    /// Names another parent, then ends the connection. The own address comes last, so that a real
    /// node that found no place returns at once. Only a root does this, because a real node that an
    /// inner node redirects may have no entry left in its list.
    fn redirect(&mut self, link: ConnectionId, to: &[Address], own: bool, out: &mut Vec<NodeAction>) {
        let inner = self.settings.acceptor.is_supervisor();
        let hosts = match (inner, own) {
            (true, false) => Vec::new(),
            (true, true) => to.to_vec(),
            (false, _) => to.iter().chain([&self.settings.address]).cloned().collect(),
        };
        self.links.redirect(link, hosts, out);
    }

    /// Returns the rules by which newcomers get their places.
    pub(super) fn seats(&self) -> SeatChooser<'_> {
        SeatChooser {
            settings: &self.settings,
            cell: &self.cell,
            directory: &self.directory,
            waiting: &self.waiting,
            standing: self.standing,
            last_parent: self.last_parent,
        }
    }

    /// Assigns a place to a newcomer without a slot. `returned`: it was redirected a moment ago and
    /// has come back.
    fn seat(&mut self, member: Box<ClusterMember>, returned: bool, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(link) = member.link else { return };
        match self.seats().find(&member, returned, now) {
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
                self.links.turn_away(link, member.address.host(), RefusalReason::Full, out)
            }
        }
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
        if self.waiting.park(link, member, returned, now).is_err() {
            return self.links.refuse(link, &host, RefusalReason::Full, out);
        }
        self.links.assign(link, ConnectionRole::Parked);
        if self.waiting.take_warning() {
            out.push(NodeAction::Notice(Notice::Full { waiting: self.waiting() }));
        }
    }

    /// Assigns places to waiting logins while there is room, the longest wait first.
    pub(super) fn release(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        // Assigning a place may call this function again: one round at a time.
        if !self.waiting.begin_release() {
            return;
        }
        for parents in [true, false] {
            while let Some(link) = self.seats().next_to_seat(parents, now) {
                let Some(parked) = self.waiting.of_mut(parents).release(link) else { break };
                self.links.remove(link);
                // Its identity may have received a slot by another connection meanwhile.
                self.seat_or_contest(parked, now, out);
            }
        }
        if self.waiting.end_release() {
            let relaxed = Some(self.last_parent + SETTLE).filter(|at| *at > now);
            self.waiting.relax_at([relaxed, self.cell.next_lost(now)]);
        }
    }

    fn seat_or_contest(&mut self, parked: Parked, now: Duration, out: &mut Vec<NodeAction>) {
        let Parked { member, returned, .. } = parked;
        match self.cell.place(&member.identity, member.role, now) {
            SlotOffer::Contested(_) | SlotOffer::Alternate(_) => {
                if let Some(link) = member.link {
                    self.links.turn_away(link, member.address.host(), RefusalReason::Twin, out);
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
                    self.links.turn_away(link, member.address.host(), RefusalReason::Full, out);
                } else {
                    self.redirect(link, &[], member.is_own(), out);
                }
            }
        }
    }
}

/// Reports whether other managers may not know a child that logs in. One that reconnects has been
/// chosen for files before; if it was lost for long, other children have been chosen since.
fn is_newcomer(member: &ClusterMember, before: Option<&ClusterMember>, now: Duration) -> bool {
    let is_expected = |before: &ClusterMember| {
        before.identity.same(&member.identity)
            && !before.condition.newcomer
            && (before.link.is_some() || now < before.since.saturating_add(EXPECTED_BACK))
    };
    member.extensions.contains(Extensions::NEWCOMER) && !before.is_some_and(is_expected)
}
