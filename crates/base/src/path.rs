//! Logical paths: what a client may name, checked and normalised once at the edge.
//!
//! Behind this type no room has to think of `..`, NUL, relative or over-long paths again. Names are bytes: file systems
//! hold names in any encoding, and a server that refused some could not serve what is there.

use crate::{Shown, shown};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The longest path in bytes, as Linux has it (`PATH_MAX` less its NUL).
pub const PATH_BYTES_MAX: usize = 4095;

/// Why a text is not a logical path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathError {
    /// It does not begin with `/`, or has a component `..`.
    Relative,
    /// It is longer than [`PATH_BYTES_MAX`].
    TooLong,
    /// It holds a NUL byte.
    Nul,
}

/// An absolute, normalised path of the exported name space: begins with `/`, has no empty, `.` or `..` component and no
/// NUL. One trailing `/` is kept, because it asks for a directory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogicalPath(Box<[u8]>);

impl LogicalPath {
    /// The top of the name space, `/`.
    pub fn root() -> Self {
        Self(Box::from(&b"/"[..]))
    }

    /// Checks and normalises: `//` and `/./` collapse to `/`.
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

    /// The bytes, beginning with `/`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for logs and terminals: control characters are escaped, because a client chose it.
    pub fn shown(&self) -> Shown<'_> {
        shown(&self.0)
    }

    /// The path as text for replies, where the client expects what it sent. Never for logs.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// The same as a piece of an operating system's path.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Is this the top of the name space?
    pub fn is_root(&self) -> bool {
        &*self.0 == b"/"
    }

    /// Without the trailing `/` that asks for a directory; the root stays `/`.
    pub fn without_slash(&self) -> Self {
        match self.0.split_last() {
            Some((b'/', rest)) if !rest.is_empty() => Self(Box::from(rest)),
            _ => self.clone(),
        }
    }

    /// The last component; `None` for the root.
    pub fn file_name(&self) -> Option<&[u8]> {
        let bytes = self.0.strip_suffix(b"/").unwrap_or(&self.0);
        bytes.rsplit(|&b| b == b'/').next().filter(|name| !name.is_empty())
    }

    /// The directory that holds it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let bytes = self.0.strip_suffix(b"/").unwrap_or(&self.0);
        match bytes.iter().rposition(|&b| b == b'/')? {
            0 if bytes.len() > 1 => Some(Self::root()),
            0 => None,
            at => Some(Self(Box::from(&bytes[..at]))),
        }
    }

    /// Does it lie at or below `prefix`? Whole components count: `/ab` is not below `/a`.
    pub fn is_within(&self, prefix: &LogicalPath) -> bool {
        let prefix = prefix.0.strip_suffix(b"/").unwrap_or(&prefix.0);
        match self.0.strip_prefix(prefix) {
            Some(rest) => rest.is_empty() || rest.first() == Some(&b'/'),
            None => false,
        }
    }

    /// The path that something at or below `from` has after a rename of `from` to `to`; `None` if it would be too long, or if
    /// this path is not within `from`.
    pub fn moved(&self, from: &LogicalPath, to: &LogicalPath) -> Option<Self> {
        let from = from.0.strip_suffix(b"/").unwrap_or(&from.0);
        let rest = self.0.strip_prefix(from).filter(|rest| rest.is_empty() || rest.first() == Some(&b'/'))?;
        Self::parse(&[to.as_bytes(), rest].concat()).ok()
    }

    /// This path with `name` below it. `name` must be one component as a directory listing gives it.
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
    fn a_rename_moves_what_is_within() {
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
    fn the_longest_path_passes_and_one_more_does_not() {
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
