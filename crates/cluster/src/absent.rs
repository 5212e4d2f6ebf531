//! Children that may have leases and are not here.
//!
//! A child whose connection has ended keeps its leases, and a client may be on its way to it. A second creator of the same file
//! waits until the child is back, or until its leases are over. See `docs/decisions/001-placement-leases.md`.

use std::sync::Arc;
use std::time::Duration;

use crate::cell::Child;
use crate::paths::PathTable;
use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// Absent children that are borne in mind at most: those of an earlier run and a whole cell of this one. Beyond, the oldest is
/// forgotten.
const ABSENT_MAX: usize = 2 * CELL_SLOTS;

/// A child that is not here and may have leases.
#[derive(Clone, Debug)]
pub(crate) struct AbsentLessee {
    /// The number of its system id.
    pub(crate) id: u64,
    /// Its leases are over then.
    pub(crate) until: Duration,
    /// Where it was; `None` of a child of an earlier run.
    pub(crate) seat: Option<Seat>,
}

/// Where an absent child was.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Its slot.
    pub(crate) slot: Slot,
    /// The number by which files are placed at it.
    pub(crate) digest: u64,
    /// The children that were there at that time, and not another node in one of their slots. Files were placed at it in competition
    /// with those.
    pub(crate) rivals: SlotMask,
    /// Its share of new files, if it has said one.
    pub(crate) share: Option<u8>,
    /// Who exported what while it was there.
    pub(crate) paths: Arc<PathTable>,
}

/// All of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct AbsentLessees(Arc<Vec<AbsentLessee>>);

impl AbsentLessees {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AbsentLessee> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a child, or prolongs the time for which it is borne in mind.
    pub(crate) fn add(&mut self, absent: AbsentLessee) {
        self.remove(absent.id);
        let all = Arc::make_mut(&mut self.0);
        if all.len() >= ABSENT_MAX {
            all.remove(0);
        }
        all.push(absent);
    }

    /// The child is back, here or below. Reports whether it was absent.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let was_absent = self.0.iter().any(|absent| absent.id == id);
        if was_absent {
            Arc::make_mut(&mut self.0).retain(|absent| absent.id != id);
        }
        was_absent
    }

    /// Another node has taken this slot.
    pub(crate) fn note_newcomer(&mut self, slot: Slot) {
        if self.iter().any(|absent| absent.seat.as_ref().is_some_and(|seat| seat.rivals.contains(slot))) {
            let seats = Arc::make_mut(&mut self.0).iter_mut().filter_map(|absent| absent.seat.as_mut());
            seats.for_each(|seat| seat.rivals.remove(slot));
        }
    }

    /// Forgets those whose leases are over. Reports whether there were any.
    pub(crate) fn forget_old(&mut self, now: Duration) -> bool {
        let is_over = self.0.iter().any(|absent| absent.until <= now);
        if is_over {
            Arc::make_mut(&mut self.0).retain(|absent| absent.until > now);
        }
        is_over
    }

    /// When the leases of one of them are over.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.0.iter().map(|absent| absent.until).min()
    }

    /// Reports whether a child that was in this slot may have the lease of a file that was placed there.
    pub(crate) fn was_in(&self, slot: Slot) -> bool {
        self.iter().any(|absent| absent.seat.as_ref().is_some_and(|seat| seat.slot == slot))
    }

    /// Reports whether a child of an earlier run may have a lease. Which files were placed at it is not known.
    pub(crate) fn are_of_earlier_run(&self) -> bool {
        self.iter().any(|absent| absent.seat.is_none())
    }
}

impl Seat {
    /// The seat of a child that was lost.
    pub(crate) fn of(slot: Slot, child: &Child, rivals: SlotMask, paths: &Arc<PathTable>) -> Self {
        Self { slot, digest: child.digest, rivals, share: child.share, paths: paths.clone() }
    }

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
    fn each_child_is_borne_in_mind_once_and_not_for_longer_than_its_leases() {
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
