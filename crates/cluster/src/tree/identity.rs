//! The identity of a node, independent of its connection: system id and cluster id.
//!
//! It decides whether two logins belong to the same node. Source: cms protocol 3, system id and
//! cluster id.

use std::net::IpAddr;
use std::sync::Arc;

/// A node's system id in the form of a login: `[*]<t>-<instance> <cluster id>`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// Returns the id that a peer sent. `None` for an empty one, because a node without an id
    /// cannot be distinguished from others.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('\0');
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// Returns the id of one of our own nodes. `kind` is `m`, `s` or `u` (manager, server,
    /// supervisor), upper case for proxies. `instance` is `<instance>@<host>`; a virtual id
    /// replaces it and makes the identity independent of addresses.
    pub fn compose(kind: char, instance: &str, virtual_id: Option<&str>, cluster: &str) -> Self {
        let text = match virtual_id {
            Some(id) => format!("*{kind}-{id} {cluster}"),
            None => format!("{kind}-{instance} {cluster}"),
        };
        Self(text.into())
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reports whether the id alone is the identity, independent of the node's addresses.
    pub fn floats(&self) -> bool {
        self.0.starts_with('*')
    }

    /// Returns the cluster id: the text after the last blank. Managers of one site share it under a
    /// meta manager.
    pub fn cluster(&self) -> &str {
        self.0.rsplit_once(' ').map_or("", |(_, cluster)| cluster)
    }

    /// Returns the text after the first blank. Nodes compare it among their managers, which should
    /// belong to one cluster.
    pub fn membership(&self) -> &str {
        self.0.split_once(' ').map_or("", |(_, rest)| rest)
    }

    /// Returns a number for this id, equal in every process and version, so that replicated
    /// managers agree.
    pub fn digest(&self) -> u64 {
        digest(self.0.as_bytes())
    }
}

/// The properties by which a node is recognised at its next login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeIdentity {
    /// Its system id.
    pub id: NodeId,
    /// The source address of its connection.
    pub ip: IpAddr,
    /// Its data port.
    pub data_port: u16,
}

impl NodeIdentity {
    /// Returns a number for the node, equal at all its parents. It excludes addresses, because each
    /// parent may see another one.
    pub fn digest(&self) -> u64 {
        let port = if self.id.floats() { 0 } else { self.data_port };
        mix(self.id.digest() ^ u64::from(port))
    }

    /// Reports whether `other` is the same node at another time.
    pub fn same(&self, other: &Self) -> bool {
        self.id == other.id
            && (self.id.floats() || (self.ip == other.ip && self.data_port == other.data_port))
    }
}

/// Computes [`base::stable_hash`] of the bytes with a final mix, so that ids that differ in one digit spread
/// over all 64 bits.
fn digest(bytes: &[u8]) -> u64 {
    mix(base::stable_hash(bytes))
}

/// A permutation of 64-bit numbers that changes about half of the bits when one changes (the
/// finalizer of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns the affinity of `node` to `cell`. Each node goes to the cell of its highest affinity
/// among those with room, so that managers that see the same cells name the same one without
/// communication (rendezvous hashing).
pub fn affinity(node: u64, cell: u64) -> u64 {
    mix(node ^ cell.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(id: &str, ip: &str, data_port: u16) -> NodeIdentity {
        NodeIdentity { id: NodeId::new(id).expect("an id"), ip: ip.parse().expect("an address"), data_port }
    }

    #[test]
    fn parts_of_an_id() {
        let id = NodeId::new("s-srv 1@vm 22001localhost\0").expect("an id");
        assert_eq!(NodeId::compose('s', "srv 1@vm", None, "22001localhost"), id);
        assert_eq!(NodeId::compose('s', "i@h", Some("v7"), "c").as_str(), "*s-v7 c");
        assert_eq!((id.cluster(), id.membership()), ("22001localhost", "1@vm 22001localhost"));
        assert_eq!(NodeId::new("\0"), None);
    }

    #[test]
    fn the_same_node_has_id_address_and_port_or_a_floating_id() {
        let node = identity("s-a@h c", "10.0.0.1", 1094);
        assert!(node.same(&identity("s-a@h c", "10.0.0.1", 1094)));
        assert!(!node.same(&identity("s-a@h c", "10.0.0.2", 1094)));
        assert!(!node.same(&identity("s-a@h c", "10.0.0.1", 1095)));
        assert!(!node.same(&identity("s-b@h c", "10.0.0.1", 1094)));
        assert!(identity("*s-v c", "10.0.0.1", 1).same(&identity("*s-v c", "::1", 2)));
    }

    #[test]
    fn affinity_spreads_evenly() {
        let cells: Vec<u64> = (0..16).map(|n| digest(format!("u-{n}").as_bytes())).collect();
        let mut count = [0u32; 16];
        for node in 0..16_000 {
            let node = digest(format!("s-{node}@h").as_bytes());
            let best = (0..16).max_by_key(|cell| affinity(node, cells[*cell])).expect("cells");
            count[best] += 1;
        }
        assert!(count.iter().all(|n| (850..1150).contains(n)), "{count:?}");
    }
}
