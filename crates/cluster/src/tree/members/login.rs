//! A login from its arrival to its place.

use std::time::Duration;

use super::super::action::{ChildChange, NodeAction, Notice, RefusalReason};
use super::super::address::Address;
use super::super::blacklist::BlacklistVerdict;
use super::super::cell_directory::FreeSlots;
use super::super::connection_id::ConnectionId;
use super::super::identity::{NodeId, NodeIdentity};
use super::super::limits::CONTEST;
use super::super::member::{ClusterMember, Condition, LoadReport, Service};
use super::super::member_slots::SlotOffer;
use super::super::message::{LoginMessage, LoginRefusal, NodeMessage, ParentReply, StatusMessage};
use super::super::role::{AcceptorRole, RoleError, role};

use wire::cms::flags::Mode;
use wire::cms::login::Role;
use wire::cms::{Extensions, PROTOCOL_VERSION};

use super::super::peer_address::PeerAddress;
use super::{ConnectionRole, Contest, Members, RootDistance};
use crate::{EXPECTED_BACK, Slot};

/// The port of a data server that did not report it. Source: cms protocol 3, login record.
const DATA_PORT: u16 = 1094;

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
        match self.blacklist.verdict(peer) {
            BlacklistVerdict::Fine => {}
            BlacklistVerdict::Banned => {
                let refusal =
                    LoginRefusal { banned: true, text: "this node is on the black list".to_owned() };
                out.push(NodeAction::Send { link, message: NodeMessage::Refusal(refusal) });
                return self.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
            BlacklistVerdict::Elsewhere(hosts) => {
                out.push(NodeAction::Send { link, message: NodeMessage::Try { hosts, permanent: true } });
                return self.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
        }
        let Some(id) = NodeId::new(&login.id) else {
            return self.turn_down(link, peer, login, RefusalReason::NoId, out);
        };
        if matches!(self.standing, RootDistance::Alone(since) if now >= since + super::super::limits::ORPHANED)
        {
            return self.turn_away(link, &peer.host, RefusalReason::Orphaned, out);
        }
        let member = self.newcomer(link, peer, login, id, role, now);
        self.last_arrival = now;
        if role.has_children() {
            self.last_parent = now;
        }
        self.receive(Box::new(member), now, out);
    }

    fn newcomer(
        &self,
        link: ConnectionId,
        peer: &PeerAddress,
        login: &LoginMessage,
        id: NodeId,
        role: Role,
        now: Duration,
    ) -> ClusterMember {
        let data_port = if login.data_port == 0 { DATA_PORT } else { login.data_port };
        ClusterMember {
            identity: NodeIdentity { id, ip: peer.ip, data_port },
            role,
            address: Address::new(&peer.host, login.cluster_port).beside(&login.interfaces),
            data: Address::new(&peer.host, data_port),
            paths: login.paths.clone(),
            site: login.site.clone(),
            host: login.host.clone().unwrap_or_default(),
            software: login.software.clone(),
            instance: login.instance.clone(),
            version: login.version,
            extensions: login.extensions.common(self.settings.extensions),
            condition: Condition {
                suspended: login.mode.contains(Mode::SUSPEND),
                nostage: login.mode.contains(Mode::NOSTAGE),
                ..Condition::default()
            },
            space: login.space,
            sums: None,
            share: login.mode.share_percent(),
            load: LoadReport::default(),
            link: Some(link),
            since: now,
            heard: now,
            pinged: now,
            pings: 0,
            service: Service::default(),
        }
    }

    /// Assigns a place: the former one, a contested one, that of an alternate, or a new one.
    fn receive(&mut self, member: Box<ClusterMember>, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(link) = member.link else { return };
        match self.cell.place(&member.identity, member.role, now) {
            SlotOffer::Return(slot) => self.admit(slot, *member, now, out),
            SlotOffer::Contested(slot) => self.contest(slot, member, now, out),
            SlotOffer::Alternate(slot) => {
                self.greet(link, member.version, member.extensions, out);
                self.links.insert(link, ConnectionRole::Alternate(slot));
                self.cell.stand_by(slot, *member);
            }
            SlotOffer::Free(_) | SlotOffer::Displace(_) | SlotOffer::None => {
                let returned = self.directory.came_back(member.identity.id.digest(), now);
                self.seat(member, returned, now, out);
            }
        }
    }

    /// Handles a second connection of one identity. The older one must answer a ping at once,
    /// otherwise it is considered dead. Real managers refuse the newcomer until the dead connection
    /// times out, after up to three pings.
    fn contest(&mut self, slot: Slot, member: Box<ClusterMember>, now: Duration, out: &mut Vec<NodeAction>) {
        let (Some(link), Some(older)) = (member.link, self.cell.get(slot).and_then(|member| member.link))
        else {
            return;
        };
        if let Some(waiting) = self.contests.iter().position(|contest| contest.slot == slot) {
            let before = self.contests.swap_remove(waiting);
            self.close(before.link, out);
        }
        out.push(NodeAction::Send { link: older, message: NodeMessage::Ping });
        self.links.insert(link, ConnectionRole::Contest);
        self.contests.push(Contest { link, member, slot, due: now + CONTEST });
    }

    /// Refuses the newcomer, because the older connection is alive: the node id is a duplicate.
    pub(super) fn contest_lost(&mut self, slot: Slot, out: &mut Vec<NodeAction>) {
        while let Some(at) = self.contests.iter().position(|contest| contest.slot == slot) {
            let contest = self.contests.swap_remove(at);
            let (id, host) = (&contest.member.identity.id, contest.member.address.host());
            out.push(NodeAction::Notice(Notice::Twins { id: id.as_str().to_owned(), host: host.to_owned() }));
            self.greet(contest.link, contest.member.version, contest.member.extensions, out);
            self.close(contest.link, out);
        }
    }

    /// Accepts the newcomer, because the older connection has ended.
    pub(super) fn contest_won(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(at) = self.contests.iter().position(|contest| contest.slot == slot) {
            let contest = self.contests.swap_remove(at);
            self.links.remove(&contest.link);
            self.receive(contest.member, now, out);
        }
    }

    pub(super) fn settle_contests(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        while let Some(contest) = self.contests.iter().find(|contest| contest.due <= now) {
            let slot = contest.slot;
            if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
                self.close(link, out);
            }
            self.lost(slot, now, out);
        }
    }

    /// Gives a slot to a node. A previous child has already been removed from it.
    pub(super) fn admit(
        &mut self,
        slot: Slot,
        mut member: ClusterMember,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(link) = member.link else { return };
        (member.since, member.heard, member.pinged) = (now, now, now);
        let before = self.cell.get(slot);
        let fresh = before
            .is_none_or(|before| before.paths != member.paths || !before.identity.same(&member.identity));
        member.condition.draining = self.drained.contains(member.identity.id.as_str());
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
            self.unheard.insert(slot);
        }
        self.links.insert(link, ConnectionRole::Child(slot));
        self.wake_health(now + self.interval(&member));
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
            suspended: !self.serves,
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
        self.refuse(link, &peer.host, reason, out);
    }

    /// Refuses a login without naming another parent. An empty list is safe with real nodes.
    pub(super) fn turn_away(
        &mut self,
        link: ConnectionId,
        host: &str,
        reason: RefusalReason,
        out: &mut Vec<NodeAction>,
    ) {
        out.push(NodeAction::Send {
            link,
            message: NodeMessage::Try { hosts: Vec::new(), permanent: false },
        });
        self.refuse(link, host, reason, out);
    }

    /// Names another parent, then ends the connection. The own address comes last, so that a real
    /// node that found no place returns at once. Only a root does this, because a real node that an
    /// inner node redirects may have no entry left in its list.
    pub(super) fn redirect(
        &mut self,
        link: ConnectionId,
        to: &[Address],
        own: bool,
        out: &mut Vec<NodeAction>,
    ) {
        let inner = self.settings.acceptor == AcceptorRole::Supervisor;
        let hosts = match (inner, own) {
            (true, false) => Vec::new(),
            (true, true) => to.to_vec(),
            (false, _) => to.iter().chain([&self.settings.address]).cloned().collect(),
        };
        out.push(NodeAction::Send { link, message: NodeMessage::Try { hosts, permanent: false } });
        self.close(link, out);
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
