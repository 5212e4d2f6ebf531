//! The headers of COPY. Source: protocol/http.md, section 7.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

/// The beginning of the names of headers that are passed on.
const PASSED_PREFIX: &str = "transferheader";

/// Maximum length of the URL.
const URL_BYTES_MAX: usize = 8 * 1024;

/// The schemes of remote files that this server reads, and of those that it also writes.
const READ_SCHEMES: [&str; 4] = ["root", "roots", "xroot", "xroots"];
const WRITTEN_SCHEMES: [&str; 6] = ["http", "https", "dav", "davs", "s3", "s3s"];

/// Headers that belong to the connection or to the body, so that those of a client would make the request
/// to the remote server another one.
const OWN_HEADERS: [&str; 16] = [
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "content-range",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "range",
    "if-range",
    "proxy-connection",
    "proxy-authorization",
];

/// The side of the copy that this server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// The file is received.
    Pull,
    /// The file is sent.
    Push,
}

impl fmt::Display for CopyDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pull => "pull",
            Self::Push => "push",
        })
    }
}

/// The order in the headers of COPY.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// The side of this server.
    pub direction: CopyDirection,
    /// The URL of the remote file: printable ASCII without a user.
    pub url: String,
    /// Headers for the remote server.
    pub headers: HeaderMap,
    /// An existing file is replaced.
    pub overwrite: bool,
    /// The copy fails if the checksums of both sides cannot be compared.
    pub needs_checksum: bool,
    /// The number of connections to the source that the client wants, at least 1.
    pub streams: usize,
}

/// Reads the headers of COPY.
///
/// # Errors
/// The text for the client.
pub fn parse(headers: &HeaderMap) -> Result<CopyRequest, String> {
    let credential = single(headers, "credential")?;
    if credential.is_some_and(|value| !value.eq_ignore_ascii_case("none")) {
        return Err("COPY requested an unsupported Credential type".to_owned());
    }
    let (direction, url) = match (single(headers, "source")?, single(headers, "destination")?) {
        (Some(url), None) => (CopyDirection::Pull, url),
        (None, Some(url)) => (CopyDirection::Push, url),
        (None, None) => return Err("No Source or Destination specified".to_owned()),
        (Some(_), Some(_)) => return Err("A copy has a Source or a Destination, not both.".to_owned()),
    };
    check_url(url, direction)?;
    let overwrite = match single(headers, "overwrite")? {
        None => true,
        Some(value) if value.eq_ignore_ascii_case("T") => true,
        Some(value) if value.eq_ignore_ascii_case("F") => false,
        Some(_) => return Err("Overwrite is T or F.".to_owned()),
    };
    if single(headers, "depth")?.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("infinity"))
    {
        return Err("Depth is 0 or infinity.".to_owned());
    }
    let verification = single(headers, "requirechecksumverification")?;
    let needs_checksum = verification.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
    let streams = match single(headers, "x-number-of-streams")?.map(str::parse) {
        None => 1,
        Some(Ok(0) | Err(_)) => return Err("X-Number-Of-Streams is a number from 1 on.".to_owned()),
        Some(Ok(number)) => number,
    };
    let headers = passed(headers)?;
    if !headers.is_empty() && is_read_only(url) {
        // The order would be carried out without the credentials that the client wants to be used.
        return Err("Headers cannot be passed on to a server of the xroot protocol.".to_owned());
    }
    Ok(CopyRequest { direction, url: url.to_owned(), headers, overwrite, needs_checksum, streams })
}

/// Returns the only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map(str::trim));
    match (value, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        (Some(_), _) => Err(format!("The header {name} is malformed, or there are several.")),
    }
}

fn check_url(url: &str, direction: CopyDirection) -> Result<(), String> {
    let bad = |why: &str| Err(format!("The URL of the remote file {why}."));
    if url.len() > URL_BYTES_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return bad("is too long or has characters that must be escaped");
    }
    let Some((scheme, rest)) = url.split_once("://") else { return bad("has no scheme") };
    let is_one_of = |schemes: &[&str]| schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    let is_only_read = direction == CopyDirection::Pull && is_one_of(&READ_SCHEMES);
    if !is_only_read && !is_one_of(&WRITTEN_SCHEMES) {
        return bad("has a scheme that is not supported");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return bad("names no server");
    }
    if authority.contains('@') {
        return bad("names a user, whose password would be a secret in logs");
    }
    Ok(())
}

