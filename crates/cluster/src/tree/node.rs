//! A node of the cluster in any role: parent side and child side behind one interface.
//!
//! A driver supplies the events of its sockets and the time, because the node itself does no I/O.
//! The driver passes each event with its time, executes the actions in their order, and calls
//! [`ClusterNode::tick`] no later than at [`ClusterNode::deadline`]. It reports the end of each
//! connection, except those that an action ordered it to close.

mod orders;

use std::collections::VecDeque;
use std::time::Duration;

use base::Rng;
use wire::cms::flags::Mode;
use wire::cms::message::SpaceSums;

use super::action::{ChildChange, NodeAction, Notice};
use super::address::Address;
use super::connection_id::ConnectionId;
use super::connection_table::{ConnectionTable, TableLimits};
use super::limits::{
    LOAD_NEWS, LOGIN, LOGINS_MAX, LOGINS_PER_PEER_MAX, REDIRECTORS_MAX, REDIRECTORS_PER_PEER_MAX, TOTALS,
};
use super::member::{LoadReport, SpaceReport};
use super::members::{Members, RootDistance};
use super::membership::{ChildSettings, Membership};
use super::message::{LoginMessage, NodeMessage, ParentReply, StatusMessage};
use super::parent::ParentSettings;
use super::peer_address::PeerAddress;
use crate::Slot;
use orders::DrainReasons;

/// An event that the driver reports.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeEvent {
    /// A peer connected.
    Accepted {
        /// The name of the connection, from [`ConnectionId::accepted`].
        link: ConnectionId,
        /// The peer.
        peer: PeerAddress,
    },
    /// A connection that the node requested is established.
    Connected {
        /// The name of the connection.
        link: ConnectionId,
    },
    /// A message about the tree arrived.
    Message {
        /// The connection of the message.
        link: ConnectionId,
        /// The message.
        message: NodeMessage,
    },
    /// A message about files arrived. The node uses it only as a sign of life.
    Heard {
        /// The connection of the message.
        link: ConnectionId,
        /// The message is a parent's query for a file (`state`).
        state: bool,
    },
    /// A connection ended, or could not be established.
    Closed {
        /// The name of the connection.
        link: ConnectionId,
    },
}

/// A connection without a login yet.
#[derive(Debug)]
struct AnonymousConnection {
    peer: PeerAddress,
    /// The status that a node sent before its login.
    early: Option<StatusMessage>,
}

/// A node of the cluster.
#[derive(Debug)]
pub struct ClusterNode {
    members: Option<Members>,
    memberships: Vec<Membership>,
    redirectors: ConnectionTable<()>,
    anonymous: ConnectionTable<AnonymousConnection>,
    logins: VecDeque<(Duration, ConnectionId)>,
    /// The service state of the node itself; a node with children needs theirs, too.
    own: OwnStatus,
    drains: DrainReasons,
    totals_at: Option<Duration>,
}

/// The state of this node itself, as set by the driver.
#[derive(Clone, Copy, Debug)]
struct OwnStatus {
    serves: bool,
    stages: bool,
    data_port: u16,
}

impl ClusterNode {
    /// Creates a node with these roles: a manager has a parent side, a server a child side for each
    /// cluster, a supervisor both.
    pub fn new(
        parent: Option<ParentSettings>,
        mut children: Vec<ChildSettings>,
        rng: &mut dyn Rng,
        now: Duration,
    ) -> Self {
        if parent.is_some() {
            // A parent serves only with children, and reports that later.
            for child in &mut children {
                child.login.mode |= Mode::SUSPEND | Mode::NOSTAGE;
            }
        }
        let login = children.first().map(|child| &child.login);
        let own = OwnStatus {
            serves: login.is_none_or(|login| parent.is_some() || !login.mode.contains(Mode::SUSPEND)),
            stages: login.is_some_and(|login| !login.mode.contains(Mode::NOSTAGE)),
            data_port: login.map_or(0, |login| login.data_port),
        };
        Self {
            members: parent.map(|settings| Members::new(settings, now)),
            memberships: children.into_iter().map(|settings| Membership::new(settings, rng, now)).collect(),
            redirectors: ConnectionTable::new(TableLimits {
                total: REDIRECTORS_MAX,
                per_peer: REDIRECTORS_PER_PEER_MAX,
            }),
            anonymous: ConnectionTable::new(TableLimits { total: LOGINS_MAX, per_peer: LOGINS_PER_PEER_MAX }),
            logins: VecDeque::new(),
            own,
            drains: DrainReasons::default(),
            totals_at: None,
        }
    }

    /// Starts the search for parents.
    pub fn start(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        let from = out.len();
        for membership in &mut self.memberships {
            membership.start(now, out);
        }
        self.couple(from, now, out);
    }

