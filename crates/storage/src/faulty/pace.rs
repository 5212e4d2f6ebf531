//! [`Pace`]: so many bytes a second and no more, for all who keep it together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was missed by waking late is caught up as long as it is not more than this.
const CATCH_UP: Duration = Duration::from_millis(20);

/// A rate that several share: whoever moves bytes takes the next stretch of time, as long as they need, and goes on at its
/// end.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// Until when the time is taken.
    taken: Mutex<Option<Instant>>,
}

impl Pace {
    /// At least one byte a second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), taken: Mutex::default() }
    }

    /// When so many bytes may be there, for who asks at `now`.
    pub fn turn(&self, now: Instant, bytes: usize) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let end = taken.map_or(now, |taken| taken.max(earliest)) + takes;
        *taken = Some(end);
        end
    }

    /// Waits for it.
    pub fn keep(&self, bytes: usize) {
        let now = Instant::now();
        std::thread::sleep(self.turn(now, bytes).saturating_duration_since(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_together_shares_the_rate_and_who_pauses_saves_nothing() {
        let pace = Pace::new(1_000_000);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(pace.turn(start, 100_000), at(100));
        assert_eq!(pace.turn(start, 200_000), at(300));
        // Woken 5 ms late.
        assert_eq!(pace.turn(at(305), 100_000), at(400));
        // A second later, a second of silence gives no more than 20 ms.
        assert_eq!(pace.turn(at(1400), 100_000), at(1480));
    }
}
