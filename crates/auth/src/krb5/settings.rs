//! Settings of both sides of `krb5`.

use std::path::PathBuf;

/// The variable with the cache of the user's tickets.
const CACHE_VARIABLE: &str = "KRB5CCNAME";
/// The variable that lets the client run `kinit`.
const KINIT_VARIABLE: &str = "XrdSecKRB5INITTKN";
/// The variable that lets the client forward its ticket over connections without encryption.
pub(super) const FORWARD_VARIABLE: &str = "SCALLA_KRB5_FORWARD";

/// The settings of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Krb5ServerSettings {
    /// Key table; `None` for the default of the library.
    pub keytab: Option<PathBuf>,
    /// Principal of the server. Without a realm it is in the default realm.
    pub principal: String,
    /// Tickets with addresses are accepted from these addresses only.
    pub checks_addresses: bool,
    /// File for the forwarded ticket of a user, with `<user>` or `<uid>` in its name; `None` to ask for
    /// no ticket.
    pub ticket_file: Option<String>,
}

impl Krb5ServerSettings {
    /// Creates the settings of a server with this principal.
    #[must_use]
    pub fn new(principal: impl Into<String>) -> Self {
        Self { keytab: None, principal: principal.into(), checks_addresses: false, ticket_file: None }
    }
}

/// The settings of a client.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Krb5ClientSettings {
    /// Cache with the tickets of the user (`KRB5CCNAME`).
    pub cache: Option<String>,
    /// Runs `kinit` at a terminal if there is no valid ticket (`XrdSecKRB5INITTKN`).
    pub runs_kinit: bool,
    /// Forwards the ticket also over connections without encryption (`SCALLA_KRB5_FORWARD`).
    pub forwards_in_clear: bool,
}

impl Krb5ClientSettings {
    /// Takes the settings from the environment. `variable` returns the value of a variable.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_on = |name: &str| variable(name).is_some_and(|value| !["", "0"].contains(&value.as_str()));
        Self {
            cache: variable(CACHE_VARIABLE).filter(|cache| !cache.is_empty()),
            runs_kinit: is_on(KINIT_VARIABLE),
            forwards_in_clear: is_on(FORWARD_VARIABLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_cache_and_switches() {
        let of = |pairs: &'static [(&str, &str)]| {
            Krb5ClientSettings::of_environment(|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("KRB5CCNAME", ""), ("XrdSecKRB5INITTKN", "0")]), Krb5ClientSettings::default());
        let found = of(&[("KRB5CCNAME", "DIR:/c"), ("XrdSecKRB5INITTKN", "1"), ("SCALLA_KRB5_FORWARD", "1")]);
        assert_eq!(found.cache.as_deref(), Some("DIR:/c"));
        assert!(found.runs_kinit && found.forwards_in_clear);
    }
}
