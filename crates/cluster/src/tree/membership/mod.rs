//! The child side of a node: it finds a parent, and reconnects to it or another one after a loss,
//! with a backoff (`pause`).
//!
//! A node is attached to *all* managers of its cluster, or to exactly *one* inner node. It logs in
//! to the first manager. It continues with the others when that one has accepted it or cannot be
//! reached, so that replicated managers have the same children. A `try` names other parents; the
//! first of them that accepts the node becomes the only one. Source: cms protocol 3, 3.2 to 3.4.

mod own_reports;
mod parent_connection;

use std::collections::VecDeque;
use std::time::Duration;

use base::Rng;
use wire::cms::Extensions;
use wire::cms::flags::Mode;
use wire::cms::message::SpaceSums;

use super::action::{NodeAction, Notice};
use super::address::Address;
use super::connection_id::ConnectionId;
use super::limits::{
    CANDIDATES_MAX, CONNECT, PAUSE_REFUSED, PING_DEFAULT, PING_OWN, ROOTS_MAX, SILENT_PINGS_MAX,
    SILENT_PINGS_OWN_MAX, TRYING,
};
use super::member::LoadReport;
use super::message::{LoginMessage, LoginRefusal, NodeMessage, ParentReply, StatusMessage};
use super::pause::Pauses;
use parent_connection::{ParentConnection, ParentConnectionPhase};

/// The maximum number of consecutive redirects by parents before a node returns to the managers.
const HOPS_MAX: u32 = 8;

/// The settings of a node for one cluster.
#[derive(Clone, Debug)]
pub struct ChildSettings {
    /// The number among the clusters of the node: 0 to 15.
    pub site: u8,
    /// The managers, in the order of the configuration.
    pub managers: Vec<Address>,
    /// The content of the node's login.
    pub login: LoginMessage,
    /// The parent before the restart.
    pub remembered: Option<Address>,
    /// Its `cms.ping`: a parent that is a real node may be silent for three of these.
    pub ping: Duration,
    /// The interval for parents of our own, which may be silent for four.
    pub ping_own: Duration,
}

impl ChildSettings {
    /// Returns the default settings of a node.
    pub fn new(managers: Vec<Address>, login: LoginMessage) -> Self {
        Self { site: 0, managers, login, remembered: None, ping: PING_DEFAULT, ping_own: PING_OWN }
    }
}

/// The membership of a node in one cluster.
#[derive(Debug)]
pub struct Membership {
    settings: ChildSettings,
    load: LoadReport,
    sums: Option<SpaceSums>,
    draining: bool,
    /// All its children are draining.
    drained_below: bool,
    door: Option<Address>,
    pauses: Pauses,
    roots: Vec<ParentConnection>,
    inner: Option<ParentConnection>,
    candidates: VecDeque<Address>,
    hops: u32,
    /// The number of consecutive inner nodes that did not keep this one, or were not reached
    /// (flapping).
    flaps: u32,
    links: u64,
    attached: bool,
    remembered: Option<Address>,
    warned_clusters: bool,
    /// All managers know the node, or it has tried for long enough to connect to them.
    established: bool,
    /// The time at which the node gives up waiting for managers; `None` if none has accepted it.
    established_at: Option<Duration>,
}

/// The connection that an event concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParentSource {
    Root(usize),
    Inner,
}

impl Membership {
    /// Creates a node without a parent.
    pub fn new(mut settings: ChildSettings, rng: &mut dyn Rng, now: Duration) -> Self {
        settings.managers.truncate(ROOTS_MAX);
        let roots =
            settings.managers.iter().map(|address| ParentConnection::new(address.clone(), now)).collect();
        let remembered = settings.remembered.take();
        Self {
            pauses: Pauses::new(rng),
            load: LoadReport::default(),
            sums: None,
            draining: false,
            drained_below: false,
            door: None,
            roots,
            inner: None,
            candidates: remembered.iter().cloned().collect(),
            hops: 0,
            flaps: 0,
            links: 0,
            attached: false,
            remembered,
            warned_clusters: false,
            established: false,
            established_at: None,
            settings,
        }
    }

