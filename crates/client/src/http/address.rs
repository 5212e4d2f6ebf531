//! [`HttpAddress`]: a server with the target of a request, and where redirects lead.

use std::fmt;

use base::{bytes_of, percent_encode};

use super::multistatus::segments;
use crate::failure::Cause;
use crate::url::{Scheme, Url};

/// Maximum size of the target of a request.
pub(super) const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Elements of the opaque text that are for servers of the xroot protocol, or for clients only.
const REMOVED_PREFIXES: [&str; 10] =
    ["xrd.", "xrdcl.", "tpc.", "oss.", "ofs.", "pss.", "pfc.", "cks.", "cms.", "scitag."];
/// Further such elements. The token is sent in a header.
const REMOVED: [&str; 3] = [auth::tokens::TOKEN_KEY, "tried", "triedrc"];
/// A server that speaks HTTP.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HttpServer {
    pub(super) tls: bool,
    /// Name or address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl HttpServer {
    pub(super) fn of(url: &Url) -> Self {
        Self { tls: url.scheme == Scheme::Https, host: url.host.to_ascii_lowercase(), port: url.port }
    }

    const fn scheme(&self) -> Scheme {
        if self.tls { Scheme::Https } else { Scheme::Http }
    }

    /// Returns `host:port`, with an IPv6 address in brackets.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns the value of the `Host` header, which has no default port.
    pub(super) fn host_header(&self) -> String {
        let authority = self.authority();
        let default = format!(":{}", self.scheme().default_port());
        authority.strip_suffix(&default).unwrap_or(&authority).to_owned()
    }
}

