//! Logins with Kerberos tickets: from the configuration to the protocol `krb5`.

use crate::adapters::SystemAccounts;
use crate::error::StartError;
use auth::krb5::{Krb5Server, Krb5ServerSettings};
use config::Krb5Options;
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
}
