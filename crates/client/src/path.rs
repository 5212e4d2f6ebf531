//! Names of entries and paths at servers, as types that cannot be mistaken for a path with cgi.
//!
//! A server cuts what a request names at the first `?` and takes the rest for parameters (cgi). A file `data?old` can
//! therefore not be named in any request: a request that tries acts on `data`. So a name that comes from a listing or from a
//! local directory becomes part of a path only as a [`Name`], which refuses it, and a [`RemotePath`] is never split again.
//! Source: xroot protocol 5.2.0, section 2.1.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;

/// Why a name or a path cannot be carried in a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// There is nothing.
    #[error("the name is empty")]
    Empty,
    /// `.` or `..`.
    #[error("the name stands for a directory, not for an entry of one")]
    Dots,
    /// It holds a `/`.
    #[error("a name of one entry holds no `/`")]
    Slash,
    /// It holds a `?`.
    #[error("servers take what follows a `?` for parameters, so a request would act on another file")]
    QuestionMark,
    /// It holds a line end.
    #[error("the protocol separates names by line ends")]
    LineEnd,
    /// It holds a NUL.
    #[error("a NUL ends a name")]
    Nul,
    /// Its bytes are not UTF-8.
    #[error("the name is not UTF-8")]
    NotText,
}

/// The name of one entry of a directory, which requests can carry: UTF-8, not empty, not `.` or `..`, without `/`, `?`,
/// NUL and line end.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(Box<str>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::check(name.as_bytes()).map(|()| Self(name.into()))
    }

    /// Checks a name as a server sent it, without making one of it.
    pub(crate) fn check(name: &[u8]) -> Result<(), NameError> {
        if matches!(name, b"." | b"..") {
            return Err(NameError::Dots);
        }
        if std::str::from_utf8(name).is_err() {
            return Err(NameError::NotText);
        }
        let refused = name.iter().find_map(|byte| match byte {
            b'/' => Some(NameError::Slash),
            b'?' => Some(NameError::QuestionMark),
            b'\n' => Some(NameError::LineEnd),
            0 => Some(NameError::Nul),
            _ => None,
        });
        refused.or(name.is_empty().then_some(NameError::Empty)).map_or(Ok(()), Err)
    }

    /// Checks a name as a server sent it.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        std::str::from_utf8(name).map_err(|_| NameError::NotText).and_then(Self::new)
    }

    /// Checks a name of a local directory.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_os(name: &OsStr) -> Result<Self, NameError> {
        Self::from_bytes(name.as_encoded_bytes())
    }

    /// Checks a name that never becomes part of a path at a server: it may hold a `?` or a line end.
    pub(crate) fn on_this_machine(name: &OsStr) -> Result<Self, NameError> {
        match Self::from_os(name) {
            Err(NameError::QuestionMark | NameError::LineEnd) => {
                let text = name.to_str().filter(|text| !text.contains(['/', '\0']));
                text.map(|text| Self(text.into())).ok_or(NameError::Slash)
            }
            checked => checked,
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name in a listing. It can be shown in any case; a path is made only of one that requests can carry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EntryName(Listed);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Listed {
    Good(Name),
    /// The text to show, in which U+FFFD stands for bytes that are not UTF-8, and the reason.
    Refused(Box<str>, NameError),
}

impl EntryName {
    /// A name as a server sent it.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Self {
        Self(match Name::from_bytes(name) {
            Ok(name) => Listed::Good(name),
            Err(why) => Listed::Refused(String::from_utf8_lossy(name).into(), why),
        })
    }

    /// A name of a local directory.
    #[must_use]
    pub fn from_os(name: &OsStr) -> Self {
        Self::from_bytes(name.as_encoded_bytes())
    }

    /// The text to show.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Listed::Good(name) => name,
            Listed::Refused(shown, _) => shown,
        }
    }

    /// The name for a path.
    ///
    /// # Errors
    /// [`NameError`] when no request can carry it.
    pub fn component(&self) -> Result<&Name, NameError> {
        match &self.0 {
            Listed::Good(name) => Ok(name),
            Listed::Refused(_, why) => Err(*why),
        }
    }
}

impl Deref for EntryName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for EntryName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for EntryName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for EntryName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EntryName {
    /// By text; a refused name never equals a good one that is shown alike.
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |name: &Self| u8::from(name.component().is_err());
        self.as_str().cmp(other.as_str()).then_with(|| rank(self).cmp(&rank(other)))
    }
}

impl From<Name> for EntryName {
    fn from(name: Name) -> Self {
        Self(Listed::Good(name))
    }
}

/// A path from a directory on: names separated by `/`, none for the directory itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RelativePath(String);

