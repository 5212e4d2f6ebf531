//! A clock that tests set.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::Clock;

/// A clock that stands still until a test changes it.
#[derive(Default)]
pub(super) struct TestClock {
    /// The steady time, and the time of day since 1970.
    times: Mutex<(Duration, Duration)>,
}

impl TestClock {
    fn change(&self, change: impl FnOnce(&mut (Duration, Duration))) {
        change(&mut self.times.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sets the time of day alone, as an administrator or NTP can.
    pub(super) fn set_today(&self, seconds: u64) {
        self.change(|times| times.1 = Duration::from_secs(seconds));
    }

    /// Lets time pass.
    pub(super) fn advance(&self, seconds: u64) {
        let passed = Duration::from_secs(seconds);
        self.change(|times| *times = (times.0 + passed, times.1 + passed));
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn today(&self) -> SystemTime {
        UNIX_EPOCH + self.times.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}
