//! Leases that were granted to children and not yet confirmed by them.
//!
//! They are recorded because messages can cross. A child returns the number of each lease when it
//! receives the lease, so all its earlier messages are stale for that path: a `gone` or `nothere`
//! among them ends nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::lease_number::LeaseNumber;
use crate::leases::LEASE;
use crate::slots::Slot;

/// The maximum number of recorded leases; beyond it, the oldest is forgotten. A child confirms
/// within a round trip.
const UNCONFIRMED_MAX: usize = 16_384;

#[derive(Debug)]
struct UnconfirmedLease {
    slot: Slot,
    number: LeaseNumber,
    /// The time at which the lease ends by itself.
    until: Duration,
}

/// Grants by path. A path has several while the end of one lease and the next one are on their way.
#[derive(Default, Debug)]
pub(super) struct UnconfirmedLeases {
    grants: HashMap<Arc<[u8]>, Vec<UnconfirmedLease>>,
    /// The grants by time, including confirmed ones.
    order: VecDeque<(Duration, Arc<[u8]>)>,
}

impl UnconfirmedLeases {
    /// Records the grant of a lease.
    pub(super) fn grant(&mut self, slot: Slot, path: Arc<[u8]>, number: LeaseNumber, now: Duration) {
        let until = now.saturating_add(LEASE);
        while let Some((over, path)) = self.order.front()
            && (*over <= now || self.order.len() >= UNCONFIRMED_MAX)
        {
            retain(&mut self.grants, &path.clone(), |grant| grant.until > *over);
            self.order.pop_front();
        }
        self.grants.entry(path.clone()).or_default().push(UnconfirmedLease { slot, number, until });
        self.order.push_back((until, path));
    }

    /// Records that a child reports a lease. Returns whether that confirms a grant.
    pub(super) fn confirm(&mut self, slot: Slot, path: &[u8], number: LeaseNumber) -> bool {
        let is_it = |grant: &UnconfirmedLease| grant.slot == slot && grant.number == number;
        let confirms = self.grants.get(path).is_some_and(|grants| grants.iter().any(is_it));
        if confirms {
            // It has received all earlier grants, too.
            retain(&mut self.grants, path, |grant| grant.slot != slot || grant.number > number);
        }
        confirms
    }

    /// Reports whether a child may have sent its last message before it received the last lease of
    /// a path.
    pub(super) fn contains(&self, slot: Slot, path: &[u8], now: Duration) -> bool {
        let is_it = |grant: &UnconfirmedLease| grant.slot == slot && now < grant.until;
        !self.grants.is_empty() && self.grants.get(path).is_some_and(|grants| grants.iter().any(is_it))
    }

    /// Forgets the grants of a child whose connection has ended, because messages on their way are
    /// lost.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.grants.retain(|_, grants| {
            grants.retain(|grant| grant.slot != slot);
            !grants.is_empty()
        });
    }
}

fn retain(
    grants: &mut HashMap<Arc<[u8]>, Vec<UnconfirmedLease>>,
    path: &[u8],
    keep: impl Fn(&UnconfirmedLease) -> bool,
) {
    if let Some(of_path) = grants.get_mut(path) {
        of_path.retain(keep);
        if of_path.is_empty() {
            grants.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    fn slots() -> (Slot, Slot) {
        (Slot::new(3).unwrap(), Slot::new(4).unwrap())
    }

    #[test]
    fn a_grant_is_confirmed_by_its_number_from_its_child_and_confirms_earlier_ones() {
        let mut leases = UnconfirmedLeases::default();
        let (slot, other) = slots();
        let path: Arc<[u8]> = Arc::from(&b"/f"[..]);
        (1..=3).for_each(|number| leases.grant(slot, path.clone(), LeaseNumber(number), NOW));
        leases.grant(other, path.clone(), LeaseNumber(4), NOW);
        assert!(
            !leases.confirm(other, b"/f", LeaseNumber(2)) && !leases.confirm(slot, b"/g", LeaseNumber(2))
        );
        assert!(leases.confirm(slot, b"/f", LeaseNumber(2)) && !leases.confirm(slot, b"/f", LeaseNumber(1)));
        assert!(leases.contains(slot, b"/f", NOW) && leases.confirm(slot, b"/f", LeaseNumber(3)));
        assert!(!leases.contains(slot, b"/f", NOW) && leases.contains(other, b"/f", NOW));
        leases.forget(other);
        assert!(leases.grants.is_empty());
    }

    #[test]
    fn one_that_is_never_confirmed_counts_as_long_as_the_lease_and_their_number_is_limited() {
        let mut leases = UnconfirmedLeases::default();
        let (slot, _) = slots();
        let path = |number: usize| Arc::from(format!("/{number}").as_bytes());
        leases.grant(slot, path(0), LeaseNumber(1), NOW);
        assert!(leases.contains(slot, b"/0", NOW) && !leases.contains(slot, b"/0", NOW + LEASE));
        leases.grant(slot, path(1), LeaseNumber(1), NOW + LEASE);
        assert_eq!(leases.grants.len(), 1);
        (0..100_000).for_each(|number| leases.grant(slot, path(number), LeaseNumber(2), NOW + LEASE));
        assert!(leases.grants.len() <= UNCONFIRMED_MAX && leases.order.len() <= UNCONFIRMED_MAX);
        assert!(leases.contains(slot, b"/99999", NOW + LEASE));
        // The record does not keep confirmed leases.
        let confirmed = (0..100_000).filter(|number| leases.confirm(slot, &path(*number), LeaseNumber(2)));
        assert!(confirmed.count() > 1);
        leases.grant(slot, path(1), LeaseNumber(3), NOW + 2 * LEASE);
        assert_eq!((leases.grants.len(), leases.order.len()), (1, 1));
    }
}
