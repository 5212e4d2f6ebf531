//! Connections and their faults: they break, fall silent, stall, or are cut by a split of the
//! network.
//!
//! Messages may be late, and those of different connections overtake each other.

use std::time::Duration;

use cluster::tree::{ConnectionId, NodeEvent, NodeMessage, PeerAddress};

use crate::connection::{SimConnection, SimEndpoint};
use crate::host::HostProcess;
use crate::host_address::{host_ip, host_name, host_of_name};
use crate::messages::{FileMessage, SimMessage};
use crate::world::{World, WorldEvent};

/// The longest stall of a connection: some ends treat it as dead meanwhile, others do not.
const STALL: Duration = Duration::from_secs(10);

/// The factor of the normal time above which a message counts as late.
const LATE: u32 = 10;

/// Returns the connection that an event belongs to and waits for.
const fn held_up_with(what: &WorldEvent) -> Option<u32> {
    match what {
        WorldEvent::Arrive { link }
        | WorldEvent::Made { link }
        | WorldEvent::Message { link, .. }
        | WorldEvent::Ended { link, .. } => Some(*link),
        _ => None,
    }
}

impl World {
    /// Postpones an event whose connection or host is stalled; returns any other.
    pub(crate) fn hold_up(&mut self, what: WorldEvent) -> Option<WorldEvent> {
        let link = held_up_with(&what).and_then(|link| self.links.get(link as usize));
        let stalled = link.map(|link| link.stall.1).filter(|until| self.now < *until);
        let host = self.host_of(&what).and_then(|host| self.hosts.get_mut(host as usize));
        let still = host.and_then(|host| {
            let until = host.still_until(self.now)?;
            if matches!(what, WorldEvent::Timer { .. }) && host.timer == Some(self.now) {
                host.timer = Some(until);
            }
            Some(until)
        });
        match stalled.or(still) {
            Some(until) => {
                self.schedule(until, what);
                None
            }
            None => Some(what),
        }
    }

    /// Returns the host at which an event happens.
    fn host_of(&self, what: &WorldEvent) -> Option<u32> {
        let end = |link: u32, side: usize| Some(self.links.get(link as usize)?.ends.get(side)?.host);
        match *what {
            WorldEvent::Timer { host, .. } | WorldEvent::Ask { host, .. } => Some(host),
            WorldEvent::Arrive { link } => end(link, 1),
            WorldEvent::Made { link } => end(link, 0),
            WorldEvent::Message { link, to, .. } | WorldEvent::Ended { link, to } => end(link, to),
            _ => None,
        }
    }

    pub(crate) fn cut(&self, a: u32, b: u32) -> bool {
        let apart = |pair: &(u32, u32)| *pair == (a, b) || *pair == (b, a);
        self.split[a as usize] != self.split[b as usize] || self.apart.iter().any(apart)
    }

    /// Cuts the connections between two hosts, and prevents new ones until then.
    pub fn keep_apart(&mut self, a: usize, b: usize, until: Duration) {
        let pair = (a as u32, b as u32);
        self.apart.push(pair);
        self.schedule(until, WorldEvent::Together { pair });
        for link in 0..self.links.len() {
            let ends = self.links[link].ends.map(|end| end.host);
            if ends == [pair.0, pair.1] || ends == [pair.1, pair.0] {
                self.fault(&WorldEvent::Break { link: link as u32 });
            }
        }
    }

    /// Ends the separation of two hosts.
    pub(crate) fn bring_together(&mut self, pair: (u32, u32)) {
        if let Some(at) = self.apart.iter().position(|other| *other == pair) {
            self.apart.swap_remove(at);
        }
    }

    /// Applies a fault to a connection.
    pub(crate) fn fault(&mut self, what: &WorldEvent) {
        self.counts.faults += 1;
        match *what {
            WorldEvent::Break { link } => {
                self.counts.broken += 1;
                if self.links[link as usize].silent {
                    return;
                }
                // Messages in transit are lost.
                self.links[link as usize].silent = true;
                for to in [0, 1] {
                    let host = self.links[link as usize].ends[to].host as usize;
                    match self.hosts[host].still_until(self.now) {
                        Some(until) => self.schedule(until, WorldEvent::Ended { link, to }),
                        None => self.end(link, to),
                    }
                }
            }
            WorldEvent::Silence { link } => {
                self.counts.silent += 1;
                self.links[link as usize].silent = true;
            }
            WorldEvent::Stall { link } => {
                self.counts.stalled += 1;
                let until = self.now + self.rng.time(STALL);
                self.links[link as usize].stall = (self.now, until);
            }
            _ => {}
        }
    }

