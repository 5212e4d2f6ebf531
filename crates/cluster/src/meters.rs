//! The figures of children that change frequently: load, free space, number of choices.
//!
//! They are atomic numbers shared by the cluster's thread, which receives loads and space, and the
//! loops of connections, which choose. The figures are hints: a choice from slightly stale figures
//! is as good as one made slightly earlier.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::slots::{CELL_SLOTS, Slot, SlotMask};
use crate::tree::LoadReport;

/// The amount that one choice adds to a child's counter at its full share.
const FULL_SHARE_COUNT: u64 = 100;

/// The use of a choice; reads and writes are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Reading, and attributes.
    Read,
    /// Writing, creating, staging: uses that need space.
    Write,
}

#[derive(Default, Debug)]
struct Meter {
    load: AtomicU64,
    free_mb: AtomicU32,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Meter {
    fn counter(&self, kind: AccessKind) -> &AtomicU64 {
        match kind {
            AccessKind::Read => &self.reads,
            AccessKind::Write => &self.writes,
        }
    }
}

/// The figures of all children of a cell.
#[derive(Debug)]
pub struct Meters([Meter; CELL_SLOTS]);

impl Meters {
    /// Creates figures of zero.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Meter::default()))
    }

    /// Returns the load that the child reported.
    pub fn load(&self, slot: Slot) -> LoadReport {
        let [parts @ .., _, _] = self.at(slot).load.load(Ordering::Relaxed).to_le_bytes();
        LoadReport::from_parts(parts)
    }

    /// Returns the free space for new files, in MB.
    pub fn free_mb(&self, slot: Slot) -> u32 {
        self.at(slot).free_mb.load(Ordering::Relaxed)
    }

    /// Sets the load that the child reported.
    pub fn set_load(&self, slot: Slot, load: LoadReport) {
        let [cpu, net, run_queue, memory, paging, disk] = load.parts();
        let bytes = [cpu, net, run_queue, memory, paging, disk, 0, 0];
        self.at(slot).load.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }

    /// Sets the free space that the child reported.
    pub fn set_free_mb(&self, slot: Slot, free_mb: u32) {
        self.at(slot).free_mb.store(free_mb, Ordering::Relaxed);
    }

    /// Returns the number of choices of the child, in hundredths; higher for a child with a limited
    /// share.
    pub fn count(&self, slot: Slot, kind: AccessKind) -> u64 {
        self.at(slot).counter(kind).load(Ordering::Relaxed)
    }

    /// Returns the number of choices of the child for all uses. For a child with a limited share
    /// each counts as several.
    pub fn choices(&self, slot: Slot) -> u64 {
        (self.count(slot, AccessKind::Read) + self.count(slot, AccessKind::Write)) / FULL_SHARE_COUNT
    }

    /// Counts a choice of the child. With a `share` of n percent it counts as 100/n choices.
    pub fn chosen(&self, slot: Slot, kind: AccessKind, share: Option<u8>) {
        let share = u64::from(share.unwrap_or(100).clamp(1, 100));
        self.at(slot).counter(kind).fetch_add(FULL_SHARE_COUNT * 100 / share, Ordering::Relaxed);
    }

    /// Sets these children to equal counts, so that a newcomer does not get all clients until it
    /// has caught up.
    pub fn reset_counts(&self, slots: SlotMask) {
        for slot in slots {
            self.at(slot).reads.store(0, Ordering::Relaxed);
            self.at(slot).writes.store(0, Ordering::Relaxed);
        }
    }

    fn at(&self, slot: Slot) -> &Meter {
        // A slot is below 64.
        &self.0[slot.index()]
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_survives() {
        let meters = Meters::new();
        let slot = Slot::new(63).unwrap();
        let load = LoadReport { cpu: 1, net: 2, run_queue: 3, memory: 4, paging: 100, disk: 6 };
        meters.set_load(slot, load);
        assert_eq!(meters.load(slot), load);
    }

    #[test]
    fn a_share_counts_more() {
        let meters = Meters::new();
        let slot = Slot::new(0).unwrap();
        meters.chosen(slot, AccessKind::Read, Some(50));
        meters.chosen(slot, AccessKind::Read, None);
        assert_eq!(meters.count(slot, AccessKind::Read), 300);
        assert_eq!(meters.count(slot, AccessKind::Write), 0);
        meters.reset_counts(slot.mask());
        assert_eq!(meters.count(slot, AccessKind::Read), 0);
    }
}
