//! Selection by load: the lowest weighted sum of the reported figures.
//!
//! It is separate from `round_robin`, which it uses among children of equal load.

use base::Rng;

use super::{RoundRobin, Selection};
use crate::meters::{AccessKind, Meters};
use crate::slots::{Slot, SlotMask};

/// The weight of each figure, in percent (`cms.sched`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    /// Processor.
    pub cpu: u8,
    /// Network.
    pub io: u8,
    /// Run queue.
    pub runq: u8,
    /// Memory.
    pub mem: u8,
    /// Paging.
    pub pag: u8,
    /// Usage of the disks; counts for writers only.
    pub space: u8,
}

impl Weights {
    /// Reports whether any figure but space counts.
    pub const fn look_at_load(&self) -> bool {
        self.cpu | self.io | self.runq | self.mem | self.pag != 0
    }
}

/// Selection by load. Children whose loads differ from the lowest by `fuzz` or less count as
/// equally loaded and take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByLoad {
    /// The weights of the load.
    pub weights: Weights,
    /// The difference up to which loads count as equal.
    pub fuzz: u8,
    /// The difference of counts at which a writer goes to another child, as for round robin.
    pub linger: u32,
    /// Picks at random instead, with the weight fuzz + 100 - load for each child: a loaded child
    /// gets few clients instead of none.
    pub randomized: bool,
}

impl ByLoad {
    fn sum(&self, slot: Slot, meters: &Meters) -> u32 {
        let load = meters.load(slot);
        let weights = &self.weights;
        let parts = [
            (weights.cpu, load.cpu),
            (weights.io, load.net),
            (weights.runq, load.run_queue),
            (weights.mem, load.memory),
            (weights.pag, load.paging),
        ];
        parts.iter().map(|(weight, figure)| u32::from(*weight) * u32::from(*figure)).sum::<u32>() / 100
    }

    fn mass(&self, slot: Slot, kind: AccessKind, meters: &Meters) -> u32 {
        let filling = match kind {
            AccessKind::Read => 0,
            AccessKind::Write => u32::from(self.weights.space) * u32::from(meters.load(slot).disk) / 100,
        };
        self.sum(slot, meters) + filling
    }

    fn draw(&self, among: SlotMask, kind: AccessKind, meters: &Meters, rng: &mut dyn Rng) -> Option<Slot> {
        let weight = |slot| {
            let free = 100u32.saturating_sub(self.mass(slot, kind, meters));
            u64::from(u32::from(self.fuzz) + free).max(1)
        };
        let total: u64 = among.iter().map(weight).sum();
        let mut random = [0; 8];
        rng.fill(&mut random);
        let mut rest = u64::from_le_bytes(random) % total.max(1);
        among.iter().find(|slot| {
            let weight = weight(*slot);
            let hit = rest < weight;
            rest = rest.saturating_sub(weight);
            hit
        })
    }
}

impl Selection for ByLoad {
    fn pick(&self, among: SlotMask, kind: AccessKind, meters: &Meters, rng: &mut dyn Rng) -> Option<Slot> {
        if self.randomized {
            return self.draw(among, kind, meters, rng);
        }
        let least = among.iter().map(|slot| self.mass(slot, kind, meters)).min()?;
        let close =
            among.iter().filter(|slot| self.mass(*slot, kind, meters) <= least + u32::from(self.fuzz));
        RoundRobin { linger: self.linger }.in_turn(close.collect(), kind, meters)
    }

    fn load(&self, slot: Slot, meters: &Meters) -> Option<u32> {
        Some(self.sum(slot, meters))
    }

    /// Only the least loaded children get new files, those within `fuzz` alike; a random pick uses
    /// the weights.
    fn weight(&self, slot: Slot, among: SlotMask, meters: &Meters) -> u32 {
        let mass = |slot| self.mass(slot, AccessKind::Write, meters);
        if self.randomized {
            return (u32::from(self.fuzz) + 100u32.saturating_sub(mass(slot))).max(1);
        }
        let least = among.iter().map(mass).min().unwrap_or_default();
        u32::from(mass(slot) <= least + u32::from(self.fuzz))
    }

    fn wants_all(&self) -> bool {
        self.randomized
    }
}
