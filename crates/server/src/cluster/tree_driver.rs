//! Drives the tree machine ([`ClusterNode`]) over the connections of this node.
//!
//! It passes frames, ends of connections and the time to the machine, and carries out the actions
//! that the machine returns. Everything that concerns the files of this node or of its children is
//! returned as an effect, which the engine passes on.

use super::connection::{ConnectionStage, NodeConnection};
use super::node_login::{AuthenticationRefusal, NodeAuthenticationStep};
use super::problem_log::ProblemLog;
use super::settings::Settings;
use super::state_files::NodeStateFiles;
use super::turn_clock::{ClusterTurn, TurnClock};
use base::{Clock, IdMap};
use cluster::tree::{
    self, Address, ChildChange, ClusterMember, ClusterNode, ConnectionId, Extensions, LoginRefusal,
    NodeAction, NodeEvent, NodeMessage, Notice, PeerAddress,
};
use cluster::{Interface, OwnHost, Slot, SlotMask};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::WireError;
use wire::cms::{CmsFrame, EncodeError, LoginAnswer, Message as Wire, StreamId};

/// A consequence of an action of the tree machine for another driver. Effects are kept in order.
pub(super) enum TreeEffect {
    /// A connection to a parent must be made.
    Connect(ConnectionId, Address),
    /// Credentials must be made for a parent, which has asked with this text at this own address.
    Authenticate(ConnectionId, Vec<u8>, SocketAddr),
    /// The addresses of a child that logged in must be looked up by its name.
    LookUp(ConnectionId, String),
    /// A child joined, changed or left.
    Child(Slot, ChildChange),
    /// Supervisors have accepted the nodes with these numbers.
    JoinedBelow(Vec<u64>),
    /// A connection has ended.
    Ended(ConnectionId),
    /// A parent has accepted this node.
    Placed(ConnectionId),
    /// The clients of this node must be redirected elsewhere, or no longer.
    Drain(bool),
}

/// The tree machine and its connections.
pub(super) struct TreeDriver {
    node: ClusterNode,
    settings: Rc<Settings>,
    own_host: OwnHost,
    clock: TurnClock,
    connections: IdMap<ConnectionId, NodeConnection>,
    problem_log: ProblemLog,
    /// State kept on disk for the next start.
    records: NodeStateFiles,
    accepted: u64,
    /// Connections found broken while frames were put into their outboxes. Their ends are passed to
    /// the machine afterwards.
    broken: Vec<ConnectionId>,
    actions: Vec<NodeAction>,
    effects: VecDeque<TreeEffect>,
    has_worked: bool,
}

impl TreeDriver {
    pub(super) fn new(node: ClusterNode, settings: Rc<Settings>, clock: Arc<dyn Clock>) -> Self {
        let records = NodeStateFiles::new(settings.place_file.as_deref());
        let own_host = OwnHost {
            name: settings.own_name.clone(),
            addresses: settings.own_addresses.iter().map(SocketAddr::ip).collect(),
        };
        Self {
            node,
            settings,
            own_host,
            clock: TurnClock::new(clock),
            connections: IdMap::default(),
            problem_log: ProblemLog::default(),
            records,
            accepted: 0,
            broken: Vec::new(),
            actions: Vec::new(),
            effects: VecDeque::new(),
            has_worked: false,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(super) fn begin_turn(&self) -> ClusterTurn {
        self.clock.begin_turn()
    }

    /// Returns the tree machine, for inspection.
    pub(super) const fn node(&self) -> &ClusterNode {
        &self.node
    }

    /// Returns the time at which [`Self::tick`] has work.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.node.deadline().into_iter().chain(self.problem_log.next_deadline()).min()
    }

    /// Runs the work of the machine that is due.
    pub(super) fn tick(&mut self) {
        if self.node.deadline().is_some_and(|due| due <= self.now()) {
            self.drive(|node, now, out| node.tick(now, out));
        }
    }

    /// Runs a step of the machine and carries out its actions.
    pub(super) fn drive(&mut self, work: impl FnOnce(&mut ClusterNode, Duration, &mut Vec<NodeAction>)) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        work(&mut self.node, now, &mut actions);
        for action in actions.drain(..) {
            self.perform(action, now);
        }
        self.actions = actions;
        self.has_worked = true;
    }

