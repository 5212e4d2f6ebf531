//! Measures for how long a client keeps the server waiting.
//!
//! The measure decides which connections are closed when memory is short, so it must not blame a
//! client for delays of the server.

use crate::BYTES_PER_SECOND_MIN;

/// Counts the seconds for which the server waits for a client. It pauses while the server itself
/// delays the connection. Bytes transferred count for the time that they take at
/// [`BYTES_PER_SECOND_MIN`], so a client that moves single bytes gains nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ClientDelay {
    /// The tick since which the server waits for the client; 0 while it does not wait.
    since: u32,
    /// Seconds up to the last change, saturating.
    waited: u16,
    /// Bytes transferred that do not amount to a full second yet.
    moved: u16,
}

impl ClientDelay {
    /// No wait.
    pub(crate) const NONE: Self = Self { since: 0, waited: 0, moved: 0 };

    /// Returns the seconds for which the server has waited up to a tick.
    pub(crate) fn seconds(&self, tick: u32) -> u32 {
        let running = if self.since == 0 { 0 } else { tick.saturating_sub(self.since) };
        u32::from(self.waited).saturating_add(running)
    }

    /// Starts the wait at this tick.
    pub(crate) fn run(&mut self, tick: u32) {
        if self.since == 0 {
            self.since = tick.max(1);
        }
    }

    /// Pauses the wait at this tick, because the server itself delays the connection.
    pub(crate) fn pause(&mut self, tick: u32) {
        if self.since != 0 {
            (self.waited, self.since) = (short(self.seconds(tick)), 0);
        }
    }

    /// Credits bytes transferred by this tick.
    pub(crate) fn credit(&mut self, bytes: usize, tick: u32) {
        let waited = self.seconds(tick);
        if waited == 0 {
            // Credit does not accumulate without a wait.
            self.moved = 0;
            return;
        }
        let moved = usize::from(self.moved).saturating_add(bytes);
        let seconds = u32::try_from(moved / BYTES_PER_SECOND_MIN).unwrap_or(u32::MAX);
        self.moved = u16::try_from(moved % BYTES_PER_SECOND_MIN).unwrap_or(u16::MAX);
        self.waited = short(waited.saturating_sub(seconds));
        if self.since != 0 {
            self.since = tick.max(1);
        }
    }
}

fn short(seconds: u32) -> u16 {
    u16::try_from(seconds).unwrap_or(u16::MAX)
}

const _: () = assert!(BYTES_PER_SECOND_MIN <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_spent_waiting_for_the_client_counts() {
        let mut lag = ClientDelay::NONE;
        assert_eq!(lag.seconds(100), 0);
        lag.run(100);
        lag.run(105);
        assert_eq!(lag.seconds(110), 10);
        // Pauses by the server do not reset the time waited before.
        for tick in 110..200 {
            lag.pause(tick);
            lag.pause(tick);
            lag.run(tick);
        }
        assert_eq!(lag.seconds(200), 100);
        lag.pause(200);
        assert_eq!(lag.seconds(1000), 100);
    }

    #[test]
    fn bytes_earn_credit_at_the_minimum_rate() {
        let mut slow = ClientDelay::NONE;
        slow.run(1);
        for tick in (1..=291).step_by(29) {
            slow.credit(1, tick);
        }
        assert_eq!(slow.seconds(301), 300, "single bytes earn no credit");
        let mut fair = ClientDelay::NONE;
        fair.run(1);
        for tick in 2..=1000 {
            fair.credit(BYTES_PER_SECOND_MIN + 1, tick);
            assert!(fair.seconds(tick) <= 1, "{fair:?}");
        }
        // Two halves make a second, and excess credit is dropped.
        let mut halves = ClientDelay::NONE;
        halves.run(1);
        halves.credit(BYTES_PER_SECOND_MIN / 2, 11);
        assert_eq!(halves.seconds(11), 10);
        halves.credit(BYTES_PER_SECOND_MIN / 2, 11);
        assert_eq!(halves.seconds(11), 9);
        halves.credit(1 << 30, 11);
        assert_eq!((halves.seconds(11), halves.seconds(31)), (0, 20));
    }
}
