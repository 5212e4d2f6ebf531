//! The opaque text behind the first `?` of a path: `key=value&key=value`.
//!
//! Values are sent verbatim (no percent-decoding at this level), order carries no meaning, and tokens in it must never be
//! re-encoded or logged whole: `Debug` shows the keys only.

use std::fmt;

/// The text behind the first `?`, without it. May be empty, and may hold any bytes a client sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Cgi(Box<[u8]>);

impl Cgi {
    /// Wraps the text as it came.
    pub fn new(raw: &[u8]) -> Self {
        Self(Box::from(raw))
    }

    /// Cuts `path?cgi` at the first `?`.
    pub fn split(raw: &[u8]) -> (&[u8], Self) {
        match raw.iter().position(|&b| b == b'?') {
            Some(at) => (&raw[..at], Self::new(&raw[at + 1..])),
            None => (raw, Self::default()),
        }
    }

    /// The text as it came.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Nothing behind the `?`, or no `?`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All `(key, value)`; a key without `=` has an empty value; empty elements are passed over.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(|part| {
            match part.iter().position(|&b| b == b'=') {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            }
        })
    }

    /// The value of the last element with this key: as in XRootD, each replaces the one before.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs().filter(|(k, _)| *k == key.as_bytes()).last().map(|(_, v)| v)
    }

    /// The same when it is UTF-8 text; `None` as well when it is not.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Is there an element whose key begins with `prefix`?
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.pairs().any(|(k, _)| k.starts_with(prefix.as_bytes()))
    }
}

impl fmt::Debug for Cgi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs().map(|(k, _)| String::from_utf8_lossy(k))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_question_mark_ends_the_path() {
        let (path, cgi) = Cgi::split(b"/a?x=1&&flag&y=a=b?c&x=2");
        assert_eq!(path, b"/a");
        assert_eq!(cgi.text("x"), Some("2"));
        assert_eq!(cgi.text("y"), Some("a=b?c"));
        assert_eq!(cgi.text("flag"), Some(""));
        assert_eq!(cgi.get("z"), None);
        assert!(cgi.has_prefix("fl"));
        assert!(Cgi::split(b"/a").1.is_empty());
    }

    #[test]
    fn a_token_does_not_show_in_debug() {
        let cgi = Cgi::new(b"authz=Bearer%20secret");
        assert!(!format!("{cgi:?}").contains("secret"));
    }
}
