//! The clocks of the machine, for [`base::Clock`], which tests replace by virtual time.

use base::Clock;
use std::time::{Duration, Instant, SystemTime};

/// A clock for the time since the start of the server, and the time of day.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Creates a clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}