    /// Starts the search for a parent.
    pub fn start(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        self.probe(now, out);
    }

    /// Reports whether the connection belongs to this cluster.
    pub fn owns(&self, link: ConnectionId) -> bool {
        self.which(link).is_some()
    }

    /// Reports whether the node has a parent.
    pub fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns the inner node that is the parent; `None` if the managers are the parents, or there
    /// is none.
    pub fn inner(&self) -> Option<&Address> {
        self.inner.as_ref().filter(|line| line.is_attached()).map(|line| &line.address)
    }

    /// Returns the managers that are parents.
    pub fn attached_roots(&self) -> impl Iterator<Item = &Address> {
        self.roots.iter().filter(|line| line.is_attached()).map(|line| &line.address)
    }

    /// Returns the known managers.
    pub fn managers(&self) -> impl Iterator<Item = &Address> {
        self.roots.iter().map(|line| &line.address)
    }

    /// Returns the managers that have not accepted the node, with the number of consecutive failed
    /// attempts; none while it is attached to an inner node or on its way to one.
    pub fn managers_missed(&self) -> impl Iterator<Item = (&Address, u32)> {
        let lines = self.roots.iter().filter(|line| self.inner.is_none() && !line.is_attached());
        lines.filter(|line| line.failures > 0).map(|line| (&line.address, line.failures))
    }

    /// Returns the connections to parents.
    pub fn parents(&self) -> impl Iterator<Item = (ConnectionId, Extensions)> {
        let lines = self.roots.iter().chain(&self.inner).filter(|line| line.is_attached());
        lines.filter_map(|line| Some((line.link?, line.extensions)))
    }

    fn which(&self, link: ConnectionId) -> Option<ParentSource> {
        if self.inner.as_ref().is_some_and(|line| line.link == Some(link)) {
            return Some(ParentSource::Inner);
        }
        self.roots.iter().position(|line| line.link == Some(link)).map(ParentSource::Root)
    }

    fn line(&mut self, which: ParentSource) -> Option<&mut ParentConnection> {
        match which {
            ParentSource::Root(index) => self.roots.get_mut(index),
            ParentSource::Inner => self.inner.as_mut(),
        }
    }

    /// Handles an established connection.
    pub fn connected(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(which) = self.which(link) else { return };
        let mut login = self.settings.login.clone();
        if !self.is_newcomer_at(which) {
            login.extensions = login.extensions.without(Extensions::NEWCOMER);
        }
        let Some(line) = self.line(which) else { return };
        if !matches!(line.phase, ParentConnectionPhase::Connecting { .. }) {
            return;
        }
        if line.failures >= TRYING {
            login.mode |= Mode::TRYING;
        }
        line.heard = now;
        line.offered = login.extensions;
        line.phase = ParentConnectionPhase::Asking { due: now + line.patience() };
        out.push(NodeAction::Send { link, message: NodeMessage::Login(Box::new(login)) });
    }

    /// Reports whether other managers may not know this node when this parent accepts it. An inner
    /// node is the only parent.
    fn is_newcomer_at(&self, parent: ParentSource) -> bool {
        parent != ParentSource::Inner && self.roots.len() > 1 && !self.established
    }

    /// Handles a connection that ended or could not be established.
    pub fn closed(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        if let Some(which) = self.which(link) {
            self.ended(which, true, now, out);
        }
    }

