//! A connection between two hosts, with the state of its faults.

use std::time::Duration;

use cluster::tree::ConnectionId;

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimEndpoint {
    pub(crate) host: u32,
    pub(crate) epoch: u32,
    pub(crate) link: ConnectionId,
    /// This end is still open.
    pub(crate) open: bool,
    /// The arrival of the last message; no later message arrives before it.
    pub(crate) last: Duration,
}

/// A connection: the end that requested it, and the other.
#[derive(Clone, Debug)]
pub(crate) struct SimConnection {
    pub(crate) ends: [SimEndpoint; 2],
    pub(crate) silent: bool,
    /// The period of its stall.
    pub(crate) stall: (Duration, Duration),
}

impl SimConnection {
    /// Returns the time at which a message arrives at a side that would arrive at `at` without
    /// others: messages keep their order.
    pub(crate) fn arrival(&mut self, to: usize, mut at: Duration, now: Duration) -> Duration {
        if now < self.stall.1 {
            // It follows all messages that were in transit at the beginning of the stall.
            at = at.max(self.stall.1 + Duration::from_nanos(1));
        }
        let end = &mut self.ends[to];
        end.last = end.last.max(at);
        end.last
    }

    /// Reports whether it stalled at that time or within `margin` before.
    pub(crate) fn stood_still(&self, at: Duration, margin: Duration) -> bool {
        let (from, until) = self.stall;
        from <= at && at < until + margin
    }
}
