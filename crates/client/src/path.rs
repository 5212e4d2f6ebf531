//! Names of entries and paths at servers, as types that cannot be confused with a path with cgi.
//!
//! A server cuts the target of a request at the first `?` and treats the rest as parameters (cgi).
//! A file `data?old` can therefore not be named in any request: a request that tries acts on
//! `data`. So a name from a listing or a local directory becomes part of a path only as a [`Name`],
//! which refuses it. A [`RemotePath`] is never split again.
//!
//! Names are bytes (decision 032). In text, private characters represent bytes that are not UTF-8
//! ([`base::text_of`]). Only [`RequestTarget`] and the functions that return names of this machine
//! convert them back to bytes. Text written by users must not contain such characters. Source:
//! xroot protocol 5.2.0, section 2.1.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use base::{byte_of, bytes_of, text_of};

/// The reason why no request can carry a name or path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// It is `.` or `..`.
    #[error("the name stands for a directory, not for an entry of one")]
    Dots,
    /// It contains a `/`.
    #[error("a name of one entry holds no `/`")]
    Slash,
    /// It contains a `?`.
    #[error("servers take what follows a `?` for parameters, so a request would act on another file")]
    QuestionMark,
    /// It contains a line end.
    #[error("the protocol separates names by line ends")]
    LineEnd,
    /// It contains a NUL.
    #[error("a NUL ends a name")]
    Nul,
    /// It contains a character that represents a byte.
    #[error("the characters U+10FF80 to U+10FFFF are private to this program")]
    Private,
}

/// The name of one entry of a directory that requests can carry. It is not empty, not `.` or `..`,
/// and without `/`, `?`, NUL and line end. In its text, private characters represent bytes that are
/// not UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(Box<str>);

impl Name {
    /// Checks a name in text form.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(name: &str) -> Result<Self, NameError> {
        public(name)?;
        Self::from_bytes(name.as_bytes())
    }

    /// Checks a name as sent by a server, without creating a [`Name`].
    pub(crate) fn check(name: &[u8]) -> Result<(), NameError> {
        if matches!(name, b"." | b"..") {
            return Err(NameError::Dots);
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

    /// Checks a name as sent by a server.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_bytes(name: &[u8]) -> Result<Self, NameError> {
        Self::check(name).map(|()| Self(text_of(name).into()))
    }

    /// Checks a name of a local directory.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn from_os(name: &OsStr) -> Result<Self, NameError> {
        Self::from_bytes(name.as_encoded_bytes())
    }

    /// Checks a name that never becomes part of a path at a server. It may contain a `?` or a line
    /// end.
    pub(crate) fn on_this_machine(name: &OsStr) -> Result<Self, NameError> {
        match Self::from_os(name) {
            Err(NameError::QuestionMark | NameError::LineEnd) => {
                let bytes = name.as_encoded_bytes();
                let is_one = !bytes.contains(&b'/') && !bytes.contains(&0);
                is_one.then(|| Self(text_of(bytes).into())).ok_or(NameError::Slash)
            }
            checked => checked,
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes_of(&self.0)
    }

    /// Returns the name of an entry of this machine.
    #[must_use]
    pub fn to_os(&self) -> OsString {
        OsString::from_vec(self.to_bytes().into_owned())
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

/// A name in a listing. It can always be displayed, but only a name that requests can carry becomes
/// part of a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EntryName(ListedName);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ListedName {
    Good(Name),
    /// The text to display, and the reason.
    Refused(Box<str>, NameError),
}

impl EntryName {
    /// Creates the name from bytes sent by a server.
    #[must_use]
    pub fn from_bytes(name: &[u8]) -> Self {
        Self(match Name::from_bytes(name) {
            Ok(name) => ListedName::Good(name),
            Err(why) => ListedName::Refused(text_of(name).into(), why),
        })
    }

    /// Creates the name from an entry of a local directory.
    #[must_use]
    pub fn from_os(name: &OsStr) -> Self {
        Self::from_bytes(name.as_encoded_bytes())
    }

    /// Returns the text to display.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            ListedName::Good(name) => name,
            ListedName::Refused(shown, _) => shown,
        }
    }

    /// Returns the name as a path component.
    ///
    /// # Errors
    /// [`NameError`] if no request can carry it.
    pub fn component(&self) -> Result<&Name, NameError> {
        match &self.0 {
            ListedName::Good(name) => Ok(name),
            ListedName::Refused(_, why) => Err(*why),
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
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl From<Name> for EntryName {
    fn from(name: Name) -> Self {
        Self(ListedName::Good(name))
    }
}

/// A path relative to a directory: names separated by `/`; empty for the directory itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RelativePath(String);

impl RelativePath {
    /// Returns the path of an entry of this directory.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        let separator = if self.0.is_empty() { "" } else { "/" };
        Self(format!("{}{separator}{name}", self.0))
    }

    /// Returns the path of the parent directory; `None` for the base directory.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let above = self.0.rsplit_once('/').map_or("", |(above, _)| above);
        (!self.0.is_empty()).then(|| Self(above.to_owned()))
    }

    /// Returns the last name; `None` for the base directory.
    pub(crate) fn last(&self) -> Option<Name> {
        let last = self.0.rsplit('/').next()?;
        (!last.is_empty()).then(|| Name(last.into()))
    }

    /// Reports whether it is the base directory itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path on this machine.
    #[must_use]
    pub fn to_path(&self) -> PathBuf {
        OsString::from_vec(bytes_of(&self.0).into_owned()).into()
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

/// Returns a path of this machine as text, for messages.
pub(crate) fn shown_path(path: &Path) -> Cow<'_, str> {
    text_of(path.as_os_str().as_encoded_bytes())
}

/// Refuses text of a user that contains private characters.
pub(crate) fn public(text: &str) -> Result<(), NameError> {
    if text.contains(|c| byte_of(c).is_some()) { Err(NameError::Private) } else { Ok(()) }
}

/// The form in which a request names a file: `path[?cgi]`, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTarget(Vec<u8>);

impl RequestTarget {
    pub(crate) fn new(text: &str) -> Self {
        Self(bytes_of(text).into_owned())
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.0)
    }
}

