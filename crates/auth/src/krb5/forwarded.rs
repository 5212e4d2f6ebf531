//! The file of the ticket that a user has forwarded.

use std::path::PathBuf;

use base::errno_text;

use crate::accounts::AccountDatabase;

/// Variables of a template.
const USER: &str = "<user>";
const USER_ID: &str = "<uid>";

/// Returns the path of a user's ticket. The name of the user has been checked, so it is no path.
pub(super) fn ticket_path(
    template: &str,
    user: &str,
    accounts: Option<&dyn AccountDatabase>,
) -> Result<PathBuf, String> {
    let mut path = template.replace(USER, user);
    if path.contains(USER_ID) {
        let account = accounts.map(|accounts| accounts.user(user)).transpose();
        let account = account.map_err(|error| {
            format!("the accounts of this host cannot be asked for {user}: {}", errno_text(&error))
        })?;
        let account = account.flatten().ok_or_else(|| {
            format!("{user} has no account on this host; use <user> instead of <uid> in -exptkn:")
        })?;
        path = path.replace(USER_ID, &account.uid.to_string());
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::TestAccounts;

    #[test]
    fn templates_name_the_user() {
        let path = |template, user| ticket_path(template, user, Some(&TestAccounts));
        assert_eq!(path("/t/krb5cc_<uid>", "alice"), Ok("/t/krb5cc_1001".into()));
        assert_eq!(path("/t/<user>/<uid>", "alice"), Ok("/t/alice/1001".into()));
        assert_eq!(path("/t/<user>", "bob"), Ok("/t/bob".into()));
        assert!(path("/t/<uid>", "bob").unwrap_err().contains("use <user> instead of <uid>"));
        assert!(path("/t/<uid>", "broken").unwrap_err().contains("cannot be asked for broken"));
        assert!(ticket_path("/t/<uid>", "alice", None).is_err());
    }
}
