//! Connections between the processes of hosts: they are requested, carry messages, fail and end.
//!
//! Messages may be late, and those of different connections overtake each other. The state of the
//! connections is in [`Network`](crate::network::Network).

use std::time::Duration;

use cluster::tree::{ConnectionId, NodeEvent, NodeMessage, PeerAddress};

use super::World;
use crate::connection::SimEndpoint;
use crate::event_queue::WorldEvent;
use crate::host_address::{host_ip, host_name, host_of_name};
use crate::messages::{FileMessage, SimMessage};

/// The longest stall of a connection: some ends treat it as dead meanwhile, others do not.
const STALL: Duration = Duration::from_secs(10);

/// The factor of the normal time above which a message counts as late.
const LATE: u32 = 10;

impl World {
    /// Postpones an event whose connection or host is stalled; returns any other.
    pub(super) fn hold_up(&mut self, what: WorldEvent) -> Option<WorldEvent> {
        let stalled = self.network.stalled_until(&what, self.now);
        let host = self.network.host_of(&what).and_then(|host| self.hosts.get_mut(host as usize));
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

    /// Cuts the connections between two hosts, and prevents new ones until then.
    pub fn keep_apart(&mut self, a: usize, b: usize, until: Duration) {
        let pair = (a as u32, b as u32);
        self.network.separations.add_pair(pair);
        self.schedule(until, WorldEvent::Together { pair });
        for link in self.network.between(pair.0, pair.1) {
            self.fault(&WorldEvent::Break { link });
        }
    }

    /// Applies a fault to a connection.
    pub(super) fn fault(&mut self, what: &WorldEvent) {
        self.counts.faults += 1;
        match *what {
            WorldEvent::Break { link } => {
                self.counts.broken += 1;
                if self.network.link(link).silent {
                    return;
                }
                // Messages in transit are lost.
                self.network.link_mut(link).silent = true;
                for to in [0, 1] {
                    let host = self.network.link(link).ends[to].host as usize;
                    match self.hosts[host].still_until(self.now) {
                        Some(until) => self.schedule(until, WorldEvent::Ended { link, to }),
                        None => self.end(link, to),
                    }
                }
            }
            WorldEvent::Silence { link } => {
                self.counts.silent += 1;
                self.network.link_mut(link).silent = true;
            }
            WorldEvent::Stall { link } => {
                self.counts.stalled += 1;
                let until = self.now + self.rng.time(STALL);
                self.network.link_mut(link).stall = (self.now, until);
            }
            _ => {}
        }
    }

    pub(super) fn arrive(&mut self, link: u32) {
        let [from, to] = self.network.link(link).ends;
        if !self.network.carries(link) {
            self.network.link_mut(link).silent = true;
            return;
        }
        let Some(host) = self.hosts.get(to.host as usize).filter(|host| host.accepts()) else {
            self.tell_end(link, 0);
            return;
        };
        let epoch = host.epoch;
        let end = &mut self.network.link_mut(link).ends[1];
        (end.epoch, end.open) = (epoch, true);
        let at = self.now + self.network.conditions.latency;
        self.schedule(at, WorldEvent::Made { link });
        let peer = PeerAddress { ip: host_ip(from.host as usize), host: host_name(from.host as usize) };
        self.deliver(link, 1, |end| NodeEvent::Accepted { link: end.link, peer });
    }

    /// Returns the end at which a message arrives now, if it does.
    fn receiver(&mut self, link: u32, to: usize) -> Option<SimEndpoint> {
        let connection = self.network.link(link);
        let end = connection.ends[to];
        if connection.silent {
            self.counts.lost += 1;
            return None;
        }
        if !end.open || self.hosts[end.host as usize].epoch != end.epoch {
            return None;
        }
        if self.network.is_cut(connection) {
            // The network would send it again, but not for long enough: from here on the connection
            // is silent.
            self.network.link_mut(link).silent = true;
            self.counts.cut += 1;
            self.counts.lost += 1;
            return None;
        }
        Some(end)
    }

    pub(super) fn deliver(&mut self, link: u32, to: usize, event: impl FnOnce(&SimEndpoint) -> NodeEvent) {
        let Some(end) = self.receiver(link, to) else { return };
        let event = event(&end);
        self.with(end.host as usize, |machine, disk, now, out| machine.handle(event, disk, now, out));
    }

    /// Delivers a message that was sent at that time.
    pub(super) fn receive(&mut self, link: u32, to: usize, sent: Duration, message: SimMessage) {
        let host = self.network.link(link).ends[to].host as usize;
        self.counts.late += u64::from(self.now - sent > self.network.conditions.latency * LATE);
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
    pub(super) fn end(&mut self, link: u32, to: usize) {
        let end = self.network.link(link).ends[to];
        if !end.open {
            return;
        }
        self.network.link_mut(link).ends[to].open = false;
        if self.hosts[end.host as usize].epoch == end.epoch && self.hosts[end.host as usize].machine.is_some()
        {
            self.hosts[end.host as usize].forget(end.link);
            self.with(end.host as usize, |machine, disk, now, out| {
                machine.handle(NodeEvent::Closed { link: end.link }, disk, now, out);
            });
        }
    }

    /// Notifies an end that the other one is closed.
    pub(super) fn tell_end(&mut self, link: u32, to: usize) {
        let at = self.network.arrival(link, to, self.now, &mut self.rng);
        if self.network.carries(link) {
            self.schedule(at, WorldEvent::Ended { link, to });
        }
    }

    /// Requests a connection for a process.
    pub(super) fn connect(&mut self, index: usize, link: ConnectionId, to: &str) {
        self.counts.connections += 1;
        let target = host_of_name(to).filter(|target| *target < self.hosts.len());
        let host = &mut self.hosts[index];
        let number = self.network.open((index, host.epoch, link), target);
        host.outward.push((link, number));
        let at = self.now + self.network.delay(&mut self.rng);
        self.schedule(at, WorldEvent::Arrive { link: number });
        if let Some((after, what)) = self.network.draw_fault(number, &mut self.rng) {
            self.schedule(self.now + after, what);
        }
    }

    /// Sends a message of a process.
    pub(super) fn send(&mut self, index: usize, link: ConnectionId, message: SimMessage) {
        let host = &self.hosts[index];
        let Some((number, side)) = self.network.find(host, link) else { return };
        self.counts.add_sent(&message);
        if matches!(message, SimMessage::Tree(NodeMessage::Try { .. })) {
            self.counts.full += u64::from(host.is_full());
        }
        self.trace_message(index, number, side, &message);
        let at = self.network.arrival(number, 1 - side, self.now, &mut self.rng);
        let what =
            WorldEvent::Message { link: number, to: 1 - side, sent: self.now, message: Box::new(message) };
        self.schedule(at, what);
    }

    fn trace_message(&self, index: usize, number: u32, side: usize, message: &SimMessage) {
        let Some(path) = &self.trace else { return };
        match message {
            SimMessage::Files(files) if files.concerns(path) => {
                let link = self.network.link(number);
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

    /// Closes a process's end of a connection.
    pub(super) fn close(&mut self, index: usize, link: ConnectionId) {
        let Some((number, side)) = self.network.find(&self.hosts[index], link) else { return };
        self.hosts[index].forget(link);
        self.network.link_mut(number).ends[side].open = false;
        self.tell_end(number, 1 - side);
    }
}
