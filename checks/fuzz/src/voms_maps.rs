//! Fuzz target for maps of groups of VOMS to users (`voms.mapfile`).
//!
//! Parsing must not panic. Users are valid names from the file, and a line for everybody at its end only
//! names users for groups without one.

use auth::grid::{Fqan, VomsMap};

/// Names whose users are looked up in addition to the expressions of the file.
const NAMES: [&str; 5] =
    ["/cms", "/cms/Role=production", "/cms/prod/de/Role=NULL/Capability=NULL", "/a", "/atlas/a b/Role=x*y"];

/// Checks `data` as the content of a file.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(map) = VomsMap::parse(text) else { return };
    // A file may have the maximum number of lines already.
    let with_rest = VomsMap::parse(&format!("{text}\n\"/*\" everybody\n"));
    let expressions = text.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
    for name in NAMES.into_iter().chain(expressions.take(16)).filter_map(Fqan::parse) {
        let user = map.user_for(std::slice::from_ref(&name));
        if let Some(user) = &user {
            assert!(
                (1..=64).contains(&user.len()) && !user.starts_with('-') && text.contains(user),
                "{user:?}"
            );
            assert!(user.bytes().all(|byte| byte.is_ascii_graphic()), "{user:?}");
        }
        if let Ok(with_rest) = &with_rest {
            let expected = user.unwrap_or_else(|| "everybody".to_owned());
            assert_eq!(with_rest.user_for(std::slice::from_ref(&name)), Some(expected), "{name}");
        }
    }
}
