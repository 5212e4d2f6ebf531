//! Pages about the state of the server: `/healthz` and `/readyz`.
//!
//! They need no login, because load balancers have none, and exist only if the configuration asks for
//! them.

use crate::config::StatusPages;
use crate::reply::{self, RequestReply};
use hyper::header::{ALLOW, CACHE_CONTROL, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

/// Returns the page of a request; `None` if its path is not one of a page.
pub(crate) fn reply(pages: &StatusPages, head: &Parts) -> Option<RequestReply> {
    let unready = match head.uri.path() {
        "/healthz" => None,
        "/readyz" => (pages.unready)(),
        _ => return None,
    };
    let replied = refuse_method(&head.method).unwrap_or_else(|| match unready {
        Some(reason) => reply::refused(StatusCode::SERVICE_UNAVAILABLE, &reason),
        None if head.uri.path() == "/healthz" => reply::text(StatusCode::OK, "ok\n".to_owned()),
        None => reply::text(StatusCode::OK, "ready\n".to_owned()),
    });
    Some(uncached(replied))
}

/// Returns the refusal of a method that does not read a page.
pub(crate) fn refuse_method(method: &Method) -> Option<RequestReply> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let mut refused = reply::refused(StatusCode::METHOD_NOT_ALLOWED, "This page can only be read.");
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
    Some(refused)
}

/// Returns a page that no cache may keep.
pub(crate) fn uncached(mut page: RequestReply) -> RequestReply {
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
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
    fn pages_are_read_only() {
        let mut pages = StatusPages { unready: Arc::new(|| None) };
        assert_eq!(status(&pages, "GET", "/healthz"), Some(StatusCode::OK));
        assert_eq!(status(&pages, "HEAD", "/readyz?x"), Some(StatusCode::OK));
        assert_eq!(status(&pages, "PUT", "/healthz"), Some(StatusCode::METHOD_NOT_ALLOWED));
        for other in ["/healthz/", "/Healthz", "/a/healthz", "/", "/metrics"] {
            assert_eq!(status(&pages, "GET", other), None, "{other}");
        }
        pages.unready = Arc::new(|| Some("draining".to_owned()));
        assert_eq!(status(&pages, "GET", "/readyz"), Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(status(&pages, "GET", "/healthz"), Some(StatusCode::OK));
    }
}
