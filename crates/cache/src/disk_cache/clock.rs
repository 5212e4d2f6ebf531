//! [`CacheClock`]: the time of day, which can be wrong and is set at any time, and the uptime, which only passes.
//!
//! The time of day is needed for what outlives the process. All that happens within it is measured by the uptime, so that
//! a clock that is set does not make files old.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of seconds.
type Seconds = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Difference in seconds between the time of day and the uptime that is not a jump.
const JUMP_MIN: i64 = 60;
/// One second in this number is not a jump either, because a clock that is corrected slowly runs faster or slower.
const SLEW: i64 = 1000;
/// Seconds after a jump in which the time of day is not believed.
const JUMP_PAUSE: i64 = 86_400;

/// The clock of a cache.
#[derive(Clone)]
pub struct CacheClock {
    time_of_day: Seconds,
    uptime: Seconds,
}

impl CacheClock {
    /// Creates a clock of the seconds since the epoch, and of seconds that only pass.
    pub fn new(
        time_of_day: impl Fn() -> i64 + Send + Sync + 'static,
        uptime: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Self {
        Self { time_of_day: Arc::new(time_of_day), uptime: Arc::new(uptime) }
    }

    /// Returns the clock of the system.
    #[must_use]
    pub fn system() -> Self {
        let start = Instant::now();
        let time_of_day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        Self::new(move || seconds(time_of_day()), move || seconds(start.elapsed().as_secs()))
    }

    /// Returns the seconds since the epoch.
    pub(crate) fn seconds(&self) -> i64 {
        (self.time_of_day)()
    }

    pub(super) fn now(&self) -> CacheTime {
        CacheTime { time_of_day: (self.time_of_day)(), uptime: (self.uptime)() }
    }
}

/// A point in time by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CacheTime {
    /// Seconds since the epoch.
    pub(super) time_of_day: i64,
    pub(super) uptime: i64,
}

/// The last use of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileUse {
    /// Seconds since the epoch. It is later than now if the clock is or was wrong.
    pub(super) time_of_day: i64,
    /// The uptime of the use, or of the moment at which this process has found the file. It is small, because there is
    /// one for each file.
    noticed: u32,
    /// This process has used the file.
    is_ours: bool,
}

impl FileUse {
    /// Returns a use by this process.
    pub(super) fn by_us(now: CacheTime) -> Self {
        Self { is_ours: true, ..Self::recorded(now.time_of_day, now) }
    }

    /// Returns the recorded use of a file that this process has found.
    pub(super) fn recorded(time_of_day: i64, now: CacheTime) -> Self {
        let noticed = u32::try_from(now.uptime).unwrap_or(u32::MAX);
        Self { time_of_day, noticed, is_ours: false }
    }

    /// Returns the use that a later look at the record has found.
    pub(super) const fn corrected(self, time_of_day: i64) -> Self {
        Self { time_of_day, ..self }
    }

    /// Returns the number of seconds since the use, as far as it is known.
    pub(super) fn age(self, now: CacheTime) -> i64 {
        let noticed = self.unused(now);
        let recorded = now.time_of_day.saturating_sub(self.time_of_day);
        if self.is_ours || recorded < 0 { noticed } else { recorded }
    }

    /// Returns the number of seconds in which the file was not used, whatever the time of day is.
    pub(super) fn unused(self, now: CacheTime) -> i64 {
        now.uptime.saturating_sub(i64::from(self.noticed))
    }
}

/// Notices that the time of day was set.
pub(super) struct ClockWatch {
    last: CacheTime,
    /// The uptime at which the last jump was noticed.
    jumped: Option<i64>,
}

impl ClockWatch {
    pub(super) const fn new(now: CacheTime) -> Self {
        Self { last: now, jumped: None }
    }

    /// Reports whether the time of day can be believed: it has not jumped for a day.
    pub(super) fn believes(&mut self, now: CacheTime) -> bool {
        let passed = now.uptime.saturating_sub(self.last.uptime);
        let shown = now.time_of_day.saturating_sub(self.last.time_of_day);
        self.last = now;
        if shown.saturating_sub(passed).saturating_abs() > JUMP_MIN.max(passed / SLEW) {
            self.jumped = Some(now.uptime);
            tracing::warn!(
                seconds = shown.saturating_sub(passed),
                "the clock was set; for a day, no cached file is removed because its recorded use is old"
            );
        }
        self.jumped.is_none_or(|jumped| now.uptime.saturating_sub(jumped) >= JUMP_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(time_of_day: i64, uptime: i64) -> CacheTime {
        CacheTime { time_of_day, uptime }
    }

    #[test]
    fn a_use_by_this_process_gets_older_only_with_the_uptime() {
        let ours = FileUse::by_us(time(1_000_000, 50));
        for time_of_day in [0, 1_000_010, i64::MAX] {
            assert_eq!((ours.age(time(time_of_day, 60)), ours.unused(time(time_of_day, 60))), (10, 10));
        }
        let recorded = FileUse::recorded(1_000_000, time(1_000_100, 50));
        assert_eq!(recorded.age(time(1_000_120, 70)), 120);
        assert_eq!(recorded.unused(time(i64::MAX, 70)), 20);
        // It was recorded by a clock that was ahead, or the clock is behind.
        assert_eq!(recorded.age(time(5, 70)), 20);
        assert_eq!(recorded.corrected(7).age(time(9, 70)), 2);
    }

    #[test]
    fn the_time_of_day_is_not_believed_for_a_day_after_a_jump() {
        for jump in [61, -61, 1 << 40, -1 << 40] {
            let mut watch = ClockWatch::new(time(1_000_000, 0));
            assert!(watch.believes(time(1_000_103, 100)));
            let after = 1_000_103 + jump;
            assert!(!watch.believes(time(after, 100)));
            assert!(!watch.believes(time(after + 86_399, 100 + 86_399)));
            assert!(watch.believes(time(after + 86_400, 100 + 86_400)), "{jump}");
        }
        // A correction in small steps, and a long interval.
        let mut watch = ClockWatch::new(time(0, 0));
        assert!(watch.believes(time(10_005_000, 10_000_000)));
        assert!(!watch.believes(time(20_025_000, 20_000_000)));
    }
}
