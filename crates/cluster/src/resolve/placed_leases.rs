//! The leases of children, for reports to parents.
//!
//! Locations do not store their numbers, because among ten million locations few are of files that
//! do not exist yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::PLACEMENT_HOLD;
use crate::lease_number::{LeaseNumber, LeaseReport};

/// The maximum number of entries of one generation.
const GENERATION_MAX: usize = 16_384;

#[derive(Clone, Copy, Default, Debug)]
struct PlacedLease {
    number: LeaseNumber,
    /// Its deadline, if the child has reported it.
    until: Option<Duration>,
    /// The highest number of an order to end it that was answered with the lease.
    kept_against: Option<LeaseNumber>,
}

/// Leases by path, in two generations: each is kept for as long as a lease may run, unless the
/// generation is full.
#[derive(Default, Debug)]
pub(super) struct PlacedLeases {
    generations: [HashMap<Arc<[u8]>, PlacedLease>; 2],
    until: Duration,
}

impl PlacedLeases {
    /// Records that a child has this lease, or receives it.
    pub(super) fn note(&mut self, path: &[u8], lease: LeaseReport, now: Duration) {
        let known = self.get(path).filter(|known| known.number == lease.number);
        let until = match lease.left {
            Some(left) => Some(now.saturating_add(left)),
            None => known.and_then(|known| known.until),
        };
        let kept_against = known.and_then(|known| known.kept_against);
        self.insert(path, PlacedLease { number: lease.number, until, kept_against }, now);
    }

    fn insert(&mut self, path: &[u8], lease: PlacedLease, now: Duration) {
        if now >= self.until || self.generations[0].len() >= GENERATION_MAX {
            self.generations[1] = std::mem::take(&mut self.generations[0]);
            self.until = now.saturating_add(PLACEMENT_HOLD);
        }
        self.generations[0].insert(Arc::from(path), lease);
    }

    /// Records that a parent orders the end of a lease with a number below `order`, and that the
    /// lease stays. Returns whether the parents have to be informed. They reply to a lease that must
    /// not be there with the order to end it, so an order that was answered before is not answered
    /// again.
    pub(super) fn keep(&mut self, path: &[u8], order: LeaseNumber, now: Duration) -> bool {
        let known = self.get(path).unwrap_or_default();
        if known.kept_against.is_some_and(|answered| answered >= order) {
            return false;
        }
        self.insert(path, PlacedLease { kept_against: Some(order), ..known }, now);
        true
    }

    /// Returns the lease of a path; the lowest number if it is unknown.
    pub(super) fn report(&self, path: &[u8], now: Duration) -> LeaseReport {
        let known = self.get(path);
        LeaseReport {
            number: known.map(|known| known.number).unwrap_or_default(),
            left: known.and_then(|known| known.until).map(|until| until.saturating_sub(now)),
        }
    }

    fn get(&self, path: &[u8]) -> Option<PlacedLease> {
        self.generations.iter().find_map(|leases| leases.get(path)).copied()
    }

    /// Returns all paths, some of them twice.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.generations.iter().flat_map(HashMap::keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, seconds: Option<u64>) -> LeaseReport {
        LeaseReport { number: LeaseNumber(number), left: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn the_last_lease_of_a_path_is_known_while_it_may_run_and_their_sum_is_limited() {
        let mut leases = PlacedLeases::default();
        let mut now = Duration::from_secs(7);
        leases.note(b"/f", report(1, None), now);
        now += PLACEMENT_HOLD;
        leases.note(b"/g", report(2, None), now);
        let number = |leases: &PlacedLeases, path: &[u8]| leases.report(path, now).number.0;
        assert_eq!([b"/f", b"/g", b"/h"].map(|path| number(&leases, path)), [1, 2, 0]);
        leases.note(b"/f", report(3, None), now);
        assert_eq!(number(&leases, b"/f"), 3);
        for number in 0..100_000_u64 {
            leases.note(format!("/{number}").as_bytes(), report(number, None), now);
        }
        assert!(leases.paths().count() <= 2 * GENERATION_MAX);
        assert_eq!(number(&leases, b"/99999"), 99_999);
        assert_eq!(leases.report(b"/f", now), report(0, None));
    }

    #[test]
    fn an_order_to_end_a_lease_that_stays_is_answered_once() {
        let mut leases = PlacedLeases::default();
        let now = Duration::from_secs(7);
        let keep = |leases: &mut PlacedLeases, order| leases.keep(b"/f", LeaseNumber(order), now);
        leases.note(b"/f", report(1, Some(30)), now);
        assert_eq!([3, 3, 2, 4, 4].map(|order| keep(&mut leases, order)), [true, false, false, true, false]);
        assert_eq!(leases.report(b"/f", now), report(1, Some(30)));
        leases.note(b"/f", report(1, None), now);
        assert!(!keep(&mut leases, 4));
        leases.note(b"/f", report(2, None), now);
        assert!(keep(&mut leases, 4), "another lease");
        // One that is not recorded.
        assert!(leases.keep(b"/g", LeaseNumber(4), now) && !leases.keep(b"/g", LeaseNumber(4), now));
    }

    #[test]
    fn the_time_that_a_lease_has_left_decreases_and_a_report_without_it_does_not_reset_it() {
        let mut leases = PlacedLeases::default();
        let at = Duration::from_secs;
        leases.note(b"/f", report(1, Some(30)), at(7));
        leases.note(b"/f", report(1, None), at(17));
        assert_eq!(leases.report(b"/f", at(27)), report(1, Some(10)));
        assert_eq!(leases.report(b"/f", at(47)), report(1, Some(0)));
        leases.note(b"/f", report(2, None), at(47));
        assert_eq!(leases.report(b"/f", at(47)), report(2, None), "of another lease");
    }
}
