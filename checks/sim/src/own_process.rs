//! A process of our own: the node and the resolver, connected as in the driver of the server.
//!
//! It repeats the wiring of the server without sockets and threads, so that the state machines run
//! unchanged.

mod leases;
mod orders;
mod serving;
mod turns;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use cluster::tree::{
    ClusterMember, ClusterNode, ConnectionId, Extensions, NodeAction, NodeEvent, NodeMessage, StatusMessage,
    inventory,
};
use cluster::{
    CacheSettings, Leases, NameChangeSet, OwnHost, RequestToken, ResolveStats, STEPS_MAX, StateAsk,
    StateReply,
};

use crate::disk::{HostDisk, LeaseState};
use crate::host_address::DATA_PORT;
use crate::location_service::{LocationService, told};
use crate::messages::{FileMessage, Name, ProcessAction};
use crate::sim_rng::SimRng;

pub use crate::behaviour::{QueryBehaviour, Sabotage};
pub(crate) use turns::WorkTurns;

/// Paths in one message of an inventory.
const PATHS_PER_MESSAGE: usize = 500;

/// Returns the token of a client's request, which consists of its numbers. The tokens of parents'
/// queries are numbered from the other end. So no state is kept for requests that may never be
/// answered.
const fn client_token(operation: u32, attempt: u32) -> RequestToken {
    RequestToken((operation as u64) << 32 | attempt as u64)
}

/// A process of our own.
pub struct OwnProcess {
    /// Its node in the tree.
    pub node: ClusterNode,
    location_service: Option<Box<LocationService>>,
    behaviour: QueryBehaviour,
    sabotage: Option<Sabotage>,
    /// Parents get the inventory at login.
    inventory: bool,
    /// Parents that received the inventory.
    greeted: BTreeSet<ConnectionId>,
    /// Parents that received the running leases.
    informed: BTreeSet<ConnectionId>,
    actions: Vec<NodeAction>,
    orders: Vec<cluster::ResolverAction>,
    /// Queries of parents for a hung disk.
    unanswered: Vec<(ConnectionId, Name)>,
    /// Work that waits for the thread of this process; without it all work is done at once.
    pub(crate) turns: Option<Box<WorkTurns>>,
    /// The most requests and queries that one event looked at.
    pub(crate) steps_most: u64,
    /// The first event that exceeded the limit.
    pub(crate) costly: Option<String>,
    /// Of a manager: changes of names that it forwards for redirectors.
    pub(crate) forwarded: NameChangeSet,
    /// Of a server: the files that clients are about to create here.
    leases: Leases,
    /// The time until which clients with leases of a parent may arrive.
    granted: Option<Duration>,
}

impl OwnProcess {
    /// Creates a node. Clients reach a node with children at `own`; `above` reports whether it has
    /// parents.
    pub fn new(
        node: ClusterNode,
        above: Option<bool>,
        own: SocketAddr,
        cache: &CacheSettings,
        rng: &mut SimRng,
    ) -> Self {
        let location_service =
            above.map(|has_parents| Box::new(LocationService::new(has_parents, own, cache, rng)));
        Self {
            node,
            location_service,
            behaviour: QueryBehaviour::Honest,
            sabotage: None,
            inventory: false,
            greeted: BTreeSet::new(),
            informed: BTreeSet::new(),
            actions: Vec::new(),
            orders: Vec::new(),
            unanswered: Vec::new(),
            turns: None,
            steps_most: 0,
            costly: None,
            forwarded: NameChangeSet::NONE,
            leases: Leases::default(),
            granted: None,
        }
    }

    /// Sets the behaviour, and whether the node sends its inventory at each login.
    #[must_use]
    pub fn with(mut self, behaviour: QueryBehaviour, inventory: bool, sabotage: Option<Sabotage>) -> Self {
        (self.behaviour, self.inventory, self.sabotage) = (behaviour, inventory, sabotage);
        self
    }

    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Sets the state of an earlier run: the lessees of a parent, or the time for which a child
    /// expects clients with leases.
    #[must_use]
    pub fn after(mut self, record: &LeaseState, now: Duration) -> Self {
        if self.does(Sabotage::Forgets) {
            return self;
        }
        if let Some(location_service) = &mut self.location_service {
            location_service.resolver.await_lessees(record.lessees.iter().copied(), now);
        }
        match (record.leases, &mut self.location_service) {
            (Some(time), Some(location_service)) => location_service.resolver.recover_leases(time, now),
            (Some(time), None) => self.leases.recover(time, now),
            (None, _) => {}
        }
        self
    }

