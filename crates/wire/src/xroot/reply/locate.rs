//! The body of the `kXR_ok` to `kXR_locate`.
//!
//! Tokens are separated by one blank, with a NUL at the end. A token consists of a letter for the
//! node, a letter for the access, and the address.
//!
//! | letter | node                  | letter | access     |
//! |--------|-----------------------|--------|------------|
//! | `M`    | manager, online       | `r`    | read only  |
//! | `m`    | manager, file pending | `w`    | read/write |
//! | `S`    | server, online        |        |            |
//! | `s`    | server, file pending  |        |            |
//!
//! An address is `host:port` or `[ipv6]:port`; IPv4 addresses are written in brackets as
//! `[::127.0.0.1]`. The cms protocol uses the same text
//! ([`locate_text`](crate::cms::response::locate_text)), so that a redirector can relay it.
//!
//! Source: xroot protocol 5.2.0, section 2.9. Recorded: `fs_locate`, `manager_locate`.

use std::io::Write as _;
use std::net::SocketAddr;

/// A location of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location<'a> {
    /// Kind of the node and state of the file.
    pub node: NodeKind,
    /// The file can be written there.
    pub writable: bool,
    /// Address and port, see [`address`].
    pub address: &'a [u8],
}

/// The kind of a node and the state of the file at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A manager whose subtree has the file online.
    Manager,
    /// A manager whose subtree is staging the file.
    ManagerPending,
    /// A server that has the file online.
    Server,
    /// A server that is staging the file.
    ServerPending,
}

impl NodeKind {
    const fn letter(self) -> u8 {
        match self {
            Self::Manager => b'M',
            Self::ManagerPending => b'm',
            Self::Server => b'S',
            Self::ServerPending => b's',
        }
    }

    const fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'M' => Some(Self::Manager),
            b'm' => Some(Self::ManagerPending),
            b'S' => Some(Self::Server),
            b's' => Some(Self::ServerPending),
            _ => None,
        }
    }
}

/// Appends the text of a list of locations with its NUL.
pub fn encode<'a>(out: &mut Vec<u8>, locations: impl IntoIterator<Item = Location<'a>>) {
    let at = out.len();
    for location in locations {
        if out.len() > at {
            out.push(b' ');
        }
        out.push(location.node.letter());
        out.push(if location.writable { b'w' } else { b'r' });
        out.extend_from_slice(location.address);
    }
    out.push(0);
}

/// Appends an address in the form of this protocol.
pub fn address(out: &mut Vec<u8>, address: SocketAddr) {
    let port = address.port();
    let ip = address.ip().to_canonical();
    // Writing to memory cannot fail.
    let _ = match ip {
        std::net::IpAddr::V4(ip) => write!(out, "[::{ip}]:{port}"),
        std::net::IpAddr::V6(ip) => write!(out, "[{ip}]:{port}"),
    };
}

/// Returns the locations in a text; tokens of an unknown kind are skipped.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Location<'_>> {
    let line = text.split(|&byte| byte == 0).next().unwrap_or_default();
    line.split(|&byte| byte == b' ').filter_map(|token| {
        let [node, access, address @ ..] = token else { return None };
        let node = NodeKind::from_letter(*node)?;
        let writable = match access {
            b'r' => false,
            b'w' => true,
            _ => return None,
        };
        Some(Location { node, writable, address })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_parse_and_encode() {
        let text = b"Sw[::127.0.0.1]:21022 mrhost:1094\0";
        let locations: Vec<_> = parse(text).collect();
        let server = Location { node: NodeKind::Server, writable: true, address: b"[::127.0.0.1]:21022" };
        let manager = Location { node: NodeKind::ManagerPending, writable: false, address: b"host:1094" };
        assert_eq!(locations, [server, manager]);
        let mut out = Vec::new();
        encode(&mut out, locations);
        assert_eq!(out, text);
    }

    #[test]
    fn unknown_tokens_are_skipped() {
        assert_eq!(parse(b"Xw[::1]:1 Sq[::1]:1 S  Srh:1").map(|l| l.address).collect::<Vec<_>>(), [b"h:1"]);
    }

    #[test]
    fn addresses_have_the_form_of_xrootd() {
        let printed = |text: &str| {
            let mut out = Vec::new();
            address(&mut out, text.parse().unwrap());
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed("127.0.0.1:21022"), "[::127.0.0.1]:21022");
        assert_eq!(printed("[::ffff:10.0.0.1]:1"), "[::10.0.0.1]:1");
        assert_eq!(printed("[2001:db8::1]:1094"), "[2001:db8::1]:1094");
    }
}
