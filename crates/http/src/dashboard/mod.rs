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
    let path = head.uri.path().strip_prefix(PATH)?;
    let part = PARTS.iter().find(|part| part.path == path);
    if part.is_none() && path != EVENTS && path != "/" {
        return None;
    }
    let replied = metrics_page::refusal(page, peer, head).unwrap_or_else(|| match part {
        Some(part) => text(part, &head.method),
        None if path == EVENTS => events(shared, page, &head.method),
        None => moved(),
    });
    Some(protected(replied))
}

fn text(part: &PagePart, method: &Method) -> RequestReply {
    let mut replied = match *method {
        Method::HEAD => reply::head(part.text.len() as u64),
        _ => reply::with_body(StatusCode::OK, ReplyBody::Whole(Bytes::from_static(part.text.as_bytes()))),
    };
    replied.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(part.kind));
    replied
}

fn events(shared: &Arc<HttpFrontEnd>, page: &MetricsPage, method: &Method) -> RequestReply {
    let mut replied = match *method {
        Method::HEAD => reply::empty(StatusCode::OK),
        _ => match shared.dashboard.watch(page, shared.ends.clone()) {
            Some(parts) => reply::with_body(StatusCode::OK, ReplyBody::Parts { parts, left: None }),
            None => return reply::later(RETRY_SECONDS),
        },
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
    let headers: [(HeaderName, HeaderValue); 3] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    replied.headers_mut().extend(headers);
    status::uncached(replied)
}
