//! The machine's clocks.

use base::Clock;
use std::time::{Duration, Instant, SystemTime};

/// Time since the start of the server, and time of day.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that begins now.
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
