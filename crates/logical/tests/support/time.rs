//! A clock that tests advance manually.

use base::Clock;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that stands still until it is advanced.
pub struct ManualClock(Mutex<Duration>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Mutex::new(Duration::from_secs(1_000_000)))
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }

    /// Returns nanoseconds since the epoch.
    pub fn nanoseconds(&self) -> u64 {
        self.0.lock().unwrap().as_nanos() as u64
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
    fn today(&self) -> SystemTime {
        UNIX_EPOCH + *self.0.lock().unwrap()
    }
}
