//! [`StatusCounters`]: requests by method and status since the start, for collectors that get them.
//!
//! They exist only if a collector gets the stream `http`, so that others pay nothing.

use hyper::{Method, StatusCode};
use monitor::HttpStatusFigures;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The methods that are counted. All others are counted as `Unknown`.
const METHODS: [&str; 12] = [
    "Unknown", "GET", "HEAD", "PUT", "OPTIONS", "PATCH", "DELETE", "PROPFIND", "MKCOL", "MOVE", "POST",
    "COPY",
];

/// The statuses that are counted. All others have one counter together.
const STATUSES: [u16; 21] =
    [100, 200, 201, 202, 206, 207, 302, 307, 400, 401, 403, 404, 405, 409, 416, 423, 500, 502, 503, 504, 507];

/// Requests of one method with one status.
#[derive(Default)]
struct StatusCounter {
    requests: AtomicU64,
    /// Those whose reply the client did not get whole.
    cut: AtomicU64,
    /// Those whose status is an error.
    refused: AtomicU64,
    micros: AtomicU64,
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
    fn counter(&self, method: &Method, status: StatusCode) -> Option<&StatusCounter> {
        let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or_default();
        let status = STATUSES.iter().position(|known| *known == status.as_u16());
        self.0.get(method)?.get(status.unwrap_or(STATUSES.len()))
    }

    /// Counts a request that has a reply after this time.
    pub(crate) fn add(&self, method: &Method, status: StatusCode, time: Duration) {
        let Some(counter) = self.counter(method, status) else { return };
        counter.requests.fetch_add(1, Ordering::Relaxed);
        let is_error = status.is_client_error() || status.is_server_error();
        counter.refused.fetch_add(u64::from(is_error), Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counter.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a reply that the client did not get whole. Errors are counted as such already.
    pub(crate) fn cut(&self, method: &Method, status: StatusCode) {
        let is_good = !status.is_client_error() && !status.is_server_error();
        if let Some(counter) = self.counter(method, status).filter(|_| is_good) {
            counter.cut.fetch_add(1, Ordering::Relaxed);
        }
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
                    requests: get(&counter.requests),
                    cut: get(&counter.cut),
                    refused: get(&counter.refused),
                    time: Duration::from_micros(get(&counter.micros)),
                }
            });
            figures.filter(|figures| figures.requests > 0).collect::<Vec<_>>()
        };
        METHODS.iter().zip(&self.0).flat_map(of_method).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_status() {
        let counters = StatusCounters::default();
        assert!(counters.figures().is_empty());
        let time = Duration::from_millis(2);
        for status in [StatusCode::OK, StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::IM_A_TEAPOT] {
            counters.add(&Method::GET, status, time);
        }
        counters.add(&Method::from_bytes(b"BREW").unwrap(), StatusCode::NOT_IMPLEMENTED, time);
        counters.cut(&Method::GET, StatusCode::OK);
        counters.cut(&Method::GET, StatusCode::NOT_FOUND);
        let found: Vec<_> = counters
            .figures()
            .iter()
            .map(|one| (one.method, one.status, one.requests, one.cut, one.refused, one.time.as_millis()))
            .collect();
        assert_eq!(
            found,
            [
                ("Unknown", None, 1, 0, 1, 2),
                ("GET", Some(200), 2, 1, 0, 4),
                ("GET", Some(404), 1, 0, 1, 2),
                ("GET", None, 1, 0, 1, 2),
            ]
        );
    }
}