/// A server and the target of a request there. `Display` omits the query, which may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpAddress {
    pub(super) server: HttpServer,
    /// Path and query, percent-encoded.
    target: String,
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpServer { tls, .. } = self.server;
        let scheme = if tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.server.authority(), self.path())
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HttpAddress {
    /// Returns the address of a URL: its path and the elements of the opaque text that are for the server.
    pub(super) fn of(url: &Url) -> Result<Self, Cause> {
        if !matches!(url.scheme, Scheme::Http | Scheme::Https) {
            return Err(Cause::Unsupported(format!("{}:// is not HTTP", url.scheme.name())));
        }
        let path = bytes_of(url.path.as_str());
        let mut target = String::with_capacity(path.len() + 1);
        if !path.starts_with(b"/") {
            target.push('/');
        }
        percent_encode(&mut target, &path, b"/");
        for (index, (key, value)) in query_of(url).enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            // What the client has encoded stays as it is.
            percent_encode(&mut target, &bytes_of(key), b"%/");
            if !value.is_empty() {
                target.push('=');
                percent_encode(&mut target, &bytes_of(value), b"%/:=");
            }
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Cause::BadArgument(format!("the path has more than {TARGET_BYTES_MAX} bytes")));
        }
        Ok(Self { server: HttpServer::of(url), target })
    }

    /// Parses the URL of a file as another server or its client writes it: the path and the query are
    /// percent-encoded already. `davs`, `s3` and `s3s` stand for `https`, and `dav` for `http`.
    ///
    /// # Errors
    /// It is another kind of URL, or it names a user.
    pub(super) fn parse(text: &str) -> Result<Self, Cause> {
        let bad = |why: &str| Cause::BadArgument(format!("the URL {why}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("has no ://"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" | "dav" => "http",
            "https" | "davs" | "s3" | "s3s" => "https",
            _ => return Err(bad("is not one of http or https")),
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("has characters that must be escaped"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (server, rest) = split_server(scheme, rest).ok_or_else(|| bad("names no server"))?;
        let target = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Self::in_server(&server, &without_dots(&target))
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// Returns the path, percent-encoded.
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the URL, with the query.
    pub(super) fn url(&self) -> String {
        format!("{}://{}{}", self.server.scheme().name(), self.server.authority(), self.target)
    }

    /// Returns the URL of the server.
    pub(super) fn server_url(&self) -> Option<Url> {
        Url::parse(&format!("{}://{}", self.server.scheme().name(), self.server.authority())).ok()
    }

    /// Returns the address of a target, which is percent-encoded.
    pub(super) fn in_server(server: &HttpServer, target: &str) -> Result<Self, Cause> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Cause::BadArgument(format!("the path has more than {TARGET_BYTES_MAX} bytes")));
        }
        Ok(Self { server: server.clone(), target: target.to_owned() })
    }

    /// Returns the address without its query.
    pub(super) fn without_query(&self) -> Self {
        Self { server: self.server.clone(), target: self.path().to_owned() }
    }

    /// Returns the address without slashes at its end.
    pub(super) fn without_slash(&self) -> Self {
        Self { server: self.server.clone(), target: self.path().trim_end_matches('/').to_owned() }
    }

    /// Returns the root of the server.
    pub(super) fn root(&self) -> Self {
        Self { server: self.server.clone(), target: "/".to_owned() }
    }

    /// Reports whether a redirect from `self` only adds the slash of a directory.
    pub(super) fn is_directory_of(&self, to: &Self) -> bool {
        self.server == to.server && to.path().strip_suffix('/') == Some(self.path())
    }

    /// Reports whether another address has the same path, apart from its encoding and repeated slashes.
    pub(super) fn is_same_path(&self, other: &Self) -> bool {
        let both = segments(self.path()).ok().zip(segments(other.path()).ok());
        both.is_some_and(|(a, b)| a == b) && self.path().ends_with('/') == other.path().ends_with('/')
    }

    /// Returns the address to which a redirect leads.
    ///
    /// # Errors
    /// [`Cause::BadRedirect`]: it is no HTTP URL, or leads from TLS to clear text.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, Cause> {
        let bad = || Cause::BadRedirect(shown(location));
        let location = location.split('#').next().unwrap_or_default();
        if location.len() > TARGET_BYTES_MAX || location.is_empty() {
            return Err(bad());
        }
        if location.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(bad());
        }
        let before_path = location.split(['/', '?']).next().unwrap_or_default();
        let (server, rest) = match before_path.split_once(':') {
            Some((scheme, "")) => {
                let scheme = scheme.to_ascii_lowercase();
                let rest = location.get(scheme.len() + 1..).and_then(|rest| rest.strip_prefix("//"));
                split_server(&scheme, rest.ok_or_else(bad)?).ok_or_else(bad)?
            }
            Some(_) => return Err(bad()),
            None => match location.strip_prefix("//") {
                Some(rest) => split_server(self.server.scheme().name(), rest).ok_or_else(bad)?,
                None => (self.server.clone(), location),
            },
        };
        if self.server.tls && !server.tls {
            return Err(Cause::BadRedirect(format!("{}, from TLS to clear text", shown(location))));
        }
        let target = match rest.bytes().next() {
            None => "/".to_owned(),
            Some(b'/') => rest.to_owned(),
            Some(b'?') if location.starts_with('?') => format!("{}{rest}", self.path()),
            Some(b'?') => format!("/{rest}"),
            Some(_) => {
                let directory = self.path().rsplit_once('/').map_or("", |(directory, _)| directory);
                format!("{directory}/{rest}")
            }
        };
        Ok(Self { server, target: without_dots(&target) })
    }
}

/// Returns the elements of the opaque text of a URL that are for an HTTP server.
fn query_of(url: &Url) -> impl Iterator<Item = (&String, &String)> {
    url.cgi.iter().filter(|(key, _)| {
        !REMOVED.contains(&key.as_str()) && !REMOVED_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
    })
}

/// Reports whether requests for this URL have a query, which may choose what they return.
pub(super) fn has_query(url: &Url) -> bool {
    query_of(url).next().is_some()
}

/// Splits `host:port/path`.
fn split_server<'a>(scheme: &str, rest: &'a str) -> Option<(HttpServer, &'a str)> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    if !matches!(scheme, "http" | "https") || authority.contains(['@', ',']) {
        return None;
    }
    let url = Url::parse(&format!("{scheme}://{authority}")).ok()?;
    Some((HttpServer::of(&url), path))
}

