//! [`HttpCounters`]: the counters of the front end since the start.

use base::{Latencies, LatencyCounters};
use hyper::{Method, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The methods that are counted, each with its name. All others are counted as the last one.
pub const COUNTED_METHODS: [&str; 9] =
    ["GET", "HEAD", "PUT", "DELETE", "MKCOL", "MOVE", "PROPFIND", "OPTIONS", "other"];

/// The classes of statuses that are counted: the first digit of the status.
pub const COUNTED_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Kinds of requests whose times are measured.
pub const TIMED_KINDS: [&str; 7] = ["read", "stat", "write", "dirlist", "change", "copy", "other"];

/// Returns the place of a method among [`TIMED_KINDS`].
fn kind_of(method: &Method) -> usize {
    match method.as_str() {
        "GET" => 0,
        "HEAD" => 1,
        "PUT" => 2,
        "PROPFIND" => 3,
        "DELETE" | "MKCOL" | "MOVE" => 4,
        "COPY" => 5,
        _ => 6,
    }
}

/// Numbers of histograms of each kind. Threads add to different ones, because they would contend for one.
const SHARDS: usize = 8;

thread_local! {
    /// The number of this thread.
    static SHARD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

/// Numbers of requests, by method and class of the status.
pub type HttpRequestCounts = [[u64; COUNTED_CLASSES.len()]; COUNTED_METHODS.len()];

/// Counters of the front end since the start.
#[derive(Default, Debug)]
pub struct HttpCounters {
    requests: [[AtomicU64; COUNTED_CLASSES.len()]; COUNTED_METHODS.len()],
    latencies: [[LatencyCounters; TIMED_KINDS.len()]; SHARDS],
    malformed: AtomicU64,
    refused: AtomicU64,
    arrived: AtomicU64,
    now: AtomicU64,
    idle: AtomicU64,
    most: AtomicU64,
    connected_micros: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    lent_bytes: AtomicU64,
}

/// Figures of the front end at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HttpFigures {
    /// Requests that have a reply, by method and class of the status.
    pub requests: HttpRequestCounts,
    /// Times from the heads of requests to those of their replies, by [`TIMED_KINDS`].
    pub latencies: [Latencies; TIMED_KINDS.len()],
    /// Connections that ended because their bytes were not a request.
    pub malformed: u64,
    /// Connections and handshakes that were refused.
    pub refused: u64,
    /// Connections.
    pub arrived: u64,
    /// Connections now, with requests whose connections have ended before them.
    pub connections: u64,
    /// Those among them that are idle.
    pub idle: u64,
    /// Maximum number of connections at one time.
    pub connections_most: u64,
    /// Time for which the connections that have ended were open.
    pub connected: Duration,
    /// Bytes received, as they were on the network.
    pub bytes_in: u64,
    /// Bytes sent, as they were on the network.
    pub bytes_out: u64,
    /// Those among them that were sent without a copy.
    pub lent_bytes: u64,
}

impl HttpCounters {
    /// Returns the figures at this moment.
    pub fn figures(&self) -> HttpFigures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut latencies = [Latencies::default(); TIMED_KINDS.len()];
        for shard in &self.latencies {
            shard.iter().zip(&mut latencies).for_each(|(counters, sum)| counters.add_to(sum));
        }
        HttpFigures {
            requests: self.requests.each_ref().map(|classes| classes.each_ref().map(get)),
            latencies,
            malformed: get(&self.malformed),
            refused: get(&self.refused),
            arrived: get(&self.arrived),
            connections: get(&self.now),
            idle: get(&self.idle),
            connections_most: get(&self.most),
            connected: Duration::from_micros(get(&self.connected_micros)),
            bytes_in: get(&self.bytes_in),
            bytes_out: get(&self.bytes_out),
            lent_bytes: get(&self.lent_bytes),
        }
    }

    /// Counts a request that has a reply after this time.
    pub(crate) fn reply(&self, method: &Method, status: StatusCode, time: Duration) {
        let shard = self.latencies.get(SHARD.with(|shard| *shard));
        if let Some(counters) = shard.and_then(|shard| shard.get(kind_of(method))) {
            counters.add(time);
        }
        let method = COUNTED_METHODS.iter().position(|name| *name == method.as_str());
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        let of_method = self.requests.get(method.unwrap_or(COUNTED_METHODS.len() - 1));
        if let Some(counter) = of_method.and_then(|classes| classes.get(class)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn arrived(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    /// Counts a connection that has become idle, or is no longer.
    pub(crate) fn idle(&self, is_idle: bool) {
        match is_idle {
            true => self.idle.fetch_add(1, Ordering::Relaxed),
            false => self.idle.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(crate) fn left(&self, connected: Duration) {
        self.now.fetch_sub(1, Ordering::Relaxed);
        let micros = u64::try_from(connected.as_micros()).unwrap_or(u64::MAX);
        self.connected_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Bytes of a connection that are not in the counters yet. Connections share the counters, so they add
/// to them at the end of a reply, and during a long one at intervals.
pub(crate) struct ConnectionBytes {
    counters: Arc<HttpCounters>,
    received: u64,
    sent: u64,
}

/// Number of bytes after which a connection adds to the counters.
const ADDED_AT_ONCE: u64 = 1 << 20;

impl ConnectionBytes {
    pub(crate) fn new(counters: Arc<HttpCounters>) -> Self {
        Self { counters, received: 0, sent: 0 }
    }

    pub(crate) fn receive(&mut self, bytes: usize) {
        self.received += u64::try_from(bytes).unwrap_or_default();
        if self.received >= ADDED_AT_ONCE {
            self.add();
        }
    }

    pub(crate) fn send(&mut self, bytes: usize) {
        self.sent += u64::try_from(bytes).unwrap_or_default();
        if self.sent >= ADDED_AT_ONCE {
            self.add();
        }
    }

    /// Counts bytes that were sent without a copy.
    pub(crate) fn send_file(&mut self, bytes: usize) {
        self.counters.lent_bytes.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
        self.send(bytes);
    }

    /// Adds to the counters.
    pub(crate) fn add(&mut self) {
        for (counter, bytes) in
            [(&self.counters.bytes_in, &mut self.received), (&self.counters.bytes_out, &mut self.sent)]
        {
            if *bytes > 0 {
                counter.fetch_add(std::mem::take(bytes), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        self.add();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_class() {
        let counters = HttpCounters::default();
        let time = Duration::from_millis(3);
        counters.reply(&Method::GET, StatusCode::OK, time);
        counters.reply(&Method::GET, StatusCode::PARTIAL_CONTENT, time);
        counters.reply(&Method::GET, StatusCode::NOT_FOUND, time);
        for name in ["BREW", "get", "COPY"] {
            counters.reply(&Method::from_bytes(name.as_bytes()).unwrap(), StatusCode::NOT_IMPLEMENTED, time);
        }
        // A status of no class is not counted.
        counters.reply(&Method::GET, StatusCode::from_u16(999).unwrap(), time);
        let requests = counters.figures().requests;
        assert_eq!(requests[0], [0, 2, 0, 1, 0]);
        assert_eq!(requests[COUNTED_METHODS.len() - 1], [0, 0, 0, 0, 3]);
        assert_eq!(requests.iter().flatten().sum::<u64>(), 6);
        let latencies = counters.figures().latencies;
        assert_eq!(latencies.map(|times| times.count()), [4, 0, 0, 0, 0, 1, 2]);
        assert_eq!((latencies[0].buckets[8], latencies[0].nanos), (4, 12_000_000));
    }

    #[test]
    fn bytes_are_added_at_the_end_and_before_it() {
        let counters = Arc::<HttpCounters>::default();
        let mut bytes = ConnectionBytes::new(counters.clone());
        bytes.receive(10);
        bytes.send(20);
        assert_eq!(counters.figures().bytes_in, 0);
        bytes.send(usize::try_from(ADDED_AT_ONCE).unwrap());
        assert_eq!((counters.figures().bytes_in, counters.figures().bytes_out), (10, ADDED_AT_ONCE + 20));
        bytes.receive(5);
        drop(bytes);
        assert_eq!(counters.figures().bytes_in, 15);
    }

    #[test]
    fn connections_have_a_number_a_maximum_and_a_time() {
        let counters = HttpCounters::default();
        counters.arrived();
        counters.arrived();
        counters.left(Duration::from_millis(1500));
        counters.arrived();
        let found = counters.figures();
        assert_eq!((found.arrived, found.connections, found.connections_most), (3, 2, 2));
        assert_eq!(found.connected, Duration::from_millis(1500));
    }
}
