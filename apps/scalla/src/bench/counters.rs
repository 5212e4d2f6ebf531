//! Counters of a running load.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest recorded latency: ten minutes. Latencies have three significant digits.
const LATENCY_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// The counters and latencies of a load.
#[derive(Debug)]
pub(super) struct LoadCounters {
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Number of wait and redirect replies.
    pub(super) waits: u64,
    pub(super) redirects: u64,
    /// Nanoseconds from the request to the last byte of its reply.
    pub(super) latency: Histogram<u64>,
}

impl LoadCounters {
    pub(super) fn new() -> anyhow::Result<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, DIGITS)?;
        Ok(Self { operations: 0, bytes: 0, errors: 0, first_error: None, waits: 0, redirects: 0, latency })
    }

    /// Records a completed operation.
    pub(super) fn done(&mut self, bytes: u64, latency: Duration) {
        self.operations += 1;
        self.bytes += bytes;
        self.latency.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts an error and keeps the text of the first one.
    pub(super) fn error(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(text());
        }
    }
}
