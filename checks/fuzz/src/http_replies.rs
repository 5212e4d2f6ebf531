//! Fuzz target for the parts of replies of HTTP servers that the client parses itself.
//!
//! A range decides where bytes of a file go, and the names of a listing become names of entries.

use client::http::{ContentRange, check_multistatus, check_object_listing};

/// Checks `data` as the value of `Content-Range`, and as listings of WebDAV and of an object store.
pub fn target(data: &[u8]) {
    if let Some(range) = std::str::from_utf8(data).ok().and_then(ContentRange::parse)
        && let Some((first, last)) = range.bytes
    {
        assert!(first <= last && range.total.is_none_or(|total| last < total));
    }
    if let Ok(count) = check_multistatus(data) {
        // Each entry has a start, an end and a path.
        assert!(count <= data.len() / 10);
    }
    if let Ok(count) = check_object_listing(data) {
        // Each entry has a start, an end and a key.
        assert!(count <= data.len() / 10);
    }
}
