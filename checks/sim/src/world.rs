//! The world of a simulation: hosts, the network and virtual time, one event after the other.
//!
//! One thread handles the events in their order, so that a seed gives the same history each time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cluster::tree::{ChildChange, NodeAction, NodeEvent, Notice};

use crate::client::ClientOperation;
use crate::connection::SimConnection;
use crate::counts::Counts;
use crate::disk::HostDisk;
use crate::host::{HostKind, HostProcess, SimHost};
use crate::host_address::host_of_name;
use crate::messages::{HostReply, ProcessAction, SimMessage};
use crate::sim_rng::SimRng;

/// The properties of the network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkConditions {
    /// The one-way latency of a connection.
    pub latency: Duration,
    /// The maximum additional latency of a message; messages of one connection keep their order.
    pub jitter: Duration,
    /// The rate of connections with a fault, in parts per million. A third of them break, a third
    /// fall silent for good, and a third stall for up to 10 s.
    pub faulty_per_million: u64,
    /// The time after the start of a connection within which a fault occurs.
    pub fault_within: Duration,
    /// The maximum error of a clock's speed, in parts per million.
    pub drift_per_million: u64,
}

impl Default for NetworkConditions {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(1),
            jitter: Duration::from_micros(200),
            faulty_per_million: 10_000,
            fault_within: Duration::from_secs(5),
            drift_per_million: 200,
        }
    }
}

pub(crate) enum WorldEvent {
    Start(u32),
    Arrive {
        link: u32,
    },
    Made {
        link: u32,
    },
    Message {
        link: u32,
        to: usize,
        sent: Duration,
        message: Box<SimMessage>,
    },
    Ended {
        link: u32,
        to: usize,
    },
    Break {
        link: u32,
    },
    Silence {
        link: u32,
    },
    Stall {
        link: u32,
    },
    /// The separation of two hosts ends.
    Together {
        pair: (u32, u32),
    },
    Timer {
        host: u32,
        epoch: u32,
    },
    /// A client's request reaches a host.
    Ask {
        operation: u32,
        attempt: u32,
        host: u32,
        lost: bool,
    },
    /// An answer reaches a client.
    Told {
        operation: u32,
        attempt: u32,
        told: HostReply,
    },
    /// A client's timeout passes.
    Patience {
        operation: u32,
        attempt: u32,
    },
    /// A client sends its next request.
    Send {
        operation: u32,
        attempt: u32,
        host: u32,
    },
}

struct Scheduled {
    at: Duration,
    order: u64,
    what: WorldEvent,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

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
    /// The current properties of the network.
    pub conditions: NetworkConditions,
    pub(crate) hosts: Vec<SimHost>,
    pub(crate) links: Vec<SimConnection>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    /// The group of each host while the network is split.
    pub(crate) split: Vec<u8>,
    /// Pairs of hosts that are separated from each other only.
    pub(crate) apart: Vec<(u32, u32)>,
    actions: Vec<ProcessAction>,
    /// The operations of clients.
    pub operations: Vec<ClientOperation>,
    /// A path whose messages are printed on the standard output.
    pub trace: Option<String>,
    /// Each answer to a reader is checked by the rules of `windows`; reports of changes arrive
    /// within this time.
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
            conditions,
            hosts: Vec::new(),
            links: Vec::new(),
            queue: BinaryHeap::new(),
            scheduled: 0,
            split: Vec::new(),
            apart: Vec::new(),
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
        let drift = self.conditions.drift_per_million;
        let rate = 1.0 + (self.rng.below(2 * drift + 1) as f64 - drift as f64) / 1e6;
        self.hosts.push(SimHost::new(index, kind, managers.to_vec(), rate));
        self.split.push(0);
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

    /// Runs until `end`, or until `stop` returns `true` after an event.
    pub fn run(&mut self, end: Duration, mut stop: impl FnMut(&Self) -> bool) {
        while let Some(Reverse(next)) = self.queue.peek() {
            if next.at > end {
                break;
            }
            let Some(Reverse(next)) = self.queue.pop() else { break };
            self.now = next.at;
            self.counts.events += 1;
            self.happen(next.what);
            if stop(self) {
                return;
            }
        }
        self.now = self.now.max(end);
    }

    pub(crate) fn schedule(&mut self, at: Duration, what: WorldEvent) {
        self.scheduled += 1;
        let most = QUEUED_PER_HOST_MAX * self.hosts.len().max(HOSTS_LEAST);
        assert!(self.queue.len() <= most, "a storm: {most} messages and timers wait at {:?}", self.now);
        self.queue.push(Reverse(Scheduled { at, order: self.scheduled, what }));
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
            WorldEvent::Together { pair } => self.bring_together(pair),
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
        self.counts.parked += u64::from(self.has_waiting(index));
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
        for link in 0..self.links.len() {
            for side in [0, 1] {
                let end = self.links[link].ends[side];
                if end.host as usize == index && end.open {
                    self.links[link].ends[side].open = false;
                    if quietly {
                        self.links[link].silent = true;
                    } else {
                        self.tell_end(link as u32, 1 - side);
                    }
                }
            }
        }
        if !quietly {
            self.clients_lose(index);
        }
    }

    /// Splits the network: hosts of different groups are separated.
    pub fn split(&mut self, group: impl Fn(usize) -> u8) {
        for (index, of) in self.split.iter_mut().enumerate() {
            *of = group(index);
        }
    }

    /// Separates one host from all others, or ends that.
    pub fn cut_off(&mut self, index: usize, off: bool) {
        if let Some(group) = self.split.get_mut(index) {
            *group = if off { group.wrapping_add(128) } else { *group % 128 };
        }
    }

    /// Ends the split.
    pub fn heal(&mut self) {
        self.split.fill(0);
        self.apart.clear();
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
                ProcessAction::Made(path) => self.made(index, &path),
            }
        }
        self.actions = actions;
        self.judge_work(index);
        let host = &mut self.hosts[index];
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
        let Some(HostProcess::Own(own)) = &self.hosts[index].machine else { return };
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
}