    /// Returns the state for the next run.
    pub fn record(&self) -> LeaseState {
        let lessees = self
            .location_service
            .as_ref()
            .map(|location_service| location_service.resolver.lessees())
            .unwrap_or_default();
        LeaseState { lessees, leases: self.granted }
    }

    /// Returns the counts of a parent.
    pub fn stats(&self) -> Option<ResolveStats> {
        self.location_service.as_ref().map(|location_service| location_service.resolver.stats())
    }

    /// Describes the cell of a parent for an error message.
    pub fn cell(&self) -> String {
        self.location_service.as_ref().map_or_else(String::new, |location_service| {
            let cell = location_service.resolver.cell();
            let (connected, expected) = (cell.connected(), cell.expected());
            format!("connected {connected:?}, expected {expected:?}, quorum {}", cell.quorum())
        })
    }

    /// Returns the number of unanswered requests.
    pub fn waiting(&self) -> usize {
        self.location_service.as_ref().map_or(0, |location_service| location_service.waiting.len())
    }

    /// Returns the time of the next work of [`Self::tick`].
    pub fn deadline(&self) -> Option<Duration> {
        if self.does(Sabotage::Stays) {
            return None;
        }
        let location_service = self
            .location_service
            .as_ref()
            .and_then(|location_service| location_service.resolver.next_deadline());
        let turn = self.turns.as_ref().and_then(|turns| turns.deadline());
        [self.node.deadline(), location_service, self.leases.next_deadline(), turn]
            .into_iter()
            .flatten()
            .min()
    }

    /// Starts the process.
    pub fn start(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.tree(disk, now, out, |node, now, actions| node.start(now, actions));
    }

    /// Handles an event of the tree.
    pub fn handle(&mut self, event: NodeEvent, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.tree(disk, now, out, |node, now, actions| node.handle(event, now, actions));
    }

    /// Does the work that is due.
    pub fn tick(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.tree(disk, now, out, ClusterNode::tick);
        if self.does(Sabotage::Reports) {
            let status =
                |(link, _)| NodeAction::Send { link, message: NodeMessage::Status(StatusMessage::default()) };
            let reports: Vec<NodeAction> = self.parents().map(status).collect();
            (0..30).for_each(|_| out.extend(reports.iter().cloned().map(ProcessAction::Tree)));
        }
        self.location_service(now, out, |location_service, orders| {
            location_service.resolver.tick(now, orders)
        });
        for path in self.leases.take_ended(now) {
            self.report(&path, disk, out);
        }
        self.take_turn(disk, now, out);
    }

