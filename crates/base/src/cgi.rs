//! The opaque text (CGI) behind the first `?` of a path: `key=value&key=value`.
//!
//! Values are sent verbatim (no percent-decoding at this level) and order carries no meaning.
//! Tokens in it must never be re-encoded or logged as a whole, so `Debug` prints only the keys.

use std::fmt;

/// The text behind the first `?`, without the `?`. It may be empty and may contain any bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Cgi(Box<[u8]>);

impl Cgi {
    /// Wraps the text without changing it.
    pub fn new(raw: &[u8]) -> Self {
        Self(Box::from(raw))
    }

    /// Splits `path?cgi` at the first `?`.
    pub fn split(raw: &[u8]) -> (&[u8], Self) {
        match raw.iter().position(|&b| b == b'?') {
            Some(at) => (&raw[..at], Self::new(&raw[at + 1..])),
            None => (raw, Self::default()),
        }
    }

    /// Returns the text as it was received.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reports whether there is no text behind the `?`, or no `?`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator over all `(key, value)` pairs. A key without `=` has an empty value;
    /// empty elements are skipped.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(|part| {
            match part.iter().position(|&b| b == b'=') {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            }
        })
    }

    /// Returns the value of the last element with this key, because a duplicate key replaces the
    /// earlier one, as in XRootD.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs().filter(|(k, _)| *k == key.as_bytes()).last().map(|(_, v)| v)
    }

    /// Returns the value of [`Cgi::get`] as text; `None` if it is not UTF-8.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Returns the text without the elements with this key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        if self.get(key).is_none() {
            return self.clone();
        }
        let has_key = |part: &&[u8]| match part.strip_prefix(key.as_bytes()) {
            Some(rest) => rest.is_empty() || rest.starts_with(b"="),
            None => false,
        };
        let parts = self.0.split(|&b| b == b'&').filter(|part| !part.is_empty() && !has_key(part));
        Self(parts.collect::<Vec<_>>().join(&b'&').into())
    }

    /// Reports whether an element has a key that begins with `prefix`.
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
    fn elements_are_removed_by_their_whole_key() {
        let left = |text: &str| String::from_utf8(Cgi::new(text.as_bytes()).without("k").0.to_vec()).unwrap();
        assert_eq!(left("k=1&kk=2&a=k&&k&xk=3&k=?b=4"), "kk=2&a=k&xk=3");
        assert_eq!(left("k"), "");
        assert_eq!(left("a=1&&b=2"), "a=1&&b=2");
    }

    #[test]
    fn debug_output_hides_tokens() {
        let cgi = Cgi::new(b"authz=Bearer%20secret");
        assert!(!format!("{cgi:?}").contains("secret"));
    }
}
