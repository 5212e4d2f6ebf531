//! Families about connections, requests, replies and logins.

use super::ServerMetrics;
use http::{COUNTED_CLASSES, COUNTED_METHODS, TIMED_KINDS};
use monitor::{MetricKind, MetricsText};
use session::TIMED_OPERATIONS;
use std::sync::atomic::{AtomicU64, Ordering};
use xroot::FrontEndFigures;

pub(super) fn connections(metrics: &ServerMetrics, text: &mut MetricsText, front: &FrontEndFigures) {
    let links = metrics.summary.links(front);
    let http = metrics.summary.http_figures().unwrap_or_default();
    text.counter("xrootd_server_connections", "Connections of all protocols.", links.total);
    text.family(
        MetricKind::Counter,
        "xrootd_server_bytes",
        "Bytes received (rx) and sent (tx) by all protocols.",
    )
    .each("direction", [("rx", links.bytes_in), ("tx", links.bytes_out)]);
    text.family(MetricKind::Gauge, "scalla_connections", "Connections now.")
        .each("protocol", [("xroot", front.connections), ("http", http.connections)]);
    text.gauge("scalla_connections_max", "Maximum number of connections at one time.", links.most);
    text.counter(
        "scalla_connected_seconds",
        "Time for which the connections that have ended were open.",
        links.seconds,
    );
    let refused = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    text.family(
        MetricKind::Counter,
        "scalla_refused_connections",
        "Connections that were closed without service.",
    )
    .each(
        "reason",
        [
            ("limit", refused(&metrics.refusals.full)),
            ("host", refused(&metrics.refusals.denied)),
            ("protocol", refused(&metrics.refusals.unknown)),
            ("http_limit", http.refused),
            ("descriptors", front.totals.exhausted),
        ],
    );
    let (used, limit) = front.descriptors;
    text.family(
        MetricKind::Gauge,
        "scalla_descriptors",
        "Descriptors that connections and open files use, and the number above which connections are closed.",
    )
    .each("type", [("used", used as u64), ("limit", limit as u64)]);
    text.gauge("scalla_sessions", "Sessions of the xroot protocol.", front.sessions as u64);
    text.gauge(
        "scalla_request_memory_bytes",
        "Memory that requests in flight hold.",
        front.memory_claimed as u64,
    );
    text.counter("scalla_connection_polls", "Times a connection was resumed.", front.totals.turns);
    text.counter(
        "scalla_tls_failures",
        "TLS handshakes of the xroot protocol that failed.",
        front.totals.failed_handshakes,
    );
    text.counter("scalla_panics", "Panics that ended a connection.", front.totals.panics);
}

pub(super) fn requests(metrics: &ServerMetrics, text: &mut MetricsText, front: &FrontEndFigures) {
    let operations = front.protocol().operations;
    text.family(MetricKind::Counter, "scalla_requests", "Requests of the xroot protocol.").each(
        "operation",
        [
            ("open", operations.opens),
            ("read", operations.reads),
            ("readv", operations.vector_reads),
            ("write", operations.writes),
            ("writev", operations.vector_writes),
            ("sync", operations.syncs),
            ("other", metrics.other_requests.at_least(operations.others)),
        ],
    );
    text.family(MetricKind::Counter, "scalla_request_segments", "Elements of vector reads and writes.")
        .each("operation", [("readv", operations.read_segments), ("writev", operations.write_segments)]);
    text.counter(
        "scalla_announced_ranges",
        "Ranges that clients have announced for later reads.",
        operations.pre_reads,
    );
    text.counter(
        "scalla_deferred_reads",
        "Large and cold reads, which are not answered in place.",
        front.totals.transfers,
    );
}

/// Writes the times of requests of both protocols.
pub(super) fn latencies(metrics: &ServerMetrics, text: &mut MetricsText, front: &FrontEndFigures) {
    let help = "Time from the arrival of a request to its reply.";
    let mut family = text.family(MetricKind::Histogram, "scalla_request_seconds", help);
    for (operation, times) in TIMED_OPERATIONS.iter().zip(&front.totals.latencies) {
        family.histogram([("operation", operation), ("protocol", "xroot")], times);
    }
    let Some(http) = metrics.summary.http_figures() else { return };
    for (operation, times) in TIMED_KINDS.iter().zip(&http.latencies) {
        family.histogram([("operation", operation), ("protocol", "http")], times);
    }
}

pub(super) fn replies(metrics: &ServerMetrics, text: &mut MetricsText, front: &FrontEndFigures) {
    let totals = &front.totals;
    let help = "Replies of the xroot protocol with an error, by its code.";
    let mut errors = text.family(MetricKind::Counter, "scalla_errors", help);
    for (code, number) in totals.error_codes.by_name() {
        errors.sample(&[("code", code)], number);
    }
    text.counter("scalla_redirects", "Replies of the xroot protocol with a redirect.", totals.redirects);
    text.counter("scalla_waits", "Replies of the xroot protocol that ask to wait.", totals.waits);
    text.counter("scalla_late_answers", "Notices that an answer comes late.", totals.announced_answers);
    text.family(MetricKind::Counter, "scalla_late_results", "Late answers that were sent.")
        .each("result", [("success", totals.late_successes), ("error", totals.late_errors)]);
    let logins = front.protocol().logins;
    let unauthenticated = logins.logins.saturating_sub(logins.authenticated);
    text.family(MetricKind::Counter, "scalla_logins", "Logins of the xroot protocol.").each(
        "result",
        [
            ("authenticated", logins.authenticated),
            ("unauthenticated", metrics.unauthenticated.at_least(unauthenticated)),
            ("refused", logins.refused),
        ],
    );
    text.family(MetricKind::Counter, "scalla_signatures", "Signatures of requests.").each(
        "result",
        [
            ("verified", totals.signed_requests),
            ("failed", totals.unsigned_requests),
            ("unneeded", totals.unneeded_signatures),
        ],
    );
}

pub(super) fn http(metrics: &ServerMetrics, text: &mut MetricsText) {
    let Some(http) = metrics.summary.http_figures() else { return };
    let help = "Requests over HTTP that have a reply, by method and class of the status.";
    let mut family = text.family(MetricKind::Counter, "scalla_http_requests", help);
    for (method, classes) in COUNTED_METHODS.iter().zip(&http.requests) {
        for (class, number) in COUNTED_CLASSES.iter().zip(classes) {
            family.sample(&[("method", method), ("status", class)], *number);
        }
    }
    text.gauge(
        "scalla_http_idle_connections",
        "HTTP connections without a request, and without buffers.",
        http.idle,
    );
    let help = "Bytes of files that were sent over HTTP without a copy, by sendfile.";
    text.counter("scalla_http_sendfile_bytes", help, http.lent_bytes);
    let help = "HTTP connections that ended because what the client sent is no request.";
    text.counter("scalla_http_malformed_requests", help, http.malformed);
}
