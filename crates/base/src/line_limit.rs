//! [`LineLimit`]: the number of lines that clients can cause in the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines within [`PERIOD`].
const LINES_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_secs(60);

/// A limit of log lines.
#[derive(Default, Debug)]
pub struct LineLimit(Mutex<LimitedLines>);

#[derive(Default, Debug)]
struct LimitedLines {
    /// Begin of the period.
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LineLimit {
    /// Reports whether another line may be written: the number of lines that were left out since the last one, or
    /// `None` if this one is left out.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            (lines.since, lines.written) = (Some(now), 0);
        }
        if lines.written >= LINES_MAX {
            lines.left_out = lines.left_out.saturating_add(1);
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_lines_is_written_in_each_period() {
        let (limit, begin) = (LineLimit::default(), Instant::now());
        let admitted = |now| (0..100).filter_map(|_| limit.admit(now)).collect::<Vec<_>>();
        assert_eq!(admitted(begin), [0; 20]);
        assert_eq!(admitted(begin + PERIOD / 2), []);
        let next = admitted(begin + PERIOD);
        assert_eq!((next.len(), next[0], &next[1..]), (20, 180, &[0; 19][..]));
    }
}
