//! Adaptive polling: the loop polls for the next request for a moment before it sleeps.
//!
//! It exists because sleeping and waking costs a single client more than its request. A loop with
//! this option polls while requests follow in short gaps and it has few connections. The reply is
//! sent in a third of the time, at the cost of a busy processor. It is off by default
//! (decision 009).

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

/// Time for which a loop polls before it sleeps.
pub const POLLING_MOMENT: Duration = Duration::from_micros(50);

/// Maximum number of connections of a loop that polls. With more it always has work.
pub const POLLING_CONNECTIONS_MAX: usize = 8;

/// Number of requests in short gaps after which polling starts.
const SHORT_GAPS_MIN: u32 = 4;

thread_local! {
    static POLLING: OnceCell<Polling> = const { OnceCell::new() };
}

struct Polling {
    /// Returns the number of connections of the loop.
    connections: Box<dyn Fn() -> usize>,
    gaps: RequestGaps,
}

/// Statistics of the gaps between requests.
struct RequestGaps {
    last: Cell<Instant>,
    /// Number of consecutive arrivals within the moment after the previous one.
    short: Cell<u32>,
}

/// Enables adaptive polling on the current loop. `connections` returns the number of its
/// connections.
pub(crate) fn allow(connections: impl Fn() -> usize + 'static) {
    let gaps = RequestGaps { last: Cell::new(Instant::now()), short: Cell::new(0) };
    // A second call has no effect.
    let _ = POLLING.with(|place| place.set(Polling { connections: Box::new(connections), gaps }));
}

/// Records an arrival on this loop.
#[inline]
pub(crate) fn arrived() {
    POLLING.with(|place| {
        if let Some(polling) = place.get() {
            polling.gaps.arrived(Instant::now());
        }
    });
}

/// Returns the time until which polling is worthwhile, or `None`.
pub(crate) fn moment(now: Instant) -> Option<Instant> {
    POLLING.with(|place| {
        let polling = place.get()?;
        let until = polling.gaps.until(now)?;
        ((polling.connections)() <= POLLING_CONNECTIONS_MAX).then_some(until)
    })
}

impl RequestGaps {
    fn arrived(&self, now: Instant) {
        let gap = now.duration_since(self.last.replace(now));
        // While polling, a gap is the time of the client; after sleeping, it includes the wake-up.
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
        let gaps = RequestGaps { last: Cell::new(start), short: Cell::new(0) };
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
        assert_eq!(gaps.until(now + POLLING_MOMENT), None, "the moment has passed");
        now += Duration::from_secs(1);
        gaps.arrived(now);
        assert_eq!(gaps.until(now), None);
    }
}
