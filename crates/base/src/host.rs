//! Addresses as hosts are written with them.

use std::net::{IpAddr, Ipv4Addr};

/// The address that is meant by one: of version 4 where it is written as one of version 6, mapped (`::ffff:a.b.c.d`) or in the
/// older form that servers of XRootD use (`::a.b.c.d`). `::1`, `::` and the like are themselves.
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

/// The same of an address as it stands in place of a host's name, in brackets or without. `None`: it is no address.
#[must_use]
pub fn written_ip(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().map(meant_ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_version_4_in_all_their_forms() {
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
