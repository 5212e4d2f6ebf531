//! The world of a simulation: hosts, the network and virtual time, one event after the other.
//!
//! One thread handles the events in their order, so that a seed gives the same history each time.
//! Here hosts start, crash and do their work; `delivery` handles connections, and `requests` those
//! of clients.

mod delivery;
mod requests;

use std::time::Duration;

use cluster::tree::{ChildChange, NodeAction, NodeEvent, Notice};

use crate::answer_checks::AnswerCheck;
use crate::client::ClientOperation;
use crate::counts::Counts;
use crate::disk::HostDisk;
use crate::event_queue::{EventQueue, WorldEvent};
use crate::host::{HostKind, HostProcess, SimHost};
use crate::host_address::host_of_name;
use crate::messages::{Name, ProcessAction, SimMessage};
use crate::network::Network;
pub use crate::network::NetworkConditions;
use crate::shape::Shape;
use crate::sim_rng::SimRng;
use crate::tree_view::TreeView;

/// Maximum number of messages and timers that wait, for each host. With more, messages cause each
/// other without end.
const QUEUED_PER_HOST_MAX: usize = 10_000;
/// The number of hosts for which that maximum is meant at least.
const HOSTS_LEAST: usize = 20;

/// All hosts and the network between them.
pub struct World {
    /// Virtual time.
    pub now: Duration,
    /// Counts of events.
    pub counts: Counts,
    /// The random generator.
    pub rng: SimRng,
    pub(crate) hosts: Vec<SimHost>,
    pub(crate) network: Network,
    queue: EventQueue,
    actions: Vec<ProcessAction>,
    /// The operations of clients.
    pub operations: Vec<ClientOperation>,
    /// A path whose messages are printed on the standard output.
    pub trace: Option<String>,
    /// Each answer to a reader is checked by the rules of `location_check`; reports of changes
    /// arrive within this time.
    pub(crate) known_within: Option<Duration>,
    /// Answers that were wrong at their time.
    pub wrong: Vec<String>,
    /// The time at which a host last found or lost its place.
    pub changed: Duration,
    /// The number of hosts with a place, without managers.
    pub placed: usize,
    /// The number of real nodes that a message of ours has ended.
    pub killed: usize,
}

impl World {
    /// Creates an empty world.
    pub fn new(seed: u64, conditions: NetworkConditions) -> Self {
        Self {
            now: Duration::ZERO,
            counts: Counts::default(),
            rng: SimRng::new(seed),
            hosts: Vec::new(),
            network: Network::new(conditions),
            queue: EventQueue::default(),
            actions: Vec::new(),
            operations: Vec::new(),
            trace: std::env::var("SIM_TRACE").ok(),
            known_within: None,
            wrong: Vec::new(),
            changed: Duration::ZERO,
            placed: 0,
            killed: 0,
        }
    }

    /// Adds a host that starts at `at`, and returns its number.
    pub fn add(&mut self, kind: HostKind, managers: &[usize], at: Duration) -> usize {
        let index = self.hosts.len();
        let drift = self.network.conditions.drift_per_million;
        let rate = 1.0 + (self.rng.below(2 * drift + 1) as f64 - drift as f64) / 1e6;
        self.hosts.push(SimHost::new(index, kind, managers.to_vec(), rate));
        self.network.separations.add_host();
        self.schedule(at, WorldEvent::Start(index as u32));
        index
    }

    /// Returns the number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Reports whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the role of a host.
    pub fn kind(&self, host: usize) -> HostKind {
        self.hosts[host].kind
    }

