//! Looking for the next request for a moment before sleeping.
//!
//! To sleep and be woken costs a lone client more than its request. A loop that polls goes on looking, as long as requests
//! come in short gaps and few connections are there: the answer leaves in a third of the time, for the price of a processor
//! that does not rest. Off unless asked for.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a loop looks for the next request before it sleeps.
pub const POLLING_MOMENT: Duration = Duration::from_micros(50);

/// With more connections than this a loop has work enough, and does not poll.
pub const POLLING_CONNECTIONS_MAX: usize = 8;

/// Requests that must have come in short gaps before polling begins.
const SHORT_GAPS_MIN: u32 = 4;

thread_local! {
    static POLLER: OnceCell<Rc<Poller>> = const { OnceCell::new() };
}

struct Poller {
    last: Cell<Instant>,
    /// Arrivals in a row that came within the moment after the one before.
    short_gaps: Cell<u32>,
    polling: Cell<bool>,
    start: Notify,
}

/// Something has arrived on this loop.
#[inline]
pub(crate) fn arrived() {
    POLLER.with(|poller| {
        if let Some(poller) = poller.get() {
            poller.arrived(Instant::now());
        }
    });
}

impl Poller {
    fn arrived(&self, now: Instant) {
        let gap = now.duration_since(self.last.replace(now));
        // While it polls, a gap is what the client takes; while it sleeps, waking is in it as well.
        let short = if gap < 4 * POLLING_MOMENT { self.short_gaps.get().saturating_add(1) } else { 0 };
        self.short_gaps.set(short);
        if short >= SHORT_GAPS_MIN && !self.polling.get() {
            self.start.notify_one();
        }
    }
}

/// Polls on the current loop whenever it is worth it. `connections` tells how many the loop has.
pub(crate) async fn poll(connections: impl Fn() -> usize) {
    let poller = Rc::new(Poller {
        last: Cell::new(Instant::now()),
        short_gaps: Cell::new(0),
        polling: Cell::new(false),
        start: Notify::new(),
    });
    // A loop has one poller: the first stays.
    let _ = POLLER.with(|place| place.set(poller.clone()));
    loop {
        poller.start.notified().await;
        poller.polling.set(true);
        while poller.last.get().elapsed() < POLLING_MOMENT && connections() <= POLLING_CONNECTIONS_MAX {
            // The runtime looks at its sockets, without sleeping, before it comes back here.
            tokio::task::yield_now().await;
        }
        poller.polling.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_begins_after_short_gaps_only() {
        let start = Instant::now();
        let poller = Poller {
            last: Cell::new(start),
            short_gaps: Cell::new(0),
            polling: Cell::new(false),
            start: Notify::new(),
        };
        let mut now = start;
        for _ in 0..100 {
            now += Duration::from_millis(1);
            poller.arrived(now);
        }
        assert_eq!(poller.short_gaps.get(), 0);
        for count in 1..=SHORT_GAPS_MIN {
            now += POLLING_MOMENT;
            poller.arrived(now);
            assert_eq!(poller.short_gaps.get(), count);
        }
        now += Duration::from_secs(1);
        poller.arrived(now);
        assert_eq!(poller.short_gaps.get(), 0);
    }
}
