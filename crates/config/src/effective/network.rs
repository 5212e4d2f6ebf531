//! Values for the crate `net`: port, allowed hosts, timeouts, socket options, descriptors.
//!
//! `server` translates them into the types of `net`, so that `net` can be used without a file.

use std::net::IpAddr;
use std::time::Duration;

use super::process::Trace;
use super::tls::{TlsAuthorities, TlsCertificate};
use crate::setting::Setting;

/// Default port of the xroot protocol.
pub const PORT_DEFAULT: u16 = 1094;
/// Range of `xrd.maxfd`, in descriptors.
pub const MAX_FD_RANGE: (u64, u64) = (1024, 1_048_576);

/// Port to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// A fixed port.
    Number(u16),
    /// A port chosen by the system (`any`).
    Any,
}

impl Port {
    /// Returns the number to bind, 0 for [`Port::Any`].
    #[must_use]
    pub fn to_bind(self) -> u16 {
        match self {
            Self::Number(number) => number,
            Self::Any => 0,
        }
    }
}

/// Address family to listen on (`-I v4`, `-I v6`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressFamily {
    /// IPv6 with mapped IPv4, or IPv4 if IPv6 is not available.
    #[default]
    Both,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A host name with at most one `*`, compared case-insensitively.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    text: String,
}

impl HostPattern {
    /// Returns `None` if the text is empty or has more than one `*`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.matches('*').count() > 1 {
            return None;
        }
        Some(Self { text: text.to_ascii_lowercase() })
    }

    /// Returns the pattern in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host name if the pattern has no `*` and is not an address.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let plain = !self.text.contains('*') && self.text.parse::<IpAddr>().is_err();
        plain.then_some(self.text.as_str())
    }

    /// Reports whether the pattern is one of addresses, such as `192.0.2.*`.
    #[must_use]
    pub fn is_of_addresses(&self) -> bool {
        let is_numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'*');
        self.text.contains(':')
            || self.text.bytes().all(is_numeric) && self.text.bytes().any(|byte| byte.is_ascii_digit())
    }

    /// Reports whether each host that matches another pattern matches this one, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        if self.is_of_addresses() && !other.is_of_addresses() {
            return false;
        }
        match (self.text.split_once('*'), other.text.split_once('*')) {
            (None, _) => self.text == other.text,
            (Some((begin, end)), Some((first, last))) => first.starts_with(begin) && last.ends_with(end),
            (Some((begin, end)), None) => {
                let rest = other.text.strip_prefix(begin);
                rest.is_some_and(|rest| rest.ends_with(end))
            }
        }
    }

    /// Reports whether `host` (a name, or an address as text) matches. `*` matches any number of
    /// characters, including none.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        // The owner of an address chooses its name, which can begin as the pattern does.
        // Addresses of IPv6 have brackets where they stand for a name.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        if self.is_of_addresses() && address.parse::<IpAddr>().is_err() {
            return false;
        }
        match self.text.split_once('*') {
            None => self.text == host,
            Some((head, tail)) => {
                host.len() >= head.len() + tail.len() && host.starts_with(head) && host.ends_with(tail)
            }
        }
    }
}

/// `xrd.network kaparms`: parameters of keep-alive probes. `None` means the value of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepAlive {
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Number of unanswered probes after which the connection is closed.
    pub count: Option<u32>,
}

/// `xrd.maxfd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxFd {
    /// Maximum number of descriptors of the process.
    pub limit: u64,
    /// Fails the start if the system allows fewer.
    pub strict: bool,
}

/// Values for the crate `net`.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkConfig {
    /// `xrd.port`.
    pub port: Setting<Port>,
    /// `-I`.
    pub family: Setting<AddressFamily>,
    /// `xrd.allow host`: hosts that may connect; empty allows all.
    pub allow: Vec<Setting<HostPattern>>,
    /// `xrd.maxfd`.
    pub max_fd: Setting<MaxFd>,
    /// `xrd.network [no]keepalive`.
    pub keepalive: Setting<bool>,
    /// `xrd.network kaparms`.
    pub keepalive_parameters: Setting<KeepAlive>,
    /// `xrd.network buffsz`: size of socket buffers in bytes; `None` means the value of the system.
    pub socket_buffer_bytes: Setting<Option<u64>>,
    /// `xrd.network [no]dnr`: resolves names of clients (required for `xrd.allow` by name).
    pub resolve_names: Setting<bool>,
    /// `xrd.network cache`: time for which a resolved name is cached.
    pub name_cache: Setting<Duration>,
    /// `xrd.timeout read`: maximum stall within a request.
    pub read_timeout: Setting<Duration>,
    /// `xrd.timeout hail`: deadline for the first request after a connect.
    pub hail_timeout: Setting<Duration>,
    /// `xrd.timeout idle`: timeout of idle connections; `None` disables it.
    pub idle_timeout: Setting<Option<Duration>>,
    /// `xrd.timeout kill`: maximum time for a connection to close.
    pub kill_timeout: Setting<Duration>,
    /// `xrd.tls`: the certificate of the server; `None` if no connection can be encrypted.
    pub tls: Setting<Option<TlsCertificate>>,
    /// `xrd.tlsca`.
    pub tls_authorities: Setting<Option<TlsAuthorities>>,
    /// `xrd.tlsciphers`; `None` allows all that are safe.
    pub tls_ciphers: Setting<Option<String>>,
    /// `xrd.trace`.
    pub trace: Setting<Trace>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            port: Setting::default_of(Port::Number(PORT_DEFAULT)),
            family: Setting::default_of(AddressFamily::Both),
            allow: Vec::new(),
            max_fd: Setting::default_of(MaxFd { limit: 262_144, strict: false }),
            keepalive: Setting::default_of(true),
            keepalive_parameters: Setting::default_of(KeepAlive::default()),
            socket_buffer_bytes: Setting::default_of(None),
            resolve_names: Setting::default_of(true),
            name_cache: Setting::default_of(Duration::from_secs(3 * 3600)),
            read_timeout: Setting::default_of(Duration::from_secs(3)),
            hail_timeout: Setting::default_of(Duration::from_secs(30)),
            idle_timeout: Setting::default_of(None),
            kill_timeout: Setting::default_of(Duration::from_secs(3)),
            tls: Setting::default_of(None),
            tls_authorities: Setting::default_of(None),
            tls_ciphers: Setting::default_of(None),
            trace: Setting::default_of(Trace::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_addresses_match_no_names() {
        let fits = |pattern: &str, host: &str| HostPattern::parse(pattern).unwrap().matches(host);
        for (pattern, address, name) in [
            ("192.0.2.*", "192.0.2.7", "192.0.2.example.net"),
            ("10*", "10.1.2.3", "10gig.example.net"),
            ("FD00:*", "fd00::7", "fd00:x.example.net"),
            ("[::ffff:192.0.2.*", "[::ffff:192.0.2.7]", "[::ffff:192.0.2.x"),
        ] {
            assert!(fits(pattern, address) && !fits(pattern, name), "{pattern}");
        }
        for (pattern, name) in [("*", "10.0.0.1"), ("*.example.org", "a.Example.org"), ("10g*", "10gig.x")] {
            assert!(fits(pattern, name), "{pattern}");
        }
    }
}