    /// Handles the end of a connection. `return_there`: the parent may be back in a moment.
    fn ended(&mut self, which: ParentSource, return_there: bool, now: Duration, out: &mut Vec<NodeAction>) {
        match which {
            ParentSource::Root(index) => {
                let failures = self.roots.get(index).map_or(0, |line| line.failures);
                let pause = self.pauses.after(failures);
                if let Some(line) = self.roots.get_mut(index) {
                    line.end(now + pause, now);
                }
            }
            ParentSource::Inner => {
                let Some(mut line) = self.inner.take() else { return };
                if !line.end(now, now) {
                    self.flaps = self.flaps.saturating_add(1);
                } else {
                    (self.hops, self.flaps) = (0, 0);
                    self.candidates.clear();
                    if return_there {
                        // The parent may have been restarted, or only the connection broke: the
                        // place is still reserved.
                        self.candidates.push_front(line.address);
                    }
                }
                self.probe(now, out);
            }
        }
        self.settle(now, out);
    }

    /// Records that bytes arrived on a connection.
    pub fn note_received(&mut self, link: ConnectionId, now: Duration) {
        let Some(which) = self.which(link) else { return };
        let Some(line) = self.line(which) else { return };
        line.heard = now;
        if matches!(line.phase, ParentConnectionPhase::Asking { .. }) {
            line.phase = ParentConnectionPhase::Asking { due: now + line.patience() };
        }
    }

    /// Handles a message about the tree from a parent.
    pub fn message(
        &mut self,
        link: ConnectionId,
        message: NodeMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(which) = self.which(link) else { return };
        match message {
            NodeMessage::Ping => out.push(NodeAction::Send { link, message: NodeMessage::Pong }),
            NodeMessage::Usage => out.push(NodeAction::Send { link, message: self.load_message() }),
            NodeMessage::Space => out.push(NodeAction::Send { link, message: self.avail_message() }),
            NodeMessage::Reply(reply) => self.taken_in(which, link, &reply, now, out),
            NodeMessage::Try { hosts, permanent } => {
                out.push(NodeAction::Close { link });
                self.sent_on(which, hosts, permanent, now, out);
            }
            NodeMessage::Disc => {
                out.push(NodeAction::Close { link });
                self.ended(which, false, now, out);
            }
            NodeMessage::Refusal(refusal) => {
                out.push(NodeAction::Close { link });
                self.refused(which, &refusal, now, out);
            }
            _ => {}
        }
    }

    fn taken_in(
        &mut self,
        which: ParentSource,
        link: ConnectionId,
        reply: &ParentReply,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(line) = self.line(which) else { return };
        if !matches!(line.phase, ParentConnectionPhase::Asking { .. }) {
            return;
        }
        line.attach(reply, now);
        let extensions = line.extensions;
        if reply.extensions.is_own() {
            self.door.clone_from(&reply.door);
        }
        if which == ParentSource::Inner {
            // The parents are one inner node or all managers, never both. The other candidates are
            // kept: a real parent that is full reports this after its reply.
            self.leave_roots(out);
        }
        self.establish(Some(link), now, out);
        self.introduce(link, extensions, out);
        if !reply.extensions.is_own() {
            // A real parent keeps its stale knowledge of an absent node for hours. (One of our own
            // queries again by itself.)
            let status = StatusMessage { reset: true, ..StatusMessage::default() };
            out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
        }
        self.compare_clusters(out);
        self.settle(now, out);
    }

    fn leave_roots(&mut self, out: &mut Vec<NodeAction>) {
        for line in &mut self.roots {
            let Some(link) = line.link.take() else { continue };
            if line.is_attached() {
                out.push(NodeAction::Send { link, message: NodeMessage::Disc });
            }
            out.push(NodeAction::Close { link });
            line.phase = ParentConnectionPhase::Idle { at: Duration::ZERO };
            line.failures = 0;
        }
    }

    /// Compares the ids of the managers: those of one cluster agree behind the first blank.
    fn compare_clusters(&mut self, out: &mut Vec<NodeAction>) {
        let ids: Vec<&str> =
            self.roots.iter().filter(|line| line.is_attached()).map(|line| line.id.as_str()).collect();
        let cluster = |id: &str| id.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
        let differ = ids.windows(2).any(|pair| matches!(pair, [a, b] if cluster(a) != cluster(b)));
        if differ && !std::mem::replace(&mut self.warned_clusters, true) {
            let ids = ids.into_iter().map(str::to_owned).collect();
            out.push(NodeAction::Notice(Notice::Clusters { ids }));
        }
    }

