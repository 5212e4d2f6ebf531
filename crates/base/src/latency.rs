//! [`LatencyCounters`]: histograms of times with the same buckets everywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in microseconds: factors of 2 to 2.5 from 10 us to 60 s. Longer times are in
/// one bucket more.
pub const LATENCY_BOUNDS_MICROS: [u64; 21] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 60_000_000,
];

/// Number of buckets.
const BUCKETS: usize = LATENCY_BOUNDS_MICROS.len() + 1;

/// A histogram of times that any thread reads.
#[derive(Default, Debug)]
pub struct LatencyCounters {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// A histogram of times at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latencies {
    /// Number of times in each bucket, not cumulative.
    pub buckets: [u64; BUCKETS],
    /// The sum of the times in nanoseconds.
    pub nanos: u64,
}

/// Returns the bucket of a time and its nanoseconds.
fn place_of(time: Duration) -> (usize, u64) {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    (LATENCY_BOUNDS_MICROS.partition_point(|bound| bound * 1000 < nanos), nanos)
}

impl LatencyCounters {
    /// Adds times from the only thread that adds to this histogram.
    pub fn add_alone(&self, time: Duration, count: u64) {
        let (bucket, nanos) = place_of(time);
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        // The sum first, so that a reader finds no times without it.
        add(&self.nanos, nanos.wrapping_mul(count));
        self.buckets.get(bucket).into_iter().for_each(|counter| add(counter, count));
    }

    /// Adds a time from any thread.
    pub fn add(&self, time: Duration) {
        let (bucket, nanos) = place_of(time);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.buckets.get(bucket).into_iter().for_each(|counter| _ = counter.fetch_add(1, Ordering::Relaxed));
    }

    /// Adds this histogram to a sum.
    pub fn add_to(&self, sum: &mut Latencies) {
        for (sum, counter) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += counter.load(Ordering::Relaxed);
        }
        sum.nanos = sum.nanos.wrapping_add(self.nanos.load(Ordering::Relaxed));
    }
}

impl Latencies {
    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (nanos, bucket) in [
            (0, 0),
            (10_000, 0),
            (10_001, 1),
            (25_000, 1),
            (1_000_000, 6),
            (1_000_001, 7),
            (60_000_000_000, 20),
            (60_000_000_001, 21),
            (u64::MAX, 21),
        ] {
            assert_eq!(place_of(Duration::from_nanos(nanos)), (bucket, nanos));
        }
        assert_eq!(place_of(Duration::MAX), (21, u64::MAX));
    }

    #[test]
    fn bounds_grow_by_two_to_two_and_a_half() {
        for pair in LATENCY_BOUNDS_MICROS.windows(2) {
            let [low, high] = pair else { continue };
            assert!(high >= &(2 * low) && 2 * high <= 5 * low, "{low} {high}");
        }
    }

    #[test]
    fn histograms_are_summed() {
        let (one, other) = (LatencyCounters::default(), LatencyCounters::default());
        one.add_alone(Duration::from_micros(20), 3);
        other.add(Duration::from_micros(21));
        other.add(Duration::from_secs(100));
        let mut sum = Latencies::default();
        one.add_to(&mut sum);
        other.add_to(&mut sum);
        assert_eq!((sum.buckets[1], sum.buckets[21], sum.count()), (4, 1, 5));
        assert_eq!(sum.nanos, 100_000_081_000);
    }
}
