//! Fuzz target for key tables of `sss`.
//!
//! Parsing must not panic, and a table must be equal after it was written and read again.

use auth::sss::{KEY_BYTES_MAX, KEY_NAME_BYTES_MAX, Keytab};

/// Checks `data` as the content of a file.
pub fn target(data: &[u8]) {
    let Ok(table) = Keytab::parse(data) else { return };
    for key in &table.keys {
        assert!((1..=KEY_BYTES_MAX).contains(&key.secret.expose().len()));
        assert!(key.name.len() <= KEY_NAME_BYTES_MAX);
    }
    assert!(table.keys.is_empty() || table.choose(0).is_some());
    let text = table.encode();
    let Ok(again) = Keytab::parse(text.as_bytes()) else { panic!("a written table is malformed") };
    assert!(again.keys.len() == table.keys.len() && again.encode() == text);
}