impl PartialEq<&str> for RequestTarget {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// A path at a server, without cgi. It contains no `?` and no NUL, so that no part of it is taken
/// for parameters. An absolute path begins with `/`.
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

    /// Splits text written by a user, `path[?cgi]`, into the path and the cgi behind the first `?`.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn split(text: &str) -> Result<(Self, &str), NameError> {
        public(text)?;
        let (path, cgi) = text.split_once('?').unwrap_or((text, ""));
        Ok((Self::new(path)?, cgi))
    }

    /// Returns the root directory, `/`.
    #[must_use]
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Returns the path of an entry of this directory.
    #[must_use]
    pub fn join(&self, name: &Name) -> Self {
        debug_assert!(Name::check(&name.to_bytes()).is_ok(), "a name of this machine alone");
        Self(format!("{}/{name}", self.0.trim_end_matches('/')))
    }

    /// Returns the path of a descendant of this directory.
    #[must_use]
    pub fn below(&self, path: &RelativePath) -> Self {
        debug_assert!(!path.0.contains(['?', '\n']), "a path of this machine alone");
        if path.is_empty() { self.clone() } else { Self(format!("{}/{path}", self.0.trim_end_matches('/'))) }
    }

    /// Returns the path without the `/` at its end; the root becomes empty.
    #[must_use]
    pub fn without_slashes(&self) -> Self {
        Self(self.0.trim_end_matches('/').to_owned())
    }

    /// Returns a path built from parts of this one, without a `/` between them: a prefix, a piece,
    /// …
    pub(crate) fn map(&self, change: impl FnOnce(&str) -> String) -> Result<Self, NameError> {
        Self::new(change(&self.0))
    }

    /// Returns the last component, if it names an entry.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        Name::from_bytes(&bytes_of(self.0.trim_end_matches('/').rsplit('/').next()?)).ok()
    }

    /// Returns the text.
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
        ];
        for (bytes, why) in table {
            assert_eq!(Name::from_bytes(bytes), Err(why), "{bytes:?}");
            let listed = EntryName::from_bytes(bytes);
            assert_eq!(listed.component(), Err(why), "{bytes:?}");
            assert_eq!(listed.as_str(), String::from_utf8_lossy(bytes));
        }
        assert_eq!(Name::new("\u{10ffff}"), Err(NameError::Private));
    }

    #[test]
    fn names_that_are_not_text_keep_their_bytes() {
        let name = Name::from_bytes(b"bad\xff").unwrap();
        let path = RemotePath::new("/a").unwrap().join(&name);
        assert_eq!(RequestTarget::new(&format!("{path}?x=1")).as_bytes(), b"/a/bad\xff?x=1");
        assert_eq!((path.name(), name.to_os().into_vec()), (Some(name.clone()), b"bad\xff".to_vec()));
        assert_eq!(
            RelativePath::from(name).to_path(),
            PathBuf::from(OsString::from_vec(b"bad\xff".to_vec()))
        );
        assert_eq!(RemotePath::split(&path), Err(NameError::Private));
        // A byte is not the replacement character.
        assert!(EntryName::from_bytes("\u{fffd}".as_bytes()) != EntryName::from_bytes(b"\xff"));
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
