//! Counters of the front end.
//!
//! Each loop has its own counters, because shared ones would contend. The totals are summed on
//! request.

use crate::error_counts::{ErrorCounters, ErrorCounts, count_error};
use base::{DescriptorBudget, Latencies, LatencyCounters};
use session::{CountedEvent, Destination, TIMED_OPERATIONS, TimedRequests};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one loop since the start.
        #[derive(Default)]
        pub(crate) struct LoopStats {
            $(pub(crate) $name: Counter,)*
            error_codes: ErrorCounters,
            latencies: [LatencyCounters; TIMED_OPERATIONS.len()],
        }

        /// Counters of all loops since the start.
        #[derive(Clone, Copy, Default, Debug)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Replies with errors, by their code.
            pub error_codes: ErrorCounts,
            /// Times from requests to their replies, by [`TIMED_OPERATIONS`].
            pub latencies: [Latencies; TIMED_OPERATIONS.len()],
        }

        impl Totals {
            pub(crate) fn of(loops: &[Arc<LoopStats>]) -> Self {
                let mut totals = Self::default();
                for one in loops {
                    $(totals.$name += one.$name.get();)*
                    totals.error_codes.add(&one.error_codes);
                    for (sum, counters) in totals.latencies.iter_mut().zip(&one.latencies) {
                        counters.add_to(sum);
                    }
                }
                totals
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections closed.
    disconnections,
    /// Connections that were not served because descriptors were exhausted.
    exhausted,
    /// Logins.
    logins,
    /// Logins of clients that have authenticated.
    authenticated,
    /// Refused attempts to authenticate.
    refused_logins,
    /// TLS handshakes that failed.
    failed_handshakes,
    /// Requests of any kind.
    requests,
    /// Polls of connection tasks.
    turns,
    /// kXR_open.
    opens,
    /// kXR_read and kXR_pgread.
    reads,
    /// Ranges announced for later reads.
    pre_reads,
    /// kXR_readv.
    vector_reads,
    /// Elements of all kXR_readv.
    read_segments,
    /// kXR_write and kXR_pgwrite, also under a checkpoint.
    writes,
    /// kXR_writev.
    vector_writes,
    /// Elements of all kXR_writev, except empty ones.
    write_segments,
    /// kXR_sync.
    syncs,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Large or cold reads, which are not answered in place.
    transfers,
    /// Answers that arrived after their request returned as pending.
    late_answers,
    /// Replies with errors.
    errors,
    /// Replies with redirects.
    redirects,
    /// Replies that ask to wait.
    waits,
    /// Notices that an answer comes late.
    announced_answers,
    /// Such answers that were a success.
    late_successes,
    /// Such answers that were an error.
    late_errors,
    /// Requests with a correct signature.
    signed_requests,
    /// Requests whose signature was wrong or missing.
    unsigned_requests,
    /// Signatures that were not needed.
    unneeded_signatures,
    /// Seconds that the sessions which have ended were connected.
    connected_seconds,
    /// Panics that ended a connection.
    panics,
}

thread_local! {
    /// Replies that are not in the counters of the loop yet. Sessions have no place for a reference to these,
    /// because a server has many sessions.
    static REPLIES: Cell<[u32; COUNTED_EVENTS]> = const { Cell::new([0; COUNTED_EVENTS]) };
}

thread_local! {
    /// The counters that take the times of requests of this loop.
    static TIMED: OnceCell<Arc<LoopStats>> = const { OnceCell::new() };
}

/// Counts the times of requests of this loop with these counters, from the end of this round on. A server has one
/// front end of this protocol; of several on a loop, the first one would have the times of all.
pub(crate) fn time_requests(stats: &Arc<LoopStats>) {
    if TIMED.with(|timed| timed.set(stats.clone())).is_ok() {
        net::set_round_hook(end_round);
    }
}

fn end_round(now: Instant) {
    TIMED.with(|timed| {
        let Some(stats) = timed.get() else { return };
        session::end_round(now, |TimedRequests { operation, count, time }| {
            if let Some(counters) = stats.latencies.get(operation) {
                counters.add_alone(time, count);
            }
        });
    });
}

/// Number of kinds of [`CountedEvent`].
const COUNTED_EVENTS: usize = 9;

/// Counts a reply. [`LoopStats::add_replies`] adds it to the counters of the loop when it leaves.
pub(crate) fn count_reply(event: CountedEvent) {
    if let CountedEvent::Error(code) = event {
        count_error(code);
    }
    let mut replies = REPLIES.get();
    if let Some(count) = replies.get_mut(place_of(event)) {
        *count += 1;
    }
    REPLIES.set(replies);
}

/// Returns the place of an event among [`REPLIES`].
const fn place_of(event: CountedEvent) -> usize {
    match event {
        CountedEvent::Error(_) => 0,
        CountedEvent::Redirect => 1,
        CountedEvent::Wait => 2,
        CountedEvent::LateAnswer => 3,
        CountedEvent::LateSuccess => 4,
        CountedEvent::LateError => 5,
        CountedEvent::Signed => 6,
        CountedEvent::Unsigned => 7,
        CountedEvent::UnneededSignature => 8,
    }
}

/// A counter that one thread increments and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the loop's own thread adds, so a load and a store suffice.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LoopStats {
    /// Adds the replies of this thread that were counted since the last call.
    pub(crate) fn add_replies(&self) {
        let replies = REPLIES.take();
        if replies == [0; COUNTED_EVENTS] {
            return;
        }
        // In the order of their places.
        let counters = [
            &self.errors,
            &self.redirects,
            &self.waits,
            &self.announced_answers,
            &self.late_successes,
            &self.late_errors,
            &self.signed_requests,
            &self.unsigned_requests,
            &self.unneeded_signatures,
        ];
        for (counter, count) in counters.into_iter().zip(replies) {
            counter.add(count.into());
        }
        if replies[0] > 0 {
            self.error_codes.add_errors();
        }
    }

    /// Counts announced data.
    pub(crate) fn receive(&self, into: &Destination) {
        match into {
            Destination::File { .. } | Destination::Pages { .. } => self.writes.add(1),
            Destination::Vector(extents) => {
                self.vector_writes.add(1);
                self.write_segments.add(extents.len() as u64);
            }
            Destination::Discard => {}
        }
    }
}

