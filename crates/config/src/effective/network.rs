//! Values for the room `net`: port, who may connect, timeouts, socket options, descriptors.

use std::net::IpAddr;
use std::time::Duration;

use super::process::Trace;
use crate::setting::Setting;

/// The port of the xroot protocol.
pub const PORT_DEFAULT: u16 = 1094;
/// Bounds of `xrd.maxfd`, in descriptors.
pub const MAX_FD_RANGE: (u64, u64) = (1024, 1_048_576);

/// Where to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// This port.
    Number(u16),
    /// Whatever the system gives (`any`).
    Any,
}

impl Port {
    /// The number to bind, 0 for [`Port::Any`].
    #[must_use]
    pub fn to_bind(self) -> u16 {
        match self {
            Self::Number(number) => number,
            Self::Any => 0,
        }
    }
}

/// Which addresses to listen on (`-I v4`, `-I v6`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressFamily {
    /// IPv6 with IPv4 mapped into it, or IPv4 where there is no IPv6.
    #[default]
    Both,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// A host name with at most one `*`, compared without regard to case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    text: String,
}

impl HostPattern {
    /// `None` when there is more than one `*`, or nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.matches('*').count() > 1 {
            return None;
        }
        Some(Self { text: text.to_ascii_lowercase() })
    }

    /// As configured, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The one host it names, if it is a name without `*`; not an address.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        let plain = !self.text.contains('*') && self.text.parse::<IpAddr>().is_err();
        plain.then_some(self.text.as_str())
    }

    /// True if `host` (a name, or an address as text) fits. `*` stands for any number of characters, also none.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        match self.text.split_once('*') {
            None => self.text == host,
            Some((head, tail)) => {
                host.len() >= head.len() + tail.len() && host.starts_with(head) && host.ends_with(tail)
            }
        }
    }
}

/// `xrd.network kaparms`: seconds before the first probe, between probes, and probes before giving up.
/// `None` is the system's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepAlive {
    /// Idle time before the first probe.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Unanswered probes after which the connection is dead.
    pub count: Option<u32>,
}

/// `xrd.maxfd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxFd {
    /// Most descriptors the process may use.
    pub limit: u64,
    /// Do not start when the system allows fewer.
    pub strict: bool,
}

/// Values for the room `net`.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// `xrd.port`.
    pub port: Setting<Port>,
    /// `-I`.
    pub family: Setting<AddressFamily>,
    /// `xrd.allow host`: who may connect; empty lets everybody in.
    pub allow: Vec<Setting<HostPattern>>,
    /// `xrd.maxfd`.
    pub max_fd: Setting<MaxFd>,
    /// `xrd.network [no]keepalive`.
    pub keepalive: Setting<bool>,
    /// `xrd.network kaparms`.
    pub keepalive_parameters: Setting<KeepAlive>,
    /// `xrd.network buffsz`: bytes of a socket's send and receive buffers; `None` leaves it to the system.
    pub socket_buffer_bytes: Setting<Option<u64>>,
    /// `xrd.network [no]dnr`: look up names of clients (needed for `xrd.allow` by name).
    pub resolve_names: Setting<bool>,
    /// `xrd.network cache`: how long a looked up name holds.
    pub name_cache: Setting<Duration>,
    /// `xrd.timeout read`: longest stall in the middle of a request.
    pub read_timeout: Setting<Duration>,
    /// `xrd.timeout hail`: longest wait for the first request after a connect.
    pub hail_timeout: Setting<Duration>,
    /// `xrd.timeout idle`: an idle connection is closed after it; `None` never.
    pub idle_timeout: Setting<Option<Duration>>,
    /// `xrd.timeout kill`: how long a connection may take to end after it was told to.
    pub kill_timeout: Setting<Duration>,
    /// `xrd.trace`.
    pub trace: Setting<Trace>,
}

impl Default for Network {
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
            trace: Setting::default_of(Trace::default()),
        }
    }
}
