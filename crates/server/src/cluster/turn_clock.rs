//! The clock of the cluster's machines, which is read once per turn of the thread.
//!
//! A turn handles up to hundreds of messages within a millisecond, and each step of a machine needs
//! the time.

use base::Clock;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A clock that stands still during a turn.
pub(super) struct TurnClock {
    clock: Arc<dyn Clock>,
    turn_time: Rc<Cell<Option<Duration>>>,
}

/// A turn. The clock goes on when it is dropped, also by a panic.
#[must_use]
pub(super) struct ClusterTurn(Rc<Cell<Option<Duration>>>);

impl TurnClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, turn_time: Rc::default() }
    }

    /// Begins a turn, whose time is the current one. A turn within another one ends both.
    pub(super) fn begin_turn(&self) -> ClusterTurn {
        self.turn_time.set(Some(self.clock.now()));
        ClusterTurn(self.turn_time.clone())
    }

    /// Returns the time since the start of the process.
    pub(super) fn now(&self) -> Duration {
        self.turn_time.get().unwrap_or_else(|| self.clock.now())
    }

    /// Returns the time of day.
    pub(super) fn today(&self) -> SystemTime {
        self.clock.today()
    }
}

impl Drop for ClusterTurn {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct RunningClock(AtomicU64);

    impl Clock for RunningClock {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
        }

        fn today(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
    }

    #[test]
    fn the_time_stands_still_during_a_turn_and_goes_on_after_a_panic_in_it() {
        let clock = TurnClock::new(Arc::new(RunningClock::default()));
        assert_eq!((clock.now(), clock.now()), (Duration::from_secs(0), Duration::from_secs(1)));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = clock.begin_turn();
            assert_eq!((clock.now(), clock.now()), (Duration::from_secs(2), Duration::from_secs(2)));
            panic!("a request led to a panic");
        }));
        assert!(panic.is_err());
        assert_eq!((clock.now(), clock.now()), (Duration::from_secs(3), Duration::from_secs(4)));
    }
}
