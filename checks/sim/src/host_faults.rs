//! Faults of one host: it stalls, its disk hangs, it is separated from another one, it is suspended
//! or drained; and a manager that ends while logins are parked there.
//!
//! They are separate from the faults of connections in `network`, because they have an end of their
//! own.

use std::time::Duration;

use crate::host::HostKind;
use crate::sim_rng::SimRng;
use crate::world::World;

/// The longest stall of a host: its connections may be treated as dead meanwhile, or not.
const STILL: Duration = Duration::from_secs(15);

/// The longest hang of a disk: less than the time after which its server counts as unresponsive.
const HANGS: Duration = Duration::from_secs(40);

/// The longest suspension or drain of a node.
const ORDERED: Duration = Duration::from_secs(30);

/// The longest separation of two hosts.
const APART: Duration = Duration::from_secs(30);

/// A fault that ends by itself after a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostFault {
    Disk,
    Order,
    Drain,
    Apart(usize),
}

/// The faults of a bad minute.
#[derive(Debug)]
pub struct HostFaults {
    rng: SimRng,
    /// The end and the host of each fault.
    over: Vec<(Duration, HostFault, usize)>,
    /// Disks that have hung. They do not hang again, because the server would count as
    /// unresponsive.
    hung: Vec<usize>,
}

impl HostFaults {
    /// Returns the faults of a seed, if it has any.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut rng = SimRng::new(seed ^ 0x7_0b1e);
        rng.happens(500_000).then(|| Self { rng, over: Vec::new(), hung: Vec::new() })
    }

    /// Starts one fault, or none; the bad minute ends at `end`.
    pub fn befall(&mut self, world: &mut World, end: Duration) {
        self.pass(world, world.now);
        let host = self.rng.below(world.len() as u64) as usize;
        let kind = world.kind(host);
        match self.rng.below(10) {
            0 | 1 if kind != HostKind::Flood => {
                let until = (world.now + self.rng.time(STILL)).min(end);
                world.stand_still(host, until, self.rng.happens(500_000));
            }
            2 | 3 if kind == HostKind::Server && !self.hung.contains(&host) => {
                world.hang(host, true);
                self.hung.push(host);
                self.over.push((world.now + self.rng.time(HANGS), HostFault::Disk, host));
            }
            4 | 5 => {
                let inner: Vec<usize> =
                    (0..world.len()).filter(|host| world.kind(*host) == HostKind::Supervisor).collect();
                let inner = inner.get(self.rng.below(inner.len() as u64) as usize).copied();
                let chosen = if self.rng.happens(500_000) { inner } else { Some(host) };
                let chosen = chosen
                    .filter(|host| matches!(world.kind(*host), HostKind::Supervisor | HostKind::Server));
                if let Some(host) = chosen {
                    world.suspend(host, true);
                    self.over.push((world.now + self.rng.time(ORDERED), HostFault::Order, host));
                }
            }
            8 if kind == HostKind::Server => {
                world.drain(host, true);
                self.over.push((world.now + self.rng.time(ORDERED), HostFault::Drain, host));
            }
            9 => {
                // A node that is separated from an inner one, while the manager reaches both.
                let inner: Vec<usize> = (0..world.len())
                    .filter(|other| *other != host && world.kind(*other).is_supervisor())
                    .collect();
                if let Some(other) = inner.get(self.rng.below(inner.len() as u64) as usize) {
                    world.set_apart(host, *other, true);
                    self.over.push((world.now + self.rng.time(APART), HostFault::Apart(*other), host));
                }
            }
            6 | 7 if world.hosts[0].has_waiting() => {
                world.crash(0, self.rng.happens(300_000));
                world.start(0);
            }
            _ => {}
        }
    }

    /// Ends the faults whose time is over.
    pub fn pass(&mut self, world: &mut World, now: Duration) {
        for (_, kept, host) in self.over.extract_if(.., |(until, _, _)| *until <= now) {
            match kept {
                HostFault::Disk => world.hang(host, false),
                HostFault::Order => world.suspend(host, false),
                HostFault::Drain => world.drain(host, false),
                HostFault::Apart(other) => world.set_apart(host, other, false),
            }
        }
    }
}
