//! The cluster id, derived from the configured managers so that all nodes of a cluster share it.
//!
//! The id consists of `[tag.]`, the other managers, and port and host of the first manager. Each
//! other manager is its port and its host without the suffix that it shares with the first
//! manager's host. Managers on the host of the first one are omitted. The order is that of
//! [`ordered`], which a redirector also uses to distribute paths over managers. Without managers
//! the id is the instance id.
//!
//! The text must be identical to that of XRootD nodes. A node warns if its managers report
//! different ids. A meta manager treats managers with the same id as one cluster, and the client of
//! a redirector can avoid a whole cluster by its id.
//!
//! Source: observed in the logins of `cmsd` 5.5.3 with up to four managers; cms protocol version 3,
//! section 2.5.

use std::io::Write as _;

/// A configured manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterIdManager<'a> {
    /// Host name, or the address in brackets if it has no name: `[::ffff:10.0.0.1]`.
    pub host: &'a [u8],
    /// Port of the manager.
    pub port: u16,
}

/// Returns the managers in the order that determines the id, without duplicates. Each manager, in
/// the order of the configuration, is inserted before the first one whose port and host are not
/// greater than its own.
#[must_use]
pub fn ordered<'a>(managers: impl IntoIterator<Item = ClusterIdManager<'a>>) -> Vec<ClusterIdManager<'a>> {
    let mut ordered: Vec<ClusterIdManager<'a>> = Vec::new();
    for manager in managers {
        if ordered.contains(&manager) {
            continue;
        }
        let goes_before =
            |other: &ClusterIdManager<'_>| other.port <= manager.port && other.host <= manager.host;
        let at = ordered.iter().position(goes_before).unwrap_or(ordered.len());
        ordered.insert(at, manager);
    }
    ordered
}

/// Appends the cluster id of a node with these managers and an optional tag.
pub fn encode<'a>(
    out: &mut Vec<u8>,
    tag: Option<&[u8]>,
    managers: impl IntoIterator<Item = ClusterIdManager<'a>>,
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

/// Returns `host` without the suffix that it shares with `other`.
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
            ClusterIdManager { host: host.as_bytes(), port: port.parse().unwrap() }
        });
        let mut out = Vec::new();
        encode(&mut out, None, managers, b"srv@vm");
        String::from_utf8(out).unwrap()
    }

    /// Pairs of the configuration of an XRootD server and the id that it sent.
    #[test]
    fn ids_match_those_of_xrootd_nodes() {
        let seen = [
            ("localhost:22101", "22101localhost"),
            ("localhost:22101 localhost:22102", "22102localhost"),
            ("localhost:22102 localhost:22101", "22102localhost"),
            // The order of the configuration matters.
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
    fn shared_suffixes_are_omitted() {
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
    fn tags_duplicates_and_an_empty_list_are_handled() {
        let manager = ClusterIdManager { host: b"localhost", port: 22101 };
        let mut out = Vec::new();
        encode(&mut out, Some(b"tag"), [manager, manager], b"srv@vm");
        assert_eq!(out, b"tag.22101localhost");
        assert_eq!(id_of(""), "srv@vm");
    }
}