    /// Passes an event to the machine.
    pub(super) fn event(&mut self, event: NodeEvent) {
        self.drive(|node, now, out| node.handle(event, now, out));
    }

    /// Removes the next effect.
    pub(super) fn next_effect(&mut self) -> Option<TreeEffect> {
        self.effects.pop_front()
    }

    /// Ends one of the connections that were found broken. Returns whether there was one.
    pub(super) fn end_broken(&mut self) -> bool {
        let Some(link) = self.broken.pop() else { return false };
        if self.drop_line(link, false) {
            self.event(NodeEvent::Closed { link });
        }
        true
    }

    /// Makes the next call of [`Self::settle`] check for changes.
    pub(super) const fn touch(&mut self) {
        self.has_worked = true;
    }

    /// Logs the consequences of a possible change. Returns whether the machine has worked since the
    /// last call.
    pub(super) fn settle(&mut self) -> bool {
        if !std::mem::take(&mut self.has_worked) {
            return false;
        }
        self.problem_log.complain(&self.node, self.clock.now());
        true
    }

    /// Records the nodes below this one that may have leases granted by it.
    pub(super) fn note_lessees(&mut self, lessees: BTreeSet<u64>) {
        self.records.note_lessees(lessees);
    }

    /// Records that clients may come to this node with leases.
    pub(super) fn note_lease(&mut self) {
        self.records.leases.note(self.clock.today());
    }

    /// Reports whether this node has the children that it waits for; `None` for a node without
    /// children.
    pub(super) fn is_settled(&mut self) -> Option<bool> {
        let members = self.node.members()?;
        let settled = members.serves() && members.is_settled(self.now());
        if settled {
            self.records.note_formed();
        }
        Some(settled)
    }

    /// Handles an accepted connection.
    pub(super) fn accepted(&mut self, peer: SocketAddr) -> ConnectionId {
        let (link, ip) = (ConnectionId::accepted(self.accepted), peer.ip());
        self.accepted += 1;
        let mut connection = NodeConnection::new(ConnectionStage::first(link), Some(ip));
        if let Some(key) = &self.settings.key {
            connection.authentication = key.begin(peer);
        }
        self.connections.insert(link, connection);
        let host = self.own_host.peer_name(ip);
        self.event(NodeEvent::Accepted { link, peer: PeerAddress { ip, host } });
        link
    }