    fn sent_on(
        &mut self,
        which: ParentSource,
        hosts: Vec<Address>,
        permanent: bool,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let own_port = self.settings.login.cluster_port;
        let with_port =
            |host: Address| if host.port() == 0 { Address::new(host.host(), own_port) } else { host };
        let hosts: Vec<Address> = hosts.into_iter().take(CANDIDATES_MAX).map(with_port).collect();
        if permanent && !hosts.is_empty() {
            return self.start_over(hosts, now, out);
        }
        match which {
            ParentSource::Root(index) => {
                // A manager that redirects the node is a fallback: it is asked again when the
                // redirect fails, or soon if it named no node.
                let failures = self.roots.get(index).map_or(0, |line| line.failures);
                let pause = self.pauses.after(failures);
                if let Some(line) = self.roots.get_mut(index) {
                    line.end(now + pause, now);
                }
                if self.inner.as_ref().is_some_and(|line| !line.is_attached()) {
                    // The node is on its way to another one already: these are further choices.
                    self.candidates.extend(hosts);
                } else {
                    self.hops = 0;
                    self.candidates = hosts.into();
                }
            }
            ParentSource::Inner => {
                let lasted = self.inner.take().is_some_and(|mut line| line.end(now, now));
                self.flaps = if lasted { 0 } else { self.flaps.saturating_add(1) };
                if lasted {
                    self.hops = 0;
                    self.candidates.clear();
                }
                self.hops += 1;
                let rest = std::mem::take(&mut self.candidates);
                self.candidates = hosts.into_iter().chain(rest).collect();
                if self.hops > HOPS_MAX {
                    self.candidates.clear();
                }
            }
        }
        self.candidates.truncate(CANDIDATES_MAX);
        if self.inner.is_none() {
            self.probe(now, out);
        }
        self.settle(now, out);
    }

    /// Replaces the managers by these.
    fn start_over(&mut self, managers: Vec<Address>, now: Duration, out: &mut Vec<NodeAction>) {
        self.leave_roots(out);
        if let Some(link) = self.inner.take().and_then(|line| line.link) {
            out.push(NodeAction::Close { link });
        }
        self.candidates.clear();
        let at = now + self.pauses.after(0);
        self.roots =
            managers.into_iter().take(ROOTS_MAX).map(|address| ParentConnection::new(address, at)).collect();
        self.settle(now, out);
    }

    fn refused(
        &mut self,
        which: ParentSource,
        refusal: &LoginRefusal,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        self.ended(which, false, now, out);
        if let (ParentSource::Root(index), true) = (which, refusal.banned)
            && let Some(line) = self.roots.get_mut(index)
        {
            line.phase = ParentConnectionPhase::Idle { at: now + PAUSE_REFUSED };
        }
    }

    /// Tries the next named parent; if there is none, the managers.
    fn probe(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        while let Some(address) = self.candidates.pop_front() {
            if self.is_self(&address) {
                continue;
            }
            if self.roots.iter().any(|line| line.address == address) {
                // A manager names itself last: back to it.
                self.candidates.clear();
                break;
            }
            let mut line = ParentConnection::new(address.clone(), now);
            let link = self.new_link();
            line.link = Some(link);
            line.phase = ParentConnectionPhase::Connecting { due: now + CONNECT };
            self.inner = Some(line);
            out.push(NodeAction::Connect { link, address });
            return;
        }
        if self.flaps > 0 {
            // The managers named a parent without a place: they need a moment to learn that.
            let soon = now + self.pauses.after(self.flaps - 1);
            for line in &mut self.roots {
                if let ParentConnectionPhase::Idle { at } = &mut line.phase {
                    *at = soon.max(*at);
                }
            }
        }
        self.settle(now, out);
    }

