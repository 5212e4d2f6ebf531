//! The address of a node of the cluster: a host and a port, as a `try` names it.
//!
//! It keeps addresses of both families, because a node with one family must get an address that it
//! can use.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A host (name, IPv4 or IPv6 without brackets) and a port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    host: Arc<str>,
    port: u16,
    /// If the host is an address: an address of the other family for the same node.
    other: Option<IpAddr>,
}

impl Address {
    /// Creates an address from host and port.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port, other: None }
    }

    /// Adds the first of these addresses that is of the other family, for nodes that cannot use
    /// this one. A name covers both families by itself.
    pub fn beside(self, others: &[IpAddr]) -> Self {
        let Ok(host) = self.host.parse::<IpAddr>() else { return self };
        let is_other =
            |ip: &IpAddr| ip.is_ipv4() != host.is_ipv4() && !ip.is_loopback() && !ip.is_unspecified();
        Self { other: others.iter().map(IpAddr::to_canonical).find(is_other), ..self }
    }

    /// Returns the address of the same node in the other family.
    pub fn other(&self) -> Option<Self> {
        self.other.map(|other| Self::new(&other.to_string(), self.port))
    }

    /// Returns the address for a node that connects from `ip`: of that family, if there is one.
    pub fn toward(&self, ip: IpAddr) -> Self {
        let other = self.other.filter(|other| other.is_ipv4() == ip.is_ipv4());
        other.and_then(|_| self.other()).unwrap_or_else(|| Self { other: None, ..self.clone() })
    }

    /// Returns the host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the host in the form before a port: IPv6 in brackets.
    pub fn written_host(&self) -> Cow<'_, str> {
        if self.host.contains(':') { format!("[{}]", self.host).into() } else { Cow::Borrowed(&self.host) }
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.written_host(), self.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_version_6_has_brackets() {
        assert_eq!(Address::new("a.b", 17).to_string(), "a.b:17");
        assert_eq!(Address::new("::1", 17).to_string(), "[::1]:17");
    }

    #[test]
    fn each_node_is_shown_the_kind_of_address_that_it_came_by() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let others = ["::1", "fd00::9", "10.0.0.8", "fd00::7"].map(ip);
        let both = Address::new("10.0.0.9", 17).beside(&others);
        assert_eq!(both.toward(ip("10.1.1.1")), Address::new("10.0.0.9", 17));
        assert_eq!(both.toward(ip("fd01::1")), Address::new("fd00::9", 17));
        let one = Address::new("fd00::9", 17).beside(&others[..2]);
        assert_eq!(one.toward(ip("10.1.1.1")), Address::new("fd00::9", 17), "there is no other");
        assert_eq!(Address::new("a.b", 17).beside(&others), Address::new("a.b", 17), "a name leads to both");
        let mapped = Address::new("fd00::9", 17).beside(&[ip("::ffff:10.0.0.9")]);
        assert_eq!(mapped.other(), Some(Address::new("10.0.0.9", 17)));
    }
}
