//! Logical paths: paths sent by clients, validated and normalised once (decision 012).
//!
//! Code that receives this type need not check for `..`, NUL, relative or overlong paths again.
//! Paths are bytes, because file systems store names in any encoding and a server must be able to
//! serve all of them.

use crate::{Shown, shown};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Maximum length of a path in bytes, as in Linux (`PATH_MAX` without the NUL).
pub const PATH_BYTES_MAX: usize = 4095;

/// The reason why a text is not a logical path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The text does not begin with `/`, or has a component `..`.
    Relative,
    /// The text is longer than [`PATH_BYTES_MAX`].
    TooLong,
    /// The text contains a NUL byte.
    Nul,
}

/// An absolute, normalised path of the exported name space. It begins with `/` and has no empty,
/// `.` or `..` component and no NUL. One trailing `/` is kept, because it asks for a directory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogicalPath(Box<[u8]>);

impl LogicalPath {
    /// Returns the root of the name space, `/`.
    pub fn root() -> Self {
        Self(Box::from(&b"/"[..]))
    }

    /// Validates and normalises a path: `//` and `/./` collapse to `/`.
    pub fn parse(raw: &[u8]) -> Result<Self, PathError> {
        if raw.contains(&0) {
            return Err(PathError::Nul);
        }
        if raw.first() != Some(&b'/') {
            return Err(PathError::Relative);
        }
        let mut out = Vec::with_capacity(raw.len());
        for part in raw.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(PathError::Relative),
                name => {
                    out.push(b'/');
                    out.extend_from_slice(name);
                }
            }
        }
        if out.is_empty() || raw.ends_with(b"/") || raw.ends_with(b"/.") {
            out.push(b'/');
        }
        if out.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        Ok(Self(out.into_boxed_slice()))
    }

    /// Returns the bytes, which begin with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path for logs and terminals. Control characters are escaped, because a client
    /// chose them.
    pub fn shown(&self) -> Shown<'_> {
        shown(&self.0)
    }

    /// Returns the path as text for replies, in which the client expects the path that it sent. Not
    /// for logs.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Returns the path as a string of the operating system.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Reports whether this is the root of the name space.
    pub fn is_root(&self) -> bool {
        &*self.0 == b"/"
    }

    /// Returns the path without the trailing `/` that asks for a directory; the root stays `/`.
    pub fn without_slash(&self) -> Self {
        match self.0.split_last() {
            Some((b'/', rest)) if !rest.is_empty() => Self(Box::from(rest)),
            _ => self.clone(),
        }
    }

    /// Returns the last component; `None` for the root.
    pub fn file_name(&self) -> Option<&[u8]> {
        let bytes = self.0.strip_suffix(b"/").unwrap_or(&self.0);
        bytes.rsplit(|&b| b == b'/').next().filter(|name| !name.is_empty())
    }

    /// Returns the parent directory; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let bytes = self.0.strip_suffix(b"/").unwrap_or(&self.0);
        match bytes.iter().rposition(|&b| b == b'/')? {
            0 if bytes.len() > 1 => Some(Self::root()),
            0 => None,
            at => Some(Self(Box::from(&bytes[..at]))),
        }
    }

    /// Reports whether this path is `prefix` or lies below it. Whole components are compared: `/ab`
    /// is not below `/a`.
    pub fn is_within(&self, prefix: &LogicalPath) -> bool {
        let prefix = prefix.0.strip_suffix(b"/").unwrap_or(&prefix.0);
        match self.0.strip_prefix(prefix) {
            Some(rest) => rest.is_empty() || rest.first() == Some(&b'/'),
            None => false,
        }
    }

    /// Returns the path of this object after a rename of `from` to `to`. Returns `None` if this
    /// path is not within `from` or the new path is too long.
    pub fn moved(&self, from: &LogicalPath, to: &LogicalPath) -> Option<Self> {
        let from = from.0.strip_suffix(b"/").unwrap_or(&from.0);
        let rest = self.0.strip_prefix(from).filter(|rest| rest.is_empty() || rest.first() == Some(&b'/'))?;
        Self::parse(&[to.as_bytes(), rest].concat()).ok()
    }

    /// Returns the path of `name` in this directory. `name` must be one component, as returned by a
    /// directory listing.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let mut raw = self.0.to_vec();
        raw.push(b'/');
        raw.extend_from_slice(name);
        Self::parse(&raw)
    }
}

impl fmt::Debug for LogicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(raw: &str) -> Result<String, PathError> {
        LogicalPath::parse(raw.as_bytes()).map(|p| p.text().into_owned())
    }

    #[test]
    fn a_rename_moves_the_paths_below_it() {
        let moved = |path: &str, from: &str, to: &str| {
            let [path, from, to] = [path, from, to].map(|raw| LogicalPath::parse(raw.as_bytes()).unwrap());
            path.moved(&from, &to).map(|path| path.text().into_owned())
        };
        assert_eq!(moved("/a/b/c", "/a", "/x/y").as_deref(), Some("/x/y/b/c"));
        assert_eq!(moved("/a", "/a/", "/x").as_deref(), Some("/x"));
        assert_eq!(moved("/ab", "/a", "/x"), None);
        assert_eq!(moved("/a/b", "/a", &format!("/{}", "x".repeat(PATH_BYTES_MAX - 2))), None);
    }

    #[test]
    fn paths_are_normalised_once() {
        for (raw, want) in [
            ("/", "/"),
            ("//", "/"),
            ("/.", "/"),
            ("/a//b/./c", "/a/b/c"),
            ("/a/b/", "/a/b/"),
            ("/a/b/.", "/a/b/"),
            ("/a/..b/c..", "/a/..b/c.."),
        ] {
            assert_eq!(parsed(raw).as_deref(), Ok(want), "{raw}");
        }
        for raw in ["", "a", "../a", "/..", "/a/../b", "/a/.."] {
            assert_eq!(parsed(raw), Err(PathError::Relative), "{raw}");
        }
        assert_eq!(parsed("/a\0b"), Err(PathError::Nul));
    }

    #[test]
    fn the_longest_path_is_accepted_and_a_longer_one_refused() {
        let longest = format!("/{}", "x".repeat(PATH_BYTES_MAX - 1));
        assert_eq!(parsed(&longest).as_deref(), Ok(longest.as_str()));
        assert_eq!(parsed(&format!("{longest}x")), Err(PathError::TooLong));
    }

    #[test]
    fn prefixes_count_whole_components() {
        let path = |s: &str| LogicalPath::parse(s.as_bytes()).unwrap();
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/a/")));
        assert!(path("/anything").is_within(&path("/")));
        assert!(!path("/ab").is_within(&path("/a")));
        assert!(!path("/").is_within(&path("/a")));
    }

    #[test]
    fn parents_and_names() {
        let path = |s: &str| LogicalPath::parse(s.as_bytes()).unwrap();
        assert_eq!(path("/a/b/").parent(), Some(path("/a")));
        assert_eq!(path("/a").parent(), Some(path("/")));
        assert_eq!(path("/").parent(), None);
        assert_eq!(path("/a/b/").file_name(), Some(&b"b"[..]));
        assert_eq!(path("/").file_name(), None);
    }
}
