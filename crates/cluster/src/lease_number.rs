//! The order of the leases of one path.
//!
//! Managers that know different servers may lease one path at two of them. A node that learns of
//! both ends the one with the lower number. A lease after one that has ended has a higher number,
//! so that reports in the wrong order do no harm: the end of a stale lease changes nothing.

use std::time::Duration;

use base::Rng;

/// The bits that distinguish the leases of two parents within one millisecond.
const TAG_BITS: u32 = 20;

/// The maximum lead over the own clock. A higher number is ignored, because its clock is wrong and
/// all later leases would have to be above it.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// The position of a lease among those of the same path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct LeaseNumber(pub u64);

impl LeaseNumber {
    /// The number of a lease within which a file is being created: nothing ends it. As a limit:
    /// every lease that can be ended is below.
    pub const CREATING: Self = Self(u64::MAX);
}

/// A lease, as a node reports it to its parents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseReport {
    /// The number of the lease, or [`LeaseNumber::CREATING`].
    pub number: LeaseNumber,
    /// The time until its deadline; `None` if the node does not know it. Parents compute the age of
    /// the lease from it, so that all of them judge its end in the same way.
    pub left: Option<Duration>,
}

/// A generator of lease numbers: the time of day, or one more than the highest number seen.
#[derive(Clone, Debug)]
pub(crate) struct LeaseClock {
    /// The time of day at the start of the process.
    started: Duration,
    /// The highest number so far, without its tag.
    last: u64,
    tag: u64,
}

impl LeaseClock {
    pub(crate) fn new(started: Duration, rng: &mut dyn Rng) -> Self {
        let mut tag = [0; 4];
        rng.fill(&mut tag);
        Self { started, last: 0, tag: u64::from(u32::from_le_bytes(tag)) & ((1 << TAG_BITS) - 1) }
    }

    /// Returns a number above all that were returned or seen.
    pub(crate) fn next(&mut self, now: Duration) -> LeaseNumber {
        self.last = self.today(now).max(self.last + 1);
        LeaseNumber(self.last << TAG_BITS | self.tag)
    }

    /// Records a lease number of another node.
    pub(crate) fn observe(&mut self, number: LeaseNumber, now: Duration) {
        if number.0 >> TAG_BITS <= self.today(now.saturating_add(AHEAD_MAX)) {
            self.last = self.last.max(number.0 >> TAG_BITS);
        }
    }

    /// Returns the time of day in milliseconds.
    fn today(&self, now: Duration) -> u64 {
        let time = self.started.saturating_add(now).as_millis();
        u64::try_from(time).unwrap_or(u64::MAX) & (u64::MAX >> TAG_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SplitMix64;

    const TODAY: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn a_later_lease_has_a_higher_number_whichever_parent_grants_it_and_whatever_its_clock_says() {
        let mut ahead = LeaseClock::new(TODAY + Duration::from_secs(5), &mut SplitMix64::new(1));
        let mut behind = LeaseClock::new(TODAY, &mut SplitMix64::new(2));
        let mut last = LeaseNumber::default();
        for milliseconds in 0..20 {
            let now = Duration::from_millis(milliseconds / 4);
            let clock = if milliseconds % 3 == 0 { &mut ahead } else { &mut behind };
            clock.observe(last, now);
            let number = clock.next(now);
            assert!(last < number && number < LeaseNumber::CREATING);
            last = number;
        }
        let mut twin = LeaseClock::new(TODAY, &mut SplitMix64::new(3));
        let mut other = LeaseClock::new(TODAY, &mut SplitMix64::new(4));
        assert_ne!(twin.next(TODAY), other.next(TODAY), "of the same millisecond");
    }

    #[test]
    fn a_number_of_a_wrong_clock_is_ignored() {
        let mut clock = LeaseClock::new(TODAY, &mut SplitMix64::new(1));
        let now = Duration::from_secs(1);
        let before = clock.next(now);
        clock.observe(LeaseNumber::CREATING, now);
        clock.observe(LeaseNumber(u64::MAX - 1), now);
        assert_eq!(clock.next(now).0, before.0 + (1 << TAG_BITS));
    }
}