/// Removes the segments `.` and `..` of the path of a target (RFC 3986, section 5.2.4).
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", kept.join("/"))
}

/// Returns the beginning of a location without its query.
fn shown(location: &str) -> String {
    let plain = location.split('?').next().unwrap_or_default();
    plain.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> HttpAddress {
        HttpAddress::of(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn paths_are_encoded_and_secrets_are_not_in_the_target() {
        let found = address("http://H:80//a b/ü%?x=1&authz=Bearer%20t&oss.lcl=1&pss.tid=u&sig=a%2Bb==&flag");
        assert_eq!(found.target(), "/a%20b/%C3%BC%25?flag&sig=a%2Bb==&x=1");
        assert_eq!((found.server.host_header().as_str(), found.server.authority().as_str()), ("h", "h:80"));
        assert_eq!(address("https://[::1]:8443/a").server.host_header(), "[::1]:8443");
        assert_eq!(found.to_string(), "http://h:80/a%20b/%C3%BC%25");
        assert!(has_query(&Url::parse("http://h/a?x=1").unwrap()));
        assert!(!has_query(&Url::parse("http://h/a?authz=t&pss.hops=1").unwrap()));
    }

    #[test]
    fn urls_of_clients_are_sent_as_they_are() {
        for (url, expected) in [
            ("http://H:1094//a%20b?authz=Bearer%20t&x#f", "http://h:1094//a%20b?authz=Bearer%20t&x"),
            ("DAV://h/a", "http://h:80/a"),
            ("davs://h/a", "https://h:443/a"),
            ("s3s://h", "https://h:443/"),
            ("https://[::1]:8443?x", "https://[::1]:8443/?x"),
            ("http://h/a/../b", "http://h:80/b"),
        ] {
            let found = HttpAddress::parse(url).unwrap();
            let scheme = found.server.scheme().name();
            assert_eq!(format!("{scheme}://{}{}", found.server.authority(), found.target()), expected);
            assert!(!found.to_string().contains("Bearer"));
        }
        for url in [
            "",
            "h/a",
            "root://h//a",
            "file:///a",
            "http:///a",
            "http://u:p@h/a",
            "http://h/a b",
            "http://h:x/a",
            "http://h/\u{e9}",
        ] {
            assert!(HttpAddress::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn redirects_are_resolved() {
        let from = address("https://h:8443//a/b?x=1");
        for (location, expected) in [
            ("https://other/c?sig=1#part", "https://other:443/c?sig=1"),
            ("//other:99/c", "https://other:99/c"),
            ("/c/./d/../e", "https://h:8443/c/e"),
            ("c", "https://h:8443/a/c"),
            ("../../../c/", "https://h:8443/c/"),
            ("?y=2", "https://h:8443/a/b?y=2"),
            ("HTTPS://h:8443", "https://h:8443/"),
            ("https://h:8443?y", "https://h:8443/?y"),
        ] {
            let to = from.redirected(location).unwrap();
            let scheme = if to.server.tls { "https" } else { "http" };
            assert_eq!(
                format!("{scheme}://{}{}", to.server.authority(), to.target()),
                expected,
                "{location}"
            );
        }
        for location in [
            "http://h/c",
            "ftp://h/c",
            "file:///etc/passwd",
            "https://u@h/c",
            "",
            "a b",
            "https:c",
            "https://h:x/c",
            "javascript:1",
            "https:///c",
            "\u{7}",
        ] {
            assert!(matches!(from.redirected(location), Err(Cause::BadRedirect(_))), "{location}");
        }
        let plain = address("http://h//a");
        assert!(plain.is_directory_of(&plain.redirected("/a/").unwrap()));
        assert!(!plain.is_directory_of(&plain.redirected("/b/").unwrap()));
        assert!(plain.redirected("https://h/a").unwrap().server.tls);
    }
}