/// Reports whether the scheme of a URL is one of the xroot protocol.
fn is_read_only(url: &str) -> bool {
    let scheme = url.split("://").next().unwrap_or_default();
    READ_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Returns the headers that are passed on to the remote server.
fn passed(headers: &HeaderMap) -> Result<HeaderMap, String> {
    let mut passed = HeaderMap::new();
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix(PASSED_PREFIX) {
            add(&mut passed, name, value.clone())?;
        } else if name.as_str() == "copy-header" {
            let text = value.to_str().map_err(|_| "Copy-Header is malformed.".to_owned())?;
            let (name, value) = text.split_once(':').ok_or_else(|| "Copy-Header is malformed.".to_owned())?;
            let value = HeaderValue::from_str(value.trim());
            add(&mut passed, name.trim(), value.map_err(|_| "Copy-Header is malformed.".to_owned())?)?;
        }
    }
    Ok(passed)
}

fn add(passed: &mut HeaderMap, name: &str, mut value: HeaderValue) -> Result<(), String> {
    let malformed = |_| "A TransferHeader has no valid name.".to_owned();
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(malformed)?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err(format!("The header {name} cannot be passed on to the remote server."));
    }
    value.set_sensitive(true);
    passed.append(name, value);
    Ok(())
}

/// Returns a URL without its query, which may contain secrets.
pub(super) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&'static str, &str)]) -> Result<CopyRequest, String> {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        parse(&headers)
    }

    const SOURCE: (&str, &str) = ("source", "https://h/f");

    #[test]
    fn a_copy_has_one_remote_file() {
        let pull = parsed(&[SOURCE, ("credential", "None"), ("depth", "0"), ("overwrite", "f")]).unwrap();
        assert_eq!((pull.direction, pull.url.as_str()), (CopyDirection::Pull, "https://h/f"));
        assert!(!pull.overwrite && !pull.needs_checksum && pull.headers.is_empty());
        let push =
            parsed(&[("destination", "davs://h:1/f?authz=t"), ("requirechecksumverification", "true")]);
        let push = push.unwrap();
        assert!(push.direction == CopyDirection::Push && push.overwrite && push.needs_checksum);
        assert_eq!(without_query(&push.url), "davs://h:1/f");
        assert_eq!(parsed(&[]).unwrap_err(), "No Source or Destination specified");
        for pairs in [
            &[SOURCE, ("destination", "http://h/f")][..],
            &[SOURCE, SOURCE],
            &[SOURCE, ("credential", "gridsite")],
            &[SOURCE, ("overwrite", "maybe")],
            &[SOURCE, ("depth", "1")],
            &[SOURCE, ("x-number-of-streams", "0")],
            &[SOURCE, ("x-number-of-streams", "many")],
            &[SOURCE, ("source", "\u{e9}")],
        ] {
            assert!(parsed(pairs).is_err(), "{pairs:?}");
        }
    }

    #[test]
    fn urls_are_those_of_servers_without_a_user() {
        for url in
            ["http://h/f", "dav://h/f", "s3s://h/f", "root://h//f", "XROOTS://h:1094//f", "http://[::1]/f"]
        {
            assert!(parsed(&[("source", url)]).is_ok(), "{url}");
        }
        for url in
            ["", "/f", "file:///f", "ftp://h/f", "http:///f", "http://u:p@h/f", "http://h/a b", "http://?"]
        {
            assert!(parsed(&[("source", url)]).is_err(), "{url}");
        }
        assert!(parsed(&[("destination", "root://h//f")]).is_err(), "only reading is supported");
        let long = format!("http://h/{}", "a".repeat(URL_BYTES_MAX));
        assert!(parsed(&[("source", &long)]).is_err());
    }

    #[test]
    fn headers_are_passed_on_without_their_prefix() {
        let found = parsed(&[
            SOURCE,
            ("authorization", "Bearer local"),
            ("transferheaderauthorization", "Bearer remote"),
            ("copy-header", "X-Tag: a: b"),
            ("x-number-of-streams", "4"),
        ]);
        let found = found.unwrap();
        assert_eq!(found.streams, 4);
        let passed = found.headers;
        assert_eq!(passed.len(), 2);
        assert_eq!(passed.get("authorization").unwrap(), "Bearer remote");
        assert_eq!(passed.get("x-tag").unwrap(), "a: b");
        assert!(!format!("{passed:?}").contains("remote"), "a secret is shown");
        let xroot = parsed(&[("source", "Root://h//f"), ("transferheaderauthorization", "Bearer remote")]);
        assert!(xroot.is_err(), "the credentials would not be used");
        for pair in [
            ("transferheader", "x"),
            ("transferheaderhost", "evil"),
            ("transferheadercontent-length", "0"),
            ("transferheadertransfer-encoding", "chunked"),
            ("transferheaderrange", "bytes=0-1"),
            ("copy-header", "Host: evil"),
            ("copy-header", "x"),
            ("copy-header", "a b: x"),
        ] {
            assert!(parsed(&[SOURCE, pair]).is_err(), "{pair:?}");
        }
    }
}
