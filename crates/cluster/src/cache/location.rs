//! The cached location of one path, and the counts of a cache.

use std::ops::{Add, AddAssign};
use std::time::Duration;

use crate::slots::{Slot, SlotMask};

/// The number of steps in which the window advances; a location lives for 63 to 64 of them.
pub const WINDOW_TICKS: u32 = 64;
/// The time for which a child that was chosen to create a file counts as its holder without a
/// report. It equals the default connection window of XRootD clients (`XRD_CONNECTIONWINDOW`),
/// because a real daemon lets a client create the file however late it arrives. A child with leases
/// ends the placement itself, with its lease.
pub const PLACEMENT_HOLD: Duration = Duration::from_secs(120);

/// The time for which a child is avoided for a new file whose lease it ended without a file.
pub(crate) const FAILED_HOLD: Duration = Duration::from_secs(300);

/// The location of one path.
///
/// ```text
/// have       children that have it, even if it is only being staged
/// pending    those of them where it is being staged or not yet closed
/// draining   those of them where only draining nodes have it; never in pending
/// unasked    children that must be queried before a missing reply has a meaning
/// ```
///
/// A child in none of them does not have it. Free slots may appear in any mask, so readers restrict
/// the masks to the children that export the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CachedLocation {
    /// Children that have it.
    pub have: SlotMask,
    /// Children at which it is being staged or not yet closed; also in `have`.
    pub pending: SlotMask,
    /// Children below which only draining nodes have it; also in `have`.
    pub draining: SlotMask,
    /// Children that have not been queried yet.
    pub unasked: SlotMask,
    /// A query for it is open.
    pub querying: bool,
    /// The child that was chosen to create or stage it and has not confirmed it yet; also in `have`
    /// and `pending`.
    pub placed: Option<Slot>,
    /// The child that was chosen last to create it, and has ended the lease without a file.
    pub failed: Option<Slot>,
}
impl CachedLocation {
    /// The location of an unknown path: every child has to be queried.
    pub const UNKNOWN: Self = Self {
        have: SlotMask::EMPTY,
        pending: SlotMask::EMPTY,
        draining: SlotMask::EMPTY,
        unasked: SlotMask::ALL,
        querying: false,
        placed: None,
        failed: None,
    };

    /// Records that a child has it, or is staging it.
    pub fn found(&mut self, slot: Slot, pending: bool) {
        self.have.insert(slot);
        self.draining.remove(slot);
        if pending {
            self.pending.insert(slot);
        } else {
            self.pending.remove(slot);
        }
        self.unasked.remove(slot);
        if self.placed == Some(slot) {
            self.placed = None;
        }
        if self.failed == Some(slot) {
            self.failed = None;
        }
    }

    /// Records that only draining nodes below a child have it.
    pub fn found_draining(&mut self, slot: Slot) {
        self.found(slot, false);
        self.draining.insert(slot);
    }

    /// Records that a child no longer has it.
    pub fn missed(&mut self, slot: Slot) {
        self.void(slot.mask());
        self.unasked.remove(slot);
    }

    /// Records the reply of a child that it does not have it. The reply has no effect for a child
    /// that was just chosen to create it, because the client may be on its way.
    pub fn absent(&mut self, slot: Slot) {
        if self.placed == Some(slot) {
            self.unasked.remove(slot);
        } else {
            self.missed(slot);
        }
    }

    /// Records that a child was chosen to create or stage it, so that further clients are sent
    /// there too.
    pub fn place(&mut self, slot: Slot) {
        self.found(slot, true);
        self.placed = Some(slot);
    }

    /// Marks the state of these children as stale; they have to be queried again.
    pub fn invalidate(&mut self, slots: SlotMask) {
        self.void(slots);
        self.unasked |= slots;
    }

    /// Marks the state of all children as stale; only a recent placement stays.
    pub fn reset(&mut self) {
        let placed = self.placed;
        *self = Self { querying: self.querying, failed: self.failed, ..Self::UNKNOWN };
        if let Some(slot) = placed {
            self.place(slot);
            self.unasked.insert(slot);
        }
    }

    fn void(&mut self, slots: SlotMask) {
        self.have -= slots;
        self.pending -= slots;
        self.draining -= slots;
        if self.placed.is_some_and(|slot| slots.contains(slot)) {
            self.placed = None;
        }
    }
}

/// Counts of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Stored locations, with those that were replaced and not yet swept.
    pub locations: u64,
    /// Look-ups with a result.
    pub hits: u64,
    /// Unknown paths that were added.
    pub misses: u64,
    /// Locations that expired at the end of their window.
    pub expired: u64,
    /// Locations evicted because the cache was full.
    pub evicted: u64,
}

impl Add for CacheStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            locations: self.locations + other.locations,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }
}

impl AddAssign for CacheStats {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
