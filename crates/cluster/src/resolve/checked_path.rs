//! The check of the path of a request.

use base::PATH_BYTES_MAX;

use crate::paths::plain;
use crate::request::{ClusterAnswer, ErrorCode};

/// Returns a valid path for a look-up, without trailing slashes.
pub(super) fn checked(path: &[u8]) -> Result<&[u8], ClusterAnswer> {
    if path.len() > PATH_BYTES_MAX {
        return Err(ClusterAnswer::error(ErrorCode::NAME_TOO_LONG, "The path is too long."));
    }
    if path.first() != Some(&b'/') {
        return Err(ClusterAnswer::error(ErrorCode::INVALID, "The path is not absolute."));
    }
    Ok(plain(path))
}
