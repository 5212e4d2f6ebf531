//! Fuzz target for the key sets of token issuers (JWKS). Parsing must not panic, and no key may accept
//! a signature that nobody made.

use auth::tokens::{JWKS_KEYS_MAX, KeySet};

/// Checks `data` as a key set.
pub fn target(data: &[u8]) {
    let Ok(keys) = KeySet::parse(data) else { return };
    assert!(!keys.is_empty() && keys.len() + keys.unusable() <= JWKS_KEYS_MAX);
    assert_eq!(KeySet::parse(data).as_ref(), Ok(&keys));
}
