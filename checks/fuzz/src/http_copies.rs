//! Fuzz target for the headers of COPY.
//!
//! They choose the server to which this one connects, and headers of the request there.

use http::parsers::parse_copy;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Checks `data` as lines with headers, as a server gets them.
pub fn target(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(100) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let Ok(copy) = parse_copy(&headers) else { return };
    assert!(copy.url.bytes().all(|byte| byte.is_ascii_graphic()));
    let authority = copy.url.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    assert!(authority.is_some_and(|host| !host.is_empty() && !host.contains('@')));
    for name in ["host", "content-length", "transfer-encoding", "connection", "expect", "range"] {
        assert!(!copy.headers.contains_key(name), "{name}");
    }
    assert!(copy.headers.values().all(HeaderValue::is_sensitive));
    // The credentials of the order are those for this server.
    let passes_authorization =
        headers.contains_key("transferheaderauthorization") || headers.contains_key("copy-header");
    assert!(passes_authorization || !copy.headers.contains_key("authorization"));
}