    pub(crate) fn arrive(&mut self, link: u32) {
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
        let at = self.now + self.conditions.latency;
        self.schedule(at, WorldEvent::Made { link });
        let peer = PeerAddress { ip: host_ip(from.host as usize), host: host_name(from.host as usize) };
        self.deliver(link, 1, |end| NodeEvent::Accepted { link: end.link, peer });
    }

    /// Returns the end at which a message arrives now, if it does.
    fn receiver(&mut self, link: u32, to: usize) -> Option<SimEndpoint> {
        let SimConnection { ends, silent, .. } = &self.links[link as usize];
        let end = ends[to];
        if *silent {
            self.counts.lost += 1;
            return None;
        }
        if !end.open || self.hosts[end.host as usize].epoch != end.epoch {
            return None;
        }
        if self.cut(ends[0].host, ends[1].host) {
            // The network would send it again, but not for long enough: from here on the connection
            // is silent.
            self.links[link as usize].silent = true;
            self.counts.cut += 1;
            self.counts.lost += 1;
            return None;
        }
        Some(end)
    }

    pub(crate) fn deliver(&mut self, link: u32, to: usize, event: impl FnOnce(&SimEndpoint) -> NodeEvent) {
        let Some(end) = self.receiver(link, to) else { return };
        let event = event(&end);
        self.with(end.host as usize, |machine, disk, now, out| machine.handle(event, disk, now, out));
    }

    /// Delivers a message that was sent at that time.
    pub(crate) fn receive(&mut self, link: u32, to: usize, sent: Duration, message: SimMessage) {
        let host = self.links[link as usize].ends[to].host as usize;
        self.counts.late += u64::from(self.now - sent > self.conditions.latency * LATE);
        let (newest, of) = self.hosts[host].newest;
        if sent > newest {
            self.hosts[host].newest = (sent, link);
        } else if sent < newest && of != link {
            self.counts.overtaken += 1;
        }
        match message {
            SimMessage::Tree(message) => {
                self.deliver(link, to, |end| NodeEvent::Message { link: end.link, message });
            }
            SimMessage::Files(message) => self.deliver_files(link, to, message),
        }
    }

    fn deliver_files(&mut self, link: u32, to: usize, message: FileMessage) {
        let Some(end) = self.receiver(link, to) else { return };
        self.with(end.host as usize, |machine, disk, now, out| {
            machine.files(end.link, message, disk, now, out);
        });
    }

    /// Notifies an end that the other one has closed the connection.
    pub(crate) fn end(&mut self, link: u32, to: usize) {
        let end = self.links[link as usize].ends[to];
        if !end.open {
            return;
        }
        self.links[link as usize].ends[to].open = false;
        if self.hosts[end.host as usize].epoch == end.epoch && self.hosts[end.host as usize].machine.is_some()
        {
            self.hosts[end.host as usize].forget(end.link);
            self.with(end.host as usize, |machine, disk, now, out| {
                machine.handle(NodeEvent::Closed { link: end.link }, disk, now, out);
            });
        }
    }

    fn arrival(&mut self, link: u32, to: usize) -> Duration {
        let mut at = self.now + self.conditions.latency + self.rng.time(self.conditions.jitter);
        let SimConnection { ends, stall, .. } = &mut self.links[link as usize];
        if self.now < stall.1 {
            // It follows all messages that were in transit at the beginning of the stall.
            at = at.max(stall.1 + Duration::from_nanos(1));
        }
        let end = &mut ends[to];
        end.last = end.last.max(at);
        end.last
    }

    pub(crate) fn tell_end(&mut self, link: u32, to: usize) {
        let at = self.arrival(link, to);
        let SimConnection { ends, silent, .. } = &self.links[link as usize];
        if !silent && !self.cut(ends[0].host, ends[1].host) {
            self.schedule(at, WorldEvent::Ended { link, to });
        }
    }

