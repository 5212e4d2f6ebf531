//! The numbers of the leases of children, for reports to parents.
//!
//! Locations do not store these numbers, because among ten million locations few are of files that
//! do not exist yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::PLACEMENT_HOLD;
use crate::lease_number::LeaseNumber;

/// The maximum number of entries of one generation.
const GENERATION_MAX: usize = 16_384;

/// Numbers by path, in two generations: each is kept for as long as a lease may run, unless the
/// generation is full.
#[derive(Default, Debug)]
pub(super) struct PlacedLeases {
    generations: [HashMap<Arc<[u8]>, LeaseNumber>; 2],
    until: Duration,
}

impl PlacedLeases {
    /// Records that a child has the lease with this number, or receives it.
    pub(super) fn note(&mut self, path: &[u8], number: LeaseNumber, now: Duration) {
        if now >= self.until || self.generations[0].len() >= GENERATION_MAX {
            self.generations[1] = std::mem::take(&mut self.generations[0]);
            self.until = now.saturating_add(PLACEMENT_HOLD);
        }
        self.generations[0].insert(Arc::from(path), number);
    }

    /// Returns the number of the lease of a path; the lowest if it is unknown.
    pub(super) fn number(&self, path: &[u8]) -> LeaseNumber {
        self.generations.iter().find_map(|numbers| numbers.get(path)).copied().unwrap_or_default()
    }

    /// Returns all paths, some of them twice.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.generations.iter().flat_map(HashMap::keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_path_is_known_while_a_lease_may_run_and_their_sum_is_limited() {
        let mut leases = PlacedLeases::default();
        let mut now = Duration::from_secs(7);
        leases.note(b"/f", LeaseNumber(1), now);
        now += PLACEMENT_HOLD;
        leases.note(b"/g", LeaseNumber(2), now);
        assert_eq!([b"/f", b"/g", b"/h"].map(|path| leases.number(path).0), [1, 2, 0]);
        leases.note(b"/f", LeaseNumber(3), now);
        assert_eq!(leases.number(b"/f"), LeaseNumber(3));
        for number in 0..100_000_u64 {
            leases.note(format!("/{number}").as_bytes(), LeaseNumber(number), now);
        }
        assert!(leases.paths().count() <= 2 * GENERATION_MAX);
        assert_eq!(leases.number(b"/99999"), LeaseNumber(99_999));
        assert_eq!(leases.number(b"/f"), LeaseNumber::default());
    }
}
