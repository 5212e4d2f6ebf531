//! [`LogLimit`]: the number of lines that clients can cause in the log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of lines within [`PERIOD`].
const LINES_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_secs(60);

/// A limit of log lines.
#[derive(Default)]
pub(crate) struct LogLimit(Mutex<Option<(Instant, u32)>>);

impl LogLimit {
    /// Reports whether another line may be written.
    pub(crate) fn admits(&self) -> bool {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &mut *period {
            Some((since, lines)) if now.duration_since(*since) < PERIOD => {
                *lines = lines.saturating_add(1);
                *lines <= LINES_MAX
            }
            _ => {
                *period = Some((now, 1));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_limited_number_of_lines_is_written_in_each_period() {
        let limit = LogLimit::default();
        let admitted = || (0..100).filter(|_| limit.admits()).count();
        assert_eq!((admitted(), admitted()), (20, 0));
        tokio::time::advance(PERIOD).await;
        assert_eq!(admitted(), 20);
    }
}
