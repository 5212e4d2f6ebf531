//! [`SssServerSettings`]: the configuration of the server's side.

use std::path::PathBuf;
use std::time::Duration;

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SssServerSettings {
    /// The key table of the server.
    pub keytab: PathBuf,
    /// The key table that is suggested to clients.
    pub client_keytab: Option<PathBuf>,
    /// Lifetime of packets in seconds.
    pub lifetime: u64,
    /// Asks proxies for the credentials of the clients that they forward (`-g`).
    pub wants_credentials: bool,
    /// Looks keys up by name and id instead of the id alone (`-k`).
    pub checks_key_names: bool,
    /// Protocols of original clients whose identities are accepted from proxies (`-p`).
    pub forwarded_protocols: Vec<String>,
    /// Interval at which the key table is read again if it has changed.
    pub refresh: Duration,
}

impl SssServerSettings {
    /// Lifetime of packets unless it is configured, in seconds.
    pub const LIFETIME: u64 = 13;
    /// Interval of refreshes unless it is configured.
    pub const REFRESH: Duration = Duration::from_secs(3600);

    /// Creates the settings of a server with this key table, and defaults otherwise.
    #[must_use]
    pub fn new(keytab: PathBuf) -> Self {
        Self {
            keytab,
            client_keytab: None,
            lifetime: Self::LIFETIME,
            wants_credentials: false,
            checks_key_names: false,
            forwarded_protocols: Vec::new(),
            refresh: Self::REFRESH,
        }
    }
}
