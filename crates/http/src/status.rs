//! Pages about the server itself: `/healthz`, `/readyz`, `/metrics`.
//!
//! They need no login, because load balancers and collectors have none, and exist only if the
//! configuration asks for them.

use crate::config::StatusPages;
use crate::reply::{self, RequestReply};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

/// The type of metrics: the text format of Prometheus.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Returns the page of a request; `None` if its path is not one of a page.
pub(crate) fn reply(pages: &StatusPages, head: &Parts) -> Option<RequestReply> {
    let path = head.uri.path();
    if !["/healthz", "/readyz", "/metrics"].contains(&path) {
        return None;
    }
    let mut replied = if head.method != Method::GET && head.method != Method::HEAD {
        let mut refused = reply::refused(StatusCode::METHOD_NOT_ALLOWED, "This page can only be read.");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
        refused
    } else {
        match path {
            "/healthz" => reply::text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match (pages.unready)() {
                None => reply::text(StatusCode::OK, "ready\n".to_owned()),
                Some(reason) => reply::refused(StatusCode::SERVICE_UNAVAILABLE, &reason),
            },
            _ => {
                let metrics = pages.metrics.as_ref()?;
                let mut page = reply::text(StatusCode::OK, metrics());
                page.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
                page
            }
        }
    };
    replied.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(replied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use std::sync::Arc;

    fn status(pages: &StatusPages, method: &str, path: &str) -> Option<StatusCode> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        reply(pages, &request.into_parts().0).map(|reply| reply.status())
    }

    #[test]
    fn pages_are_read_only_and_metrics_need_a_source() {
        let mut pages = StatusPages { unready: Arc::new(|| None), metrics: None };
        assert_eq!(status(&pages, "GET", "/healthz"), Some(StatusCode::OK));
        assert_eq!(status(&pages, "HEAD", "/readyz?x"), Some(StatusCode::OK));
        assert_eq!(status(&pages, "GET", "/metrics"), None, "an ordinary path");
        assert_eq!(status(&pages, "PUT", "/healthz"), Some(StatusCode::METHOD_NOT_ALLOWED));
        for other in ["/healthz/", "/Healthz", "/a/healthz", "/"] {
            assert_eq!(status(&pages, "GET", other), None, "{other}");
        }
        pages.metrics = Some(Arc::new(|| "up 1\n".to_owned()));
        pages.unready = Arc::new(|| Some("draining".to_owned()));
        assert_eq!(status(&pages, "GET", "/metrics"), Some(StatusCode::OK));
        assert_eq!(status(&pages, "GET", "/readyz"), Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(status(&pages, "GET", "/healthz"), Some(StatusCode::OK));
    }
}
