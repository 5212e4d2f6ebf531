//! Paths of requests with their CGI, and lists of such paths.
//!
//! Lists are kept as text and parsed lazily, because a request may contain a million paths.

use base::{Cgi, Error, ErrorKind, LogicalPath, PathError};
use std::fmt;
use std::sync::Arc;

/// A path and its opaque text (CGI).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The path.
    pub path: LogicalPath,
    /// The text behind the `?`.
    pub cgi: Cgi,
}

impl Target {
    /// Parses `path[?cgi]`; a NUL ends it. `participle` names the request in errors: "opening",
    /// "removing".
    pub fn parse(raw: &[u8], participle: &str) -> Result<Self, Error> {
        let raw = raw.split(|&byte| byte == 0).next().unwrap_or_default();
        let (path, cgi) = Cgi::split(raw);
        match LogicalPath::parse(path) {
            Ok(path) => Ok(Self { path, cgi }),
            Err(PathError::TooLong) => {
                Err(Error::new(ErrorKind::ArgTooLong, format!("{participle} path is too long")))
            }
            Err(PathError::Relative | PathError::Nul) => {
                let path = String::from_utf8_lossy(path);
                let text = format!("{participle} relative path '{path}' is disallowed.");
                Err(Error::new(ErrorKind::NotAuthorized, text))
            }
        }
    }
}

/// A list of at least one path, one path per line. Only the first path is parsed immediately. The
/// others are parsed one at a time when they are used, because a list may have a million lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetList {
    first: Target,
    /// The lines after the first one.
    rest: Arc<[u8]>,
    participle: &'static str,
    check: Option<TargetCheck>,
    /// The key of elements that are removed from each cgi.
    removed_key: Option<&'static str>,
}

/// A check of each path of a list. Two lists with checks are equal only if they share one.
#[derive(Clone)]
struct TargetCheck(Arc<CheckFunction>);

type CheckFunction = dyn Fn(&Target) -> Result<(), Error> + Send + Sync;

impl PartialEq for TargetCheck {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TargetCheck {}

impl fmt::Debug for TargetCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TargetCheck")
    }
}

impl TargetList {
    /// Parses the lines of a request, up to the first NUL; skips empty lines. Returns `None` if
    /// there is no path.
    pub fn parse(raw: &[u8], participle: &'static str) -> Result<Option<Self>, Error> {
        let mut lines = TextLines(raw);
        let Some(first) = lines.next() else { return Ok(None) };
        let first = Target::parse(first, participle)?;
        let end = lines.0.iter().position(|&byte| byte == 0).unwrap_or(lines.0.len());
        let rest = lines.0.get(..end).unwrap_or_default();
        Ok(Some(Self { first, rest: rest.into(), participle, check: None, removed_key: None }))
    }

    /// Returns the list with a check of each path after the first, which the caller has checked.
    /// The error of the check counts like that of a path that cannot be parsed. The check runs when
    /// a path is used, because a list may be long.
    #[must_use]
    pub fn with_check(self, check: impl Fn(&Target) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self { check: Some(TargetCheck(Arc::new(check))), ..self }
    }

    /// Returns the list without a check, for another use after all paths have passed it.
    #[must_use]
    pub fn without_check(self) -> Self {
        Self { check: None, ..self }
    }

    /// Returns the list without the elements with this key in the cgi of each path.
    #[must_use]
    pub fn without_element(self, key: &'static str) -> Self {
        let first = Target { cgi: self.first.cgi.without(key), path: self.first.path };
        Self { first, removed_key: Some(key), ..self }
    }

    /// Returns the first path.
    pub fn first(&self) -> &Target {
        &self.first
    }

    /// Reports whether the first path is the only one.
    pub fn is_single(&self) -> bool {
        TextLines(&self.rest).next().is_none()
    }

    /// Returns an upper bound of the number of paths.
    pub fn len_max(&self) -> usize {
        // A path has at least one byte and a line end.
        1 + self.rest.len().div_ceil(2)
    }

    /// Returns the size of the list in bytes.
    pub fn bytes(&self) -> usize {
        self.first.path.as_bytes().len() + self.rest.len()
    }

    /// Returns an iterator over all paths. An invalid path is an error at its position.
    pub fn cursor(&self) -> TargetCursor {
        let Self { first, rest, participle, check, removed_key } = self.clone();
        TargetCursor { first: Some(first), rest, at: 0, participle, check, removed_key }
    }
}

impl From<Target> for TargetList {
    fn from(first: Target) -> Self {
        Self { first, rest: Arc::default(), participle: "", check: None, removed_key: None }
    }
}

