//! The machine's clocks.

use base::Clock;
use std::time::{Duration, Instant, SystemTime};

/// Time since the start of the server, and time of day.
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
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
