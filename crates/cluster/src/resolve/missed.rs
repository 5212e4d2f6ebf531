//! Lost and redirected children whose slots are not kept, and which are expected back.
//!
//! They may return here or below another node. While one of them is absent, no file is reported to
//! parents as missing, because the child may have the file or its lease. Clients wait for a shorter
//! time, because their parents had the replies of all children when they sent them here.
//!
//! Children are known by the numbers of their system ids. The time of a flapping child counts from
//! its first loss, so it does not delay requests for longer than a child that was lost once.

use std::time::Duration;

use crate::slots::CELL_SLOTS;

/// The maximum number of recorded children: those of an earlier run and a whole cell of this one.
/// Beyond it, the child with the earliest end is forgotten.
const MISSED_MAX: usize = 2 * CELL_SLOTS;

/// The times until which a child is expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MissedUntil {
    /// The time for clients.
    pub(super) clients: Duration,
    /// The time for parents; not earlier.
    pub(super) parents: Duration,
}

#[derive(Debug)]
struct MissedChild {
    id: u64,
    until: MissedUntil,
    clients_wait: bool,
    parents_wait: bool,
}

/// All missed children.
#[derive(Default, Debug)]
pub(super) struct MissedChildren(Vec<MissedChild>);

impl MissedChildren {
    /// Records that a child is absent, and expected back until `until`. With `anew` it had been
    /// connected for more than a moment, so an earlier absence does not count.
    pub(super) fn miss(&mut self, id: u64, until: MissedUntil, anew: bool) {
        let known = self.0.iter().position(|child| child.id == id);
        let until = known.filter(|_| !anew).map_or(until, |at| self.0[at].until);
        let first_over = || (0..self.0.len()).min_by_key(|at| self.0[*at].until.parents);
        if let Some(at) = known.or_else(|| first_over().filter(|_| self.0.len() >= MISSED_MAX)) {
            self.0.swap_remove(at);
        }
        self.0.push(MissedChild { id, until, clients_wait: true, parents_wait: true });
    }

    /// Records that the child has a place, here or below. Reports whether it was expected.
    pub(super) fn note_arrival(&mut self, id: u64) -> bool {
        self.0.iter_mut().filter(|child| child.id == id).any(|child| {
            child.clients_wait = false;
            std::mem::replace(&mut child.parents_wait, false)
        })
    }

    /// Reports whether requests of clients wait for a child.
    pub(super) fn hold_clients(&self) -> bool {
        self.0.iter().any(|child| child.clients_wait)
    }

    /// Reports whether queries of parents wait for a child.
    pub(super) fn hold_parents(&self) -> bool {
        self.0.iter().any(|child| child.parents_wait)
    }

    /// Returns the time at which the next wait ends.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let clients = self.0.iter().filter(|child| child.clients_wait).map(|child| child.until.clients);
        let parents = self.0.iter().filter(|child| child.parents_wait).map(|child| child.until.parents);
        clients.chain(parents).min()
    }

    /// Ends the waits for children that have been absent for long. Reports whether there were any.
    pub(super) fn give_up(&mut self, now: Duration) -> bool {
        let mut any = false;
        for child in &mut self.0 {
            any |= child.clients_wait && child.until.clients <= now;
            any |= child.parents_wait && child.until.parents <= now;
            child.clients_wait &= child.until.clients > now;
            child.parents_wait &= child.until.parents > now;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(clients: u64, parents: u64) -> MissedUntil {
        MissedUntil { clients: Duration::from_secs(clients), parents: Duration::from_secs(parents) }
    }

    fn state(missed: &MissedChildren) -> (bool, bool, Option<u64>) {
        let next = missed.next_deadline().map(|next| next.as_secs());
        (missed.hold_clients(), missed.hold_parents(), next)
    }

    #[test]
    fn a_child_that_comes_and_goes_is_missed_as_of_its_first_absence() {
        let mut missed = MissedChildren::default();
        let give_up = |missed: &mut MissedChildren, second| missed.give_up(Duration::from_secs(second));
        assert!(!missed.note_arrival(1) && !give_up(&mut missed, 9));
        missed.miss(1, at(5, 30), true);
        assert_eq!(state(&missed), (true, true, Some(5)));
        assert!(missed.note_arrival(1) && !missed.note_arrival(1));
        assert_eq!(state(&missed), (false, false, None));
        missed.miss(1, at(15, 40), false);
        assert!(!give_up(&mut missed, 4) && give_up(&mut missed, 5));
        assert_eq!(state(&missed), (false, true, Some(30)));
        assert!(!give_up(&mut missed, 29) && give_up(&mut missed, 30));
        assert_eq!(state(&missed), (false, false, None));
        // It had its whole time.
        missed.miss(1, at(40, 65), false);
        assert!(give_up(&mut missed, 35));
        assert_eq!(state(&missed), (false, false, None));
        // It was connected for a while in between.
        missed.miss(1, at(50, 75), true);
        assert_eq!(state(&missed), (true, true, Some(50)));
    }

    #[test]
    fn their_number_is_limited_and_those_that_are_over_first_are_forgotten() {
        let mut missed = MissedChildren::default();
        (0..1000).for_each(|id| missed.miss(id, at(id, id), true));
        assert_eq!(missed.0.len(), MISSED_MAX);
        assert_eq!(state(&missed).2, Some(1000 - MISSED_MAX as u64));
    }
}
