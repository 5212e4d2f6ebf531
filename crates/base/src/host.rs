//! Canonical form of IP addresses in host names.
//!
//! XRootD writes IPv4 addresses in several IPv6 forms. They are reduced to one form, because
//! otherwise the same host would compare as different hosts.

use std::net::{IpAddr, Ipv4Addr};

/// Returns the IPv4 address if `address` is an IPv4 address in IPv6 form: mapped (`::ffff:a.b.c.d`)
/// or compatible (`::a.b.c.d`), the older form that XRootD servers use. `::1`, `::` and other
/// addresses with two zero bytes in that place stay IPv6 addresses.
#[must_use]
pub fn meant_ip(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    match v6.octets() {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] if (a, b) != (0, 0) => {
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => v6.into(),
    }
}

/// Parses an address that stands in place of a host name, with or without brackets, and returns its
/// canonical form ([`meant_ip`]). Returns `None` if the text is not an address.
#[must_use]
pub fn written_ip(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().map(meant_ip)
}

/// Reports whether an address is not reachable from other sites.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_recognised_in_all_forms() {
        for text in
            ["127.0.0.1", "10.0.0.1", "169.254.0.1", "::ffff:192.168.1.1", "::1", "fd00::1", "fe80::1"]
        {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.8", "::ffff:8.8.8.8", "2001:db8::1", "0.0.0.0", "::"] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn all_forms_of_ipv4_addresses_have_one_canonical_form() {
        let table = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("[::ffff:10.0.0.1]", Some("10.0.0.1")),
            ("[::10.0.0.1]", Some("10.0.0.1")),
            ("[::1]", Some("::1")),
            ("::", Some("::")),
            ("[2001:db8::7]", Some("2001:db8::7")),
            ("[2001:db8::7", None),
            ("host", None),
            ("", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|ip| ip.parse::<IpAddr>().ok());
            assert_eq!(written_ip(text).map(Some), expected, "{text}");
        }
    }
}
