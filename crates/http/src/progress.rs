//! The least rate of a client: in each period in which the server waits for it, it must send or take some
//! bytes. Time in which the client waits for the server does not count.

use crate::{PROGRESS_BYTES_MIN, STALL_TIME_MAX};
use std::time::Duration;

/// The progress of a client within the present period.
#[derive(Default)]
pub(crate) struct ClientProgress {
    waited: Duration,
    moved: u64,
}

impl ClientProgress {
    /// Returns the time that is left to the client, if it moves nothing.
    pub(crate) fn left(&self) -> Duration {
        STALL_TIME_MAX.saturating_sub(self.waited)
    }

    /// Counts bytes for which the server has waited. A client that has moved enough begins a new period.
    /// Reports whether it may go on.
    pub(crate) fn count(&mut self, waited: Duration, bytes: usize) -> bool {
        self.waited = self.waited.saturating_add(waited);
        self.moved = self.moved.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.moved >= PROGRESS_BYTES_MIN {
            *self = Self::default();
        }
        self.waited < STALL_TIME_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BYTES: usize = PROGRESS_BYTES_MIN as usize;

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_has_one_period() {
        let mut progress = ClientProgress::default();
        let seconds = STALL_TIME_MAX.as_secs();
        for second in 1..seconds {
            assert!(progress.count(SECOND, 1), "after {second} s");
            assert_eq!(progress.left(), STALL_TIME_MAX - SECOND * u32::try_from(second).unwrap());
        }
        assert!(!progress.count(SECOND, 1));
        assert_eq!(progress.left(), Duration::ZERO);
    }

    #[test]
    fn enough_bytes_begin_a_new_period() {
        let mut progress = ClientProgress::default();
        for _ in 0..10 {
            assert!(progress.count(STALL_TIME_MAX - SECOND, BYTES - 1));
            assert!(progress.count(SECOND, 1));
            assert_eq!(progress.left(), STALL_TIME_MAX);
        }
    }

    #[test]
    fn a_client_that_waits_for_the_server_loses_no_time() {
        let mut progress = ClientProgress::default();
        assert!((0..1000).all(|_| progress.count(Duration::ZERO, 1)));
        assert_eq!(progress.left(), STALL_TIME_MAX);
    }
}
