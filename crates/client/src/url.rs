//! URLs of files: `<proto>://[user[:password]@]host[:port]/[/]path[?cgi[?token]]`.
//!
//! The path starts after the first `/` behind the host, so the URL of an absolute path has two:
//! `root://h//a` is `/a` and `root://h/a` is `a`, which servers refuse. Nothing is percent-decoded.
//! The cgi is a set: it is kept sorted by key, and the last of equal keys counts. Source: xroot
//! protocol 5.2.0, section 5.1.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use wire::xroot::limits::DEFAULT_PORT;

use crate::copy::has_wildcard;
use crate::path::{RemotePath, RequestTarget, public};
use crate::url_error::UrlError;

/// The protocol by which a file is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// `root`, `xroot`: TLS if the server requests it.
    Root,
    /// `roots`, `xroots`: always TLS.
    Roots,
    /// `http`, `dav`.
    Http,
    /// `https`, `davs`.
    Https,
    /// `s3`: an object of an object store. The host is the bucket; the environment names the store.
    S3,
    /// `file`: a file of this machine.
    File,
    /// `stdio`, also written `-`.
    Stdio,
}

impl Scheme {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "root" | "xroot" => Self::Root,
            "roots" | "xroots" => Self::Roots,
            "http" | "dav" => Self::Http,
            "https" | "davs" => Self::Https,
            "s3" => Self::S3,
            "file" => Self::File,
            "stdio" => Self::Stdio,
            _ => return None,
        })
    }

    /// Returns the name in front of `://`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Roots => "roots",
            Self::Http => "http",
            Self::Https => "https",
            Self::S3 => "s3",
            Self::File => "file",
            Self::Stdio => "stdio",
        }
    }

    /// Returns the default port; 0 if there is no server.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Root | Self::Roots => DEFAULT_PORT,
            Self::Http => 80,
            Self::Https => 443,
            Self::S3 | Self::File | Self::Stdio => 0,
        }
    }

    const fn is_local(self) -> bool {
        matches!(self, Self::File | Self::Stdio)
    }
}

/// A parsed URL. `Display` omits the password, cgi and token, which may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// The protocol.
    pub scheme: Scheme,
    /// The user for the login; `None` stands for the user of this process.
    pub user: Option<String>,
    /// The text behind the colon of the user.
    pub password: Option<String>,
    /// Name or address, an IPv6 address without its brackets; empty for local files.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Further hosts and ports that have the same file, as in `root://host1,host2//path`.
    pub others: Vec<(String, u16)>,
    /// The path at the server. Absolute ones begin with `/`.
    pub path: RemotePath,
    /// The path of a [`Scheme::File`], in which a `?` is an ordinary character; empty otherwise.
    pub local: String,
    /// The elements behind the first `?`.
    pub cgi: BTreeMap<String, String>,
    /// The text behind the second `?`, for the login.
    pub token: Option<String>,
}

impl Url {
    /// Reports whether requests with this URL carry a token or password.
    pub(crate) fn carries_secret(&self) -> bool {
        self.password.is_some() || self.token.is_some() || self.cgi.contains_key(auth::tokens::TOKEN_KEY)
    }

