//! Absent children that may hold leases (decision 001).
//!
//! A child whose connection has ended keeps its leases, and a client may be on its way to it. So a
//! second creator of the same file waits until the child has reconnected, or until its leases have
//! ended.

use std::sync::Arc;
use std::time::Duration;

use crate::paths::PathTable;
use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// The maximum number of recorded children: those of an earlier run and a whole cell of this one.
/// Beyond it, the oldest is forgotten.
const ABSENT_MAX: usize = 2 * CELL_SLOTS;

/// An absent child that may hold leases.
#[derive(Clone, Debug)]
pub(crate) struct AbsentLessee {
    /// The hash of its system id.
    pub(crate) id: u64,
    /// The time at which its leases have ended.
    pub(crate) until: Duration,
    /// Its last seat; `None` for a child of an earlier run.
    pub(crate) seat: Option<AbsentSlot>,
}

/// The last seat of an absent child.
#[derive(Clone, Debug)]
pub(crate) struct AbsentSlot {
    /// Its slot.
    pub(crate) slot: Slot,
    /// The number that places files at it.
    pub(crate) digest: u64,
    /// The children of that time whose slots have not been reassigned. Files were placed at it in
    /// competition with those.
    pub(crate) rivals: SlotMask,
    /// Its share of new files, if it reported one.
    pub(crate) share: Option<u8>,
    /// The path table while it was connected.
    pub(crate) paths: Arc<PathTable>,
}

/// All absent children.
#[derive(Clone, Default, Debug)]
pub(crate) struct AbsentLessees(Arc<Vec<AbsentLessee>>);

impl AbsentLessees {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AbsentLessee> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a child, or extends its time.
    pub(crate) fn add(&mut self, absent: AbsentLessee) {
        self.remove(absent.id);
        let all = Arc::make_mut(&mut self.0);
        if all.len() >= ABSENT_MAX {
            all.remove(0);
        }
        all.push(absent);
    }

    /// Removes a child that has reconnected, here or below. Reports whether it was absent.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let was_absent = self.0.iter().any(|absent| absent.id == id);
        if was_absent {
            Arc::make_mut(&mut self.0).retain(|absent| absent.id != id);
        }
        was_absent
    }

    /// Records that another node has taken this slot.
    pub(crate) fn note_newcomer(&mut self, slot: Slot) {
        if self.iter().any(|absent| absent.seat.as_ref().is_some_and(|seat| seat.rivals.contains(slot))) {
            let seats = Arc::make_mut(&mut self.0).iter_mut().filter_map(|absent| absent.seat.as_mut());
            seats.for_each(|seat| seat.rivals.remove(slot));
        }
    }

    /// Forgets children whose leases have ended. Reports whether there were any.
    pub(crate) fn forget_old(&mut self, now: Duration) -> bool {
        let is_over = self.0.iter().any(|absent| absent.until <= now);
        if is_over {
            Arc::make_mut(&mut self.0).retain(|absent| absent.until > now);
        }
        is_over
    }

    /// Returns the time at which the next leases end.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.0.iter().map(|absent| absent.until).min()
    }

    /// Reports whether an absent child of this slot may hold the lease of a file that was placed
    /// there.
    pub(crate) fn was_in(&self, slot: Slot) -> bool {
        self.iter().any(|absent| absent.seat.as_ref().is_some_and(|seat| seat.slot == slot))
    }

    /// Reports whether a child of an earlier run may hold a lease. It is unknown which files were
    /// placed at it.
    pub(crate) fn are_of_earlier_run(&self) -> bool {
        self.iter().any(|absent| absent.seat.is_none())
    }
}

impl AbsentSlot {
    /// Reports whether files could be created there under this path.
    pub(crate) fn takes(&self, path: &[u8]) -> bool {
        self.paths.rights(path).is_some_and(|rights| rights.write.contains(self.slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(id: u64, until: u64) -> AbsentLessee {
        AbsentLessee { id, until: Duration::from_secs(until), seat: None }
    }

    #[test]
    fn each_absent_child_is_recorded_once_until_its_leases_end() {
        let mut all = AbsentLessees::default();
        assert!(all.next_deadline().is_none() && !all.forget_old(Duration::MAX));
        all.add(absent(1, 30));
        all.add(absent(2, 31));
        all.add(absent(1, 40));
        assert_eq!(all.iter().count(), 2);
        assert_eq!(all.next_deadline(), Some(Duration::from_secs(31)));
        assert!(!all.forget_old(Duration::from_secs(30)) && all.forget_old(Duration::from_secs(31)));
        assert!(all.remove(1) && !all.remove(1));
        assert!(!all.are_of_earlier_run());
        (0..1000).for_each(|id| all.add(absent(id, 30)));
        assert_eq!(all.iter().count(), ABSENT_MAX);
    }
}
