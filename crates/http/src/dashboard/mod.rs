//! `/dashboard`: the figures of the server in a browser, live.
//!
//! The page has no parts of other sites, and its scripts run under a policy that allows no others. It gets the samples
//! of `/metrics` as server-sent events from `/dashboard/events`. One task makes them for all viewers, while
//! there are some. The page needs no login, because it shows no files and changes nothing; the configuration names
//! the hosts that may read it.

mod feed;

pub(crate) use feed::DashboardFeed;

use crate::config::MetricsPage;
use crate::door::HttpFrontEnd;
use crate::host_shares::SharedPart;
use crate::reply::{self, ReplyBody, RequestReply};
use crate::{metrics_page, status};
use bytes::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION};
use hyper::header::{HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;

/// The path of the page, with that of its parts below it.
const PATH: &str = "/dashboard";

/// The path of the events, behind that of the page.
const EVENTS: &str = "/events";

/// Headers that the library does not name.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The pause after which a viewer may try again, in seconds.
const RETRY_SECONDS: u32 = 5;

/// What the page may do: run its own script, and ask its own server.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A file of the page.
struct PagePart {
    /// The path behind that of the page.
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const PARTS: [PagePart; 4] = [
    PagePart { path: "", kind: "text/html; charset=utf-8", text: include_str!("page.html") },
    PagePart { path: "/style.css", kind: "text/css; charset=utf-8", text: include_str!("style.css") },
    PagePart {
        path: "/samples.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("samples.js"),
    },
    PagePart { path: "/view.js", kind: "text/javascript; charset=utf-8", text: include_str!("view.js") },
];

/// Returns a part of the page; `None` if the request has another path, or the page is absent.
pub(crate) fn reply(shared: &Arc<HttpFrontEnd>, peer: IpAddr, head: &Parts) -> Option<RequestReply> {
    let page = shared.config.dashboard.as_ref()?;
    let path = head.uri.path().strip_prefix(PATH).filter(|_| is_below(head.uri.path()))?;
    let part = PARTS.iter().find(|part| part.path == path);
    let refused = metrics_page::refusal(page, peer, head).or_else(|| foreign(page, head));
    let replied = refused.unwrap_or_else(|| match part {
        Some(part) => text(part, &head.method),
        None if path == EVENTS => events(shared, page, peer, &head.method),
        None => moved(),
    });
    Some(protected(replied))
}

/// Reports whether a path is one of the page.
pub(crate) fn is_below(path: &str) -> bool {
    let Some(path) = path.strip_prefix(PATH) else { return false };
    path == "/" || path == EVENTS || PARTS.iter().any(|part| part.path == path)
}

/// Refuses requests that a page of another site makes a browser send: with a name that its owner has led to this server, or
/// with a link.
fn foreign(page: &MetricsPage, head: &Parts) -> Option<RequestReply> {
    let is_own = metrics_page::names_server(page, &head.headers);
    let site = head.headers.get(SEC_FETCH_SITE).and_then(|value| value.to_str().ok());
    let is_of_other_site = site.is_some_and(|site| !["same-origin", "none"].contains(&site));
    // The page itself may be reached by a link.
    let is_page = head.uri.path() == PATH;
    if is_own && (is_page || !is_of_other_site) {
        return None;
    }
    let what = "The dashboard is served under the name of the server, its address, or localhost.";
    Some(reply::refused(StatusCode::FORBIDDEN, what))
}

fn text(part: &PagePart, method: &Method) -> RequestReply {
    let mut replied = match *method {
        Method::HEAD => reply::head(part.text.len() as u64),
        _ => reply::with_body(StatusCode::OK, ReplyBody::Whole(Bytes::from_static(part.text.as_bytes()))),
    };
    replied.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(part.kind));
    replied
}

fn events(shared: &Arc<HttpFrontEnd>, page: &MetricsPage, peer: IpAddr, method: &Method) -> RequestReply {
    let mut replied = match *method {
        Method::HEAD => reply::empty(StatusCode::OK),
        _ => {
            let Some(place) = shared.shares.take(peer, SharedPart::Viewer) else {
                return reply::later(RETRY_SECONDS);
            };
            let parts = shared.dashboard.watch(page, Some(place), shared.ends.clone());
            reply::with_body(StatusCode::OK, ReplyBody::Parts { parts, left: None })
        }
    };
    replied.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    replied
}

/// Returns the reply to the path with a slash at its end, at which links of the page would lead elsewhere.
fn moved() -> RequestReply {
    let mut replied = reply::empty(StatusCode::PERMANENT_REDIRECT);
    replied.headers_mut().insert(LOCATION, HeaderValue::from_static(PATH));
    replied
}

fn protected(mut replied: RequestReply) -> RequestReply {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    replied.headers_mut().extend(headers);
    status::uncached(replied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn is_refused(path: &str, host: Option<&str>, site: Option<&str>) -> bool {
        let mut request = Request::builder().uri(path);
        for (name, value) in [("host", host), ("sec-fetch-site", site)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let page = MetricsPage {
            is_reader: Arc::new(|_| true),
            is_own_host: Arc::new(|host| host == "server.example:1094"),
            text: Arc::new(|_| Box::pin(std::future::ready(None))),
        };
        foreign(&page, &head).is_some()
    }

    #[test]
    fn names_of_other_sites_do_not_reach_the_page() {
        for host in [
            "localhost",
            "LOCALHOST:1094",
            "127.0.0.1:1094",
            "192.0.2.7",
            "[::1]:1094",
            "[2001:db8::1]",
            "server.example:1094",
        ] {
            assert!(!is_refused("/dashboard/events", Some(host), None), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:1094",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1:x",
            "",
            "1.2.3",
        ] {
            assert!(is_refused("/dashboard/events", Some(host), None), "{host}");
        }
        assert!(is_refused("/dashboard", None, None));
    }

    #[test]
    fn other_sites_may_link_to_the_page_and_read_nothing_of_it() {
        for (site, page, parts) in [
            ("none", false, false),
            ("same-origin", false, false),
            ("same-site", false, true),
            ("cross-site", false, true),
        ] {
            let refused = |path| is_refused(path, Some("localhost"), Some(site));
            assert_eq!([refused("/dashboard"), refused("/dashboard/events")], [page, parts], "{site}");
        }
    }
}
