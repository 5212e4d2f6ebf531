//! Names of replacements: files that are written beside an existing one, and take its name when they
//! are complete.
//!
//! Listings do not show them. Clients must not use them, which callers of [`crate::Backend`] check with
//! [`is_replacement`]. The name does not prove that a file is a replacement, so no file is removed
//! because of it.

use base::LogicalPath;
use rustix::io::Errno;
use std::io;

/// The begin of the names of replacements.
pub(crate) const REPLACEMENT_PREFIX: &[u8] = b".scalla-replacing-";

/// Returns a name for the replacement of a file, in the same directory. `unique` is a random text, so
/// that no two uploads use the same name, also those of servers that do not know each other.
///
/// # Errors
/// `ENAMETOOLONG` if the path is too long, and `EISDIR` for the root.
pub fn replacement_path(target: &LogicalPath, unique: &str) -> io::Result<LogicalPath> {
    let parent = target.without_slash().parent().ok_or(Errno::ISDIR)?;
    let name = [REPLACEMENT_PREFIX, unique.as_bytes()].concat();
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
    fn a_replacement_is_beside_its_file() {
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let one = replacement_path(&path("/a/b"), "1").unwrap();
        assert_eq!(one.parent(), path("/a/b").parent());
        assert!(is_replacement(&one) && !is_replacement(&path("/a/b")));
        assert!(is_replacement(&path(&format!("{}/", one.text()))));
        assert_eq!(replacement_path(&path("/a/b/"), "1").unwrap(), one);
        assert_ne!(replacement_path(&path("/a/b"), "2").unwrap(), one);
        assert!(replacement_path(&path("/"), "1").is_err());
    }
}
