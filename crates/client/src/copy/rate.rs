//! Rate limits of copies: a token bucket for the maximum, and a check of the minimum.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum burst after a pause.
const BURST: Duration = Duration::from_millis(250);
/// Number of chunks per second if the rate is low.
const CHUNKS_A_SECOND: u64 = 8;
/// Minimum size of a chunk.
const CHUNK_BYTES_MIN: u64 = 4096;
/// Period over which the minimum rate is measured.
pub(super) const FLOOR_TIME: Duration = Duration::from_secs(10);

/// A rate limit in bytes per second, shared by all copies that have a clone of it.
#[derive(Clone, Debug)]
pub struct Rate {
    bytes_a_second: u64,
    bucket: Arc<Mutex<Bucket>>,
}

impl Rate {
    /// Creates a limit of `bytes_a_second`, at least 1.
    #[must_use]
    pub fn new(bytes_a_second: u64) -> Self {
        Self { bytes_a_second: bytes_a_second.max(1), bucket: Arc::default() }
    }

    /// Returns a chunk size of at most `most` that keeps the rate even.
    pub(super) fn chunk_bytes(&self, most: usize) -> usize {
        let even = (self.bytes_a_second / CHUNKS_A_SECOND).max(CHUNK_BYTES_MIN);
        usize::try_from(even).unwrap_or(most).min(most)
    }

    /// Waits until `bytes` more bytes are allowed.
    pub(super) async fn take(&self, bytes: usize) {
        let wait = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(bytes, self.bytes_a_second, Instant::now())
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// A token bucket, stored as the time at which it is full again.
#[derive(Default, Debug)]
struct Bucket {
    paid_up: Option<Instant>,
}

impl Bucket {
    /// Takes tokens for `bytes` and returns the time until they are available. Later callers wait
    /// longer.
    fn take(&mut self, bytes: usize, rate: u64, now: Instant) -> Duration {
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = self.paid_up.map_or(earliest, |paid_up| paid_up.max(earliest));
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let price = Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX);
        self.paid_up = start.checked_add(price).or(Some(start));
        start.saturating_duration_since(now)
    }
}

/// A check of the minimum rate that is fed with the progress of a copy.
pub(super) struct Floor {
    bytes_a_second: u64,
    since: Instant,
    bytes: u64,
}

impl Floor {
    pub(super) fn new(bytes_a_second: u64, now: Instant) -> Self {
        Self { bytes_a_second, since: now, bytes: 0 }
    }

    /// Records the current number of bytes. Returns the rate in bytes per second if it was too low
    /// for [`FLOOR_TIME`].
    pub(super) fn look(&mut self, bytes: u64, now: Instant) -> Option<u64> {
        let time = now.saturating_duration_since(self.since);
        if time < FLOOR_TIME {
            return None;
        }
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = (bytes - self.bytes).saturating_mul(1000) / milliseconds;
        (self.since, self.bytes) = (now, bytes);
        (rate < self.bytes_a_second).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lanes_share_one_rate_limit() {
        let rate = Rate::new(1_000_000);
        let begun = Instant::now();
        let mut lanes = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let rate = rate.clone();
            lanes.spawn(async move {
                for _ in 0..100 {
                    rate.take(10_000).await;
                }
            });
        }
        while lanes.join_next().await.is_some() {}
        // Eight million bytes; the first quarter of a second's worth is a burst.
        let seconds = begun.elapsed().as_secs_f64();
        assert!((7.5..8.1).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_pause_allows_one_burst_only() {
        let (mut bucket, begun) = (Bucket::default(), Instant::now() + Duration::from_secs(1000));
        assert_eq!(bucket.take(1000, 1000, begun), Duration::ZERO);
        assert_eq!(bucket.take(1000, 1000, begun), Duration::from_millis(750));
        assert_eq!(bucket.take(1000, 1000, begun), Duration::from_millis(1750));
        let later = begun + Duration::from_secs(100);
        assert_eq!(bucket.take(250, 1000, later), Duration::ZERO);
        assert_eq!(bucket.take(1, 1000, later), Duration::ZERO);
        assert_eq!(bucket.take(1, 1000, later), Duration::from_millis(1));
        assert_eq!(bucket.take(usize::MAX, 1, later + Duration::from_secs(9)), Duration::ZERO);
        bucket.take(1, 1, later + Duration::from_secs(9));
    }

    #[test]
    fn chunks_are_small_at_low_rates() {
        let chunk = |rate: u64| Rate::new(rate).chunk_bytes(2 << 20);
        assert_eq!(
            [chunk(1), chunk(80_000), chunk(1 << 30), chunk(u64::MAX)],
            [4096, 10_000, 2 << 20, 2 << 20]
        );
    }

    #[test]
    fn a_rate_below_the_minimum_is_reported() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut floor = Floor::new(1000, begun);
        assert_eq!(floor.look(0, at(9)), None);
        assert_eq!(floor.look(10_000, at(10)), None);
        assert_eq!(floor.look(10_001, at(19)), None);
        assert_eq!(floor.look(19_990, at(20)), Some(999));
    }
}
