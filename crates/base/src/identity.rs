//! Who is at the other end of a connection.

use std::net::IpAddr;

/// One client process, as far as it is known. Equality of user, pid and host is what the protocol calls the same client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Name given at login: at most 8 bytes, made printable. Not proven unless `protocol` says how.
    pub user: String,
    /// Process number given at login.
    pub pid: u32,
    /// Peer's address; `None` for a local test peer.
    pub address: Option<IpAddr>,
    /// Peer's host: its name where known, else its address as text.
    pub host: String,
    /// How the identity was established; `host` when only the address speaks for it.
    pub protocol: &'static str,
    /// Name of the application, from the login's cgi.
    pub application: String,
    /// What the client says its host is called, from the login's cgi; fit for convenience, never for permission.
    pub named_host: String,
    /// Release of the client (`vX.Y.Z`), from the login's cgi.
    pub release: String,
}

impl Identity {
    /// Same user, pid and host: the same client in another connection.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.user == other.user && self.pid == other.pid && self.host == other.host
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}@{}", self.user, self.pid, self.host)
    }
}
