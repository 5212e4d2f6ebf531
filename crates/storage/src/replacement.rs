//! Names of replacements: files that are written beside an existing one, and take its name when they
//! are complete.
//!
//! Listings do not show them. Clients must not use them, which callers of [`crate::Backend`] check with
//! [`is_replacement`]. The name does not prove that a file is a replacement, so no file is removed
//! because of it.

use base::LogicalPath;
use digest::{Algorithm, RunningChecksum};
use rustix::io::Errno;
use std::io;

/// The begin of the names of replacements.
pub(crate) const REPLACEMENT_PREFIX: &[u8] = b".scalla-replacing-";

/// Number of digits of the hash in a name.
const NAME_DIGITS: usize = 32;

/// Returns the name of the replacement of a file, in the same directory. It is always the same, so that
/// a later upload finds what an earlier one has left.
///
/// # Errors
/// `ENAMETOOLONG` if the path is too long, and `EISDIR` for the root.
pub fn replacement_path(target: &LogicalPath) -> io::Result<LogicalPath> {
    let target = target.without_slash();
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Errno::ISDIR.into());
    };
    let hash = RunningChecksum::of(Algorithm::Sha256, name).hex();
    let name = [REPLACEMENT_PREFIX, hash.get(..NAME_DIGITS).unwrap_or(&hash).as_bytes()].concat();
    parent.join(&name).map_err(|_| Errno::NAMETOOLONG.into())
}

/// Reports whether a path is reserved for a replacement.
pub fn is_replacement(path: &LogicalPath) -> bool {
    path.without_slash().file_name().is_some_and(|name| name.starts_with(REPLACEMENT_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_beside_its_file_and_belongs_to_it_only() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let one = replacement_path(&path("/a/b")).unwrap();
        assert_eq!(one.parent(), path("/a/b").parent());
        assert!(is_replacement(&one) && !is_replacement(&path("/a/b")));
        assert!(is_replacement(&path(&format!("{}/", one.text()))));
        assert_eq!(replacement_path(&path("/a/b/")).unwrap(), one);
        for other in ["/a/c", "/b/b"] {
            assert_ne!(replacement_path(&path(other)).unwrap(), one, "{other}");
        }
        assert!(replacement_path(&path("/")).is_err());
    }
}
