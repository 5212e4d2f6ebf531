//! Slots that have been reassigned to another child.
//!
//! A waiting request that avoids the previous child does not avoid its successor. It detects the
//! change when it is judged again, so that a join does not look at every waiting request.

use std::collections::HashMap;

use super::queries::{QueryWaiter, WaiterRequest};
use crate::slots::Slot;

/// The last change of the owner of each slot, as a count of all such changes.
#[derive(Default, Debug)]
pub(super) struct ReplacedSlots {
    changes: u64,
    slots: HashMap<Slot, u64>,
}

impl ReplacedSlots {
    /// Returns the number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records that `slot` has another owner.
    pub(super) fn note(&mut self, slot: Slot) {
        self.changes += 1;
        self.slots.insert(slot, self.changes);
    }

    /// Removes slots with a changed owner from the avoided children of a request.
    pub(super) fn update(&self, waiter: &mut QueryWaiter) {
        let before = std::mem::replace(&mut waiter.replacements, self.changes);
        if before == self.changes {
            return;
        }
        let WaiterRequest::Select(question) = &mut waiter.request else { return };
        for (slot, changed) in &self.slots {
            if *changed > before {
                question.avoided.forget(*slot);
            }
        }
    }
}
