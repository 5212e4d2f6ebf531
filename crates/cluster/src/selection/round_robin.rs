//! Round robin: the child with the lowest reference count is next.
//!
//! It serves configurations without loads, and `by_load` for children of equal load.

use base::Rng;

use super::Selection;
use crate::meters::{AccessKind, Meters};
use crate::slots::{Slot, SlotMask};

/// Selection by reference count; of equals the lowest slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundRobin {
    /// The difference of counts at which a writer goes to another child.
    pub linger: u32,
}

impl RoundRobin {
    /// Returns the next child in turn.
    pub(super) fn in_turn(self, among: SlotMask, kind: AccessKind, meters: &Meters) -> Option<Slot> {
        let linger = match kind {
            AccessKind::Read => 0,
            AccessKind::Write => u64::from(self.linger) * 100,
        };
        let count = |slot| meters.count(slot, kind);
        among
            .iter()
            .reduce(|best, slot| if count(best) > count(slot).saturating_add(linger) { slot } else { best })
    }
}

impl Selection for RoundRobin {
    fn pick(&self, among: SlotMask, kind: AccessKind, meters: &Meters, _rng: &mut dyn Rng) -> Option<Slot> {
        self.in_turn(among, kind, meters)
    }

    fn load(&self, _slot: Slot, _meters: &Meters) -> Option<u32> {
        None
    }
}
