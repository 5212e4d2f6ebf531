//! Looking for the next request for a moment before sleeping.
//!
//! To sleep and be woken costs a lone client more than its request. A loop that polls goes on looking, as long as requests
//! come in short gaps and few connections are there: the answer leaves in a third of the time, for the price of a processor
//! that does not rest. Off unless asked for.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

/// How long a loop looks for the next request before it sleeps.
pub const POLLING_MOMENT: Duration = Duration::from_micros(50);

/// With more connections than this a loop has work enough, and does not poll.
pub const POLLING_CONNECTIONS_MAX: usize = 8;

/// Requests that must have come in short gaps before polling begins.
const SHORT_GAPS_MIN: u32 = 4;

thread_local! {
    static POLLING: OnceCell<Polling> = const { OnceCell::new() };
}

struct Polling {
    /// How many connections the loop has.
    connections: Box<dyn Fn() -> usize>,
    gaps: Gaps,
}

/// How requests follow each other.
struct Gaps {
    last: Cell<Instant>,
    /// Arrivals in a row that came within the moment after the one before.
    short: Cell<u32>,
}

/// Has the current loop poll whenever it is worth it. `connections` tells how many it has.
pub(crate) fn allow(connections: impl Fn() -> usize + 'static) {
    let gaps = Gaps { last: Cell::new(Instant::now()), short: Cell::new(0) };
    // What was allowed stays so.
    let _ = POLLING.with(|place| place.set(Polling { connections: Box::new(connections), gaps }));
}

/// Something has arrived on this loop.
#[inline]
pub(crate) fn arrived() {
    POLLING.with(|place| {
        if let Some(polling) = place.get() {
            polling.gaps.arrived(Instant::now());
        }
    });
}

/// Until when it is worth to look without sleeping; `None` if it is not.
pub(crate) fn moment(now: Instant) -> Option<Instant> {
    POLLING.with(|place| {
        let polling = place.get()?;
        let until = polling.gaps.until(now)?;
        ((polling.connections)() <= POLLING_CONNECTIONS_MAX).then_some(until)
    })
}

impl Gaps {
    fn arrived(&self, now: Instant) {
        let gap = now.duration_since(self.last.replace(now));
        // While it polls, a gap is what the client takes; while it sleeps, waking is in it as well.
        let short = if gap < 4 * POLLING_MOMENT { self.short.get().saturating_add(1) } else { 0 };
        self.short.set(short);
    }

    fn until(&self, now: Instant) -> Option<Instant> {
        let until = self.last.get() + POLLING_MOMENT;
        (self.short.get() >= SHORT_GAPS_MIN && now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_begins_after_short_gaps_only() {
        let start = Instant::now();
        let gaps = Gaps { last: Cell::new(start), short: Cell::new(0) };
        let mut now = start;
        for _ in 0..100 {
            now += Duration::from_millis(1);
            gaps.arrived(now);
        }
        assert_eq!(gaps.until(now), None);
        for count in 1..=SHORT_GAPS_MIN {
            assert_eq!(gaps.until(now), None);
            now += POLLING_MOMENT;
            gaps.arrived(now);
            assert_eq!(gaps.short.get(), count);
        }
        assert_eq!(gaps.until(now), Some(now + POLLING_MOMENT));
        assert_eq!(gaps.until(now + POLLING_MOMENT), None, "its moment is over");
        now += Duration::from_secs(1);
        gaps.arrived(now);
        assert_eq!(gaps.until(now), None);
    }
}