    /// Handles a failed attempt to connect to a parent.
    pub(super) fn unreached(&mut self, link: ConnectionId, error: &std::io::Error) {
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "nothing listens there (connection refused): is it running, and is that its cluster port?"
                    .to_owned()
            }
            _ => error.to_string(),
        };
        self.fails(link, || why);
        self.ended(link);
    }

    /// Records the reason why a connection to a parent did not result in a login.
    pub(super) fn fails(&mut self, link: ConnectionId, why: impl FnOnce() -> String) {
        if let Some(connection) = self.connection(link) {
            connection.failure.get_or_insert_with(why);
        }
    }

    /// Handles the end of a connection, or a connection that was not made.
    pub(super) fn ended(&mut self, link: ConnectionId) {
        if self.drop_line(link, true) {
            self.event(NodeEvent::Closed { link });
        }
    }

    /// Ends a connection that still exists. `by_peer` is set if the peer closed it.
    fn drop_line(&mut self, link: ConnectionId, by_peer: bool) -> bool {
        let Some(mut connection) = self.connections.remove(&link) else { return false };
        if connection.authentication.is_pending() {
            let why = if by_peer { AuthenticationRefusal::Left } else { AuthenticationRefusal::Silent };
            self.problem_log.log_unauthenticated(connection.ip, &why, self.clock.now());
        }
        self.problem_log.parted(&self.node, &mut connection, by_peer);
        connection.close();
        self.effects.push_back(TreeEffect::Ended(link));
        true
    }

    /// Ends all connections, so that parents do not have to wait for a timeout.
    pub(super) fn leave(&mut self) {
        for link in self.parents() {
            self.put(link, |peer, out| tree::encode(&NodeMessage::Disc, peer, out));
        }
        let now = self.now();
        for (link, connection) in std::mem::take(&mut self.connections) {
            connection.close();
            self.node.handle(NodeEvent::Closed { link }, now, &mut Vec::new());
        }
    }

    /// Reports whether frames of this peer must pass [`Self::authenticate`].
    pub(super) fn must_authenticate(&self, link: ConnectionId) -> bool {
        self.connections.get(&link).is_some_and(|connection| connection.authentication.is_required())
    }

    /// Handles a frame of a peer that is not authenticated yet. It does not reach the machine.
    pub(super) fn authenticate(&mut self, link: ConnectionId, frame: &CmsFrame<'_>) {
        let (now, today) = (self.now(), self.clock.today());
        let Some(connection) = self.connections.get_mut(&link) else { return };
        let message = Wire::decode(&frame.header, frame.payload).ok();
        let step = connection.authentication.step(message.as_ref(), today);
        match (step, &self.settings.key) {
            (NodeAuthenticationStep::Ask, Some(key)) => {
                let challenge = key.challenge();
                self.put(link, |_, out| LoginAnswer::Xauth(&challenge).encode(out));
            }
            (NodeAuthenticationStep::Send(more), _) => {
                self.put(link, |_, out| LoginAnswer::Xauth(&more).encode(out));
            }
            (NodeAuthenticationStep::Accept(login), _) => {
                self.message(link, ConnectionStage::Anonymous, NodeMessage::Login(login));
            }
            (NodeAuthenticationStep::Refuse(why), _) => {
                self.problem_log.log_unauthenticated(connection.ip, &why, now);
                let text =
                    "nodes must authenticate here; the reason of the refusal is in the log of this node";
                let refusal = NodeMessage::Refusal(LoginRefusal { banned: false, text: text.to_owned() });
                self.put(link, |peer, out| tree::encode(&refusal, peer, out));
                self.ended(link);
            }
            // A peer is asked only if there is a key.
            (NodeAuthenticationStep::Ask, None) => self.ended(link),
        }
    }

    /// Handles a parent's request for credentials.
    fn challenged(&mut self, link: ConnectionId, challenge: &[u8]) {
        let has_key = self.settings.key.is_some();
        let Some(connection) = self.connections.get_mut(&link) else { return };
        let asked_before = std::mem::replace(&mut connection.has_authenticated, true);
        match connection.local {
            Some(local) if has_key && !asked_before => {
                self.effects.push_back(TreeEffect::Authenticate(link, challenge.to_vec(), local));
                return self.event(NodeEvent::Heard { link, state: false });
            }
            _ if asked_before => self.fails(link, || "it asks for credentials again".to_owned()),
            _ => self.fails(link, || {
                "it demands that nodes authenticate: set scalla.clusterkey here to a copy of its key table".to_owned()
            }),
        }
        self.ended(link);
    }

    /// Sends the credentials of this node to a parent, or gives up the connection if there are none.
    pub(super) fn send_credentials(&mut self, link: ConnectionId, credentials: Result<Vec<u8>, String>) {
        match credentials {
            Ok(bytes) => {
                self.put(link, |_, out| Wire::Xauth(&bytes).encode(StreamId::NONE, Extensions::NONE, out));
            }
            Err(why) => {
                self.fails(link, || why);
                self.ended(link);
            }
        }
    }

    /// Handles the reply to this node's login, or another message that a parent sends before it.
    pub(super) fn login_answered(&mut self, link: ConnectionId, frame: &CmsFrame<'_>) {
        let message = match LoginAnswer::decode(&frame.header, frame.payload) {
            Ok(LoginAnswer::Xauth(challenge)) => return self.challenged(link, challenge),
            Ok(answer) => tree::from_answer(&answer),
            Err(error) => {
                self.fails(link, || format!("it answers a login with nonsense: {error}"));
                return self.ended(link);
            }
        };
        let Some(message) = message else { return self.event(NodeEvent::Heard { link, state: false }) };
        self.declined(link, &message);
        let accepted = match &message {
            NodeMessage::Reply(reply) => Some(reply.extensions),
            _ => None,
        };
        if let (Some(extensions), Some(connection)) = (accepted, self.connections.get_mut(&link)) {
            connection.stage = ConnectionStage::Node;
            connection.extensions = extensions;
            let parent = connection.parent_address.as_ref().filter(|_| !connection.has_authenticated);
            let key = self.settings.key.as_ref().map(|key| key.config());
            if let (Some(parent), Some(key)) = (parent, key)
                && !key.exempts(parent.host())
            {
                self.problem_log.log_open_parent(parent, self.clock.now());
            }
        }
        self.event(NodeEvent::Message { link, message });
        if accepted.is_some() {
            self.effects.push_back(TreeEffect::Placed(link));
        }
    }

    /// Handles a message of a parent that does not accept this node.
    fn declined(&mut self, link: ConnectionId, message: &NodeMessage) {
        match message {
            NodeMessage::Refusal(refusal) => self.fails(link, || format!("it refuses: {}", refusal.text)),
            NodeMessage::Try { hosts, .. } if hosts.is_empty() => {
                self.fails(link, || "it has no place, and names none".to_owned());
            }
            NodeMessage::Try { .. } => {
                self.fails(link, || "it names other parents, and none of them takes the node in".to_owned());
            }
            _ => {}
        }
    }

    /// Handles a message about the tree.
    pub(super) fn message(&mut self, link: ConnectionId, stage: ConnectionStage, message: NodeMessage) {
        if let (ConnectionStage::Anonymous, NodeMessage::Login(login)) = (stage, &message)
            && let Some(connection) = self.connections.get_mut(&link)
        {
            connection.logged_in(login.mode);
            connection.other_addresses.clone_from(&login.interfaces);
            let elsewhere = connection.ip.is_some_and(|ip| !ip.is_loopback());
            if let Some(host) = &login.host
                && elsewhere
                && login.interfaces.is_empty()
                && connection.stage == ConnectionStage::Node
            {
                self.effects.push_back(TreeEffect::LookUp(link, host.clone()));
            }
        }
        self.event(NodeEvent::Message { link, message });
    }

    /// Handles the addresses found for the name of a child. If the name is the name of that child,
    /// they are recorded as its addresses.
    pub(super) fn named(&mut self, link: ConnectionId, found: &[IpAddr]) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        if !connection.ip.is_some_and(|ip| found.contains(&ip)) || !connection.other_addresses.is_empty() {
            return;
        }
        connection.other_addresses = found.to_vec();
        if let Some(slot) = self.node.slot(link) {
            self.effects.push_back(TreeEffect::Child(slot, ChildChange::Condition));
        }
    }

    /// Returns the addresses of a child to which clients are redirected.
    pub(super) fn interfaces(&self, member: &ClusterMember) -> Vec<Interface> {
        let others =
            member.link.and_then(|link| Some(self.connections.get(&link)?.other_addresses.as_slice()));
        self.own_host.interfaces(member, others.unwrap_or_default())
    }

    pub(super) fn connection(&mut self, link: ConnectionId) -> Option<&mut NodeConnection> {
        self.connections.get_mut(&link)
    }

    /// Returns the stage of a connection; `None` if the connection no longer exists.
    pub(super) fn stage(&self, link: ConnectionId) -> Option<ConnectionStage> {
        self.connections.get(&link).map(|connection| connection.stage)
    }

    /// Returns the protocol extensions that both ends of a connection support.
    pub(super) fn extensions(&self, link: ConnectionId) -> Extensions {
        self.connections.get(&link).map(|connection| connection.extensions).unwrap_or_default()
    }

    /// Returns the connection of the child in a slot; `None` if the slot is empty or the child is
    /// disconnected.
    pub(super) fn link_of(&self, slot: Slot) -> Option<ConnectionId> {
        self.member(slot)?.link
    }

    /// Returns the child in a slot.
    pub(super) fn member(&self, slot: Slot) -> Option<&ClusterMember> {
        self.node.members().and_then(|members| members.member(slot))
    }

    /// Reports whether a parent that grants no leases is connected.
    pub(super) fn has_plain_parent(&self) -> bool {
        self.parents().into_iter().any(|link| !self.extensions(link).contains(Extensions::LEASES))
    }

    /// Returns the connections to parents.
    pub(super) fn parents(&self) -> Vec<ConnectionId> {
        let memberships = self.node.memberships().iter();
        memberships.flat_map(|membership| membership.parents().map(|(link, _)| link)).collect()
    }

    /// Returns the managers that this node tries to join, each with the obstacle.
    pub(super) fn sought(&self) -> Vec<String> {
        self.problem_log.sought(&self.node)
    }

    /// Puts frames into the outbox of a connection. The connection is ended if its outbox does not
    /// take them or if a required message cannot be sent.
    pub(super) fn put(
        &mut self,
        link: ConnectionId,
        write: impl FnOnce(Extensions, &mut Vec<u8>) -> Result<(), EncodeError>,
    ) {
        let Some(connection) = self.connections.get(&link) else { return };
        let extensions = connection.extensions;
        match connection.outbox.put(|out| write(extensions, out)) {
            Ok(waiting) if waiting > self.settings.outbox_bytes_max => {
                tracing::warn!("{} does not take what it is sent: closed", self.name_of(link));
                self.broken.push(link);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("a message for {} is not sent: {error}", self.name_of(link)),
        }
    }

    /// Sends a frame to children. With `own_only`, it is sent only to nodes of this program,
    /// because others do not know such a frame.
    pub(super) fn send_down(&mut self, slots: SlotMask, frame: &[u8], own_only: bool) {
        for slot in slots {
            let Some(link) = self.link_of(slot) else { continue };
            if !own_only || self.extensions(link).is_own() {
                self.put(link, |_, out| {
                    out.extend_from_slice(frame);
                    Ok(())
                });
            }
        }
    }

    /// Returns the name of a peer for the log.
    pub(super) fn name_of(&self, link: ConnectionId) -> String {
        let child = self.node.slot(link).and_then(|slot| self.member(slot));
        let connection = self.connections.get(&link);
        match (
            child,
            connection.and_then(|connection| connection.ip),
            connection.and_then(|connection| connection.parent_address.as_ref()),
        ) {
            (Some(child), ..) => format!("{} {}", child.role, child.data),
            (None, Some(ip), _) => ip.to_string(),
            (None, None, Some(parent)) => format!("the parent {parent}"),
            (None, None, None) => "a parent".to_owned(),
        }
    }

    /// Logs that a host may not join, unless that was logged recently.
    pub(super) fn log_not_allowed(&mut self, ip: IpAddr) {
        self.problem_log.log_not_allowed(ip, self.clock.now());
    }

    /// Logs that the messages of a peer are malformed, unless that was logged recently.
    pub(super) fn log_malformed(&mut self, link: ConnectionId, error: &WireError) {
        let (now, ip) = (self.now(), self.connection(link).and_then(|connection| connection.ip));
        if self.problem_log.is_malformed_due(ip, now) {
            tracing::warn!("{} breaks the protocol: {error}", self.name_of(link));
        }
    }

    /// Logs that an order of a redirector was refused, unless that was logged recently.
    pub(super) fn log_refused_order(
        &mut self,
        link: ConnectionId,
        name: &'static str,
        path: &[u8],
        ident: &[u8],
    ) {
        let (now, ip) = (self.now(), self.connection(link).and_then(|connection| connection.ip));
        if self.problem_log.is_refused_order_due(ip, name, now) {
            let (path, ident) = (base::shown(path), base::shown(ident));
            tracing::warn!(
                "cluster: {} orders {name} {path} for {ident}: refused, because ofs.forward does not allow it here",
                self.name_of(link)
            );
        }
    }

    /// Carries out an order for a child. A parent has one way to keep clients away from a child.
    /// Returns whether the child exists.
    pub(super) fn drain_child(&mut self, slot: Slot, out_of_use: bool) -> bool {
        let mut done = false;
        self.drive(|node, now, out| done = node.drain(slot, out_of_use, now, out));
        let drained: String = self.node.drained().map(|id| format!("{id}\n")).collect();
        self.records.out_of_use.keep(Some(drained));
        done
    }

    fn perform(&mut self, action: NodeAction, now: Duration) {
        match action {
            NodeAction::Connect { link, address } => {
                self.connections.insert(link, NodeConnection::to_parent(address.clone()));
                self.effects.push_back(TreeEffect::Connect(link, address));
            }
            NodeAction::Send { link, mut message } => {
                match (&mut message, self.connections.get_mut(&link)) {
                    (NodeMessage::Reply(reply), Some(connection)) => connection.extensions = reply.extensions,
                    (NodeMessage::Login(login), Some(connection)) => {
                        login.interfaces.clone_from(&connection.other_addresses)
                    }
                    _ => {}
                }
                self.put(link, |peer, out| tree::encode(&message, peer, out));
            }
            NodeAction::Close { link } => {
                self.drop_line(link, false);
            }
            NodeAction::Remember { cell } => {
                let text = cell.map(|address| format!("{} {}\n", address.host(), address.port()));
                self.records.place.keep(text);
            }
            NodeAction::Child { slot, change } => self.effects.push_back(TreeEffect::Child(slot, change)),
            NodeAction::JoinedBelow { nodes } => self.effects.push_back(TreeEffect::JoinedBelow(nodes)),
            NodeAction::Service { serves } => {
                let what =
                    if serves { "enough nodes are here: serving" } else { "not enough nodes are here" };
                tracing::info!("cluster: {what}");
            }
            NodeAction::Attached { attached } => self.problem_log.attached(attached, now),
            NodeAction::Drain { draining, door: _ } => {
                let what = match draining {
                    true => {
                        "this node drains, by order or because its origin does not answer: clients move to other servers"
                    }
                    false => "this node takes clients again",
                };
                tracing::info!("cluster: {what}");
                self.effects.push_back(TreeEffect::Drain(draining));
            }
            NodeAction::Notice(notice) => self.log(&notice, now),
        }
    }

    /// Logs a notice for the operator.
    fn log(&mut self, notice: &Notice, now: Duration) {
        match notice {
            // These notices are logged less often than they occur.
            Notice::Refused { host, reason } => self.problem_log.log_refusal(host, *reason, now),
            Notice::Replaced { link, by } => {
                let name = self.name_of(*link);
                self.problem_log.log_replaced(&name, by, now);
            }
            Notice::Twins { id, host } => self.problem_log.log_duplicate_id(id, host, now),
            Notice::Silent { address } => {
                tracing::warn!("cluster: {address} was silent for too long: closed");
            }
            Notice::ParentSilent { address } => {
                tracing::warn!("cluster: the parent {address} was silent for too long: closed");
            }
            Notice::Clusters { ids } => {
                tracing::warn!("cluster: the managers belong to different clusters: {ids:?}");
            }
            Notice::Full { waiting } => {
                tracing::warn!("cluster: no cell has a free slot and {waiting} nodes wait: add supervisors");
            }
        }
    }
}
