//! A login from its arrival to its place.

use std::time::Duration;

use super::super::action::{Action, ChildChange, Notice, RefusalReason};
use super::super::address::Address;
use super::super::blacklist::Verdict;
use super::super::cell::Place;
use super::super::directory::Places;
use super::super::identity::{Identity, SystemId};
use super::super::limits::CONTEST;
use super::super::link::LinkId;
use super::super::member::{Condition, Load, Member, Service};
use super::super::message::{Login, Message, Refusal, Reply, Status};
use super::super::role::{Acceptor, RoleError, role};

use wire::cms::flags::Mode;
use wire::cms::login::Role;
use wire::cms::{Extensions, PROTOCOL_VERSION};

use super::{Contest, Members, Peer, Position, Standing};
use crate::Slot;

/// The port of a data server that did not say it. Source: cms protocol 3, login record.
const DATA_PORT: u16 = 1094;

impl Members {
    /// What a node is to this one that logs in so; redirectors are none of the members' business.
    pub fn role(&self, login: &Login) -> Result<Role, RoleError> {
        role(login.mode, self.settings.acceptor)
    }

    /// A node asks for a place.
    pub fn login(&mut self, link: LinkId, peer: &Peer, login: &Login, now: Duration, out: &mut Vec<Action>) {
        let role = match self.role(login) {
            Ok(role) => role,
            Err(reason) => return self.turn_down(link, peer, login, RefusalReason::Role(reason), out),
        };
        match self.blacklist.verdict(peer) {
            Verdict::Fine => {}
            Verdict::Banned => {
                let refusal = Refusal { banned: true, text: "this node is on the black list".to_owned() };
                out.push(Action::Send { link, message: Message::Refusal(refusal) });
                return self.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
            Verdict::Elsewhere(hosts) => {
                out.push(Action::Send { link, message: Message::Try { hosts, permanent: true } });
                return self.refuse(link, &peer.host, RefusalReason::Banned, out);
            }
        }
        let Some(id) = SystemId::new(&login.id) else {
            return self.turn_down(link, peer, login, RefusalReason::NoId, out);
        };
        if matches!(self.standing, Standing::Alone(since) if now >= since + super::super::limits::ORPHANED) {
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
        link: LinkId,
        peer: &Peer,
        login: &Login,
        id: SystemId,
        role: Role,
        now: Duration,
    ) -> Member {
        let data_port = if login.data_port == 0 { DATA_PORT } else { login.data_port };
        Member {
            identity: Identity { id, ip: peer.ip, data_port },
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
            load: Load::default(),
            link: Some(link),
            since: now,
            heard: now,
            pinged: now,
            pings: 0,
            service: Service::default(),
        }
    }

    /// Known, contested, standing by, or to be seated.
    fn receive(&mut self, member: Box<Member>, now: Duration, out: &mut Vec<Action>) {
        let Some(link) = member.link else { return };
        match self.cell.place(&member.identity, member.role, now) {
            Place::Return(slot) => self.admit(slot, *member, now, out),
            Place::Contested(slot) => self.contest(slot, member, now, out),
            Place::Alternate(slot) => {
                self.greet(link, member.version, member.extensions, out);
                self.links.insert(link, Position::Alternate(slot));
                self.cell.stand_by(slot, *member);
            }
            Place::Free(_) | Place::Displace(_) | Place::None => {
                let returned = self.directory.came_back(member.identity.id.digest(), now);
                self.seat(member, returned, now, out);
            }
        }
    }

    /// Two connections of one identity: the older one must answer within a moment, else it is a corpse that the network
    /// has not buried. Real managers refuse the newcomer for as long as the corpse lies, up to three pings.
    fn contest(&mut self, slot: Slot, member: Box<Member>, now: Duration, out: &mut Vec<Action>) {
        let (Some(link), Some(older)) = (member.link, self.cell.get(slot).and_then(|member| member.link))
        else {
            return;
        };
        if let Some(waiting) = self.contests.iter().position(|contest| contest.slot == slot) {
            let before = self.contests.swap_remove(waiting);
            self.close(before.link, out);
        }
        out.push(Action::Send { link: older, message: Message::Ping });
        self.links.insert(link, Position::Contest);
        self.contests.push(Contest { link, member, slot, due: now + CONTEST });
    }

    /// The older connection is alive: the newcomer is a twin.
    pub(super) fn contest_lost(&mut self, slot: Slot, out: &mut Vec<Action>) {
        while let Some(at) = self.contests.iter().position(|contest| contest.slot == slot) {
            let contest = self.contests.swap_remove(at);
            let (id, host) = (&contest.member.identity.id, contest.member.address.host());
            out.push(Action::Notice(Notice::Twins { id: id.as_str().to_owned(), host: host.to_owned() }));
            self.greet(contest.link, contest.member.version, contest.member.extensions, out);
            self.close(contest.link, out);
        }
    }

    /// The older connection is gone.
    pub(super) fn contest_won(&mut self, slot: Slot, now: Duration, out: &mut Vec<Action>) {
        if let Some(at) = self.contests.iter().position(|contest| contest.slot == slot) {
            let contest = self.contests.swap_remove(at);
            self.links.remove(&contest.link);
            self.receive(contest.member, now, out);
        }
    }

    pub(super) fn settle_contests(&mut self, now: Duration, out: &mut Vec<Action>) {
        while let Some(contest) = self.contests.iter().find(|contest| contest.due <= now) {
            let slot = contest.slot;
            if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
                self.close(link, out);
            }
            self.lost(slot, now, out);
        }
    }

    /// Gives a slot to a node; whoever is there has been dealt with.
    pub(super) fn admit(&mut self, slot: Slot, mut member: Member, now: Duration, out: &mut Vec<Action>) {
        let Some(link) = member.link else { return };
        (member.since, member.heard, member.pinged) = (now, now, now);
        let before = self.cell.get(slot);
        let fresh = before
            .is_none_or(|before| before.paths != member.paths || !before.identity.same(&member.identity));
        member.condition.draining = self.drained.contains(member.identity.id.as_str());
        let node = member.identity.id.digest();
        if member.role == Role::Supervisor || member.role == Role::ProxyManager {
            // One of our own reports in a moment; until then nobody is sent there.
            let places = if member.is_own() { Places::default() } else { Places::UNKNOWN };
            self.directory.report(node, &member.address, 1, slot, places, member.is_own());
        }
        self.directory.arrived(node);
        self.elsewhere.remove(&slot);
        if let Some(before) = before.filter(|before| before.identity.same(&member.identity)) {
            member.service = before.service;
            // A real one says only when it is asked how busy it is: until then it is as busy as it was, not idle.
            if !member.is_own() {
                member.load = before.load;
            }
        }
        if before.is_none_or(|before| !before.identity.same(&member.identity)) {
            self.unheard.insert(slot);
        }
        self.links.insert(link, Position::Child(slot));
        self.wake_health(now + self.interval(&member));
        self.greet(link, member.version, member.extensions, out);
        if member.condition.draining && member.is_own() {
            let status = Status { drains: Some(true), ..Status::default() };
            out.push(Action::Send { link, message: Message::Status(status) });
        }
        self.cell.put(slot, member);
        self.reporter.joined(node, now);
        out.push(Action::Child { slot, change: ChildChange::Joined { fresh } });
        self.review(now, out);
    }

    /// The reply to a login.
    fn greet(&self, link: LinkId, version: u16, extensions: Extensions, out: &mut Vec<Action>) {
        // Older ones know no ids and no text at the end.
        let modern = version >= PROTOCOL_VERSION;
        let reply = Reply {
            suspended: !self.serves,
            hold_ms: u32::try_from(self.settings.hold.as_millis()).unwrap_or(u32::MAX),
            id: if modern { self.settings.id.as_str().to_owned() } else { String::new() },
            site: self.settings.site.clone().filter(|_| modern),
            door: self.settings.door.clone().filter(|_| extensions.is_own()),
            extensions,
        };
        out.push(Action::Send { link, message: Message::Reply(reply) });
    }

    /// Refuses as real parents do: a reply, and the end.
    fn turn_down(
        &mut self,
        link: LinkId,
        peer: &Peer,
        login: &Login,
        reason: RefusalReason,
        out: &mut Vec<Action>,
    ) {
        self.greet(link, login.version, login.extensions.common(self.settings.extensions), out);
        self.refuse(link, &peer.host, reason, out);
    }

    /// No place here and none to name. Always safe: an empty list ends no real node.
    pub(super) fn turn_away(
        &mut self,
        link: LinkId,
        host: &str,
        reason: RefusalReason,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Send { link, message: Message::Try { hosts: Vec::new(), permanent: false } });
        self.refuse(link, host, reason, out);
    }

    /// Names another parent, then ends the connection. The own address comes last: it cannot lead a real node astray, and
    /// brings one back at once that found no place. Only a root may: a real node that came to an inner node may stand at
    /// the end of its list, and ends when it is sent further.
    pub(super) fn redirect(&mut self, link: LinkId, to: &[Address], own: bool, out: &mut Vec<Action>) {
        let inner = self.settings.acceptor == Acceptor::Supervisor;
        let hosts = match (inner, own) {
            (true, false) => Vec::new(),
            (true, true) => to.to_vec(),
            (false, _) => to.iter().chain([&self.settings.address]).cloned().collect(),
        };
        out.push(Action::Send { link, message: Message::Try { hosts, permanent: false } });
        self.close(link, out);
    }
}