    /// Returns the parent side; `None` for a server.
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Returns the memberships of this node in its clusters.
    pub fn memberships(&self) -> &[Membership] {
        &self.memberships
    }

    /// Returns the connections of redirectors.
    pub fn redirectors(&self) -> impl Iterator<Item = ConnectionId> {
        self.redirectors.links()
    }

    /// Reports whether a connection belongs to a redirector.
    pub fn is_redirector(&self, link: ConnectionId) -> bool {
        self.redirectors.contains(link)
    }

    /// Returns the slot of a child's connection.
    pub fn slot(&self, link: ConnectionId) -> Option<Slot> {
        self.members.as_ref()?.slot(link)
    }

    /// Handles an event.
    pub fn handle(&mut self, event: NodeEvent, now: Duration, out: &mut Vec<NodeAction>) {
        let from = out.len();
        match event {
            NodeEvent::Accepted { link, peer } => self.accepted(link, peer, now, out),
            NodeEvent::Connected { link } => {
                if let Some(membership) = self.membership(link) {
                    membership.connected(link, now, out);
                }
            }
            NodeEvent::Message { link, message } => {
                self.note_received(link, now, out);
                self.message(link, message, now, out);
            }
            NodeEvent::Heard { link, state } => {
                self.note_received(link, now, out);
                if let Some(membership) = self.membership(link).filter(|_| state) {
                    membership.note_query(link, now);
                }
            }
            NodeEvent::Closed { link } => self.closed(link, now, out),
        }
        self.couple(from, now, out);
    }