    /// Parses a URL. A text without `://` is a file if it begins with `/`, and standard input or
    /// output if it begins with `-`. Otherwise it is a root URL without its protocol.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = match text.split_once("://") {
            _ if text.is_empty() => return Err(UrlError::Empty),
            Some((name, rest)) if !name.contains(['/', '?']) => {
                (Scheme::parse(name).ok_or_else(|| UrlError::UnknownScheme(name.to_owned()))?, rest)
            }
            _ if text.starts_with('/') => (Scheme::File, text),
            _ if text.starts_with('-') => (Scheme::Stdio, text),
            _ => (Scheme::Root, text),
        };
        if scheme.is_local() {
            // `file://localhost/p` also names this machine.
            let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
            return Ok(Self { local: path.to_owned(), ..Self::bare(scheme, RemotePath::default()) });
        }
        // A `?` may directly follow the host, and the text behind it may contain any character.
        let (place, cgi) = rest.split_once('?').map_or((rest, None), |(place, cgi)| (place, Some(cgi)));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, host) =
            authority.rsplit_once('@').map_or((None, authority), |(login, host)| (Some(login), host));
        if scheme == Scheme::S3 && authority.contains([':', ',', '@', '[']) {
            return Err(UrlError::NoBucket(authority.to_owned()));
        }
        if scheme == Scheme::S3 && cgi.is_some() {
            return Err(UrlError::KeyWithParameters(place.to_owned()));
        }
        let mut places = host.split(',').map(host_and_port);
        let (host, port) = places.next().unwrap_or(Err(UrlError::NoHost))?;
        let port_or = |port: Option<u16>| port.unwrap_or(scheme.default_port());
        let checked = public(rest).and_then(|()| RemotePath::new(path));
        let path = checked.map_err(|why| UrlError::BadPath(path.to_owned(), why))?;
        let mut url = Self { port: port_or(port), host, ..Self::bare(scheme, path) };
        for place in places {
            let (host, port) = place?;
            url.others.push((host, port_or(port)));
        }
        if let Some(login) = login {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            url.user = Some(user.to_owned()).filter(|user| !user.is_empty());
            url.password = password.map(str::to_owned);
        }
        if let Some(cgi) = cgi {
            let (elements, token) =
                cgi.split_once('?').map_or((cgi, None), |(elements, token)| (elements, Some(token)));
            url.merge_cgi(elements);
            url.token = token.map(str::to_owned);
        }
        Ok(url)
    }

    fn bare(scheme: Scheme, path: RemotePath) -> Self {
        Self {
            scheme,
            user: None,
            password: None,
            host: String::new(),
            port: scheme.default_port(),
            others: Vec::new(),
            path,
            local: String::new(),
            cgi: BTreeMap::new(),
            token: None,
        }
    }

    /// Reports whether it is that of a file at an HTTP server, which also an object store is.
    #[must_use]
    pub const fn is_http(&self) -> bool {
        matches!(self.scheme, Scheme::Http | Scheme::Https | Scheme::S3)
    }

    /// Reports whether it is that of an object of a store.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        matches!(self.scheme, Scheme::S3)
    }

    /// Reports whether its path is percent-encoded as users write it. Keys of objects are not.
    const fn has_escapes(&self) -> bool {
        self.is_http() && !self.is_object()
    }

    /// Returns the URL as users write it: in the path of one of HTTP, `%20` stands for a blank. A path with a `%`
    /// that begins no such escape, and with no other one, is taken as it is.
    ///
    /// # Errors
    /// [`UrlError`] if no request can carry the path, or it has both kinds of `%`.
    pub fn with_decoded_path(self) -> Result<Self, UrlError> {
        if !self.has_escapes() || !self.path.contains('%') {
            return Ok(self);
        }
        let bytes = base::bytes_of(&self.path);
        let Some(decoded) = base::percent_decode(&bytes) else {
            let has_escape = bytes.windows(3).any(|three| escaped(three).is_some());
            return if has_escape { Err(UrlError::BadEscape(self.path.to_string())) } else { Ok(self) };
        };
        let path = RemotePath::new(base::text_of(&decoded));
        let path = path.map_err(|why| UrlError::BadPath(self.path.to_string(), why))?;
        Ok(self.at(path))
    }

    /// Returns the URL as [`Url::with_decoded_path`] does, and whether its path is a pattern. Then a wildcard that is
    /// written as an escape stands for itself: it gets a backslash.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn with_decoded_pattern(self) -> Result<(Self, bool), UrlError> {
        let is_pattern = has_wildcard(&self.path);
        if !self.has_escapes() || !is_pattern || !self.path.contains('%') {
            return Ok((self.with_decoded_path()?, is_pattern));
        }
        let parts: Result<Vec<String>, UrlError> = self.path.split('/').map(pattern_of).collect();
        let path = RemotePath::new(parts?.join("/"));
        let path = path.map_err(|why| UrlError::BadPath(self.path.to_string(), why))?;
        Ok((self.at(path), true))
    }

    /// Adds the elements of `key=value&…`; each replaces the one of its key.
    pub fn merge_cgi(&mut self, elements: &str) {
        self.cgi.extend(cgi_elements(elements));
    }

    /// Returns the URLs of the hosts, in their order, each with one host.
    pub fn each(&self) -> impl Iterator<Item = Self> + '_ {
        let first = std::iter::once((&self.host, self.port));
        let others = self.others.iter().map(|(host, port)| (host, *port));
        first.chain(others).map(|(host, port)| Self {
            host: host.clone(),
            port,
            others: Vec::new(),
            ..self.clone()
        })
    }

    /// Returns the URL of another path, with the same server and cgi.
    #[must_use]
    pub fn at(&self, path: RemotePath) -> Self {
        Self { path, ..self.clone() }
    }

    /// Returns the URL of a path at the same server. The path is in the form written by users, with
    /// optional cgi: `path[?cgi]`. Names of entries must not be passed, because a `?` in them would
    /// be taken for the beginning of cgi.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn with_user_path(&self, text: &str) -> Result<Self, UrlError> {
        let (path, cgi) = RemotePath::split(text).map_err(|why| UrlError::BadPath(text.to_owned(), why))?;
        let mut url = self.at(path);
        url.merge_cgi(cgi);
        Ok(url)
    }

    /// Sets another host, which may be an IPv6 address in brackets.
    pub(crate) fn set_place(&mut self, host: &str, port: u16) -> Result<(), UrlError> {
        // An address without brackets is accepted because it is unambiguous.
        self.host = match host.parse::<Ipv6Addr>() {
            Ok(_) => host.to_owned(),
            Err(_) => host_and_port(host)?.0,
        };
        self.port = port;
        Ok(())
    }

    /// Returns `path[?cgi]`, the form in which requests name a file. The keys `xrdcl.…` are for
    /// clients only and omitted.
    #[must_use]
    pub fn target(&self) -> RequestTarget {
        self.target_of(&self.path)
    }

    /// Returns the request target for another path on the same server.
    #[must_use]
    pub fn target_of(&self, path: &RemotePath) -> RequestTarget {
        let mut target = path.as_str().to_owned();
        let sent = self.cgi.iter().filter(|(key, _)| !key.starts_with("xrdcl."));
        for (index, (key, value)) in sent.enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(key);
            if !value.is_empty() {
                target.push('=');
                target.push_str(value);
            }
        }
        RequestTarget::new(&target)
    }

    /// Returns `host:port`, with an IPv6 address in brackets, or the bucket.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            _ if self.is_object() => host.clone(),
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }

    /// Resolves the addresses of the host; the list is never empty.
    ///
    /// # Errors
    /// The error of the resolver.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{} has no address", self.host)));
        }
        Ok(found)
    }
}

