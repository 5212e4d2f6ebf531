//! The cluster id: made of the managers that a node is configured with, so all nodes of a cluster have the same.
//!
//! `[tag.]` then, for each manager but the first, its port and the part of its host in front of what both hosts end
//! with, then port and host of the first. Managers on the first one's host are left out. The order is that of
//! [`ordered`], in which a redirector also spreads paths over managers. Without managers it is the instance id.
//!
//! A node whose managers say different ids warns; a meta manager takes managers with the same id for one cluster, and a
//! redirector's client may avoid a whole cluster by it. So it has to be the same text that real nodes make.
//! Source: seen in the logins of `cmsd` 5.5.3 with up to four managers; cms protocol version 3, section 2.5.

use std::io::Write as _;

/// A manager as it is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagerAddress<'a> {
    /// Its name, or its address in brackets when it has none: `[::ffff:10.0.0.1]`.
    pub host: &'a [u8],
    /// Its port.
    pub port: u16,
}

/// The managers in the order that counts: each, in the order of the configuration, is put in front of the first one
/// that has neither a greater port nor a greater host. One that is there already is left out.
#[must_use]
pub fn ordered<'a>(managers: impl IntoIterator<Item = ManagerAddress<'a>>) -> Vec<ManagerAddress<'a>> {
    let mut ordered: Vec<ManagerAddress<'a>> = Vec::new();
    for manager in managers {
        if ordered.contains(&manager) {
            continue;
        }
        let goes_before =
            |other: &ManagerAddress<'_>| other.port <= manager.port && other.host <= manager.host;
        let at = ordered.iter().position(goes_before).unwrap_or(ordered.len());
        ordered.insert(at, manager);
    }
    ordered
}

/// Appends the cluster id of a node with these managers; `None` of a tag: there is none.
pub fn encode<'a>(
    out: &mut Vec<u8>,
    tag: Option<&[u8]>,
    managers: impl IntoIterator<Item = ManagerAddress<'a>>,
    instance: &[u8],
) {
    if let Some(tag) = tag {
        out.extend_from_slice(tag);
        out.push(b'.');
    }
    let managers = ordered(managers);
    let Some((first, others)) = managers.split_first() else {
        out.extend_from_slice(instance);
        return;
    };
    for other in others.iter().filter(|other| other.host != first.host) {
        append(out, other.port, without_common_end(other.host, first.host));
    }
    append(out, first.port, first.host);
}

fn append(out: &mut Vec<u8>, port: u16, host: &[u8]) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{port}");
    out.extend_from_slice(host);
}

/// What stands in `host` in front of what it and `other` end with.
fn without_common_end<'a>(host: &'a [u8], other: &[u8]) -> &'a [u8] {
    let common = host.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    host.get(..host.len().saturating_sub(common)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(managers: &str) -> String {
        let managers = managers.split_whitespace().map(|manager| {
            let (host, port) = manager.rsplit_once(':').unwrap();
            ManagerAddress { host: host.as_bytes(), port: port.parse().unwrap() }
        });
        let mut out = Vec::new();
        encode(&mut out, None, managers, b"srv@vm");
        String::from_utf8(out).unwrap()
    }

    /// Each pair was seen: what a real server was configured with, and what it sent.
    #[test]
    fn ids_that_real_nodes_sent() {
        let seen = [
            ("localhost:22101", "22101localhost"),
            ("localhost:22101 localhost:22102", "22102localhost"),
            ("localhost:22102 localhost:22101", "22102localhost"),
            // The order of the configuration counts.
            ("vm:22101 localhost:22102", "22102localhost22101vm"),
            ("localhost:22102 vm:22101", "22101vm22102localhost"),
            ("localhost:22101 vm:22102", "22101localhost22102vm"),
            ("vm:22102 localhost:22101", "22101localhost22102vm"),
            ("localhost:22101 localhost:22102 vm:22103", "22102localhost22101localhost22103vm"),
            ("vm:22101 vm:22103 localhost:22102", "22102localhost22103vm"),
        ];
        for (managers, id) in seen {
            assert_eq!(id_of(managers), id, "{managers}");
        }
    }

    #[test]
    fn common_ends_are_left_out() {
        let (a, b, c) = ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.2]", "[::ffff:127.0.0.3]");
        let (x, y) = ("[::ffff:127.0.0.13]", "[::ffff:127.0.0.23]");
        assert_eq!(
            id_of(&format!("{a}:22101 {b}:22102 {c}:22103")),
            "22102[::ffff:127.0.0.222101[::ffff:127.0.0.122103[::ffff:127.0.0.3]"
        );
        assert_eq!(
            id_of(&format!("{a}:22103 {b}:22101 {c}:22102")),
            "22102[::ffff:127.0.0.322101[::ffff:127.0.0.222103[::ffff:127.0.0.1]"
        );
        assert_eq!(
            id_of(&format!("{c}:9999 {c}:22102 {b}:9998 {b}:22101")),
            "22101[::ffff:127.0.0.29998[::ffff:127.0.0.222102[::ffff:127.0.0.3]"
        );
        assert_eq!(id_of(&format!("{x}:22101 {y}:22102")), "22101[::ffff:127.0.0.122102[::ffff:127.0.0.23]");
        assert_eq!(
            id_of("[::ffff:127.0.0.9]:22102 [::ffff:127.0.0.100]:22103"),
            "22103[::ffff:127.0.0.10022102[::ffff:127.0.0.9]"
        );
    }

    #[test]
    fn a_tag_a_duplicate_and_no_manager() {
        let manager = ManagerAddress { host: b"localhost", port: 22101 };
        let mut out = Vec::new();
        encode(&mut out, Some(b"tag"), [manager, manager], b"srv@vm");
        assert_eq!(out, b"tag.22101localhost");
        assert_eq!(id_of(""), "srv@vm");
    }
}