    /// Does the work that is due.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        let from = out.len();
        while let Some((_, link)) = self.logins.pop_front_if(|(due, _)| *due <= now) {
            if self.anonymous.remove(link).is_some() {
                out.push(NodeAction::Close { link });
            }
        }
        if let Some(members) = &mut self.members {
            members.tick(now, out);
        }
        for membership in &mut self.memberships {
            if membership.deadline().is_some_and(|due| due <= now) {
                membership.tick(now, out);
            }
        }
        self.couple(from, now, out);
        if self.totals_at.take_if(|due| *due <= now).is_some() {
            self.report_totals(true, out);
        }
    }

    /// Returns the time of the next work for [`tick`](Self::tick).
    pub fn deadline(&self) -> Option<Duration> {
        let members = self.members.as_ref().and_then(Members::deadline);
        let login = self.logins.front().map(|(due, _)| *due);
        let memberships = self.memberships.iter().filter_map(Membership::deadline).min();
        [members, login, memberships, self.totals_at].into_iter().flatten().min()
    }

    fn membership(&mut self, link: ConnectionId) -> Option<&mut Membership> {
        if !link.is_outward() {
            return None;
        }
        self.memberships.iter_mut().find(|membership| membership.owns(link))
    }

    fn accepted(&mut self, link: ConnectionId, peer: PeerAddress, now: Duration, out: &mut Vec<NodeAction>) {
        let ip = peer.ip;
        let anonymous = AnonymousConnection { peer, early: None };
        let insert = |_| self.anonymous.insert_fairly(link, ip, now, anonymous);
        let closed = self.members.as_ref().map_or(Some(link), insert);
        if closed != Some(link) {
            self.logins.push_back((now + LOGIN, link));
        }
        out.extend(closed.map(|link| NodeAction::Close { link }));
    }

    fn note_received(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(membership) = self.membership(link) {
            membership.note_received(link, now);
        } else if self.redirectors.contains(link) {
            self.redirectors.note_received(link, now);
        } else if let Some(members) = &mut self.members {
            members.note_received(link, now, out);
        }
    }

    fn message(
        &mut self,
        link: ConnectionId,
        message: NodeMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        if link.is_outward() {
            let greeted = matches!(message, NodeMessage::Reply(_));
            let drains = match &message {
                NodeMessage::Status(status) => status.drains,
                _ => None,
            };
            if let Some(membership) = self.membership(link) {
                membership.message(link, message, now, out);
            }
            if greeted {
                self.introduce(link, out);
                let door = self.door();
                if let Some(members) = &mut self.members {
                    members.set_door(door);
                }
            }
            let own = self.memberships.iter().any(|membership| membership.is_own(link));
            if let Some(drains) = drains.filter(|_| own) {
                self.set_draining(drains, out);
            }
        } else if self.anonymous.contains(link) {
            self.first_words(link, message, now, out);
        } else if self.redirectors.contains(link) {
            match message {
                NodeMessage::Update => out.push(NodeAction::Send { link, message: self.status() }),
                NodeMessage::Disc => {
                    self.redirectors.remove(link);
                    out.push(NodeAction::Close { link });
                }
                _ => {}
            }
        } else if let Some(members) = &mut self.members {
            members.message(link, message, now, out);
        }
    }

    /// Reports all cells to a new parent.
    fn introduce(&mut self, link: ConnectionId, out: &mut Vec<NodeAction>) {
        let Some(members) = &self.members else { return };
        let reports = members.all_reports();
        if let Some(membership) = self.memberships.iter().find(|membership| membership.owns(link)) {
            membership.report(&reports, Some(link), out);
        }
    }

    fn first_words(
        &mut self,
        link: ConnectionId,
        message: NodeMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        match message {
            NodeMessage::Login(login) => {
                if let Some(anonymous) = self.anonymous.remove(link) {
                    self.login(link, anonymous, &login, now, out);
                }
            }
            // About one in a hundred starts of real nodes does this.
            NodeMessage::Status(status) => {
                if let Some(anonymous) = self.anonymous.get_mut(link) {
                    anonymous.early = Some(status);
                }
            }
            _ => {
                self.anonymous.remove(link);
                out.push(NodeAction::Close { link });
            }
        }
    }

    fn login(
        &mut self,
        link: ConnectionId,
        anonymous: AnonymousConnection,
        login: &LoginMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let reply = self.reply(login);
        let Some(members) = &mut self.members else { return };
        if login.mode.contains(Mode::DIRECTOR) {
            out.push(NodeAction::Send { link, message: NodeMessage::Reply(reply) });
            if let Some(link) = self.redirectors.insert_or_replace(link, anonymous.peer.ip, now, ()) {
                out.push(NodeAction::Notice(Notice::Replaced { link, by: anonymous.peer.host }));
                out.push(NodeAction::Close { link });
            }
            return;
        }
        members.login(link, &anonymous.peer, login, now, out);
        if let Some(status) = anonymous.early {
            members.message(link, NodeMessage::Status(status), now, out);
        }
    }

    fn reply(&self, login: &LoginMessage) -> ParentReply {
        let settings = self.members.as_ref().map(Members::settings);
        ParentReply {
            suspended: !self.serves(),
            hold_ms: settings.map_or(0, |settings| settings.hold.as_millis() as u32),
            id: settings.map(|settings| settings.id.as_str().to_owned()).unwrap_or_default(),
            site: settings.and_then(|settings| settings.site.clone()),
            door: settings.and_then(|settings| settings.door.clone()).or_else(|| self.door()),
            extensions: settings
                .map(|settings| settings.extensions.common(login.extensions))
                .unwrap_or_default(),
        }
    }

    /// Returns the address at which clients enter the cluster, as received from the parents.
    pub fn door(&self) -> Option<Address> {
        self.memberships.iter().find_map(|membership| membership.door().cloned())
    }

    /// Returns the addresses of the nodes to which it is logged in.
    pub fn parent_addresses(&self) -> impl Iterator<Item = &Address> {
        let memberships = self.memberships.iter();
        memberships.flat_map(|membership| membership.inner().into_iter().chain(membership.attached_roots()))
    }

    fn closed(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(membership) = self.membership(link) {
            membership.closed(link, now, out);
        } else if self.anonymous.remove(link).is_none()
            && self.redirectors.remove(link).is_none()
            && let Some(members) = &mut self.members
        {
            members.closed(link, now, out);
        }
    }

    /// Reports whether clients are served here: by the node itself, or by enough children.
    pub fn serves(&self) -> bool {
        self.own.serves && self.members.as_ref().is_none_or(Members::serves)
    }

    fn status(&self) -> NodeMessage {
        let serves = self.serves();
        let data_port = Some(self.own.data_port).filter(|port| serves && *port != 0);
        NodeMessage::Status(StatusMessage { serves: Some(serves), data_port, ..StatusMessage::default() })
    }

    /// Passes the effects of an event on one side to the other side.
    fn couple(&mut self, from: usize, now: Duration, out: &mut Vec<NodeAction>) {
        let (mut service, mut standing, mut fresh, mut totals, mut drains) =
            (false, false, false, false, false);
        let mut at = from;
        // The effects on the other side may concern this side again.
        while at < out.len() {
            for action in out.get(at..).unwrap_or_default() {
                match action {
                    NodeAction::Service { .. } => service = true,
                    NodeAction::Attached { .. } | NodeAction::Remember { .. } => standing = true,
                    NodeAction::Child { change, .. } => {
                        totals = true;
                        // This includes a child that reconnected, because its messages during the
                        // loss may not have arrived.
                        fresh |= matches!(change, ChildChange::Joined { .. } | ChildChange::Reset);
                        drains |= *change == ChildChange::Draining;
                    }
                    _ => {}
                }
            }
            at = out.len();
            if std::mem::take(&mut service) {
                self.report_service(out);
            }
            if std::mem::take(&mut standing) {
                self.restand(now, out);
            }
        }
        if self.members.is_none() || self.memberships.is_empty() {
            return;
        }
        if fresh {
            for membership in &mut self.memberships {
                membership.reset(now, out);
            }
        }
        if drains {
            // Parents that were notified by a plain reset get the files again, or the notice that
            // they end.
            for membership in &self.memberships {
                membership.void(out);
            }
        }
        if totals {
            self.report_condition(out);
        }
        if totals && self.totals_at.is_none() {
            self.totals_at = Some(now + TOTALS);
            self.report_totals(false, out);
        }
        let reports = self.members.as_mut().map(|members| members.reports(now)).unwrap_or_default();
        if !reports.is_empty() {
            for membership in &self.memberships {
                membership.report(&reports, None, out);
            }
        }
    }

    fn restand(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(members) = &mut self.members else { return };
        if self.memberships.is_empty() {
            return;
        }
        let standing = if self.memberships.iter().any(|membership| membership.inner().is_some()) {
            RootDistance::Far
        } else if self.memberships.iter().any(Membership::is_attached) {
            RootDistance::Near
        } else {
            RootDistance::Alone(now)
        };
        members.stand(standing, now, out);
    }

    fn report_service(&mut self, out: &mut Vec<NodeAction>) {
        self.report_condition(out);
        let status = self.status();
        for link in self.redirectors.links() {
            out.push(NodeAction::Send { link, message: status.clone() });
        }
    }

    /// Reports to parents whether this node serves and stages; a parent has the state of its
    /// children.
    fn report_condition(&mut self, out: &mut Vec<NodeAction>) {
        let (serves, data_port) = (self.serves(), self.own.data_port);
        let stages = self.members.as_ref().map_or(self.own.stages, |members| members.totals().stages);
        for membership in &mut self.memberships {
            membership.set_condition(serves, stages, data_port, out);
        }
        let all_drain = self.members.as_ref().is_some_and(Members::all_drain);
        for membership in &mut self.memberships {
            membership.set_drained_below(all_drain, out);
        }
    }

    /// Reports the space and load of the children to parents. The first report is sent at once,
    /// later ones at intervals.
    fn report_totals(&mut self, changed: bool, out: &mut Vec<NodeAction>) {
        let Some(totals) = self.members.as_ref().map(Members::totals) else { return };
        let space = SpaceReport {
            total_mb: u32::try_from(totals.total_mb).unwrap_or(i32::MAX as u32).min(i32::MAX as u32),
            free_mb: totals.best_free_mb,
            minimum_mb: 0,
            used_percent: totals.best_used_percent,
            file_systems: 0,
        };
        let sums = SpaceSums { total_mb: totals.total_mb, free_mb: totals.free_mb };
        for membership in &mut self.memberships {
            let (before, load) = (membership.space(), membership.load());
            let first = before.free_mb == 0 && space.free_mb > 0;
            if !first && !changed {
                // This value is reported when it is due; a value recorded as reported earlier would
                // never be.
                continue;
            }
            let news = changed && (before != space || membership.sums() != Some(sums));
            membership.set_sums(sums);
            membership.set_space(space, first || news, out);
            if load.differs(totals.load, LOAD_NEWS) {
                membership.set_load(totals.load, true, out);
            }
        }
    }

    /// Sets whether the node itself serves and can stage files, and its port for clients.
    pub fn set_condition(&mut self, serves: bool, stages: bool, data_port: u16, out: &mut Vec<NodeAction>) {
        self.own = OwnStatus { serves, stages, data_port };
        self.report_service(out);
    }

    /// Invalidates the parents' knowledge about the files here. It notifies the parents that sent
    /// queries since the last notice, and those that send none because they have a complete
    /// inventory.
    pub fn reset(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        for membership in &mut self.memberships {
            membership.reset(now, out);
        }
    }

    /// Sets the space of this node, a server, and reports it to parents if `tell` is set.
    pub fn set_space(&mut self, space: SpaceReport, tell: bool, out: &mut Vec<NodeAction>) {
        for membership in &mut self.memberships {
            membership.set_space(space, tell, out);
        }
    }

    /// Sets the load of this node, a server, and reports it to parents if `tell` is set.
    pub fn set_load(&mut self, load: LoadReport, tell: bool, out: &mut Vec<NodeAction>) {
        for membership in &mut self.memberships {
            membership.set_load(load, tell, out);
        }
    }
}
