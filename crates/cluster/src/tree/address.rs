//! Where a node of the cluster listens: a host and a port, as a `try` names it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A host (name, IPv4 or IPv6 without brackets) and a port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// The address of these parts.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host as it stands before a port: an address of version 6 in brackets.
    pub fn written_host(&self) -> Cow<'_, str> {
        if self.host.contains(':') { format!("[{}]", self.host).into() } else { Cow::Borrowed(&self.host) }
    }

    /// The port.
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
}