    /// Returns the tree over the connections that work now.
    pub(crate) fn tree(&self) -> TreeView<'_> {
        TreeView { now: self.now, hosts: &self.hosts, network: &self.network }
    }

    /// Returns the tree of a manager.
    ///
    /// # Errors
    ///
    /// The violation of the tree: a child with two parents in this tree, a child that does not
    /// confirm its parent, more than 64 children, or a running node outside the tree.
    pub fn shape(&self, manager: usize) -> Result<Shape, String> {
        Shape::of(&self.hosts, &self.network, manager)
    }

    /// Describes the state of a host of our own for an error message.
    pub fn state_of(&self, host: usize) -> String {
        let text = self.hosts.get(host).and_then(|found| found.state(self.now));
        text.unwrap_or_else(|| format!("host {host} is none of our own"))
    }

    fn answer_check(&self) -> AnswerCheck<'_> {
        AnswerCheck { tree: self.tree(), operations: &self.operations }
    }

    /// Runs until `end`, or until `stop` returns `true` after an event.
    pub fn run(&mut self, end: Duration, mut stop: impl FnMut(&Self) -> bool) {
        while let Some((at, what)) = self.queue.take_until(end) {
            self.now = at;
            self.counts.events += 1;
            self.happen(what);
            if stop(self) {
                return;
            }
        }
        self.now = self.now.max(end);
    }

    fn schedule(&mut self, at: Duration, what: WorldEvent) {
        let most = QUEUED_PER_HOST_MAX * self.hosts.len().max(HOSTS_LEAST);
        assert!(self.queue.len() <= most, "a storm: {most} messages and timers wait at {:?}", self.now);
        self.queue.add(at, what);
    }

    fn happen(&mut self, what: WorldEvent) {
        let Some(what) = self.hold_up(what) else { return };
        match what {
            WorldEvent::Start(host) => self.start(host as usize),
            WorldEvent::Arrive { link } => self.arrive(link),
            WorldEvent::Made { link } => self.deliver(link, 0, |end| NodeEvent::Connected { link: end.link }),
            WorldEvent::Message { link, to, sent, message } => self.receive(link, to, sent, *message),
            WorldEvent::Ended { link, to } => self.end(link, to),
            WorldEvent::Break { .. } | WorldEvent::Silence { .. } | WorldEvent::Stall { .. } => {
                self.fault(&what)
            }
            WorldEvent::Together { pair } => self.network.separations.remove_pair(pair),
            WorldEvent::Timer { host, epoch } => self.timer(host as usize, epoch),
            WorldEvent::Ask { operation, attempt, host, lost } => {
                self.ask(operation, attempt, host as usize, lost)
            }
            WorldEvent::Told { operation, attempt, told } => self.told(operation, attempt, told),
            WorldEvent::Patience { operation, attempt } => self.patience(operation, attempt),
            WorldEvent::Send { operation, attempt, host } => {
                self.send_request(operation, attempt, host as usize)
            }
        }
    }

    /// Starts a host, or restarts it after a crash.
    pub fn start(&mut self, index: usize) {
        if self.hosts[index].machine.is_some() {
            return;
        }
        if self.hosts[index].epoch > 0 {
            self.counts.returned += 1;
        }
        let machine = self.hosts[index].machine(&mut self.rng, self.now);
        self.hosts[index].machine = Some(machine);
        self.with(index, |machine, disk, now, out| machine.start(disk, now, out));
        if self.hosts[index].suspended {
            self.suspend(index, true);
        }
        if self.hosts[index].draining {
            self.drain(index, true);
        }
    }

    /// Restarts a host at that time.
    pub fn begin_again(&mut self, index: usize, at: Duration) {
        self.schedule(at, WorldEvent::Start(index as u32));
    }

    /// Ends a host's process. `quietly`: its machine is down too, so its connections do not end.
    pub fn crash(&mut self, index: usize, quietly: bool) {
        self.counts.parked += u64::from(self.hosts[index].has_waiting());
        let host = &mut self.hosts[index];
        if host.machine.take().is_none() {
            return;
        }
        let what = match host.kind {
            HostKind::Manager | HostKind::RealManager => Some(0),
            HostKind::Supervisor | HostKind::RealSupervisor => Some(1),
            HostKind::Server | HostKind::RealServer => Some(2),
            HostKind::Flood | HostKind::Stranger => None,
        };
        for kind in what.into_iter().chain(what.filter(|_| !host.kind.is_own()).map(|_| 3)) {
            self.counts.crashed[kind] += 1;
        }
        self.counts.quietly += u64::from(quietly);
        let placed = host.placed;
        if placed {
            host.missed = Some(self.now);
        }
        host.crashed();
        if placed {
            self.placed -= 1;
            self.changed = self.now;
        }
        for (link, to) in self.network.lose_host(index, quietly) {
            self.tell_end(link, to);
        }
        if !quietly {
            self.clients_lose(index);
        }
    }

    /// Splits the network: hosts of different groups are separated.
    pub fn split(&mut self, group: impl Fn(usize) -> u8) {
        self.network.separations.split(group);
    }

    /// Separates one host from all others, or ends that.
    pub fn cut_off(&mut self, index: usize, off: bool) {
        self.network.separations.cut_off(index, off);
    }

    /// Ends all separations of hosts.
    pub fn heal(&mut self) {
        self.network.separations.heal();
    }

    /// Separates two hosts from each other, or ends that; others reach both.
    pub fn set_apart(&mut self, one: usize, other: usize, apart: bool) {
        let pair = (one as u32, other as u32);
        self.network.separations.remove_all_of(pair);
        if apart {
            self.counts.apart += 1;
            self.network.separations.add_pair(pair);
        }
    }

    /// Freezes a host until then; its clock may stop, too.
    pub fn stand_still(&mut self, index: usize, until: Duration, clock: bool) {
        let now = self.now;
        let host = &mut self.hosts[index];
        if host.machine.is_none() || until <= now || host.still_until(now).is_some() {
            return;
        }
        host.stand_still(now, until, clock);
        self.counts.still[0] += 1;
        self.counts.still[1] += u64::from(clock);
    }

    /// Makes the disk of a host hang, or ends that.
    pub fn hang(&mut self, index: usize, hangs: bool) {
        self.counts.hung += u64::from(hangs);
        self.hosts[index].disk.hangs = hangs;
        if !hangs {
            self.with(index, |machine, disk, now, out| {
                if let HostProcess::Own(own) = machine {
                    own.revived(disk, now, out);
                }
            });
        }
    }

    /// Suspends a node of our own, or resumes it.
    pub fn suspend(&mut self, index: usize, suspended: bool) {
        let host = &mut self.hosts[index];
        if suspended && !host.suspended {
            self.counts.suspended[usize::from(host.kind.is_supervisor())] += 1;
        }
        host.suspended = suspended;
        self.with(index, |machine, disk, now, out| {
            if let HostProcess::Own(own) = machine {
                own.suspend(suspended, disk, now, out);
            }
        });
    }

    /// Drains a server of our own, or ends that.
    pub fn drain(&mut self, index: usize, draining: bool) {
        self.counts.drained += u64::from(draining && !self.hosts[index].draining);
        self.hosts[index].draining = draining;
        self.with(index, |machine, disk, now, out| {
            if let HostProcess::Own(own) = machine {
                own.drain(draining, disk, now, out);
            }
        });
    }

    /// Adds or removes a file on a disk without a client. Parents are notified if `told` is set.
    pub fn change(&mut self, index: usize, path: &Name, here: bool, told: bool) {
        let local = self.hosts[index].local(self.now);
        let disk = &mut self.hosts[index].disk;
        if here {
            disk.put(path, None, local);
            if let Some(file) = disk.files.get_mut(path) {
                file.is_quiet = !told;
            }
        } else {
            disk.remove(path, local, !told);
        }
        if told {
            self.with(index, |machine, disk, now, out| match machine {
                HostProcess::Own(own) => own.changed(path, disk, now, out),
                HostProcess::Real(node) => node.changed(path, here, out),
                HostProcess::Flood(_) | HostProcess::Stranger(_) => {}
            });
        }
    }

    fn timer(&mut self, index: usize, epoch: u32) {
        let host = &mut self.hosts[index];
        if host.epoch != epoch || host.machine.is_none() || host.timer != Some(self.now) {
            return;
        }
        host.timer = None;
        self.with(index, |machine, disk, now, out| machine.tick(disk, now, out));
    }

    /// Calls a host's process, and executes its actions.
    pub(crate) fn with(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut HostProcess, &mut HostDisk, Duration, &mut Vec<ProcessAction>),
    ) {
        let host = &mut self.hosts[index];
        let local = host.local(self.now);
        let Some(machine) = &mut host.machine else { return };
        let before = host.placed;
        let mut is_noted = matches!(host.kind, HostKind::Server | HostKind::Supervisor);
        let mut actions = std::mem::take(&mut self.actions);
        act(machine, &mut host.disk, local, &mut actions);
        for action in actions.drain(..) {
            match action {
                ProcessAction::Tree(action) => {
                    is_noted |= matches!(action, NodeAction::Child { .. } | NodeAction::JoinedBelow { .. });
                    self.act(index, action);
                }
                ProcessAction::Files(link, message) => self.send(index, link, SimMessage::Files(message)),
                ProcessAction::Tell { operation, attempt, told } => {
                    self.tell(index, operation, attempt, told)
                }
                ProcessAction::Made(path) => {
                    let error = self.answer_check().error_of_created(index, &path);
                    self.wrong.extend(error);
                }
            }
        }
        self.actions = actions;
        let host = &mut self.hosts[index];
        if let Some(error) = host.take_work_error() {
            self.wrong.push(format!("host {index}: {error}"));
        }
        host.check_places();
        if is_noted {
            host.note_record();
        }
        if host.dies() {
            self.killed += 1;
            self.crash(index, false);
            return;
        }
        let placed = host.placed();
        if before != placed {
            host.placed = placed;
            host.missed = (!placed).then_some(self.now);
            self.placed = if placed { self.placed + 1 } else { self.placed - 1 };
            self.changed = self.now;
        }
        let Some(deadline) = host.deadline() else { return };
        let at = deadline.max(self.now);
        if host.timer.is_none_or(|before| at < before) {
            host.timer = Some(at);
            let epoch = host.epoch;
            self.schedule(at, WorldEvent::Timer { host: index as u32, epoch });
        }
    }

    fn act(&mut self, index: usize, action: NodeAction) {
        match action {
            NodeAction::Connect { link, address } => self.connect(index, link, address.host()),
            NodeAction::Send { link, message } => self.send(index, link, SimMessage::Tree(message)),
            NodeAction::Close { link } => self.close(index, link),
            NodeAction::Remember { cell } => self.hosts[index].remembered = cell,
            NodeAction::Child { slot, change: ChildChange::Joined { .. } } => self.seated(index, slot),
            NodeAction::Notice(Notice::Full { .. }) => self.counts.full += 1,
            NodeAction::Child { .. }
            | NodeAction::JoinedBelow { .. }
            | NodeAction::Service { .. }
            | NodeAction::Attached { .. }
            | NodeAction::Drain { .. }
            | NodeAction::Notice(_) => {}
        }
    }

    /// Records that a parent has accepted a child.
    fn seated(&mut self, index: usize, slot: cluster::Slot) {
        let Some(own) = self.hosts[index].own() else { return };
        let member = own.node.members().and_then(|members| members.member(slot));
        let child = member.and_then(|member| host_of_name(member.data.host()));
        if let Some(child) = child.filter(|child| *child < self.hosts.len()) {
            self.hosts[child].seated = self.now;
            self.hosts[child].seat = Some((index, self.hosts[index].epoch));
            self.judge_place(index, child);
            if self.trace.is_some() {
                println!("{:?} {index} takes in {child}", self.now);
            }
        }
    }

    /// Checks that a parent that accepted a child is not below it.
    fn judge_place(&mut self, parent: usize, child: usize) {
        let inner = self.hosts[child].kind.is_supervisor() || self.hosts[child].kind.is_manager();
        if inner && self.tree().ancestors(parent).contains(&child) {
            self.wrong.push(format!("{:?}: {parent} takes in {child}, which is above it", self.now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formation::Formation;

    #[test]
    fn who_takes_in_the_node_above_it_is_noticed() {
        let mut world = Formation { within: Duration::from_secs(1), ..Formation::new(80, 1) }.world(1);
        world.run(Duration::from_secs(10), |_| false);
        let supervisor = (0..world.len()).find(|host| world.kind(*host) == HostKind::Supervisor).unwrap();
        assert_eq!(world.tree().ancestors(supervisor), [0]);
        let below = (0..world.len()).find(|host| world.tree().ancestors(*host) == [supervisor, 0]).unwrap();
        for (parent, child) in [(0, supervisor), (supervisor, below), (0, below)] {
            world.judge_place(parent, child);
        }
        assert_eq!(world.wrong, [""; 0]);
        world.judge_place(supervisor, 0);
        assert_eq!(world.wrong.len(), 1);
    }
}
