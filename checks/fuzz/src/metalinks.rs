//! Fuzz target for metalinks: a parsed metalink stays within its limits.
//!
//! A metalink comes from a server that need not be trusted, and its name becomes a local file name.

use client::metalink::{METALINK_BYTES_MAX, Metalink, URLS_MAX};

/// Checks `data` as a metalink.
pub fn target(data: &[u8]) {
    let Ok(metalink) = Metalink::parse(data, "redirector") else { return };
    assert!(data.len() <= METALINK_BYTES_MAX);
    assert!(!metalink.urls.is_empty());
    assert!(metalink.urls.len() <= URLS_MAX || data.len() > URLS_MAX);
    if let Some(name) = metalink.name {
        assert!(!name.contains(['/', '\0']) && !matches!(name.as_str(), "" | "." | ".."));
    }
    for (algorithm, value) in metalink.checksums {
        assert_eq!(value.len(), 2 * algorithm.bytes());
    }
}
