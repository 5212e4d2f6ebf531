//! The rate limit for resets, by which a child invalidates all its earlier messages.
//!
//! Each reset makes readers of the location cache query that child again for every path, and goes
//! up to the parents of this node. So a child that sends resets in a loop must not have each one
//! followed. Bursts, as of a supervisor whose children join, are followed at once; further resets
//! are merged.

use std::time::Duration;

use base::IdMap;

use crate::Slot;

use super::super::limits::{RESET_BURST, RESET_PAUSE};

/// The resets of each child.
#[derive(Debug, Default)]
pub(super) struct Resets {
    slots: IdMap<Slot, Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    /// The budget of followed resets, as time: it advances by a pause with each.
    until: Duration,
    /// A reset is to be followed when the budget allows.
    is_due: bool,
}

impl Spent {
    fn next(&self) -> Duration {
        self.until.saturating_sub(RESET_PAUSE * RESET_BURST)
    }

    fn follow(&mut self, now: Duration) -> bool {
        let may = self.next() <= now;
        if may {
            self.until = self.until.max(now) + RESET_PAUSE;
        }
        self.is_due = !may;
        may
    }
}

impl Resets {
    /// Records a reset of a child. Reports whether it is to be followed now; otherwise it is due
    /// later.
    pub(super) fn arrived(&mut self, slot: Slot, now: Duration) -> bool {
        self.slots.entry(slot).or_default().follow(now)
    }

    /// Returns the time of the next postponed reset.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.slots.values().filter(|spent| spent.is_due).map(Spent::next).min()
    }

    /// Takes the children whose resets are due.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<Slot> {
        let due = self.slots.iter_mut().filter(|(_, spent)| spent.is_due);
        due.filter_map(|(slot, spent)| spent.follow(now).then_some(*slot)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_resets_in_a_loop_is_followed_now_and_then() {
        let (slot, other) = (Slot::new(1).unwrap(), Slot::new(2).unwrap());
        let mut resets = Resets::default();
        let mut followed = 0;
        let end = Duration::from_secs(10);
        let mut now = Duration::ZERO;
        while now < end {
            for _ in 0..100 {
                followed += usize::from(resets.arrived(slot, now));
            }
            now += Duration::from_millis(1);
            followed += resets.take_due(now).len();
        }
        let steady = (end.as_millis() / RESET_PAUSE.as_millis()) as usize;
        let burst = RESET_BURST as usize;
        assert!((steady..=steady + burst + 2).contains(&followed), "{followed}");
        assert!(resets.arrived(other, now), "others are followed at once");
        // The last reset counts, too.
        resets.arrived(slot, now);
        let due = resets.deadline().unwrap();
        assert_eq!(resets.take_due(due), [slot]);
        assert_eq!(resets.deadline(), None);
    }
}
