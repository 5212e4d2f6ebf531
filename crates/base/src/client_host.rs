//! The host of a client, as the key of per-host limits.
//!
//! A host with IPv6 can use any address of its /64 network. Such addresses share one key, because
//! otherwise a single host could evade each limit by changing its address.

use std::net::{IpAddr, Ipv6Addr};

/// The host of a client: its address, or its /64 network for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClientHost {
    /// The address is not known.
    Unknown,
    /// An IPv4 address or the IPv6 loopback address.
    Address(IpAddr),
    /// The first 64 bits of an IPv6 address.
    Network(u64),
}

impl From<Option<IpAddr>> for ClientHost {
    fn from(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            None => Self::Unknown,
            Some(IpAddr::V6(address)) if address != Ipv6Addr::LOCALHOST => {
                Self::Network((address.to_bits() >> 64) as u64)
            }
            Some(address) => Self::Address(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_host() {
        let host = |text: &str| ClientHost::from(Some(text.parse().unwrap()));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
        assert_ne!(host("192.0.2.1"), host("192.0.2.2"));
        assert_ne!(host("::1"), host("::2"));
        assert_ne!(ClientHost::from(None), host("192.0.2.1"));
    }
}
