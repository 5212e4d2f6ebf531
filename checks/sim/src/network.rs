//! The network: its connections with their faults, and the separations of hosts.
//!
//! It knows nothing of the processes at the ends of connections. `world` takes messages to them.

use std::time::Duration;

use cluster::tree::ConnectionId;

use crate::connection::{SimConnection, SimEndpoint};
use crate::event_queue::WorldEvent;
use crate::host::SimHost;
use crate::separations::Separations;
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

/// The connections of a world, and the state of the network.
pub(crate) struct Network {
    /// The current properties.
    pub(crate) conditions: NetworkConditions,
    /// Hosts that cannot reach each other.
    pub(crate) separations: Separations,
    /// All connections that were ever requested, by number.
    links: Vec<SimConnection>,
}

impl Network {
    /// Creates a network without hosts.
    pub(crate) fn new(conditions: NetworkConditions) -> Self {
        Self { conditions, separations: Separations::default(), links: Vec::new() }
    }

    /// Draws the time that a message takes.
    pub(crate) fn delay(&self, rng: &mut SimRng) -> Duration {
        self.conditions.latency + rng.time(self.conditions.jitter)
    }

    /// Returns a connection by its number.
    pub(crate) fn link(&self, number: u32) -> &SimConnection {
        &self.links[number as usize]
    }

    /// Returns a connection by its number, to change it.
    pub(crate) fn link_mut(&mut self, number: u32) -> &mut SimConnection {
        &mut self.links[number as usize]
    }

    /// Returns a connection by its number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<&SimConnection> {
        self.links.get(number as usize)
    }

    /// Adds a connection that a host requests from another one, and returns its number. `near` is
    /// the requesting host, its epoch and its name of the connection.
    pub(crate) fn open(&mut self, near: (usize, u32, ConnectionId), target: Option<usize>) -> u32 {
        let number = self.links.len() as u32;
        let (index, epoch, link) = near;
        let end = |host: usize, epoch, link, open| SimEndpoint {
            host: host as u32,
            epoch,
            link,
            open,
            last: Duration::ZERO,
        };
        let near = end(index, epoch, link, true);
        // An unknown host is one that is never up: the timeout of the process ends the attempt.
        let far = end(target.unwrap_or(index), 0, ConnectionId::accepted(u64::from(number)), false);
        let stall = (Duration::MAX, Duration::ZERO);
        self.links.push(SimConnection { ends: [near, far], silent: target.is_none(), stall });
        number
    }

    /// Draws the fault of a new connection, if it will have one, and the time until then.
    pub(crate) fn draw_fault(&self, link: u32, rng: &mut SimRng) -> Option<(Duration, WorldEvent)> {
        if !rng.happens(self.conditions.faulty_per_million) {
            return None;
        }
        let after = rng.time(self.conditions.fault_within);
        let what = match rng.below(3) {
            0 => WorldEvent::Break { link },
            1 => WorldEvent::Silence { link },
            _ => WorldEvent::Stall { link },
        };
        Some((after, what))
    }

    /// Returns the number of a host's open connection, and the host's side of it.
    pub(crate) fn find(&self, host: &SimHost, link: ConnectionId) -> Option<(u32, usize)> {
        let (number, side) = if link.is_outward() { (host.number(link)?, 0) } else { (link.0 as u32, 1) };
        let end = self.get(number)?.ends[side];
        (end.open && end.host as usize == host.index() && end.link == link).then_some((number, side))
    }

    /// Returns the connections between two hosts.
    pub(crate) fn between(&self, a: u32, b: u32) -> Vec<u32> {
        let connects = |link: &SimConnection| {
            let ends = link.ends.map(|end| end.host);
            ends == [a, b] || ends == [b, a]
        };
        (0..self.links.len() as u32).filter(|number| connects(self.link(*number))).collect()
    }

    /// Closes the ends of a host whose process ended. Returns the connections and the sides that
    /// have to be notified. `quietly`: its machine is down too, so the connections fall silent
    /// instead.
    pub(crate) fn lose_host(&mut self, index: usize, quietly: bool) -> Vec<(u32, usize)> {
        let mut others = Vec::new();
        for (number, link) in self.links.iter_mut().enumerate() {
            for side in [0, 1] {
                let end = &mut link.ends[side];
                if end.host as usize != index || !end.open {
                    continue;
                }
                end.open = false;
                if quietly {
                    link.silent = true;
                } else {
                    others.push((number as u32, 1 - side));
                }
            }
        }
        others
    }

    /// Reports whether a connection takes messages to the other end now.
    pub(crate) fn carries(&self, number: u32) -> bool {
        let link = self.link(number);
        !link.silent && !self.is_cut(link)
    }

    /// Reports whether the hosts of a connection are separated.
    pub(crate) fn is_cut(&self, link: &SimConnection) -> bool {
        let [near, far] = link.ends;
        self.separations.separate(near.host, far.host)
    }

    /// Draws the time at which a message arrives that is sent to a side now.
    pub(crate) fn arrival(&mut self, number: u32, to: usize, now: Duration, rng: &mut SimRng) -> Duration {
        let at = now + self.delay(rng);
        self.link_mut(number).arrival(to, at, now)
    }

    /// Returns the end of the stall of the connection that an event waits for.
    pub(crate) fn stalled_until(&self, what: &WorldEvent, now: Duration) -> Option<Duration> {
        let link = self.get(what.link()?)?;
        Some(link.stall.1).filter(|until| now < *until)
    }

    /// Returns the host at which an event happens.
    pub(crate) fn host_of(&self, what: &WorldEvent) -> Option<u32> {
        let end = |link: u32, side: usize| Some(self.get(link)?.ends.get(side)?.host);
        match *what {
            WorldEvent::Timer { host, .. } | WorldEvent::Ask { host, .. } => Some(host),
            WorldEvent::Arrive { link } => end(link, 1),
            WorldEvent::Made { link } => end(link, 0),
            WorldEvent::Message { link, to, .. } | WorldEvent::Ended { link, to } => end(link, to),
            _ => None,
        }
    }
}
