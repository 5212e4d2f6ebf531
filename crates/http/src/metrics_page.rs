//! `/metrics`: the figures of the server for Prometheus and other collectors.
//!
//! The page needs no login, because collectors have none. The configuration names the hosts that may read
//! it. The server makes its text elsewhere, because some figures need a disk or another thread.

use crate::config::MetricsPage;
use crate::door::HttpFrontEnd;
use crate::reply::{self, RequestReply};
use crate::status;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use monitor::MetricsFormat;
use std::net::IpAddr;

/// The path of the page.
pub(crate) const PATH: &str = "/metrics";

/// The pause after which a collector may try again, in seconds.
const RETRY_SECONDS: u32 = 1;

/// Returns the page; `None` if the request has another path, or the page is absent.
pub(crate) async fn reply(shared: &HttpFrontEnd, peer: IpAddr, head: &Parts) -> Option<RequestReply> {
    let page = shared.config.metrics.as_ref().filter(|_| head.uri.path() == PATH)?;
    let replied = match refusal(page, peer, head) {
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
    fn headers_accept_are_one_list() {
        let mut headers = HeaderMap::new();
        assert_eq!(format(&headers), MetricsFormat::Prometheus);
        for value in ["text/plain;q=0.5", "application/openmetrics-text;version=1.0.0"] {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        assert_eq!(format(&headers), MetricsFormat::OpenMetrics);
    }
}
