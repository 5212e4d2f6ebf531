//! [`CacheKey`]: the name of a file in the cache, and the names of its files on disk.

use base::LogicalPath;
use std::ops::Bound;

/// Suffix of the file that describes a cached file. Source: proxy facts, section 12.
const STATE_SUFFIX: &[u8] = b".cinfo";
/// The directory of the cache's own files.
pub(crate) const OWN_DIRECTORY: &str = "/.scalla-cache";
/// Directories at the top of the tree that belong to the cache, also to that of XRootD.
const OWN_NAMES: [&[u8]; 3] = [b".scalla-cache", b"pfc-stats", b".xrdt"];
/// Maximum length of a name in bytes, as on common file systems.
const NAME_BYTES_MAX: usize = 255;

/// The name of a file in the cache. It can be neither the name of a state file nor that of a file of the cache
/// itself, so a client can never choose a name at which the cache keeps something else.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CacheKey(LogicalPath);

impl CacheKey {
    /// Returns the key of a path; `None` if a file with this path cannot be cached.
    #[must_use]
    pub fn new(path: &LogicalPath) -> Option<Self> {
        let bytes = path.as_bytes();
        let mut components = bytes.split(|&byte| byte == b'/').skip(1).peekable();
        let is_own = components.peek().is_some_and(|first| OWN_NAMES.contains(first));
        let fits = |name: &[u8]| {
            !name.is_empty()
                && !name.ends_with(STATE_SUFFIX)
                && name.len() + STATE_SUFFIX.len() <= NAME_BYTES_MAX
        };
        let is_allowed =
            !is_own && components.all(fits) && bytes.len() + STATE_SUFFIX.len() <= base::PATH_BYTES_MAX;
        is_allowed.then(|| Self(path.clone()))
    }

    /// Returns the key whose state has this path.
    pub(crate) fn of_state(path: &LogicalPath) -> Option<Self> {
        let data = path.as_bytes().strip_suffix(STATE_SUFFIX)?;
        Self::new(&LogicalPath::parse(data).ok()?)
    }

    /// Returns the path of the data, which is that of the file.
    #[must_use]
    pub const fn data(&self) -> &LogicalPath {
        &self.0
    }

    /// Returns the path of the state.
    #[must_use]
    pub fn state(&self) -> LogicalPath {
        let bytes = [self.0.as_bytes(), STATE_SUFFIX].concat();
        // The length was checked, and the suffix has no separator.
        LogicalPath::parse(&bytes).unwrap_or_else(|_| self.0.clone())
    }

    /// Returns the bounds of the keys below a directory; `None` if there can be none. They are for comparisons only, and
    /// not keys of files.
    pub(crate) fn bounds_below(directory: &LogicalPath) -> Option<(Bound<Self>, Bound<Self>)> {
        if directory.is_root() {
            return Some((Bound::Unbounded, Bound::Unbounded));
        }
        let name = directory.without_slash();
        let with = |end: u8| LogicalPath::parse(&[name.as_bytes(), &[end]].concat()).ok().map(Self);
        // The byte `0` follows the slash.
        Some((Bound::Excluded(with(b'/')?), Bound::Excluded(with(b'0')?)))
    }

    /// Returns the directory of both.
    #[must_use]
    pub fn directory(&self) -> LogicalPath {
        self.0.parent().unwrap_or_else(LogicalPath::root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<CacheKey> {
        CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn a_key_has_two_files() {
        let found = key("/a/f").unwrap();
        assert_eq!((found.data().text(), found.state().text()), ("/a/f".into(), "/a/f.cinfo".into()));
        assert_eq!(found.directory().text(), "/a");
        assert_eq!(CacheKey::of_state(&found.state()), Some(found));
        assert_eq!(CacheKey::of_state(&LogicalPath::parse(b"/.cinfo").unwrap()), None);
    }

    #[test]
    fn names_of_the_cache_are_no_keys() {
        for text in ["/", "/a/", "/a.cinfo", "/a.cinfo/b", "/.scalla-cache/x", "/pfc-stats/x", "/.xrdt/x"] {
            assert_eq!(key(text), None, "{text}");
        }
        assert!(key("/a/.scalla-cache").is_some(), "only at the top");
        assert!(key(&format!("/{}", "x".repeat(249))).is_some());
        assert!(key(&format!("/{}", "x".repeat(250))).is_none(), "its state would have no name");
    }
}
