//! Fuzz target for logical paths: an accepted path is absolute and normalised.
//!
//! It cannot leave the name space. Later code relies on this and does not check for `..` again.

use base::LogicalPath;
use base::PathError;

/// Checks `data` as a path sent by a client.
pub fn target(data: &[u8]) {
    let path = match LogicalPath::parse(data) {
        Ok(path) => path,
        Err(PathError::Nul) => return assert!(data.contains(&0)),
        Err(PathError::TooLong) => return assert!(data.len() > base::PATH_BYTES_MAX),
        Err(PathError::Relative) => {
            let climbs = data.split(|&byte| byte == b'/').any(|part| part == b"..");
            return assert!(climbs || data.first() != Some(&b'/'));
        }
    };
    let bytes = path.as_bytes();
    assert_eq!(bytes.first(), Some(&b'/'));
    assert!(bytes.len() <= base::PATH_BYTES_MAX && bytes.len() <= data.len() + 1);
    let inner = bytes.strip_prefix(b"/").unwrap_or_default();
    let inner = inner.strip_suffix(b"/").unwrap_or(inner);
    for part in inner.split(|&byte| byte == b'/').filter(|_| !inner.is_empty()) {
        assert!(!matches!(part, b"" | b"." | b".."), "{path:?}");
    }
    assert_eq!(LogicalPath::parse(bytes).as_ref(), Ok(&path), "normalisation is idempotent");
    assert!(path.is_within(&LogicalPath::root()) && path.is_within(&path));
    let Some(parent) = path.parent() else { return assert!(path.is_root()) };
    assert!(path.is_within(&parent) && !parent.is_within(&path));
    let Some(name) = path.file_name() else { panic!("{path:?} has a parent but no name") };
    assert_eq!(parent.join(name), Ok(path.without_slash()));
}
