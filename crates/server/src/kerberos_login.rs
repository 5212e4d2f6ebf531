//! Logins with Kerberos tickets: from the configuration to the protocol `krb5`.

use crate::error::StartError;
use auth::krb5::{Krb5Server, Krb5ServerSettings};
use auth::{AccountDatabase, UserAccount};
use config::Krb5Options;
use nix::unistd::{Group, User, getgrouplist};
use std::ffi::CString;
use std::io;
use std::sync::Arc;

/// The variable of a principal that stands for the name of this host.
const HOST: &str = "<host>";

/// Opens the Kerberos library and checks the key table. Blocks.
///
/// # Errors
/// [`StartError::Security`] with the missing part.
pub(crate) fn krb5(options: &Krb5Options, host: &str) -> Result<Krb5Server, StartError> {
    crate::login::keep_out_of_core_dumps("the keys of krb5");
    let settings = Krb5ServerSettings {
        keytab: options.keytab.clone(),
        checks_addresses: options.checks_addresses,
        ticket_file: options.ticket_file.clone(),
        ..Krb5ServerSettings::new(options.principal.replace(HOST, host))
    };
    Krb5Server::open(settings, Some(Arc::new(SystemAccounts)))
        .map_err(|error| StartError::Security(format!("krb5: {error}")))
}

/// The users and groups of the system. Look-ups can ask a directory server.
struct SystemAccounts;

impl AccountDatabase for SystemAccounts {
    fn user(&self, name: &str) -> io::Result<Option<UserAccount>> {
        let user = User::from_name(name)?;
        Ok(user.map(|user| UserAccount { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
    }

    fn group(&self, name: &str) -> io::Result<Option<u32>> {
        Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
    }

    fn groups_of(&self, name: &str) -> io::Result<Vec<String>> {
        let Some(user) = User::from_name(name)? else { return Ok(Vec::new()) };
        let mut ids = getgrouplist(&CString::new(name)?, user.gid)?;
        ids.sort_by_key(|id| *id != user.gid);
        let name = |id| Ok(Group::from_gid(id)?.map(|group| group.name));
        ids.into_iter().filter_map(|id| name(id).transpose()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_usable_key_table_does_not_start() {
        let mut options = Krb5Options::new("xrootd/<host>@TEST.EXAMPLE".to_owned());
        options.keytab = Some("/nonexistent/keytab".into());
        let Err(StartError::Security(text)) = krb5(&options, "h.example.org") else { panic!("it starts") };
        assert!(
            text.starts_with("krb5: the key table /nonexistent/keytab cannot be read: no such"),
            "{text}"
        );
        options.principal = "xrootd/<host>@A@B".to_owned();
        let Err(StartError::Security(text)) = krb5(&options, "h.example.org") else { panic!("it starts") };
        assert!(text.contains("the principal 'xrootd/h.example.org@A@B' is not usable: "), "{text}");
    }

    #[test]
    fn accounts_are_those_of_the_system() {
        assert_eq!(SystemAccounts.user("root").unwrap().map(|root| (root.uid, root.gid)), Some((0, 0)));
        assert_eq!(SystemAccounts.user("no-such-user-4711").unwrap(), None);
        assert_eq!(SystemAccounts.group("root").unwrap(), Some(0));
        assert_eq!(SystemAccounts.groups_of("root").unwrap().first().map(String::as_str), Some("root"));
        assert_eq!(SystemAccounts.groups_of("no-such-user-4711").unwrap(), [""; 0]);
    }
}