    fn is_self(&self, address: &Address) -> bool {
        let login = &self.settings.login;
        login.mode.contains(Mode::MANAGER)
            && address.port() == login.cluster_port
            && login.host.as_deref().is_some_and(|host| host == address.host())
    }

    fn new_link(&mut self) -> ConnectionId {
        self.links += 1;
        ConnectionId::outward(u64::from(self.settings.site) << 48 | self.links)
    }

    /// Connects to the managers that are due, and reports when the node has found or lost its
    /// place.
    fn settle(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if self.inner.is_none() {
            for index in 0..self.roots.len() {
                let due = self.roots.get(index).is_some_and(
                    |line| matches!(line.phase, ParentConnectionPhase::Idle { at } if at <= now),
                );
                if due && self.may_ask(index) {
                    let link = self.new_link();
                    if let Some(line) = self.roots.get_mut(index) {
                        line.link = Some(link);
                        line.phase = ParentConnectionPhase::Connecting { due: now + CONNECT };
                        out.push(NodeAction::Connect { link, address: line.address.clone() });
                    }
                }
            }
        }
        self.establish(None, now, out);
        let inner = self.inner().cloned();
        let attached = inner.is_some() || self.roots.iter().any(ParentConnection::is_attached);
        if attached && inner != self.remembered {
            self.remembered.clone_from(&inner);
            out.push(NodeAction::Remember { cell: inner });
        }
        if attached != self.attached {
            self.attached = attached;
            out.push(NodeAction::Attached { attached });
        }
    }

    /// Reports whether a manager may be asked: those before it have accepted the node, or do not
    /// answer. So all managers have the same children.
    fn may_ask(&self, index: usize) -> bool {
        self.roots.iter().take(index).all(|line| line.is_attached() || line.failures > 0)
    }

    fn silence(&self, line: &ParentConnection) -> Duration {
        if line.extensions.is_own() {
            self.settings.ping_own * SILENT_PINGS_OWN_MAX
        } else {
            self.settings.ping * SILENT_PINGS_MAX
        }
    }

    fn due(&self, line: &ParentConnection) -> Option<Duration> {
        match line.phase {
            ParentConnectionPhase::Idle { .. } => None,
            ParentConnectionPhase::Connecting { due } | ParentConnectionPhase::Asking { due } => Some(due),
            ParentConnectionPhase::Attached { .. } => Some(line.heard + self.silence(line)),
        }
    }

    /// Returns the time of the next work for [`tick`](Self::tick).
    pub fn deadline(&self) -> Option<Duration> {
        let lines = self.roots.iter().chain(&self.inner).filter_map(|line| self.due(line));
        let idle = self.roots.iter().enumerate().filter_map(|(index, line)| match line.phase {
            ParentConnectionPhase::Idle { at } if self.inner.is_none() && self.may_ask(index) => Some(at),
            _ => None,
        });
        let established_at = self.established_at.filter(|_| !self.established);
        lines.chain(idle).chain(established_at).min()
    }

    /// Does the work that is due.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        for index in 0..self.roots.len() {
            self.give_up(ParentSource::Root(index), now, out);
        }
        self.give_up(ParentSource::Inner, now, out);
        self.settle(now, out);
    }

    /// Ends a connection that has timed out.
    fn give_up(&mut self, which: ParentSource, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(line) = (match which {
            ParentSource::Root(index) => self.roots.get(index),
            ParentSource::Inner => self.inner.as_ref(),
        }) else {
            return;
        };
        if self.due(line).is_none_or(|due| due > now) {
            return;
        }
        if line.is_attached() {
            out.push(NodeAction::Notice(Notice::ParentSilent { address: line.address.clone() }));
        }
        if let Some(link) = line.link {
            out.push(NodeAction::Close { link });
        }
        self.ended(which, true, now, out);
    }
}