/// Parses the elements of `key=value&…`.
pub(crate) fn cgi_elements(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split('&').filter(|element| !element.is_empty()).map(|element| {
        let (key, value) = element.split_once('=').unwrap_or((element, ""));
        (key.to_owned(), value.to_owned())
    })
}

/// Parses `host`, `host:port`, `[ipv6]`, `[ipv6]:port`.
fn host_and_port(text: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = if let Some(inside) = text.strip_prefix('[') {
        let bad = || UrlError::BadAddress(text.to_owned());
        let (address, rest) = inside.split_once(']').ok_or_else(bad)?;
        // A scope (`%eth0`) is left to the resolver.
        let address = match address.parse::<Ipv6Addr>() {
            Ok(parsed) => match base::meant_ip(parsed.into()) {
                IpAddr::V4(ipv4) => ipv4.to_string(),
                // The spelling is kept.
                IpAddr::V6(_) => address.to_owned(),
            },
            Err(_) if address.split_once('%').is_some_and(|(left, _)| left.parse::<Ipv6Addr>().is_ok()) => {
                address.to_owned()
            }
            Err(_) => return Err(bad()),
        };
        match rest.strip_prefix(':') {
            Some(port) => (address, Some(port)),
            None if rest.is_empty() => (address, None),
            None => return Err(bad()),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().ok_or_else(|| UrlError::BadPort(text.to_owned()))
    };
    Ok((host, port.map(number).transpose()?))
}

/// Decodes a part of a pattern. Escapes in it, and all of a part without wildcards, stand for themselves.
fn pattern_of(part: &str) -> Result<String, UrlError> {
    let (bytes, is_name) = (base::bytes_of(part), !has_wildcard(part));
    let (mut literal, mut pattern, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(first) = bytes.get(at) {
        let escape = escaped(&bytes[at..]);
        if escape.is_none() && *first == b'%' {
            return Err(UrlError::BadEscape(part.to_owned()));
        }
        at += if escape.is_some() { 3 } else { 1 };
        let byte = escape.unwrap_or(*first);
        if (is_name || escape.is_some()) && matches!(byte, b'*' | b'?' | b'[' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
        literal.push(byte);
    }
    let literal = base::text_of(&literal);
    // Searches compare parts with wildcards only by patterns.
    if has_wildcard(&literal) { Ok(base::text_of(&pattern).into_owned()) } else { Ok(literal.into_owned()) }
}

/// Returns the byte that an escape at the beginning of a text stands for.
fn escaped(text: &[u8]) -> Option<u8> {
    let escape = text.get(..3).filter(|escape| escape.starts_with(b"%"))?;
    base::percent_decode(escape)?.first().copied()
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::File => write!(f, "file://{}", self.local),
            Scheme::Stdio => f.write_str("-"),
            scheme => {
                write!(f, "{}://{}", scheme.name(), self.authority())?;
                for (host, port) in &self.others {
                    let brackets = if host.contains(':') { ("[", "]") } else { ("", "") };
                    write!(f, ",{}{host}{}:{port}", brackets.0, brackets.1)?;
                }
                if !self.has_escapes() {
                    return write!(f, "/{}", self.path);
                }
                // As users write it: these characters would be taken for others.
                f.write_str("/")?;
                self.path.chars().try_for_each(|sign| match sign {
                    '%' | '*' | '[' | '\\' => write!(f, "%{:02X}", u32::from(sign)),
                    sign => f.write_char(sign),
                })
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::NameError;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_path_is_absolute_with_two_slashes_only() {
        assert_eq!(url("root://h//a/b").path, "/a/b");
        assert_eq!(url("root://h/a/b").path, "a/b");
        assert_eq!(url("root://h").path, "");
        assert_eq!(url("root://h//a//b?x").path, "/a//b");
    }

    #[test]
    fn an_object_has_no_parameters() {
        assert_eq!(url("s3://b/a/k").path, "a/k");
        for text in ["s3://b/a?old", "s3://b/a?versionId=1", "s3://b?x"] {
            assert!(Url::parse(text).unwrap_err().to_string().contains("no parameters"), "{text}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        let table = [
            ("root://h//a", "h", 1094),
            ("xroots://h:1//a", "h", 1),
            ("https://h//a", "h", 443),
            ("h:0//a", "h", 0),
            ("h", "h", 1094),
            ("root://[::1]:2//a", "::1", 2),
            ("root://[fe80::1%eth0]//a", "fe80::1%eth0", 1094),
            ("root://[::ffff:1.2.3.4]:65535//a", "1.2.3.4", 65535),
            ("root://[::1.2.3.4]//a", "1.2.3.4", 1094),
            ("root://me@h:1//a@b:c", "h", 1),
        ];
        for (text, host, port) in table {
            assert_eq!((url(text).host.as_str(), url(text).port), (host, port), "{text}");
        }
        assert_eq!(url("root://[::1]:2//a").authority(), "[::1]:2");
    }

    #[test]
    fn paths_of_http_are_percent_encoded_by_users() {
        let decoded = |text: &str| url(text).with_decoded_path().map(|url| url.path.to_string());
        assert_eq!(decoded("https://h/a%20b/%C3%BC"), Ok("a b/ü".to_owned()));
        assert_eq!(decoded("davs://h/100%"), Ok("100%".to_owned()));
        assert_eq!(decoded("root://h//a%20b"), Ok("/a%20b".to_owned()));
        assert_eq!(
            decoded("http://h/a%3Fb"),
            Err(UrlError::BadPath("a%3Fb".to_owned(), NameError::QuestionMark))
        );
        assert!(decoded("http://h/a%00").is_err());
        assert_eq!(decoded("http://h/100%-a%20b"), Err(UrlError::BadEscape("100%-a%20b".to_owned())));
    }

    #[test]
    fn escaped_wildcards_of_http_stand_for_themselves() {
        for (text, path, is_pattern) in [
            ("http://h/d/run%2A", "d/run*", false),
            ("http://h/d/%5Ba%5d/run*", r"d/\[a]/run*", true),
            ("http://h/d/a%20%2a%5B%5C*", r"d/a \*\[\\*", true),
            ("http://h/d/*", "d/*", true),
            ("root://h//d/a%2A*", "/d/a%2A*", true),
        ] {
            let (found, is) = url(text).with_decoded_pattern().unwrap();
            assert_eq!((found.path.as_str(), is), (path, is_pattern), "{text}");
        }
        assert!(url("http://h/a%*").with_decoded_pattern().is_err());
    }

    #[test]
    fn a_shown_url_of_http_names_its_file() {
        for text in ["https://h/a%2520b*", "https://h/%5Ba%5D", r"http://h/a\b", "http://h/100%"] {
            let meant = url(text).with_decoded_path().unwrap();
            let (read, is_pattern) = url(&meant.to_string()).with_decoded_pattern().unwrap();
            assert_eq!((read.path, is_pattern), (meant.path, false), "{text}");
        }
        assert_eq!(url("root://h//a%20b*").to_string(), "root://h:1094//a%20b*");
    }

    #[test]
    fn several_hosts_have_the_same() {
        let several = url("root://me@h1,h2:7,[::1]:8//a?x=1");
        assert_eq!(several.to_string(), "root://h1:1094,h2:7,[::1]:8//a");
        let each: Vec<String> = several.each().map(|url| format!("{url} {}", url.target().text())).collect();
        let expected = ["root://h1:1094//a /a?x=1", "root://h2:7//a /a?x=1", "root://[::1]:8//a /a?x=1"];
        assert_eq!(each, expected);
        assert_eq!(Url::parse("root://h1,,h2//a"), Err(UrlError::NoHost));
        assert_eq!(several.with_user_path("/b?x=2&xrdcl.intent=y").unwrap().target(), "/b?x=2");
    }

    #[test]
    fn a_login_has_a_user_and_perhaps_a_password() {
        assert_eq!(url("root://me@h//a").user.as_deref(), Some("me"));
        assert_eq!(url("root://me@h//a").password, None);
        let both = url("root://me:p@ss:word@h//a?authz=token?secret");
        assert_eq!((both.user.as_deref(), both.password.as_deref()), (Some("me"), Some("p@ss:word")));
        assert_eq!(both.to_string(), "root://h:1094//a");
        assert_eq!(format!("{both:?}"), both.to_string());
    }

    #[test]
    fn the_cgi_is_sorted_and_the_token_apart() {
        let with = url("root://h//a?z=1&a=x=y&flag&&z=2?tok?en");
        assert_eq!(with.target(), "/a?a=x=y&flag&z=2");
        assert_eq!(with.token.as_deref(), Some("tok?en"));
        assert_eq!(url("root://h?a=/b").cgi.get("a").map(String::as_str), Some("/b"));
        let mut redirected = with;
        redirected.merge_cgi("z=3&tried=h");
        assert_eq!(redirected.target_of(&RemotePath::new("/b").unwrap()), "/b?a=x=y&flag&tried=h&z=3");
    }

    #[test]
    fn local_files_and_standard_input() {
        assert_eq!((url("/a/b").scheme, url("/a/b").local.as_str()), (Scheme::File, "/a/b"));
        assert_eq!(url("file:///a").local, "/a");
        assert_eq!(url("file://localhost/a").local, "/a");
        assert_eq!(url("/a://b").local, "/a://b");
        assert_eq!(url("-").scheme, Scheme::Stdio);
    }

    #[test]
    fn what_is_no_url_is_named() {
        let table = [
            ("", UrlError::Empty),
            ("gopher://h//a", UrlError::UnknownScheme("gopher".into())),
            ("root:////a", UrlError::NoHost),
            ("root://me@//a", UrlError::NoHost),
            ("root://h:1x//a", UrlError::BadPort("1x".into())),
            ("root://h:65536//a", UrlError::BadPort("65536".into())),
            ("root://h:+1//a", UrlError::BadPort("+1".into())),
            ("root://h:/a", UrlError::BadPort(String::new())),
            ("root://[::1//a", UrlError::BadAddress("[::1".into())),
            ("root://[x]//a", UrlError::BadAddress("[x]".into())),
            ("root://[::1]x//a", UrlError::BadAddress("[::1]x".into())),
            ("root://h//a\0b", UrlError::BadPath("/a\0b".into(), NameError::Nul)),
        ];
        for (text, error) in table {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
    }
}
