//! Troubles that befall one host: it stands still, its disk hangs, it does not hear one other, the administrator takes it out of use
//! or drains it; and a manager that ends while nodes wait there for a place.

use std::time::Duration;

use crate::host::{Kind, Machine};
use crate::lot::Lot;
use crate::world::World;

/// The longest that a host stands still: its links are taken for dead meanwhile, or not.
const STILL: Duration = Duration::from_secs(15);

/// The longest that a disk hangs: less than its server's silence is an answer after.
const HANGS: Duration = Duration::from_secs(40);

/// The longest that a node is out of use, or drained.
const ORDERED: Duration = Duration::from_secs(30);

/// The longest that two hosts do not hear each other.
const APART: Duration = Duration::from_secs(30);

/// What ends by itself after a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Disk,
    Order,
    Drain,
    Apart(usize),
}

/// The troubles of a bad minute.
#[derive(Debug)]
pub struct Troubles {
    lot: Lot,
    /// When each is over, and where it is.
    over: Vec<(Duration, Kept, usize)>,
    /// Disks that have hung: not again, for the silence of a server that is long enough is an answer.
    hung: Vec<usize>,
}

impl Troubles {
    /// Those of a seed, if it has any.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut lot = Lot::new(seed ^ 0x7_0b1e);
        lot.happens(500_000).then(|| Self { lot, over: Vec::new(), hung: Vec::new() })
    }

    /// Lets one happen, or none; the bad weather is over at `end`.
    pub fn befall(&mut self, world: &mut World, end: Duration) {
        self.pass(world, world.now);
        let host = self.lot.below(world.len() as u64) as usize;
        let kind = world.kind(host);
        match self.lot.below(10) {
            0 | 1 if kind != Kind::Flood => {
                let until = (world.now + self.lot.time(STILL)).min(end);
                world.stand_still(host, until, self.lot.happens(500_000));
            }
            2 | 3 if kind == Kind::Server && !self.hung.contains(&host) => {
                world.hang(host, true);
                self.hung.push(host);
                self.over.push((world.now + self.lot.time(HANGS), Kept::Disk, host));
            }
            4 | 5 => {
                let inner: Vec<usize> =
                    (0..world.len()).filter(|host| world.kind(*host) == Kind::Supervisor).collect();
                let inner = inner.get(self.lot.below(inner.len() as u64) as usize).copied();
                let chosen = if self.lot.happens(500_000) { inner } else { Some(host) };
                let chosen =
                    chosen.filter(|host| matches!(world.kind(*host), Kind::Supervisor | Kind::Server));
                if let Some(host) = chosen {
                    world.suspend(host, true);
                    self.over.push((world.now + self.lot.time(ORDERED), Kept::Order, host));
                }
            }
            8 if kind == Kind::Server => {
                world.drain(host, true);
                self.over.push((world.now + self.lot.time(ORDERED), Kept::Drain, host));
            }
            9 => {
                // A node that does not reach an inner one, while the manager reaches both.
                let inner: Vec<usize> = (0..world.len())
                    .filter(|other| *other != host && world.kind(*other).is_supervisor())
                    .collect();
                if let Some(other) = inner.get(self.lot.below(inner.len() as u64) as usize) {
                    world.set_apart(host, *other, true);
                    self.over.push((world.now + self.lot.time(APART), Kept::Apart(*other), host));
                }
            }
            6 | 7 if world.has_waiting(0) => {
                world.crash(0, self.lot.happens(300_000));
                world.start(0);
            }
            _ => {}
        }
    }

    /// Ends what is over by then.
    pub fn pass(&mut self, world: &mut World, now: Duration) {
        for (_, kept, host) in self.over.extract_if(.., |(until, _, _)| *until <= now) {
            match kept {
                Kept::Disk => world.hang(host, false),
                Kept::Order => world.suspend(host, false),
                Kept::Drain => world.drain(host, false),
                Kept::Apart(other) => world.set_apart(host, other, false),
            }
        }
    }
}

impl World {
    /// Nothing on a host moves until then, and its clock may not either.
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

    /// The disk of a host hangs, or does no longer.
    pub fn hang(&mut self, index: usize, hangs: bool) {
        self.counts.hung += u64::from(hangs);
        self.hosts[index].disk.hangs = hangs;
        if !hangs {
            self.with(index, |machine, disk, now, out| {
                if let Machine::Own(own) = machine {
                    own.revived(disk, now, out);
                }
            });
        }
    }

    /// The administrator takes a node of our own out of use, or into use again.
    pub fn suspend(&mut self, index: usize, suspended: bool) {
        let host = &mut self.hosts[index];
        if suspended && !host.suspended {
            self.counts.suspended[usize::from(host.kind.is_supervisor())] += 1;
        }
        host.suspended = suspended;
        self.with(index, |machine, disk, now, out| {
            if let Machine::Own(own) = machine {
                own.suspend(suspended, disk, now, out);
            }
        });
    }

    /// The clients of a server of our own are to go elsewhere, or not any more.
    pub fn drain(&mut self, index: usize, draining: bool) {
        self.counts.drained += u64::from(draining && !self.hosts[index].draining);
        self.hosts[index].draining = draining;
        self.with(index, |machine, disk, now, out| {
            if let Machine::Own(own) = machine {
                own.drain(draining, disk, now, out);
            }
        });
    }

    /// Two hosts do not hear each other, or do again; others hear both.
    pub fn set_apart(&mut self, one: usize, other: usize, apart: bool) {
        let pair = (one as u32, other as u32);
        self.apart.retain(|known| *known != pair);
        if apart {
            self.counts.apart += 1;
            self.apart.push(pair);
        }
    }

    /// Whether nodes wait for a place at a host of our own.
    pub(crate) fn has_waiting(&self, index: usize) -> bool {
        match self.hosts.get(index).and_then(|host| host.machine.as_ref()) {
            Some(Machine::Own(own)) => own.node.members().is_some_and(|members| members.waiting() > 0),
            _ => false,
        }
    }
}
