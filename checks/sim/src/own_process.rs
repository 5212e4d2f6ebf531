//! A process of our own: the node and the resolver, connected as in the driver of the server.
//!
//! It repeats the wiring of the server without sockets and threads, so that the state machines run
//! unchanged.

mod file_messages;
mod inventory;
mod leases;
mod orders;
mod parents;
mod serving;
mod turns;

use std::net::SocketAddr;
use std::time::Duration;

use cluster::tree::{
    ClusterMember, ClusterNode, ConnectionId, NodeAction, NodeEvent, NodeMessage, StatusMessage,
};
use cluster::{
    CacheSettings, LeaseReport, NameChangeSet, OwnHost, RequestToken, ResolveStats, STEPS_MAX, StateAsk,
};

use self::inventory::InventoryReports;
use self::leases::NodeLeases;
use self::orders::OrderReceiver;
use self::parents::Parents;
use self::serving::FileService;
use crate::disk::{HostDisk, LeaseState};
use crate::host_address::DATA_PORT;
use crate::location_service::{LocationService, told};
use crate::messages::{ClientRequest, FileMessage, HostReply, Name, ProcessAction};
use crate::sim_rng::SimRng;

pub use crate::behaviour::{QueryBehaviour, Sabotage};
pub(crate) use turns::WorkTurns;

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
    inventory: InventoryReports,
    leases: NodeLeases,
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
            inventory: InventoryReports::new(false),
            leases: NodeLeases::new(None),
            actions: Vec::new(),
            orders: Vec::new(),
            unanswered: Vec::new(),
            turns: None,
            steps_most: 0,
            costly: None,
            forwarded: NameChangeSet::NONE,
        }
    }

    /// Sets the behaviour, and whether the node sends its inventory at each login.
    #[must_use]
    pub fn with(mut self, behaviour: QueryBehaviour, inventory: bool, sabotage: Option<Sabotage>) -> Self {
        (self.behaviour, self.sabotage) = (behaviour, sabotage);
        (self.inventory, self.leases) = (InventoryReports::new(inventory), NodeLeases::new(sabotage));
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
            (Some(time), None) => self.leases.at_server.recover(time, now),
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
        LeaseState { lessees, leases: self.leases.granted() }
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
        [self.node.deadline(), location_service, self.leases.at_server.next_deadline(), turn]
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
            let reports: Vec<NodeAction> = Parents::of(&self.node).all().map(status).collect();
            (0..30).for_each(|_| out.extend(reports.iter().cloned().map(ProcessAction::Tree)));
        }
        self.location_service(now, out, |location_service, orders| {
            location_service.resolver.tick(now, orders)
        });
        for path in self.leases.at_server.take_ended(now) {
            Parents::of(&self.node).report(&path, disk, out);
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
                let wants = member.filter(|member| cluster::tree::inventory::is_wanted(member, change));
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
            self.inventory.greet(Parents::of(&self.node), disk, out);
        }
        self.leases.greet(Parents::of(&self.node), self.location_service.as_deref(), now, out);
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
                Parents::of(&self.node).tell(&FileMessage::Have { path, pending, draining, leased }, out);
            }
            cluster::ResolverAction::Retract { path } => {
                Parents::of(&self.node).tell(&FileMessage::Gone { path }, out)
            }
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
        self.inventory.greet(Parents::of(&self.node), disk, out);
    }

    /// Handles a client's request.
    pub fn serve(
        &mut self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let ClientRequest { operation, attempt, .. } = *request;
        if self.location_service.is_none() {
            if disk.hangs {
                return;
            }
            let told = self.file_service(disk, now, out).perform(request);
            out.push(ProcessAction::Tell { operation, attempt, told });
            return;
        }
        let mut answer = None;
        self.location_service(now, out, |location_service, _| answer = location_service.warm(request, now));
        let told = match answer {
            Some(answer) => told(answer),
            None => {
                let in_line = self.does(Sabotage::Lines);
                let Some(turns) = &mut self.turns else { return self.ask(request, now, out) };
                turns.enqueue(request, in_line, now)
            }
        };
        out.push(ProcessAction::Tell { operation, attempt, told });
    }

    /// Passes a client's request to the resolver.
    fn ask(&mut self, request: &ClientRequest, now: Duration, out: &mut Vec<ProcessAction>) {
        let ClientRequest { operation, attempt, .. } = *request;
        let mut answer = None;
        self.location_service(now, out, |location_service, orders| {
            let token = client_token(operation, attempt);
            location_service.waiting.insert(token);
            answer = location_service.cold(request, token, now, orders);
            if answer.is_some() {
                location_service.waiting.remove(&token);
            }
        });
        // A request that was answered meanwhile no longer waits: its answer is among the actions.
        let told = answer.map_or(HostReply::Later, told);
        out.push(ProcessAction::Tell { operation, attempt, told });
    }

    /// Records a change of the disk without a client, and notifies parents.
    pub fn changed(&mut self, path: &Name, disk: &mut HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        self.file_service(disk, now, out).changed(path);
    }

    /// Takes a batch of work from the queue of the thread if it is due.
    fn take_turn(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        let Some(batch) = self.turns.as_mut().and_then(|turns| turns.take_due(now)) else { return };
        if batch.is_reset && !self.does(Sabotage::Loses) {
            self.tree(disk, now, out, |node, now, actions| node.reset(now, actions));
        }
        for path in batch.changed.iter().chain(&batch.missed) {
            Parents::of(&self.node).report(&path.as_bytes().into(), disk, out);
        }
        for arrival in batch.requests {
            self.ask(&arrival.request, now, out);
        }
    }

    /// Returns the lease of a path that a client is about to create here or below.
    fn lease_report(&mut self, path: &[u8], now: Duration) -> Option<LeaseReport> {
        self.leases.report(path, self.location_service.as_deref_mut(), now)
    }

    fn file_service<'a>(
        &'a mut self,
        disk: &'a mut HostDisk,
        now: Duration,
        out: &'a mut Vec<ProcessAction>,
    ) -> FileService<'a> {
        FileService {
            node: &self.node,
            leases: &mut self.leases,
            turns: self.turns.as_deref_mut(),
            sabotage: self.sabotage,
            disk,
            now,
            out,
        }
    }

    fn order_receiver(&mut self) -> OrderReceiver<'_> {
        OrderReceiver {
            node: &self.node,
            location_service: self.location_service.as_deref_mut(),
            forwarded: self.forwarded,
            sabotage: self.sabotage,
        }
    }
}
