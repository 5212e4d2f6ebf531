//! The bounce clock: the times at which slots changed owner or content.
//!
//! It exists so that one join invalidates millions of locations at no cost. A counter is
//! incremented when a new or reconfigured child joins or a supervisor sends `status` reset, and its
//! value is stored for that slot. A location stores the counter's value at its last check. The
//! slots with a later value are *bounced*: the location is stale for them and they must be queried
//! again. So a join costs one number, whatever the size of the cache, and each location pays at its
//! next look-up. Source: cms protocol 3, "invalidation by bounce clock".

use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// The bounce clock and the last bounce of each slot.
#[derive(Clone, Debug)]
pub struct Bounces {
    clock: u32,
    last: [u32; CELL_SLOTS],
    invalidated: [u32; CELL_SLOTS],
}

impl Bounces {
    /// Creates a clock without bounces.
    pub const fn new() -> Self {
        Self { clock: 0, last: [0; CELL_SLOTS], invalidated: [0; CELL_SLOTS] }
    }

    /// Makes all knowledge about the slot stale: it has a new owner, its owner has other paths, or
    /// the nodes below it changed.
    pub fn bounce(&mut self, slot: Slot) {
        // The end of the counter is out of reach, because joins take time and resets are limited
        // (`tree::limits::RESET_PAUSE`). At the end, joins would no longer invalidate anything.
        self.clock = self.clock.saturating_add(1);
        if let Some(last) = self.last.get_mut(slot.index()) {
            *last = self.clock;
        }
    }

    /// Requires new queries to the slot, because its owner reconnected. Files that it is known to
    /// have stay known until it reports otherwise.
    pub fn invalidate(&mut self, slot: Slot) {
        self.clock = self.clock.saturating_add(1);
        if let Some(last) = self.invalidated.get_mut(slot.index()) {
            *last = self.clock;
        }
    }

    /// Returns the number of bounces.
    pub const fn clock(&self) -> u32 {
        self.clock
    }

    /// Returns the slots that bounced after the clock showed `clock`.
    pub fn since(&self, clock: u32) -> SlotMask {
        self.later(&self.last, clock)
    }

    /// Returns the slots whose owners reconnected after the clock showed `clock`.
    pub fn invalidated_since(&self, clock: u32) -> SlotMask {
        self.later(&self.invalidated, clock)
    }

    fn later(&self, last: &[u32; CELL_SLOTS], clock: u32) -> SlotMask {
        if clock >= self.clock {
            return SlotMask::EMPTY;
        }
        let late = last.iter().enumerate().filter(|(_, last)| **last > clock);
        SlotMask(late.fold(0, |mask, (slot, _)| mask | 1 << slot))
    }
}

impl Default for Bounces {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_later_bounces_count() {
        let (a, b) = (Slot::new(0).unwrap(), Slot::new(63).unwrap());
        let mut bounces = Bounces::new();
        assert_eq!(bounces.since(0), SlotMask::EMPTY);
        bounces.bounce(a);
        let between = bounces.clock();
        bounces.bounce(b);
        assert_eq!(bounces.since(0), a.mask() | b.mask());
        assert_eq!(bounces.since(between), b.mask());
        assert_eq!(bounces.since(bounces.clock()), SlotMask::EMPTY);
    }
}
