//! Metalinks: what is read of one stays within its limits.

use client::metalink::{METALINK_BYTES_MAX, Metalink, URLS_MAX};

/// `data` is a metalink.
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
