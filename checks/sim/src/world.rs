//! Hosts, connections and virtual time: what a network of nodes does, one event after the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cluster::tree::{Action, ChildChange, Event, LinkId, Message, Peer};

use crate::client::Operation;
use crate::disk::Disk;
use crate::host::{Host, Kind, Machine};
use crate::lot::Lot;
use crate::talk::{Deed, Files, Talk, Told};

/// How the network behaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// One way over a link.
    pub latency: Duration,
    /// Up to so much more for each message; messages of one link keep their order.
    pub jitter: Duration,
    /// Links of which a fault befalls, in parts per million: half of them break, half fall silent for good.
    pub faulty_per_million: u64,
    /// A fault befalls within this time of the link's start.
    pub fault_within: Duration,
    /// Clocks run up to this much too fast or too slow, in parts per million.
    pub drift_per_million: u64,
}

impl Default for Weather {
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

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Messages sent, but pings and pongs.
    pub messages: u64,
    /// Pings and pongs.
    pub pings: u64,
    /// Connections asked for.
    pub connections: u64,
    /// Logins sent.
    pub logins: u64,
    /// `try` sent.
    pub tries: u64,
    /// Reports of cells.
    pub reports: u64,
    /// Links that broke or fell silent.
    pub faults: u64,
    /// Events processed.
    pub events: u64,
    /// Messages about files between nodes.
    pub files: u64,
    /// Requests of clients.
    pub requests: u64,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) host: u32,
    pub(crate) epoch: u32,
    pub(crate) link: LinkId,
    /// Whether this end still has it.
    pub(crate) open: bool,
    /// No message arrives here before the one that was sent before it.
    last: Duration,
}

/// A connection: the end that asked for it, and the other.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) ends: [End; 2],
    pub(crate) silent: bool,
}

pub(crate) enum What {
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
        message: Box<Talk>,
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
        told: Told,
    },
    /// A client has heard nothing for long.
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
    what: What,
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

