//! Paths and CGI of a request, and the path of the header `Destination`.

use base::{Cgi, Error, ErrorKind};
use vfs::Target;

/// The beginning of the keys of third-party copies. They belong to the xroot protocol, whose sessions
/// check more than a request of HTTP shows.
const COPY_KEYS: &str = "tpc.";

/// A path that a request may create. Names with a `?` or a control character are not created, because
/// the xroot protocol cannot express them: there the CGI begins at the `?`, so the removal of `a?b`
/// would be that of `a`. Existing ones can be read, removed, and renamed to other names.
#[derive(Clone, Debug)]
pub struct NewName(Target);

impl NewName {
    /// Accepts the path of `target` as a new name.
    ///
    /// # Errors
    /// The path has a `?` or a control character.
    pub fn of(target: Target) -> Result<Self, Error> {
        match target.path.as_bytes().iter().any(|byte| *byte == b'?' || byte.is_ascii_control()) {
            true => Err(Error::new(
                ErrorKind::ArgInvalid,
                "a new name must not have a '?' or a control character, because clients of the xroot \
                 protocol cannot use it",
            )),
            false => Ok(Self(target)),
        }
    }

    /// Returns the path and CGI.
    pub fn target(&self) -> &Target {
        &self.0
    }
}

/// Returns the path and CGI of a request target.
///
/// # Errors
/// The escapes are malformed, the path is relative or too long, or the CGI is that of a third-party
/// copy of the xroot protocol.
pub fn parse_target(path: &[u8], query: Option<&[u8]>) -> Result<Target, Error> {
    let malformed = || Error::new(ErrorKind::ArgInvalid, "the escapes of the URL are malformed");
    let decoded = base::percent_decode(path).ok_or_else(malformed)?;
    // A `?` of the path is part of the name.
    let path = match base::LogicalPath::parse(&decoded) {
        Ok(path) => path,
        Err(base::PathError::TooLong) => {
            return Err(Error::new(ErrorKind::ArgTooLong, "the path is too long"));
        }
        Err(base::PathError::Relative | base::PathError::Nul) => {
            let text =
                format!("Opening relative path '{}' is disallowed.", String::from_utf8_lossy(&decoded));
            return Err(Error::new(ErrorKind::NotAuthorized, text));
        }
    };
    let cgi = Cgi::new(query.unwrap_or_default());
    if cgi.has_prefix(COPY_KEYS) {
        let text = "third-party copies of the xroot protocol (tpc.…) are not possible over HTTP";
        return Err(Error::new(ErrorKind::ArgInvalid, text));
    }
    Ok(Target { path, cgi })
}

/// Returns the path and CGI of a header `Destination`: a path, or a URL with one of these
/// hosts.
///
/// # Errors
/// Those of [`parse_target`], or the URL is that of another server or has a fragment: the client has
/// probably not escaped a `#` in a name.
pub fn parse_destination(value: &str, hosts: &[String]) -> Result<Target, Error> {
    if value.contains('#') {
        return Err(Error::new(ErrorKind::ArgInvalid, "Destination has a '#', which names have as %23"));
    }
    let rest = if value.starts_with('/') {
        value
    } else {
        let invalid = || Error::new(ErrorKind::ArgInvalid, "Destination is neither a path nor a URL");
        let (scheme, rest) = value.split_once("://").ok_or_else(invalid)?;
        if !["http", "https", "dav", "davs"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(invalid());
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if !hosts.iter().any(|host| host.eq_ignore_ascii_case(authority)) {
            let text = "Destination is another server than that of the header Host";
            return Err(Error::new(ErrorKind::NoServer, text));
        }
        rest
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (rest, None),
    };
    parse_target(if path.is_empty() { b"/" } else { path.as_bytes() }, query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_decoded_once() {
        let target = parse_target(b"//data/a%20b%3Fc%2525/", Some(b"x=%41&y")).unwrap();
        assert_eq!(target.path.as_bytes(), b"/data/a b?c%25/");
        assert_eq!(target.cgi.as_bytes(), b"x=%41&y");
        let kind = |path: &[u8], query: Option<&[u8]>| parse_target(path, query).unwrap_err().kind;
        // An escaped `..` or NUL is one, too.
        for path in [&b"/a/../b"[..], b"/a/%2e%2e/b", b"/a/.%2E", b"/%2e%2e", b"a", b"", b"*", b"/a%00b"] {
            assert_eq!(kind(path, None), ErrorKind::NotAuthorized, "{path:?}");
        }
        assert_eq!(kind(b"/%", None), ErrorKind::ArgInvalid);
        assert_eq!(kind(b"/f", Some(b"x=1&tpc.key=1")), ErrorKind::ArgInvalid);
        assert_eq!(kind(&[b'/', b'a'].repeat(4000), None), ErrorKind::ArgTooLong);
    }

    #[test]
    fn new_names_are_those_that_the_xroot_protocol_can_express() {
        let is_new = |path: &[u8]| NewName::of(parse_target(path, Some(b"x=?")).unwrap()).is_ok();
        for path in [&b"/a%20b"[..], b"/a%25b", b"/%C3%A9", b"/%80", b"/a&b", b"/a%23b"] {
            assert!(is_new(path), "{path:?}");
        }
        for path in [&b"/a%3Fb"[..], b"/a%3f/b", b"/a%0Ab", b"/a%0D", b"/a%09b", b"/a%01", b"/a%1F", b"/a%7F"]
        {
            assert!(!is_new(path), "{path:?}");
        }
    }

    #[test]
    fn destinations_are_of_this_server() {
        let host = ["h.example.org:1094".to_owned()];
        let host = host.as_slice();
        for text in
            ["/b%20c?x=1", "http://h.example.org:1094/b%20c?x=1", "DAVS://u:p@H.example.org:1094/b%20c?x=1"]
        {
            let target = parse_destination(text, host).unwrap();
            assert_eq!(
                (target.path.as_bytes(), target.cgi.as_bytes()),
                (&b"/b c"[..], &b"x=1"[..]),
                "{text}"
            );
        }
        assert_eq!(parse_destination("https://h.example.org:1094", host).unwrap().path.as_bytes(), b"/");
        let kind = |text: &str| parse_destination(text, host).unwrap_err().kind;
        for text in ["http://other/b", "http://h.example.org/b", "http://h.example.org:1094@evil/b"] {
            assert_eq!(kind(text), ErrorKind::NoServer, "{text}");
        }
        for text in ["", "b", "root://h.example.org:1094/b", "//", "http:/b"] {
            let refused = parse_destination(text, host);
            assert!(text == "//" || refused.is_err(), "{text}");
        }
        assert_eq!(parse_destination("http://h/b", &[]).unwrap_err().kind, ErrorKind::NoServer);
    }
}