/// Current and maximum number of connections.
#[derive(Default)]
pub(crate) struct ConnectionCounts {
    now: AtomicU64,
    most: AtomicU64,
    descriptors: Arc<DescriptorBudget>,
}

impl ConnectionCounts {
    /// Returns a count of zero. Connections take their descriptors from this budget.
    pub(crate) fn new(descriptors: Arc<DescriptorBudget>) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// Counts a new connection. Returns `None` if the descriptors are exhausted.
    pub(crate) fn arrived(self: &Arc<Self>) -> Option<CountedConnection> {
        if !self.descriptors.connect() {
            return None;
        }
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Some(CountedConnection(self.clone()))
    }

    /// Returns the number of descriptors in use by connections and files, and its limit.
    pub(crate) fn descriptors(&self) -> (usize, usize) {
        (self.descriptors.used(), self.descriptors.limit())
    }

    /// Returns the number of connections now and its maximum.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.now.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed))
    }
}

/// Counts a connection and holds its descriptor until it is dropped.
#[must_use = "the connection counts as closed when it is dropped"]
pub(crate) struct CountedConnection(Arc<ConnectionCounts>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.descriptors.disconnect();
    }
}

/// Figures of the front end at one moment.
#[derive(Clone, Copy, Debug)]
pub struct FrontEndFigures {
    /// The counters of all loops.
    pub totals: Totals,
    /// Connections now.
    pub connections: u64,
    /// Maximum number of connections at one time.
    pub connections_most: u64,
    /// Memory in bytes that sessions have claimed for work in flight.
    pub memory_claimed: usize,
    /// Sessions, including those without a login.
    pub sessions: usize,
    /// Descriptors in use by connections and files of all protocols, and their limit.
    pub descriptors: (usize, usize),
}

impl FrontEndFigures {
    /// Returns the figures of connections.
    pub fn links(&self) -> monitor::LinkFigures {
        monitor::LinkFigures {
            now: self.connections,
            most: self.connections_most,
            total: self.totals.connections,
            bytes_in: self.totals.bytes_in,
            bytes_out: self.totals.bytes_out,
            seconds: self.totals.connected_seconds,
        }
    }

    /// Returns the figures of the protocol.
    pub fn protocol(&self) -> monitor::ProtocolFigures {
        let totals = &self.totals;
        let counted = totals.opens
            + totals.reads
            + totals.vector_reads
            + totals.writes
            + totals.vector_writes
            + totals.syncs;
        monitor::ProtocolFigures {
            sessions: totals.connections,
            operations: monitor::OperationFigures {
                opens: totals.opens,
                reads: totals.reads,
                pre_reads: totals.pre_reads,
                vector_reads: totals.vector_reads,
                read_segments: totals.read_segments,
                vector_writes: totals.vector_writes,
                write_segments: totals.write_segments,
                writes: totals.writes,
                syncs: totals.syncs,
                others: totals.requests.saturating_sub(counted),
            },
            signatures: monitor::SignatureFigures {
                verified: totals.signed_requests,
                failed: totals.unsigned_requests,
                ignored: totals.unneeded_signatures,
            },
            transfers: totals.transfers,
            errors: totals.errors,
            redirects: totals.redirects,
            delays: totals.waits,
            logins: monitor::LoginFigures {
                logins: totals.logins,
                refused: totals.refused_logins,
                authenticated: totals.authenticated,
            },
        }
    }
}

/// Makes the text of `query stats` with the sections that letters select.
#[derive(Clone)]
pub struct StatisticsText(pub Arc<MakeStatistics>);

type MakeStatistics = dyn Fn(&FrontEndFigures, &str) -> String + Send + Sync;

impl std::fmt::Debug for StatisticsText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatisticsText")
    }
}
