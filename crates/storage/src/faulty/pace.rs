//! [`Pace`]: a rate limit in bytes per second that several users share.
//!
//! It is separate from the rules because it decides on a time that the caller passes in, so that
//! its test needs no clock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time lost by waking late is made up for, up to this duration.
const CATCH_UP: Duration = Duration::from_millis(20);

/// A shared rate limit. Each user reserves the next stretch of time, as long as its bytes need, and
/// continues at the end of it.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// The end of the reserved time.
    taken: Mutex<Option<Instant>>,
}

impl Pace {
    /// Returns a rate limit of at least one byte per second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), taken: Mutex::default() }
    }

    /// Reserves time for `bytes` from `now` on and returns its end.
    pub fn turn(&self, now: Instant, bytes: usize) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let end = taken.map_or(now, |taken| taken.max(earliest)) + takes;
        *taken = Some(end);
        end
    }

    /// Reserves time for `bytes` and sleeps until its end.
    pub fn keep(&self, bytes: usize) {
        let now = Instant::now();
        std::thread::sleep(self.turn(now, bytes).saturating_duration_since(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_users_share_the_rate_and_a_pause_saves_up_nothing() {
        let pace = Pace::new(1_000_000);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert_eq!(pace.turn(start, 100_000), at(100));
        assert_eq!(pace.turn(start, 200_000), at(300));
        // Woken 5 ms late.
        assert_eq!(pace.turn(at(305), 100_000), at(400));
        // An idle second saves up no more than 20 ms.
        assert_eq!(pace.turn(at(1400), 100_000), at(1480));
    }
}
