//! Which slots changed owner or content, and when: what lets one join invalidate millions of locations at no cost.
//!
//! A counter goes up when a new or reconfigured child joins or a supervisor says `status` reset, and its value is noted
//! for that slot. A location remembers the counter's value at its last check; the slots noted since then are *bounced*:
//! what it says of them is void and they must be asked again. So a join costs one number, whatever the cache holds,
//! and each location pays for it when it is next looked at. Source: cms protocol 3, "invalidation by bounce clock".

use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// The bounce clock and the last bounce of each slot.
#[derive(Clone, Debug)]
pub struct Bounces {
    clock: u32,
    last: [u32; CELL_SLOTS],
    doubted: [u32; CELL_SLOTS],
}

impl Bounces {
    /// Nothing has bounced yet.
    pub const fn new() -> Self {
        Self { clock: 0, last: [0; CELL_SLOTS], doubted: [0; CELL_SLOTS] }
    }

    /// The slot has a new owner, its owner other paths, or what is below it changed: nothing known of it holds.
    pub fn bounce(&mut self, slot: Slot) {
        // Its end is out of reach, because joins take time and resets are limited (`tree::limits::RESET_PAUSE`): there,
        // joins would void nothing any more.
        self.clock = self.clock.saturating_add(1);
        if let Some(last) = self.last.get_mut(slot.index()) {
            *last = self.clock;
        }
    }

    /// The slot's owner was away and came back: whether it has something is to be asked again, but what it was known to
    /// have it has, as long as it says nothing else.
    pub fn doubt(&mut self, slot: Slot) {
        self.clock = self.clock.saturating_add(1);
        if let Some(last) = self.doubted.get_mut(slot.index()) {
            *last = self.clock;
        }
    }

    /// How many bounces there were.
    pub const fn clock(&self) -> u32 {
        self.clock
    }

    /// The slots that bounced after the clock stood at `clock`.
    pub fn since(&self, clock: u32) -> SlotMask {
        self.later(&self.last, clock)
    }

    /// The slots whose owners came back after the clock stood at `clock`.
    pub fn doubted_since(&self, clock: u32) -> SlotMask {
        self.later(&self.doubted, clock)
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
    fn only_what_bounced_later_counts() {
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