    pub(crate) fn connect(&mut self, index: usize, link: ConnectionId, to: &str) {
        self.counts.connections += 1;
        let number = self.links.len() as u32;
        let host = &mut self.hosts[index];
        host.outward.push((link, number));
        let end =
            |host: u32, epoch, link, open| SimEndpoint { host, epoch, link, open, last: Duration::ZERO };
        let target = host_of_name(to).filter(|target| *target < self.hosts.len());
        let epoch = self.hosts[index].epoch;
        let near = end(index as u32, epoch, link, true);
        // An unknown host is one that is never up: the timeout of the process ends the attempt.
        let far = end(target.unwrap_or(index) as u32, 0, ConnectionId::accepted(u64::from(number)), false);
        let stall = (Duration::MAX, Duration::ZERO);
        self.links.push(SimConnection { ends: [near, far], silent: target.is_none(), stall });
        let at = self.now + self.conditions.latency + self.rng.time(self.conditions.jitter);
        self.schedule(at, WorldEvent::Arrive { link: number });
        if self.rng.happens(self.conditions.faulty_per_million) {
            let at = self.now + self.rng.time(self.conditions.fault_within);
            let what = match self.rng.below(3) {
                0 => WorldEvent::Break { link: number },
                1 => WorldEvent::Silence { link: number },
                _ => WorldEvent::Stall { link: number },
            };
            self.schedule(at, what);
        }
    }

    /// Returns the world's connection for a host's connection, and the host's side of it.
    fn find(&self, index: usize, link: ConnectionId) -> Option<(u32, usize)> {
        let (number, side) =
            if link.is_outward() { (self.hosts[index].number(link)?, 0) } else { (link.0 as u32, 1) };
        let end = self.links.get(number as usize)?.ends[side];
        (end.open && end.host as usize == index && end.link == link).then_some((number, side))
    }

    pub(crate) fn send(&mut self, index: usize, link: ConnectionId, message: SimMessage) {
        let Some((number, side)) = self.find(index, link) else { return };
        self.trace_message(index, number, side, &message);
        match &message {
            SimMessage::Files(_) => self.counts.files += 1,
            SimMessage::Tree(NodeMessage::Ping | NodeMessage::Pong) => self.counts.pings += 1,
            SimMessage::Tree(_) => self.counts.messages += 1,
        }
        match &message {
            SimMessage::Tree(NodeMessage::Login(_)) => self.counts.logins += 1,
            SimMessage::Tree(NodeMessage::Try { .. }) => {
                self.counts.tries += 1;
                self.counts.full += u64::from(self.is_full(index));
            }
            SimMessage::Tree(NodeMessage::Occupancy(_)) => self.counts.reports += 1,
            _ => {}
        }
        let at = self.arrival(number, 1 - side);
        let what =
            WorldEvent::Message { link: number, to: 1 - side, sent: self.now, message: Box::new(message) };
        self.schedule(at, what);
    }

    /// Reports whether all places of a parent of our own are taken.
    fn is_full(&self, index: usize) -> bool {
        let Some(HostProcess::Own(own)) = &self.hosts[index].machine else { return false };
        own.node.members().is_some_and(|members| members.used().len() == cluster::CELL_SLOTS)
    }

    fn trace_message(&self, index: usize, number: u32, side: usize, message: &SimMessage) {
        let Some(path) = &self.trace else { return };
        match message {
            SimMessage::Files(files) if files.concerns(path) => {
                let link = &self.links[number as usize];
                let [near, far] = link.ends.map(|end| end.host);
                let to = if side == 0 { far } else { near };
                let lost = if link.silent { " LOST" } else { "" };
                println!("{:?} {index} to {to}: {files:?}{lost}", self.now);
            }
            SimMessage::Tree(NodeMessage::Status(status)) if status.reset => {
                println!("{:?} {index} resets", self.now);
            }
            _ => {}
        }
    }

    pub(crate) fn close(&mut self, index: usize, link: ConnectionId) {
        let Some((number, side)) = self.find(index, link) else { return };
        self.hosts[index].forget(link);
        self.links[number as usize].ends[side].open = false;
        self.tell_end(number, 1 - side);
    }
}
