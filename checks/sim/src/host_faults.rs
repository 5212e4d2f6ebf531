//! Faults of one host: it stalls, its disk hangs, it is separated from another one, it is suspended
//! or drained; and a manager that ends while logins are parked there.
//!
//! They are separate from the faults of connections in `network`, because they have an end of their
//! own.

use std::time::Duration;

use crate::host::{HostKind, HostProcess};
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
            6 | 7 if world.has_waiting(0) => {
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

impl World {
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

    /// Separates two hosts from each other, or ends that; others reach both.
    pub fn set_apart(&mut self, one: usize, other: usize, apart: bool) {
        let pair = (one as u32, other as u32);
        self.apart.retain(|known| *known != pair);
        if apart {
            self.counts.apart += 1;
            self.apart.push(pair);
        }
    }

    /// Reports whether logins are parked at a host of our own.
    pub(crate) fn has_waiting(&self, index: usize) -> bool {
        match self.hosts.get(index).and_then(|host| host.machine.as_ref()) {
            Some(HostProcess::Own(own)) => own.node.members().is_some_and(|members| members.waiting() > 0),
            _ => false,
        }
    }
}