/// An iterator over a [`TargetList`].
pub struct TargetCursor {
    first: Option<Target>,
    rest: Arc<[u8]>,
    at: usize,
    participle: &'static str,
    check: Option<TargetCheck>,
    removed_key: Option<&'static str>,
}

impl TargetCursor {
    /// Checks a path after the first one.
    fn checked(&self, mut target: Target) -> Result<Target, Error> {
        if let Some(key) = self.removed_key {
            target.cgi = target.cgi.without(key);
        }
        if let Some(check) = &self.check {
            (check.0)(&target)?;
        }
        Ok(target)
    }
}

impl Iterator for TargetCursor {
    type Item = Result<Target, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let mut lines = TextLines(self.rest.get(self.at..).unwrap_or_default());
        let line = lines.next()?;
        let target = Target::parse(line, self.participle);
        self.at = self.rest.len() - lines.0.len();
        Some(target.and_then(|target| self.checked(target)))
    }
}

/// An iterator over the non-empty lines, up to the first NUL. It holds the remaining text.
struct TextLines<'a>(&'a [u8]);

impl<'a> Iterator for TextLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&byte| byte != b'\n')?;
        let left = self.0.get(start..)?;
        let end = left.iter().position(|&byte| byte == b'\n' || byte == 0);
        let (line, behind) = left.split_at_checked(end.unwrap_or(left.len()))?;
        // The NUL is kept, so that the text behind it is never read.
        self.0 = behind.strip_prefix(b"\n").unwrap_or(behind);
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_paths_have_the_error_texts_that_clients_expect() {
        let text = |raw: &[u8]| Target::parse(raw, "Stating").unwrap_err().text;
        assert_eq!(text(b"data/x"), "Stating relative path 'data/x' is disallowed.");
        assert_eq!(text(b"/data/../x?y"), "Stating relative path '/data/../x' is disallowed.");
        let fine = Target::parse(b"/a//b?x=1?y\0rest", "Opening").unwrap();
        assert_eq!((&*fine.path.text(), fine.cgi.as_bytes()), ("/a/b", &b"x=1?y"[..]));
    }

    fn list(raw: &[u8]) -> Vec<Result<String, String>> {
        let list = TargetList::parse(raw, "Stating").unwrap().unwrap();
        let all: Vec<_> = list.cursor().map(|target| target.map(|t| t.path.text().into_owned())).collect();
        assert!(all.len() <= list.len_max());
        assert_eq!(list.is_single(), all.len() == 1);
        all.into_iter().map(|one| one.map_err(|error| error.text)).collect()
    }

    #[test]
    fn lists_have_a_path_on_each_line() {
        let paths = |all: &[&str]| all.iter().map(|path| Ok((*path).to_owned())).collect::<Vec<_>>();
        for raw in [&b"/a\n\n/b?c\n"[..], b"\n/a\n/b", b"/a\n/b\0/c\n/d", b"/a\n/b\n\0\n/c"] {
            assert_eq!(list(raw), paths(&["/a", "/b"]), "{raw:?}");
        }
        for raw in [&b"/a"[..], b"/a\n\n\n", b"/a\0\n/b", b"\n/a\n\0/b"] {
            assert_eq!(list(raw), paths(&["/a"]), "{raw:?}");
        }
        for raw in [&b""[..], b"\n\n", b"\0/a", b"\n\0/a"] {
            assert_eq!(TargetList::parse(raw, "Stating").unwrap(), None, "{raw:?}");
        }
        assert_eq!(list(&b"/a\n".repeat(5000)).len(), 5000);
    }

    #[test]
    fn a_check_applies_to_each_path_after_the_first() {
        let list = TargetList::parse(b"/a\n/b\n/c", "Stating").unwrap().unwrap();
        let refused = |target: &Target| match target.path.as_bytes() {
            b"/a" | b"/b" => Err(Error::new(ErrorKind::NotAuthorized, "no")),
            _ => Ok(()),
        };
        let list = list.with_check(refused);
        assert_eq!(list.clone(), list);
        let found = |list: &TargetList| list.cursor().map(|target| target.is_ok()).collect::<Vec<_>>();
        assert_eq!(found(&list), [true, false, true]);
        assert_eq!(found(&list.without_check()), [true, true, true]);
    }

    #[test]
    fn an_invalid_path_is_an_error_at_its_position() {
        assert!(TargetList::parse(b"a\n/b", "Stating").is_err());
        let text = "Stating relative path 'b' is disallowed.".to_owned();
        assert_eq!(list(b"/a\nb\n/c"), [Ok("/a".to_owned()), Err(text), Ok("/c".to_owned())]);
    }
}