impl RelativePath {
    /// The path of an entry of the directory that this is.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        let separator = if self.0.is_empty() { "" } else { "/" };
        Self(format!("{}{separator}{name}", self.0))
    }

    /// The path of the directory in which it is; `None` for the directory that all paths begin with.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let above = self.0.rsplit_once('/').map_or("", |(above, _)| above);
        (!self.0.is_empty()).then(|| Self(above.to_owned()))
    }

    /// The name at its end; `None` for the directory that all paths begin with.
    pub(crate) fn last(&self) -> Option<Name> {
        let last = self.0.rsplit('/').next()?;
        (!last.is_empty()).then(|| Name(last.into()))
    }

    /// Whether it is the directory itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Name> for RelativePath {
    fn from(name: Name) -> Self {
        Self(name.0.into())
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path at a server, without cgi. It holds no `?` and no NUL, so that nothing of it is taken for parameters. Absolute ones
/// begin with `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RemotePath(String);

impl RemotePath {
    /// Checks a path.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(path: impl Into<String>) -> Result<Self, NameError> {
        let path = path.into();
        let refused = path.bytes().find_map(|byte| match byte {
            b'?' => Some(NameError::QuestionMark),
            0 => Some(NameError::Nul),
            _ => None,
        });
        refused.map_or(Ok(Self(path)), Err)
    }

    /// Takes apart what a user writes, `path[?cgi]`: the path, and the cgi behind the first `?`.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn split(text: &str) -> Result<(Self, &str), NameError> {
        let (path, cgi) = text.split_once('?').unwrap_or((text, ""));
        Ok((Self::new(path)?, cgi))
    }

    /// The directory above all others, `/`.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The path of an entry of the directory that this is.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        debug_assert!(Name::new(name).is_ok(), "a name of this machine alone");
        Self(format!("{}/{name}", self.0.trim_end_matches('/')))
    }

    /// The path of what is below the directory that this is.
    #[must_use]
    pub fn below(&self, path: &RelativePath) -> Self {
        debug_assert!(!path.0.contains(['?', '\n']), "a path of this machine alone");
        if path.is_empty() { self.clone() } else { Self(format!("{}/{path}", self.0.trim_end_matches('/'))) }
    }

    /// The same without the `/` at its end; nothing is left of the root.
    #[must_use]
    pub fn without_slashes(&self) -> Self {
        Self(self.0.trim_end_matches('/').to_owned())
    }

    /// A path made of parts of this one, without a `/` between them: a prefix, a piece, …
    pub(crate) fn map(&self, change: impl FnOnce(&str) -> String) -> Result<Self, NameError> {
        Self::new(change(&self.0))
    }

    /// The last component, if there is one that names an entry.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        Name::new(self.0.trim_end_matches('/').rsplit('/').next()?).ok()
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for RemotePath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq<str> for RemotePath {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for RemotePath {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component_that_requests_can_carry() {
        for good in ["a", "...", ".a", "a b", "a&b=c", "#", "%3F", "\u{fffd}", "\\", "a\r", "\u{1b}[2J"] {
            assert_eq!(Name::new(good).as_deref(), Ok(good));
        }
        let table = [
            (&b""[..], NameError::Empty),
            (b".", NameError::Dots),
            (b"..", NameError::Dots),
            (b"a/b", NameError::Slash),
            (b"/", NameError::Slash),
            (b"data?old", NameError::QuestionMark),
            (b"?", NameError::QuestionMark),
            (b"a\nb", NameError::LineEnd),
            (b"a\0b", NameError::Nul),
            (b"bad\xff", NameError::NotText),
        ];
        for (bytes, why) in table {
            assert_eq!(Name::from_bytes(bytes), Err(why), "{bytes:?}");
            let listed = EntryName::from_bytes(bytes);
            assert_eq!(listed.component(), Err(why), "{bytes:?}");
            assert_eq!(listed.as_str(), String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_name_that_stays_on_this_machine_may_hold_more() {
        for good in ["a", "data?old", "new\nline", "?"] {
            assert_eq!(Name::on_this_machine(good.as_ref()).as_deref(), Ok(good));
        }
        for bad in ["", ".", "..", "a/b", "a?b/c"] {
            assert!(Name::on_this_machine(bad.as_ref()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refused_name_never_hides_a_good_one() {
        let (good, refused) =
            (EntryName::from_bytes("bad\u{fffd}".as_bytes()), EntryName::from_bytes(b"bad\xff"));
        assert_eq!(good.as_str(), refused.as_str());
        assert!(good != refused && good < refused);
    }

    #[test]
    fn paths_are_joined_of_names_and_never_split() {
        let name = |text| Name::new(text).unwrap();
        let path = |text: &str| RemotePath::new(text).unwrap();
        assert_eq!(path("/a/").join(&name("b&c=1")), "/a/b&c=1");
        assert_eq!(path("/").join(&name("b")), "/b");
        let below = RelativePath::from(name("b")).join(&name("c"));
        assert_eq!(path("/a").below(&below), "/a/b/c");
        assert_eq!(path("/a").below(&RelativePath::default()), "/a");
        assert_eq!(path("/a/b/").name(), Some(name("b")));
        assert_eq!(path("/").name(), None);
        assert_eq!(RemotePath::new("/a?b"), Err(NameError::QuestionMark));
        assert_eq!(RemotePath::new("/a\0"), Err(NameError::Nul));
        assert_eq!(RemotePath::split("/a?b?c"), Ok((path("/a"), "b?c")));
    }
}
