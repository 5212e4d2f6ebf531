//! [`LineLimit`]: the number of lines that clients can cause in the log.

use std::fmt;
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

/// The number of lines that were left out since the last one that was written. It is shown as the end of the next
/// one, and as nothing if it is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOutLines(u64);

impl fmt::Display for LeftOutLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 { write!(f, "; {} others are not shown", self.0) } else { Ok(()) }
    }
}

impl LineLimit {
    /// Reports whether another line may be written now. `None` if it is left out.
    pub fn admit(&self) -> Option<LeftOutLines> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<LeftOutLines> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            (lines.since, lines.written) = (Some(now), 0);
        }
        if lines.written >= LINES_MAX {
            lines.left_out = lines.left_out.saturating_add(1);
            return None;
        }
        lines.written += 1;
        Some(LeftOutLines(std::mem::take(&mut lines.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_lines_is_written_in_each_period() {
        let (limit, begin) = (LineLimit::default(), Instant::now());
        let admitted =
            |now| (0..100).filter_map(|_| limit.admit_at(now)).map(|left_out| left_out.0).collect::<Vec<_>>();
        assert_eq!(admitted(begin), [0; 20]);
        assert_eq!(admitted(begin + PERIOD / 2), []);
        let next = admitted(begin + PERIOD);
        assert_eq!((next.len(), next[0], &next[1..]), (20, 180, &[0; 19][..]));
        let shown = [0, 3].map(|count| LeftOutLines(count).to_string());
        assert_eq!(shown, ["", "; 3 others are not shown"]);
    }
}