/// All hosts and the network between them.
pub struct World {
    /// Virtual time.
    pub now: Duration,
    /// What has happened.
    pub counts: Counts,
    /// Chance.
    pub lot: Lot,
    /// How the network behaves from now on.
    pub weather: Weather,
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<Link>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    /// Group of each host while the network is split.
    split: Vec<u8>,
    deeds: Vec<Deed>,
    /// What clients do.
    pub operations: Vec<Operation>,
    /// A path to tell everything about, on the standard output.
    pub trace: Option<String>,
    /// Answers that were wrong when they were given.
    pub wrong: Vec<String>,
    /// When a host found or lost its place last.
    pub changed: Duration,
    /// Hosts that have a place, but managers.
    pub placed: usize,
    /// Real nodes that a message of ours has ended.
    pub killed: usize,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: Duration::ZERO,
            counts: Counts::default(),
            lot: Lot::new(seed),
            weather,
            hosts: Vec::new(),
            links: Vec::new(),
            queue: BinaryHeap::new(),
            scheduled: 0,
            split: Vec::new(),
            deeds: Vec::new(),
            operations: Vec::new(),
            trace: std::env::var("SIM_TRACE").ok(),
            wrong: Vec::new(),
            changed: Duration::ZERO,
            placed: 0,
            killed: 0,
        }
    }

    /// Adds a host that starts at `at`; its number.
    pub fn add(&mut self, kind: Kind, managers: &[usize], at: Duration) -> usize {
        let index = self.hosts.len();
        let drift = self.weather.drift_per_million;
        let rate = 1.0 + (self.lot.below(2 * drift + 1) as f64 - drift as f64) / 1e6;
        self.hosts.push(Host::new(index, kind, managers.to_vec(), rate));
        self.split.push(0);
        self.schedule(at, What::Start(index as u32));
        index
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Lets time pass until `end`, or until `stop` says so after an event.
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

    pub(crate) fn schedule(&mut self, at: Duration, what: What) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at, order: self.scheduled, what }));
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Start(host) => self.start(host as usize),
            What::Arrive { link } => self.arrive(link),
            What::Made { link } => self.deliver(link, 0, |end| Event::Connected { link: end.link }),
            What::Message { link, to, message } => match *message {
                Talk::Tree(message) => {
                    self.deliver(link, to, |end| Event::Message { link: end.link, message });
                }
                Talk::Files(message) => self.deliver_files(link, to, message),
            },
            What::Ended { link, to } => self.end(link, to),
            What::Break { link } => {
                self.counts.faults += 1;
                if self.links[link as usize].silent {
                    return;
                }
                // What is under way is lost.
                self.links[link as usize].silent = true;
                for to in [0, 1] {
                    self.end(link, to);
                }
            }
            What::Silence { link } => {
                self.counts.faults += 1;
                self.links[link as usize].silent = true;
            }
            What::Timer { host, epoch } => self.timer(host as usize, epoch),
            What::Ask { operation, attempt, host, lost } => self.ask(operation, attempt, host as usize, lost),
            What::Told { operation, attempt, told } => self.told(operation, attempt, told),
            What::Patience { operation, attempt } => self.patience(operation, attempt),
            What::Send { operation, attempt, host } => self.send_request(operation, attempt, host as usize),
        }
    }

    pub(crate) fn cut(&self, a: u32, b: u32) -> bool {
        self.split[a as usize] != self.split[b as usize]
    }

    /// Starts a host, or starts it again after a crash.
    pub fn start(&mut self, index: usize) {
        if self.hosts[index].machine.is_some() {
            return;
        }
        let machine = self.hosts[index].machine(&mut self.lot, self.now);
        self.hosts[index].machine = Some(machine);
        self.with(index, |machine, disk, now, out| machine.start(disk, now, out));
    }

    /// Ends a host's process. `quietly`: its host is gone too, and nobody is told.
    pub fn crash(&mut self, index: usize, quietly: bool) {
        let host = &mut self.hosts[index];
        if host.machine.take().is_none() {
            return;
        }
        let placed = host.placed();
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

    /// Splits the network: hosts of different groups do not hear each other any more.
    pub fn split(&mut self, group: impl Fn(usize) -> u8) {
        for (index, of) in self.split.iter_mut().enumerate() {
            *of = group(index);
        }
    }

    /// Ends the split.
    pub fn heal(&mut self) {
        self.split.fill(0);
    }

    fn timer(&mut self, index: usize, epoch: u32) {
        let host = &mut self.hosts[index];
        if host.epoch != epoch || host.machine.is_none() || host.timer != Some(self.now) {
            return;
        }
        host.timer = None;
        self.with(index, |machine, disk, now, out| machine.tick(disk, now, out));
    }

    fn arrive(&mut self, link: u32) {
        let [from, to] = self.links[link as usize].ends;
        if self.cut(from.host, to.host) || self.links[link as usize].silent {
            self.links[link as usize].silent = true;
            return;
        }
        let Some(host) = self.hosts.get(to.host as usize).filter(|host| host.accepts()) else {
            self.tell_end(link, 0);
            return;
        };
        let epoch = host.epoch;
        let end = &mut self.links[link as usize].ends[1];
        (end.epoch, end.open) = (epoch, true);
        let at = self.now + self.weather.latency;
        self.schedule(at, What::Made { link });
        let peer = Peer { ip: Host::ip(from.host as usize), host: Host::name(from.host as usize) };
        self.deliver(link, 1, |end| Event::Accepted { link: end.link, peer });
    }

    fn deliver(&mut self, link: u32, to: usize, event: impl FnOnce(&End) -> Event) {
        let Link { ends, silent } = &self.links[link as usize];
        let end = ends[to];
        if *silent || !end.open || self.hosts[end.host as usize].epoch != end.epoch {
            return;
        }
        if self.cut(ends[0].host, ends[1].host) {
            // The network would send it again, but not for long enough: from here on the link is silent.
            self.links[link as usize].silent = true;
            return;
        }
        let event = event(&end);
        self.with(end.host as usize, |machine, disk, now, out| machine.handle(event, disk, now, out));
    }

    fn deliver_files(&mut self, link: u32, to: usize, message: Files) {
        let Link { ends, silent } = &self.links[link as usize];
        let end = ends[to];
        if *silent || !end.open || self.hosts[end.host as usize].epoch != end.epoch {
            return;
        }
        if self.cut(ends[0].host, ends[1].host) {
            self.links[link as usize].silent = true;
            return;
        }
        self.with(end.host as usize, |machine, disk, now, out| {
            machine.files(end.link, message, disk, now, out);
        });
    }

    /// An end learns that the other one has ended the connection.
    fn end(&mut self, link: u32, to: usize) {
        let end = self.links[link as usize].ends[to];
        if !end.open {
            return;
        }
        self.links[link as usize].ends[to].open = false;
        if self.hosts[end.host as usize].epoch == end.epoch && self.hosts[end.host as usize].machine.is_some()
        {
            self.hosts[end.host as usize].forget(end.link);
            self.with(end.host as usize, |machine, disk, now, out| {
                machine.handle(Event::Closed { link: end.link }, disk, now, out);
            });
        }
    }

    fn arrival(&mut self, link: u32, to: usize) -> Duration {
        let at = self.now + self.weather.latency + self.lot.time(self.weather.jitter);
        let end = &mut self.links[link as usize].ends[to];
        end.last = end.last.max(at);
        end.last
    }

    fn tell_end(&mut self, link: u32, to: usize) {
        let at = self.arrival(link, to);
        let Link { ends, silent } = &self.links[link as usize];
        if !silent && !self.cut(ends[0].host, ends[1].host) {
            self.schedule(at, What::Ended { link, to });
        }
    }

    /// Lets a host's machine do something, and does what it wants.
    pub(crate) fn with(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Machine, &mut Disk, Duration, &mut Vec<Deed>),
    ) {
        let host = &mut self.hosts[index];
        let local = host.local(self.now);
        let Some(machine) = &mut host.machine else { return };
        let before = host.placed;
        let mut deeds = std::mem::take(&mut self.deeds);
        act(machine, &mut host.disk, local, &mut deeds);
        for deed in deeds.drain(..) {
            match deed {
                Deed::Tree(action) => self.act(index, action),
                Deed::Files(link, message) => self.send(index, link, Talk::Files(message)),
                Deed::Tell { operation, attempt, told } => self.tell(index, operation, attempt, told),
                Deed::Made(path) => self.made(index, &path),
            }
        }
        self.deeds = deeds;
        let host = &mut self.hosts[index];
        host.check_places();
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
            self.schedule(at, What::Timer { host: index as u32, epoch });
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Connect { link, address } => self.connect(index, link, address.host()),
            Action::Send { link, message } => self.send(index, link, Talk::Tree(message)),
            Action::Close { link } => self.close(index, link),
            Action::Remember { cell } => self.hosts[index].remembered = cell,
            Action::Child { slot, change: ChildChange::Joined { .. } } => self.seated(index, slot),
            Action::Child { .. }
            | Action::Service { .. }
            | Action::Attached { .. }
            | Action::Drain { .. }
            | Action::Notice(_) => {}
        }
    }

    /// A parent has taken in a child.
    fn seated(&mut self, index: usize, slot: cluster::Slot) {
        let Some(Machine::Own(own)) = &self.hosts[index].machine else { return };
        let member = own.node.members().and_then(|members| members.member(slot));
        let child = member.and_then(|member| Host::index(member.data.host()));
        if let Some(child) = child.filter(|child| *child < self.hosts.len()) {
            self.hosts[child].seated = self.now;
            self.hosts[child].seat = Some(index);
            if self.trace.is_some() {
                println!("{:?} {index} takes in {child}", self.now);
            }
        }
    }

    fn connect(&mut self, index: usize, link: LinkId, to: &str) {
        self.counts.connections += 1;
        let number = self.links.len() as u32;
        let host = &mut self.hosts[index];
        host.outward.push((link, number));
        let end = |host: u32, epoch, link, open| End { host, epoch, link, open, last: Duration::ZERO };
        let target = Host::index(to).filter(|target| *target < self.hosts.len());
        let epoch = self.hosts[index].epoch;
        let near = end(index as u32, epoch, link, true);
        // An unknown host is one that is never up: the machine's own patience ends it.
        let far = end(target.unwrap_or(index) as u32, 0, LinkId::accepted(u64::from(number)), false);
        self.links.push(Link { ends: [near, far], silent: target.is_none() });
        let at = self.now + self.weather.latency + self.lot.time(self.weather.jitter);
        self.schedule(at, What::Arrive { link: number });
        if self.lot.happens(self.weather.faulty_per_million) {
            let at = self.now + self.lot.time(self.weather.fault_within);
            let what = if self.lot.happens(500_000) {
                What::Break { link: number }
            } else {
                What::Silence { link: number }
            };
            self.schedule(at, what);
        }
    }

    /// The world's link of a host's link, and the host's side of it.
    fn find(&self, index: usize, link: LinkId) -> Option<(u32, usize)> {
        let (number, side) =
            if link.is_outward() { (self.hosts[index].number(link)?, 0) } else { (link.0 as u32, 1) };
        let end = self.links.get(number as usize)?.ends[side];
        (end.open && end.host as usize == index && end.link == link).then_some((number, side))
    }

    fn send(&mut self, index: usize, link: LinkId, message: Talk) {
        let Some((number, side)) = self.find(index, link) else { return };
        if let (Some(path), Talk::Files(files)) = (&self.trace, &message)
            && files.concerns(path)
        {
            let [near, far] = self.links[number as usize].ends.map(|end| end.host);
            let (to, silent) = (if side == 0 { far } else { near }, self.links[number as usize].silent);
            println!("{:?} {index} to {to}: {files:?}{}", self.now, if silent { " LOST" } else { "" });
        }
        match &message {
            Talk::Files(_) => self.counts.files += 1,
            Talk::Tree(Message::Ping | Message::Pong) => self.counts.pings += 1,
            Talk::Tree(_) => self.counts.messages += 1,
        }
        if let (Some(_), Talk::Tree(Message::Status(status))) = (&self.trace, &message)
            && status.reset
        {
            println!("{:?} {index} resets", self.now);
        }
        match &message {
            Talk::Tree(Message::Login(_)) => self.counts.logins += 1,
            Talk::Tree(Message::Try { .. }) => self.counts.tries += 1,
            Talk::Tree(Message::Occupancy(_)) => self.counts.reports += 1,
            _ => {}
        }
        let at = self.arrival(number, 1 - side);
        self.schedule(at, What::Message { link: number, to: 1 - side, message: Box::new(message) });
    }

    fn close(&mut self, index: usize, link: LinkId) {
        let Some((number, side)) = self.find(index, link) else { return };
        self.hosts[index].forget(link);
        self.links[number as usize].ends[side].open = false;
        self.tell_end(number, 1 - side);
    }
}
