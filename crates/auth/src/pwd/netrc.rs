//! Passwords in a file of the form of `netrc`: `machine HOST login USER password PASSWORD`.

use super::hash::PASSWORD_BYTES_MAX;
use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedOwner, read_trusted};
use std::path::Path;

/// Maximum size of the file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const TRUST: FileTrust = FileTrust::private(TrustedOwner::Own, "read the passwords", FILE_BYTES_MAX);

/// Returns the password of a user at a host; `None` if the file has none.
pub(super) fn password_of(path: &Path, host: &str, user: &str) -> Result<Option<Secret>, String> {
    let (bytes, _) = read_trusted(path, &TRUST).map_err(|error| error.text_of(path))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is not text", path.display()))?;
    Ok(find(text, host, user))
}

fn find(text: &str, host: &str, user: &str) -> Option<Secret> {
    let (mut is_host, mut is_user) = (false, false);
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "machine" => (is_host, is_user) = (words.next() == Some(host), false),
            "default" => (is_host, is_user) = (true, false),
            "login" => is_user = words.next() == Some(user),
            "password" => {
                let password = words.next()?;
                if is_host && is_user && password.len() <= PASSWORD_BYTES_MAX {
                    return Some(Secret::from(password.as_bytes()));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_password_of_a_user_at_a_host_counts() {
        let text = "machine a login alice password one\nmachine b\n login bob\n password two\n\
                    machine a login bob password three default login carol password four";
        for (host, user, password) in [
            ("a", "alice", Some("one")),
            ("b", "bob", Some("two")),
            ("a", "bob", Some("three")),
            ("c", "carol", Some("four")),
            ("b", "alice", None),
            ("c", "alice", None),
        ] {
            let found = find(text, host, user);
            assert_eq!(found.is_some(), password.is_some(), "{host} {user}");
            assert!(found.is_none_or(|found| found.is_equal(password.unwrap().as_bytes())));
        }
        assert!(find("machine a login alice password", "a", "alice").is_none());
    }
}
