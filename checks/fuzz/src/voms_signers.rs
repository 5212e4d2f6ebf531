//! Fuzz target for the names of signers of VOMS attributes (`HOST.lsc`).
//!
//! Parsing must not panic. Each list has a signer and its issuer, and the names are equal after they were
//! written and read again.

use auth::grid::signer_names;

/// Checks `data` as the content of a file.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(lists) = signer_names(text) else { return };
    assert!(!lists.is_empty());
    for list in &lists {
        assert!((2..=16).contains(&list.len()) && list.iter().all(|name| name.starts_with('/')), "{list:?}");
    }
    let written: Vec<String> = lists.iter().map(|list| list.join("\n")).collect();
    assert_eq!(signer_names(&written.join("\n------\n")).as_ref(), Some(&lists));
}
