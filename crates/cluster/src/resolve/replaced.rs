//! Slots that another child has taken. A waiting request that avoids the child that was there before does not avoid its
//! successor; it finds that out when it is judged again, so that no waiting request is looked at when a child joins.

use std::collections::HashMap;

use super::queries::{Waiter, Wish};
use crate::slots::Slot;

/// When each slot got another occupant, as a count of all such changes.
#[derive(Default, Debug)]
pub(super) struct ReplacedSlots {
    changes: u64,
    slots: HashMap<Slot, u64>,
}

impl ReplacedSlots {
    /// Changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Another child sits in `slot` now.
    pub(super) fn note(&mut self, slot: Slot) {
        self.changes += 1;
        self.slots.insert(slot, self.changes);
    }

    /// Has a request that waited no longer avoid slots whose occupants changed meanwhile.
    pub(super) fn update(&self, waiter: &mut Waiter) {
        let before = std::mem::replace(&mut waiter.replacements, self.changes);
        if before == self.changes {
            return;
        }
        let Wish::Select(question) = &mut waiter.wish else { return };
        for (slot, changed) in &self.slots {
            if *changed > before {
                question.avoided.forget(*slot);
            }
        }
    }
}
