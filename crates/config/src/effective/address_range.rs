//! [`AddressRange`]: a network of hosts, as `192.0.2.0/24`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRange {
    first: IpAddr,
    /// Number of the bits.
    length: u8,
}

impl AddressRange {
    /// Parses an address with a length behind `/`, or an address. `None` if bits behind the length are set,
    /// which is most likely a mistake.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, length)| (a, Some(length)));
        let first: IpAddr = address.parse().ok()?;
        // An address of IPv4 in the form of IPv6 would match no client.
        if first.to_canonical() != first {
            return None;
        }
        let most = if first.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse().ok()?,
            Some(_) => return None,
        };
        let range = Self { first, length };
        (length <= most && range.begin(first) == Some(first)).then_some(range)
    }

    /// Reports whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.begin(address.to_canonical()) == Some(self.first)
    }

    /// Returns the first address of the range of this length around an address of the same family.
    fn begin(&self, address: IpAddr) -> Option<IpAddr> {
        let length = u32::from(self.length);
        match (self.first, address) {
            (IpAddr::V4(_), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or_default();
                Some(Ipv4Addr::from_bits(address.to_bits() & mask).into())
            }
            (IpAddr::V6(_), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or_default();
                Some(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
            _ => None,
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(range: &str, address: &str) -> bool {
        AddressRange::parse(range).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn addresses_with_the_same_bits_are_in_a_range() {
        for (range, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("10.0.0.0/8", "::ffff:10.255.0.1", "::ffff:11.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            assert!(contains(range, inside), "{inside} in {range}");
            assert!(!contains(range, outside), "{outside} in {range}");
        }
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in [
            "",
            "/",
            "192.0.2.0/",
            "192.0.2.0/33",
            "192.0.2.0/-1",
            "192.0.2.0/+8",
            "192.0.2.1/24",
            "192.0.2/24",
            "2001:db8::/129",
            "2001:db8::1/64",
            "host",
            "::ffff:192.0.2.1",
            "192.0.2.0/24/1",
            "192.0.2.0/999",
        ] {
            assert_eq!(AddressRange::parse(text), None, "{text}");
        }
    }
}
