//! The `path?key=value&key=value` texts of requests.
//!
//! Everything behind the first `?` is the CGI, including further `?`. Values are not
//! percent-decoded and need not be UTF-8, so they are kept as bytes. A NUL ends the whole text,
//! because XRootD clients end some arguments with one. Unlike `base::Cgi`, this type borrows from
//! the request.
//!
//! Source: xroot protocol 5.2.0, sections 2.0, 4.

/// A path argument, split into path and CGI. The path is not validated; see `base::LogicalPath`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathArgument<'a> {
    /// The path as sent.
    pub path: &'a [u8],
    /// The text behind the first `?`.
    pub cgi: CgiText<'a>,
}

impl<'a> PathArgument<'a> {
    /// Splits an argument.
    #[must_use]
    pub fn parse(argument: &'a [u8]) -> Self {
        let text = argument.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut parts = text.splitn(2, |&byte| byte == b'?');
        let path = parts.next().unwrap_or_default();
        Self { path, cgi: CgiText::new(parts.next().unwrap_or_default()) }
    }
}

/// A text of elements `key=value` separated by `&`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CgiText<'a> {
    text: &'a [u8],
}

impl<'a> CgiText<'a> {
    /// Creates a CGI from `text`, without its `?`.
    #[must_use]
    pub const fn new(text: &'a [u8]) -> Self {
        Self { text }
    }

    /// Returns the text as sent.
    #[must_use]
    pub const fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Reports whether the text is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the elements in the order sent. An element without `=` has an empty value; empty
    /// elements are skipped.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let elements = self.text.split(|&byte| byte == b'&');
        elements.filter(|element| !element.is_empty()).map(|element| {
            let mut parts = element.splitn(2, |&byte| byte == b'=');
            let key = parts.next().unwrap_or_default();
            (key, parts.next().unwrap_or_default())
        })
    }

    /// Returns the value of `key`. Of duplicate keys the last one counts, because each replaces the
    /// previous one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.iter().rev().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }

    /// Returns the value of `key` if it is UTF-8.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<&'a str> {
        std::str::from_utf8(self.get(key)?).ok()
    }

    /// Returns the value of `key` if it is a number.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get_str(key)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_question_mark_ends_the_path_and_a_nul_the_text() {
        let target = PathArgument::parse(b"/a b?x=1?y&z\0junk");
        assert_eq!(target.path, b"/a b");
        assert_eq!(target.cgi.text(), b"x=1?y&z");
        assert_eq!(PathArgument::parse(b"/a"), PathArgument { path: b"/a", cgi: CgiText::default() });
        assert_eq!(PathArgument::parse(b""), PathArgument { path: b"", cgi: CgiText::default() });
    }

    #[test]
    fn elements_without_value_are_kept_and_empty_ones_skipped() {
        let cgi = CgiText::new(b"&a&b=&c=1=2&&=v");
        let elements: Vec<_> = cgi.iter().collect();
        assert_eq!(elements, [(&b"a"[..], &b""[..]), (b"b", b""), (b"c", b"1=2"), (b"", b"v")]);
        assert_eq!(cgi.get("c"), Some(&b"1=2"[..]));
        assert_eq!(cgi.get("a"), Some(&b""[..]));
        assert_eq!(cgi.get("d"), None);
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let cgi = CgiText::new(b"oss.asize=1&x=\xff&oss.asize=20");
        assert_eq!(cgi.number("oss.asize"), Some(20u64));
        assert_eq!(cgi.number::<u8>("x"), None);
        assert_eq!(cgi.get_str("x"), None);
    }
}
