//! How long a connection keeps the server waiting.

use crate::BYTES_PER_SECOND_MIN;

/// Counts the seconds for which the server waits for a client. It pauses while the server itself
/// holds the connection up. Bytes that move count for the time that they take at
/// [`BYTES_PER_SECOND_MIN`], so a client that moves single bytes gains nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lag {
    /// The tick since which the server waits for the client; 0 while it does not.
    since: u32,
    /// Seconds until the last change; more than fit are as bad as these.
    waited: u16,
    /// Bytes that have moved and do not make a second yet.
    moved: u16,
}

impl Lag {
    /// Nothing is waited for.
    pub(crate) const NONE: Self = Self { since: 0, waited: 0, moved: 0 };

    /// Seconds for which the server has waited, as of a tick.
    pub(crate) fn seconds(&self, tick: u32) -> u32 {
        let running = if self.since == 0 { 0 } else { tick.saturating_sub(self.since) };
        u32::from(self.waited).saturating_add(running)
    }

    /// From this tick on the server waits for the client.
    pub(crate) fn run(&mut self, tick: u32) {
        if self.since == 0 {
            self.since = tick.max(1);
        }
    }

    /// From this tick on the server holds the connection up itself.
    pub(crate) fn pause(&mut self, tick: u32) {
        if self.since != 0 {
            (self.waited, self.since) = (short(self.seconds(tick)), 0);
        }
    }

    /// So many bytes have moved by this tick.
    pub(crate) fn credit(&mut self, bytes: usize, tick: u32) {
        let waited = self.seconds(tick);
        if waited == 0 {
            // What moves at once is not saved up.
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
    fn only_the_time_in_which_the_client_is_waited_for_counts() {
        let mut lag = Lag::NONE;
        assert_eq!(lag.seconds(100), 0);
        lag.run(100);
        lag.run(105);
        assert_eq!(lag.seconds(110), 10);
        // However often the server holds it up, what was waited before counts on.
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
    fn bytes_count_for_their_time_at_the_least_rate() {
        let mut slow = Lag::NONE;
        slow.run(1);
        for tick in (1..=291).step_by(29) {
            slow.credit(1, tick);
        }
        assert_eq!(slow.seconds(301), 300, "a byte now and then is nothing");
        let mut fair = Lag::NONE;
        fair.run(1);
        for tick in 2..=1000 {
            fair.credit(BYTES_PER_SECOND_MIN + 1, tick);
            assert!(fair.seconds(tick) <= 1, "{fair:?}");
        }
        // Two halves make a second, and nothing is saved for later.
        let mut halves = Lag::NONE;
        halves.run(1);
        halves.credit(BYTES_PER_SECOND_MIN / 2, 11);
        assert_eq!(halves.seconds(11), 10);
        halves.credit(BYTES_PER_SECOND_MIN / 2, 11);
        assert_eq!(halves.seconds(11), 9);
        halves.credit(1 << 30, 11);
        assert_eq!((halves.seconds(11), halves.seconds(31)), (0, 20));
    }
}
