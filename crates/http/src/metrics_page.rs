//! `/metrics`: the figures of the server for Prometheus and other collectors.
//!
//! The page needs no login, because collectors have none. The configuration names the hosts that may read
//! it. The server makes its text elsewhere, because some figures need a disk or another thread.

use crate::config::MetricsPage;
use crate::door::HttpFrontEnd;
use crate::reply::{self, RequestReply};
use crate::status;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use monitor::MetricsFormat;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The path of the page.
pub(crate) const PATH: &str = "/metrics";

/// The pause after which a collector may try again, in seconds.
const RETRY_SECONDS: u32 = 1;

/// Returns the page; `None` if the request has another path, or the page is absent.
pub(crate) async fn reply(shared: &HttpFrontEnd, peer: IpAddr, head: &Parts) -> Option<RequestReply> {
    let page = shared.config.metrics.as_ref().filter(|_| head.uri.path() == PATH)?;
    let replied = match refusal(page, peer, head).or_else(|| rebound(page, peer, &head.headers)) {
        Some(refused) => refused,
        None => text(shared, page, &head.headers).await,
    };
    Some(status::uncached(replied))
}

/// Returns the refusal of a request that may not read the page.
pub(crate) fn refusal(page: &MetricsPage, peer: IpAddr, head: &Parts) -> Option<RequestReply> {
    if !(page.is_reader)(peer.to_canonical()) {
        let what = "This page is not served to this host; see scalla.http in the configuration.";
        return Some(reply::refused(StatusCode::FORBIDDEN, what));
    }
    status::refuse_method(&head.method)
}

/// Refuses requests of this host to the name of another site. Its owner may have led the name here, to let a page in a
/// browser read the figures. Collectors elsewhere use names of their own.
fn rebound(page: &MetricsPage, peer: IpAddr, headers: &HeaderMap) -> Option<RequestReply> {
    if !peer.to_canonical().is_loopback() || names_server(page, headers) {
        return None;
    }
    let what = "To this host, the page is served under localhost, the address or the name of the server.";
    Some(reply::refused(StatusCode::FORBIDDEN, what))
}

/// Reports whether the header `Host` names this server.
pub(crate) fn names_server(page: &MetricsPage, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    host.is_some_and(|host| is_literal(host) || (page.is_own_host)(host))
}

/// Reports whether a header `Host` is an address or `localhost`, which no other site can have as its name.
fn is_literal(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok()
        || v6.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

async fn text(shared: &HttpFrontEnd, page: &MetricsPage, headers: &HeaderMap) -> RequestReply {
    let Ok(_permit) = shared.metrics.try_acquire() else { return reply::later(RETRY_SECONDS) };
    let format = format(headers);
    let Some(text) = (page.text)(format).await else { return reply::later(RETRY_SECONDS) };
    let mut page = reply::text(StatusCode::OK, text);
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    page
}

/// Returns the format for the headers `Accept`. Several are one list.
fn format(headers: &HeaderMap) -> MetricsFormat {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    MetricsFormat::accepted(&values.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use std::sync::Arc;

    fn status(method: &str, peer: &str) -> Option<StatusCode> {
        let page = MetricsPage {
            is_reader: Arc::new(|peer| peer == IpAddr::from([192, 0, 2, 1])),
            is_own_host: Arc::new(|_| false),
            text: Arc::new(|_| Box::pin(std::future::ready(None))),
        };
        let request = Request::builder().method(method).uri(PATH).body(()).unwrap();
        let (head, ()) = request.into_parts();
        refusal(&page, peer.parse().unwrap(), &head).map(|reply| reply.status())
    }

    #[test]
    fn only_readers_get_metrics_and_only_read_them() {
        assert_eq!([status("GET", "192.0.2.1"), status("HEAD", "::ffff:192.0.2.1")], [None; 2]);
        assert_eq!(status("GET", "192.0.2.2"), Some(StatusCode::FORBIDDEN));
        assert_eq!(status("PUT", "192.0.2.2"), Some(StatusCode::FORBIDDEN));
        assert_eq!(status("PUT", "192.0.2.1"), Some(StatusCode::METHOD_NOT_ALLOWED));
    }

    #[test]
    fn names_of_other_sites_do_not_lead_to_the_figures_of_this_host() {
        let page = MetricsPage {
            is_reader: Arc::new(|_| true),
            is_own_host: Arc::new(|host| host == "own.example.org:1094"),
            text: Arc::new(|_| Box::pin(std::future::ready(None))),
        };
        let is_served = |peer: &str, host: &'static str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            rebound(&page, peer.parse().unwrap(), &headers).is_none()
        };
        for own in ["localhost", "LOCALHOST:1094", "127.0.0.1:1094", "[::1]:1094", "own.example.org:1094"] {
            assert!(is_served("127.0.0.1", own) && is_served("::1", own), "{own}");
        }
        for other in ["evil.example.com:1094", "localhost.example.com", "", "127.0.0.1.example.com:1094"] {
            assert!(!is_served("127.0.0.1", other) && !is_served("::ffff:127.0.0.1", other), "{other}");
            assert!(is_served("192.0.2.1", other), "{other}");
        }
        assert!(rebound(&page, [127, 0, 0, 1].into(), &HeaderMap::new()).is_some());
    }

    #[test]
    fn headers_accept_are_one_list() {
        let mut headers = HeaderMap::new();
        assert_eq!(format(&headers), MetricsFormat::Prometheus);
        for value in ["text/plain;q=0.5", "application/openmetrics-text;version=1.0.0"] {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        assert_eq!(format(&headers), MetricsFormat::OpenMetrics);
    }
}
