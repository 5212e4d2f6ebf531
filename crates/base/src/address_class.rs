//! [`AddressClass`]: networks whose addresses mean another host, or another service, than elsewhere.
//!
//! It exists because a client outside of a firewall must not reach hosts inside through a server that connects
//! somewhere on its behalf, by a name, a redirect, or another spelling of an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressClass {
    /// This host, by its loopback interface.
    Loopback,
    /// The hosts of one link, and services for hosts in clouds.
    LinkLocal,
    /// One of the private networks, by its number.
    Private(u8),
    /// Not an address of one host.
    Nobody,
    /// An address that means the same host everywhere.
    Public,
}

impl AddressClass {
    /// Returns the class of an address. The IPv6 forms of an IPv4 address have the class of that one.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [127, ..] => Self::Loopback,
            [169, 254, ..] => Self::LinkLocal,
            [10, ..] => Self::Private(0),
            [172, 16..=31, ..] => Self::Private(1),
            [192, 168, ..] => Self::Private(2),
            // Addresses between a provider and its customers.
            [100, 64..=127, ..] => Self::Private(3),
            [0 | 224..=255, ..] => Self::Nobody,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let embedded = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Self::Nobody,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Self::Private(4),
            // A translator of the site leads to its own IPv4 addresses (RFC 8215).
            [0x64, 0xff9b, 1, ..] => Self::Private(5),
            // IPv4 addresses behind a translator.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x2002, high, low, ..]
            | [0, 0, 0, 0, 0, 0, high, low]
            | [0, 0, 0, 0, 0xffff, 0, high, low] => embedded(high, low),
            _ => Self::Public,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_an_address_has_its_class() {
        use AddressClass::{LinkLocal, Loopback, Nobody, Private, Public};
        for (class, addresses) in [
            (Loopback, "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::"),
            (LinkLocal, "169.254.169.254 fe80::1 febf::1 ::ffff:169.254.169.254 ::169.254.169.254"),
            (Private(0), "10.0.0.1 ::ffff:10.0.0.1 ::10.0.0.1 64:ff9b::a00:1 ::ffff:0:10.0.0.1"),
            (Private(1), "172.16.0.1 172.31.255.255"),
            (Private(2), "192.168.1.1 2002:c0a8:101::7"),
            (Private(3), "100.64.0.1 100.127.255.255"),
            (Private(4), "fd00::1 fc00::1 fec0::1"),
            (Private(5), "64:ff9b:1::a00:1"),
            (Nobody, "0.0.0.0 0.1.2.3 :: 224.0.0.1 255.255.255.255 ff02::1 ::2"),
            (Public, "192.0.2.1 8.8.8.8 172.32.0.1 100.128.0.1 2001:db8::1 ::ffff:8.8.8.8 2002:808:808::1"),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(AddressClass::of(address.parse().unwrap()), class, "{address}");
            }
        }
    }
}