    /// Calls the node, and passes the effects to the desk.
    fn tree(
        &mut self,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
        act: impl FnOnce(&mut ClusterNode, Duration, &mut Vec<NodeAction>),
    ) {
        if self.does(Sabotage::Stays) {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        act(&mut self.node, now, &mut actions);
        for action in actions.drain(..) {
            if let NodeAction::Child { slot, change } = action {
                let member = self.node.members().and_then(|members| members.member(slot)).cloned();
                let interface_list = |member: &ClusterMember| OwnHost::default().interfaces(member, &[]);
                let interfaces = member.as_ref().map(interface_list).unwrap_or_default();
                self.location_service(now, out, |location_service, orders| {
                    location_service.resolver.follow(slot, change, member.as_ref(), interfaces, now, orders);
                });
                let wants = member.filter(|member| inventory::is_wanted(member, change));
                let link = wants.and_then(|member| member.link);
                out.extend(link.map(|link| ProcessAction::Files(link, FileMessage::InventoryWanted)));
            }
            if let NodeAction::JoinedBelow { nodes } = &action {
                self.location_service(now, out, |location_service, _| {
                    location_service.resolver.found_below(nodes);
                });
            }
            out.push(ProcessAction::Tree(action));
        }
        self.actions = actions;
        if self.location_service.is_none() {
            self.greet(disk, out);
        }
        self.report_leases(now, out);
    }

    /// Calls the desk, and executes its actions.
    fn location_service(
        &mut self,
        now: Duration,
        out: &mut Vec<ProcessAction>,
        act: impl FnOnce(&mut LocationService, &mut Vec<cluster::ResolverAction>),
    ) {
        let (Some(location_service), Some(members)) = (&mut self.location_service, self.node.members())
        else {
            return;
        };
        location_service.resolver.set_quorum(members.serves() && members.is_settled(now));
        location_service.resolver.set_door(members.settings().door.as_ref());
        let mut orders = std::mem::take(&mut self.orders);
        let before = location_service.resolver.steps();
        act(location_service, &mut orders);
        let steps = location_service.resolver.steps() - before;
        self.count_steps(steps, now);
        for order in orders.drain(..) {
            self.obey(order, now, out);
        }
        self.orders = orders;
    }

    /// Returns the first event that exceeded the limit of steps, or the violated limit of the work
    /// queue.
    pub(crate) fn take_work_error(&mut self) -> Option<String> {
        self.costly.take().or_else(|| self.turns.as_ref().and_then(|turns| turns.error()))
    }

    /// Counts the requests and queries that one event looked at.
    fn count_steps(&mut self, steps: u64, now: Duration) {
        let steps = if self.does(Sabotage::Rescans) { steps + self.in_hand() } else { steps };
        self.steps_most = self.steps_most.max(steps);
        if steps > STEPS_MAX && self.costly.is_none() {
            let waiting = self.in_hand();
            self.costly = Some(format!("{now:?}: {steps} steps for one event beside {waiting} requests"));
        }
    }

    /// Returns the number of requests that wait here.
    fn in_hand(&self) -> u64 {
        self.stats().map_or(0, |stats| (stats.waiters + stats.held) as u64)
    }

    /// Reports whether only draining nodes below have a path.
    fn drains(&self, path: &[u8], now: Duration) -> bool {
        self.location_service
            .as_ref()
            .is_some_and(|location_service| location_service.resolver.is_draining(path, now))
    }

    fn obey(&mut self, order: cluster::ResolverAction, now: Duration, out: &mut Vec<ProcessAction>) {
        match order {
            cluster::ResolverAction::Ask { to, path, refresh, via_meta } => {
                let Some(members) = self.node.members() else { return };
                let ask = StateAsk { refresh, quiet: false, via_meta };
                let links = to.iter().filter_map(|slot| members.member(slot)?.link);
                out.extend(
                    links.map(|link| {
                        ProcessAction::Files(link, FileMessage::State { path: path.clone(), ask })
                    }),
                );
            }
            cluster::ResolverAction::Lease { slot, path, time, number } => {
                let link = self.node.members().and_then(|members| members.member(slot)?.link);
                out.extend(
                    link.map(|link| ProcessAction::Files(link, FileMessage::Lease { path, time, number })),
                );
            }
            // Nodes here do not see the shared file system of their servers.
            cluster::ResolverAction::Look { path: _ } => {}
            cluster::ResolverAction::Answer { token, answer } => {
                let keeps = self.does(Sabotage::Keeps);
                let swallows = self.does(Sabotage::Swallows);
                let waits = |location_service: &mut Box<LocationService>| {
                    if keeps {
                        location_service.waiting.contains(&token)
                    } else {
                        location_service.waiting.remove(&token)
                    }
                };
                if self.location_service.as_mut().is_some_and(waits) && !swallows {
                    let (operation, attempt) = ((token.0 >> 32) as u32, token.0 as u32);
                    out.push(ProcessAction::Tell { operation, attempt, told: told(answer) });
                }
            }
            cluster::ResolverAction::Reply { token, path, reply } => {
                self.reply(ConnectionId(token.0), path, reply, now, out)
            }
            cluster::ResolverAction::Announce { .. } if self.does(Sabotage::Withholds) => {}
            cluster::ResolverAction::Retract { .. } if self.does(Sabotage::Retains) => {}
            cluster::ResolverAction::Announce { path, pending } => {
                let draining = self.drains(&path, now);
                let leased = if pending { self.lease_report(&path, now) } else { None };
                self.tell_parents(&FileMessage::Have { path, pending, draining, leased }, out);
            }
            cluster::ResolverAction::Retract { path } => self.tell_parents(&FileMessage::Gone { path }, out),
        }
    }

    fn parents(&self) -> impl Iterator<Item = (ConnectionId, Extensions)> {
        self.node.memberships().iter().flat_map(|membership| membership.parents())
    }

    fn tell_parents(&self, message: &FileMessage, out: &mut Vec<ProcessAction>) {
        let for_peer = |(link, extensions): (ConnectionId, Extensions)| {
            let mut message = message.clone();
            if let FileMessage::Have { leased, .. } = &mut message {
                leased.take_if(|_| !extensions.contains(Extensions::LEASES));
            }
            ProcessAction::Files(link, message)
        };
        out.extend(self.parents().map(for_peer));
    }

    fn reply(
        &mut self,
        link: ConnectionId,
        path: Name,
        reply: StateReply,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let Some((_, extensions)) = self.parents().find(|(parent, _)| *parent == link) else { return };
        match reply {
            StateReply::Have { pending } => {
                let draining = extensions.is_own() && self.drains(&path, now);
                let tells = pending && extensions.contains(Extensions::LEASES);
                let leased = if tells { self.lease_report(&path, now) } else { None };
                out.push(ProcessAction::Files(link, FileMessage::Have { path, pending, draining, leased }));
            }
            // A real parent has no such reply; a missing one means absence.
            StateReply::NotHere if extensions.contains(Extensions::NOT_HERE) => {
                let ended = match &mut self.location_service {
                    Some(location_service) => location_service.resolver.has_lease_ended(&path, now),
                    None => self.leases.has_ended(&path, now),
                };
                if ended {
                    out.push(ProcessAction::Files(link, FileMessage::Gone { path: path.clone() }));
                }
                out.push(ProcessAction::Files(link, FileMessage::NotHere { path }));
            }
            StateReply::NotHere => {}
        }
    }

    /// Suspends the node by order of the administrator, or resumes it.
    pub fn suspend(&mut self, suspended: bool, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.tree(disk, now, out, |node, now, actions| {
            if node.members().is_some() {
                node.suspend(suspended, now, actions);
            } else {
                node.set_condition(!suspended, false, DATA_PORT, actions);
            }
        });
        self.location_service(now, out, |location_service, orders| {
            location_service.resolver.tick(now, orders)
        });
    }

    /// Drains this server by order of the administrator, or ends that.
    pub fn drain(&mut self, draining: bool, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.tree(disk, now, out, |node, _, actions| node.set_draining(draining, actions));
    }

    /// Answers the queries of parents after a disk hung. Clients have gone elsewhere.
    pub fn revived(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        for (link, path) in std::mem::take(&mut self.unanswered) {
            self.look(link, path, disk, now, out);
        }
        self.greet(disk, out);
    }

    /// Sends the inventory to new parents of our own.
    fn greet(&mut self, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
        if !self.inventory || disk.hangs {
            return;
        }
        let parents: Vec<(ConnectionId, Extensions)> = self.parents().collect();
        self.greeted.retain(|link| parents.iter().any(|(parent, _)| parent == link));
        for (link, extensions) in parents {
            if self.greeted.insert(link) && extensions.contains(Extensions::INVENTORY) {
                list(link, disk, out);
            }
        }
    }

    /// Handles a parent's request for the inventory: a server sends its own, an inner node asks its
    /// children.
    fn inventory_wanted(&self, link: ConnectionId, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
        match self.node.members() {
            Some(members) => {
                out.extend(
                    inventory::sources(members)
                        .map(|link| ProcessAction::Files(link, FileMessage::InventoryWanted)),
                );
            }
            None if self.inventory && !disk.hangs => list(link, disk, out),
            None => {}
        }
    }

    /// Forwards the inventory of a child to the parents that accept it.
    fn pass_on_inventory(&self, link: ConnectionId, message: &FileMessage, out: &mut Vec<ProcessAction>) {
        let FileMessage::Inventory { .. } = message else { return };
        let members = self.node.members();
        let child = members.and_then(|members| members.member(self.node.slot(link)?));
        if child.is_some_and(inventory::is_passed_on) {
            let able =
                |(_, extensions): &(ConnectionId, Extensions)| extensions.contains(Extensions::INVENTORY);
            out.extend(
                self.parents().filter(able).map(|(parent, _)| ProcessAction::Files(parent, message.clone())),
            );
        }
    }

    /// Handles a message about files.
    pub fn files(
        &mut self,
        link: ConnectionId,
        message: FileMessage,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let state = matches!(message, FileMessage::State { .. });
        self.handle(NodeEvent::Heard { link, state }, disk, now, out);
        if let FileMessage::Lease { path, time, number } = message {
            return self.lease(link, &path, time, number, now, out);
        }
        if let FileMessage::State { path, ask } = message {
            self.asked(link, path, ask, disk, now, out);
            return;
        }
        if let FileMessage::InventoryWanted = message {
            return self.inventory_wanted(link, disk, out);
        }
        if let FileMessage::Order(order) = message {
            return self.ordered(link, order, disk, now, out);
        }
        let Some(slot) = self.node.slot(link) else { return };
        self.pass_on_inventory(link, &message, out);
        if let FileMessage::Inventory { paths, last } = message {
            for path in paths {
                self.location_service(now, out, |location_service, orders| {
                    location_service.resolver.inventory(slot, &path, false, now, orders);
                });
            }
            if last {
                self.location_service(now, out, |location_service, _| location_service.resolver.listed(slot));
            }
            return;
        }
        self.location_service(now, out, |location_service, orders| match message {
            FileMessage::Have { path, leased: Some(lease), .. } => {
                location_service.resolver.have_leased(slot, &path, lease, now, orders);
            }
            FileMessage::Have { path, draining: true, .. } => {
                location_service.resolver.have_draining(slot, &path, now, orders)
            }
            FileMessage::Have { path, pending, .. } => {
                location_service.resolver.have(slot, &path, pending, now, orders)
            }
            FileMessage::Gone { path } => location_service.resolver.gone(slot, &path, now, orders),
            FileMessage::NotHere { path } => location_service.resolver.not_here(slot, &path, now, orders),
            FileMessage::Inventory { .. }
            | FileMessage::State { .. }
            | FileMessage::Lease { .. }
            | FileMessage::Order(_)
            | FileMessage::InventoryWanted => {}
        });
    }

    /// Handles a parent's query for a path.
    fn asked(
        &mut self,
        link: ConnectionId,
        path: Name,
        ask: StateAsk,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        if self.location_service.is_none() {
            if disk.hangs {
                self.unanswered.push((link, path));
            } else {
                self.look(link, path, disk, now, out);
            }
            return;
        }
        let mut reply = None;
        self.location_service(now, out, |location_service, orders| {
            reply = location_service.resolver.state(RequestToken(link.0), &path, ask, now, orders);
        });
        if let Some(reply) = reply {
            self.reply(link, path, reply, now, out);
        }
    }

    /// Answers a parent's query at a server.
    fn look(
        &mut self,
        link: ConnectionId,
        path: Name,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let has = disk.has(&path) && !self.does(Sabotage::Denies);
        let here = self.behaviour == QueryBehaviour::Claims || has;
        let pending = !here && self.lease_report(&path, now).is_some();
        let reply = if here || pending { StateReply::Have { pending } } else { StateReply::NotHere };
        if self.behaviour != QueryBehaviour::Mute {
            let times = if self.does(Sabotage::Chatters) { 20 } else { 1 };
            (0..times).for_each(|_| self.reply(link, path.clone(), reply, now, out));
        }
    }
}

/// Returns the message for a file that exists here.
fn here(path: &Name) -> FileMessage {
    FileMessage::Have { path: path.clone(), pending: false, draining: false, leased: None }
}

/// Sends the inventory to a parent.
fn list(link: ConnectionId, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
    let paths: Vec<Name> = disk.files.keys().cloned().collect();
    let parts = paths.chunks(PATHS_PER_MESSAGE).map(<[Name]>::to_vec);
    let say = |paths, last| ProcessAction::Files(link, FileMessage::Inventory { paths, last });
    out.extend(parts.map(|paths| say(paths, false)));
    out.push(say(Vec::new(), true));
}
