//! [`StatusCounters`]: requests by method and status since the start, for collectors that get them.
//!
//! They exist only if a collector gets the stream `http`, so that others pay nothing.

use hyper::{Method, StatusCode};
use monitor::HttpStatusFigures;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The methods that are counted. All others are counted as `Unknown`.
const METHODS: [&str; 12] = [
    "Unknown", "GET", "HEAD", "PUT", "OPTIONS", "PATCH", "DELETE", "PROPFIND", "MKCOL", "MOVE", "POST",
    "COPY",
];

/// The statuses that are counted. All others have one counter together.
const STATUSES: [u16; 21] =
    [100, 200, 201, 202, 206, 207, 302, 307, 400, 401, 403, 404, 405, 409, 416, 423, 500, 502, 503, 504, 507];

/// Requests of one method with one status, by their end. Each is counted once, so no number ever decreases.
#[derive(Default)]
struct StatusCounter {
    whole: AtomicU64,
    cut: AtomicU64,
    failed: AtomicU64,
    micros: AtomicU64,
}

/// How a reply has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReplyEnd {
    /// All of it was handed to the connection.
    Whole,
    /// The client has disconnected before.
    Cut,
    /// The server has refused the request, or could not read the rest of the file.
    Failed,
}

/// The counters of all methods and statuses.
#[derive(Default)]
pub struct StatusCounters([[StatusCounter; STATUSES.len() + 1]; METHODS.len()]);

impl std::fmt::Debug for StatusCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StatusCounters")
    }
}

impl StatusCounters {
    /// Counts a request. Without a status it had no reply.
    fn add(&self, method: &Method, status: Option<StatusCode>, end: ReplyEnd, time: Duration) {
        let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or_default();
        let place = status.and_then(|status| STATUSES.iter().position(|known| *known == status.as_u16()));
        let place = place.unwrap_or(STATUSES.len());
        let Some(counter) = self.0.get(method).and_then(|counters| counters.get(place)) else { return };
        let is_error = status.is_some_and(|status| status.is_client_error() || status.is_server_error());
        let ended = match end {
            _ if is_error => &counter.failed,
            ReplyEnd::Whole => &counter.whole,
            ReplyEnd::Cut => &counter.cut,
            ReplyEnd::Failed => &counter.failed,
        };
        ended.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counter.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the figures of all methods and statuses that there were.
    #[must_use]
    pub fn figures(&self) -> Vec<HttpStatusFigures> {
        let of_method = |(method, counters): (&&'static str, &[StatusCounter; STATUSES.len() + 1])| {
            let method = *method;
            let statuses = STATUSES.iter().copied().map(Some).chain([None]);
            let figures = statuses.zip(counters).map(move |(status, counter)| {
                let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                HttpStatusFigures {
                    method,
                    status,
                    whole: get(&counter.whole),
                    cut: get(&counter.cut),
                    failed: get(&counter.failed),
                    time: Duration::from_micros(get(&counter.micros)),
                }
            });
            figures.filter(|figures| figures.requests() > 0).collect::<Vec<_>>()
        };
        METHODS.iter().zip(&self.0).flat_map(of_method).collect()
    }
}

/// A request that is counted when it is dropped: with its reply, or before there is one.
pub(crate) struct CountedReply {
    counters: Arc<StatusCounters>,
    method: Method,
    status: Option<StatusCode>,
    begun: Instant,
    end: ReplyEnd,
}

impl CountedReply {
    pub(crate) fn new(counters: Arc<StatusCounters>, method: Method) -> Self {
        Self { counters, method, status: None, begun: Instant::now(), end: ReplyEnd::Cut }
    }

    /// Takes the status of the reply. `is_empty` reports whether it has no body.
    pub(crate) fn reply(&mut self, status: StatusCode, is_empty: bool) {
        self.status = Some(status);
        // A reply to HEAD has no body on the network.
        if is_empty || self.method == Method::HEAD {
            self.end = ReplyEnd::Whole;
        }
    }

    /// The last part of the body was handed to the connection.
    pub(crate) fn whole(&mut self) {
        if self.end == ReplyEnd::Cut {
            self.end = ReplyEnd::Whole;
        }
    }

    /// The server cannot end the reply.
    pub(crate) fn fail(&mut self) {
        self.end = ReplyEnd::Failed;
    }
}

impl Drop for CountedReply {
    fn drop(&mut self) {
        self.counters.add(&self.method, self.status, self.end, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns method, status, and the numbers of whole, cut and failed replies.
    fn found(counters: &StatusCounters) -> Vec<(&'static str, Option<u16>, u64, u64, u64)> {
        let row = |one: &HttpStatusFigures| (one.method, one.status, one.whole, one.cut, one.failed);
        counters.figures().iter().map(row).collect()
    }

    #[test]
    fn requests_are_counted_by_method_and_status() {
        let counters = StatusCounters::default();
        assert!(counters.figures().is_empty());
        let time = Duration::from_millis(2);
        for status in [StatusCode::OK, StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::IM_A_TEAPOT] {
            counters.add(&Method::GET, Some(status), ReplyEnd::Whole, time);
        }
        counters.add(
            &Method::from_bytes(b"BREW").unwrap(),
            Some(StatusCode::NOT_IMPLEMENTED),
            ReplyEnd::Whole,
            time,
        );
        counters.add(&Method::GET, Some(StatusCode::OK), ReplyEnd::Cut, time);
        // An error is one of the server, also if the client does not wait for its text.
        counters.add(&Method::GET, Some(StatusCode::NOT_FOUND), ReplyEnd::Cut, time);
        assert_eq!(
            found(&counters),
            [
                ("Unknown", None, 0, 0, 1),
                ("GET", Some(200), 2, 1, 0),
                ("GET", Some(404), 0, 0, 2),
                ("GET", None, 0, 0, 1),
            ]
        );
        assert_eq!(counters.figures()[1].time, 3 * time);
    }

    #[test]
    fn a_request_is_counted_once_at_its_end() {
        let counters = Arc::<StatusCounters>::default();
        let new = |method: Method| CountedReply::new(counters.clone(), method);
        // The client leaves before there is a reply.
        drop(new(Method::GET));
        assert_eq!(found(&counters), [("GET", None, 0, 1, 0)]);
        let mut reply = new(Method::PUT);
        reply.reply(StatusCode::OK, false);
        assert_eq!(found(&counters).len(), 1, "it is in progress");
        drop(reply);
        assert_eq!(found(&counters)[1..], [("PUT", Some(200), 0, 1, 0)]);
        let mut reply = new(Method::PUT);
        reply.reply(StatusCode::OK, false);
        reply.whole();
        drop(reply);
        assert_eq!(found(&counters)[1..], [("PUT", Some(200), 1, 1, 0)]);
        let mut reply = new(Method::PUT);
        reply.reply(StatusCode::OK, false);
        reply.fail();
        reply.whole();
        drop(reply);
        assert_eq!(found(&counters)[1..], [("PUT", Some(200), 1, 1, 1)]);
        for (method, is_empty) in [(Method::HEAD, false), (Method::DELETE, true)] {
            new(method).reply(StatusCode::OK, is_empty);
        }
        assert_eq!(found(&counters)[1], ("HEAD", Some(200), 1, 0, 0));
        assert_eq!(found(&counters)[3], ("DELETE", Some(200), 1, 0, 0));
    }
}
