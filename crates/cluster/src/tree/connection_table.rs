//! Accepted connections of one kind, with a total limit, one for each peer, and eviction at the
//! limits (decision 030).
//!
//! Every host that `cms.allow` accepts can open connections, and a connection may be silent for
//! hours. The limit for each peer keeps one host from taking the places of the others. Connections
//! from this host do not count against the total limit, so that the administrator gets one when
//! strangers hold all the others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::connection_id::ConnectionId;

/// The resolution of the time of silence, so that an active connection costs nothing.
const SILENCE_STEP: Duration = Duration::from_secs(1);

/// The limits of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLimits {
    /// The limit for all other hosts together.
    pub(super) total: usize,
    /// The limit for one peer.
    pub(super) per_peer: usize,
}

/// The peer to which a connection counts. A host chooses its addresses freely within an IPv6
/// network of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PeerNetwork {
    ThisHost,
    V4([u8; 4]),
    V6([u16; 4]),
}

impl From<IpAddr> for PeerNetwork {
    fn from(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() => Self::ThisHost,
            IpAddr::V4(ip) => Self::V4(ip.octets()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[derive(Debug)]
struct AcceptedConnection<T> {
    network: PeerNetwork,
    heard: Duration,
    value: T,
}

/// Accepted connections, each with a value.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    limits: TableLimits,
    entries: BTreeMap<ConnectionId, AcceptedConnection<T>>,
    /// The connections of each peer, the one that has been silent for longest first.
    networks: BTreeMap<PeerNetwork, BTreeSet<(Duration, ConnectionId)>>,
    /// The other hosts by the number of their connections; of equal ones the one with the longest
    /// silence is last.
    crowded: BTreeSet<(usize, Reverse<Duration>, PeerNetwork)>,
}

impl<T> ConnectionTable<T> {
    pub(super) fn new(limits: TableLimits) -> Self {
        Self { limits, entries: BTreeMap::new(), networks: BTreeMap::new(), crowded: BTreeSet::new() }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = ConnectionId> {
        self.entries.keys().copied()
    }

    pub(super) fn contains(&self, link: ConnectionId) -> bool {
        self.entries.contains_key(&link)
    }

    pub(super) fn get_mut(&mut self, link: ConnectionId) -> Option<&mut T> {
        self.entries.get_mut(&link).map(|entry| &mut entry.value)
    }

    /// Adds a connection, unless its peer is at its limit. At the total limit another peer with more
    /// connections gives up the one that has been silent for longest, so that a few peers cannot keep
    /// out all others. Returns the connection that must be closed: that one, or the new one.
    pub(super) fn insert_fairly(
        &mut self,
        link: ConnectionId,
        ip: IpAddr,
        now: Duration,
        value: T,
    ) -> Option<ConnectionId> {
        let network = ip.into();
        let count = |network| self.networks.get(&network).map_or(0, BTreeSet::len);
        let removed = match self.crowded_network(network) {
            None => None,
            Some(crowded) if count(crowded) <= count(network) + 1 => return Some(link),
            Some(crowded) => self.longest_silent(crowded),
        };
        self.replace(removed, link, network, now, value)
    }

    /// Adds a connection. At a limit another one is evicted: the one that has been silent for
    /// longest, of the same peer if that is at its limit, else of the peer with most connections.
    /// Returns the evicted connection.
    pub(super) fn insert_or_replace(
        &mut self,
        link: ConnectionId,
        ip: IpAddr,
        now: Duration,
        value: T,
    ) -> Option<ConnectionId> {
        let network = ip.into();
        let removed = self.crowded_network(network).and_then(|crowded| self.longest_silent(crowded));
        self.replace(removed, link, network, now, value)
    }

    /// Removes one connection, if any, and adds another one. Returns the removed one.
    fn replace(
        &mut self,
        removed: Option<ConnectionId>,
        link: ConnectionId,
        network: PeerNetwork,
        now: Duration,
        value: T,
    ) -> Option<ConnectionId> {
        if let Some(removed) = removed {
            self.remove(removed);
        }
        self.insert(link, network, now, value);
        removed
    }

    /// Returns the connection of a peer that has been silent for longest.
    fn longest_silent(&self, network: PeerNetwork) -> Option<ConnectionId> {
        self.networks.get(&network)?.first().map(|(_, link)| *link)
    }

    /// Records that a connection has sent something.
    pub(super) fn note_received(&mut self, link: ConnectionId, now: Duration) {
        let Some(entry) = self.entries.get_mut(&link) else { return };
        if now < entry.heard + SILENCE_STEP {
            return;
        }
        let (network, before) = (entry.network, std::mem::replace(&mut entry.heard, now));
        self.change(network, |links| {
            links.remove(&(before, link));
            links.insert((now, link));
        });
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, link: ConnectionId) -> Option<T> {
        let entry = self.entries.remove(&link)?;
        self.change(entry.network, |links| {
            links.remove(&(entry.heard, link));
        });
        Some(entry.value)
    }

    /// Returns the peer that must give up a connection before one of `network` can be added; `None`
    /// if there is room.
    fn crowded_network(&self, network: PeerNetwork) -> Option<PeerNetwork> {
        let count = |network| self.networks.get(&network).map_or(0, BTreeSet::len);
        let others = self.entries.len() - count(PeerNetwork::ThisHost);
        if count(network) >= self.limits.per_peer {
            Some(network)
        } else if network != PeerNetwork::ThisHost && others >= self.limits.total {
            self.crowded.last().map(|(.., network)| *network)
        } else {
            None
        }
    }

    fn insert(&mut self, link: ConnectionId, network: PeerNetwork, now: Duration, value: T) {
        self.remove(link);
        self.entries.insert(link, AcceptedConnection { network, heard: now, value });
        self.change(network, |links| {
            links.insert((now, link));
        });
    }

    /// Changes the connections of one peer, and its place among the others.
    fn change(&mut self, network: PeerNetwork, change: impl FnOnce(&mut BTreeSet<(Duration, ConnectionId)>)) {
        let rank = |links: &BTreeSet<(Duration, ConnectionId)>| {
            links.first().map(|(heard, _)| (links.len(), Reverse(*heard), network))
        };
        let links = self.networks.entry(network).or_default();
        if let Some(rank) = rank(links) {
            self.crowded.remove(&rank);
        }
        change(links);
        match rank(links) {
            Some(rank) if network != PeerNetwork::ThisHost => {
                self.crowded.insert(rank);
            }
            Some(_) => {}
            None => {
                self.networks.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const LIMITS: TableLimits = TableLimits { total: 32, per_peer: 8 };

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A table, and a function that adds a connection each second and returns the evicted one.
    struct Bench {
        table: ConnectionTable<()>,
        next: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { table: ConnectionTable::new(LIMITS), next: 0 }
        }

        fn add(&mut self, ip: IpAddr) -> Option<u64> {
            let number = self.next;
            self.next += 1;
            let link = ConnectionId::accepted(number);
            self.table.insert_or_replace(link, ip, secs(number), ()).map(|ConnectionId(number)| number)
        }
    }

    #[test]
    fn one_peer_has_a_part_of_the_places_only() {
        let mut bench = Bench::new();
        assert!((0..8).all(|_| bench.add(host(1)).is_none()));
        assert_eq!(bench.add(host(2)), None);
        bench.table.note_received(ConnectionId::accepted(0), secs(9));
        assert_eq!(bench.add(host(1)), Some(1), "the one that has been silent for longest");
        let new = ConnectionId::accepted(99);
        assert_eq!(bench.table.insert_fairly(new, host(1), secs(10), ()), Some(new));
        assert_eq!(bench.table.insert_fairly(new, host(2), secs(10), ()), None);
    }

    #[test]
    fn the_peer_with_most_connections_makes_room() {
        let mut bench = Bench::new();
        for number in 0..4 {
            (0..8).for_each(|_| assert_eq!(bench.add(host(number)), None));
        }
        assert_eq!(bench.add(host(9)), Some(0));
        assert_eq!(bench.add(host(9)), Some(8), "of equal ones the one with the longest silence");
        let (fifth, new) = (ConnectionId::accepted(98), ConnectionId::accepted(99));
        assert_eq!(bench.table.insert_fairly(fifth, host(5), secs(98), ()), Some(ConnectionId::accepted(16)));
        assert_eq!(bench.table.insert_fairly(new, host(3), secs(99), ()), Some(new), "it has as many");
        let links: Vec<ConnectionId> = bench.table.links().collect();
        assert_eq!(links.len(), LIMITS.total);
        assert!(links.into_iter().all(|link| bench.table.remove(link).is_some()));
        assert!(bench.table.networks.is_empty() && bench.table.crowded.is_empty());
    }

    #[test]
    fn this_host_has_places_of_its_own() {
        let mut bench = Bench::new();
        let local = |number| Ipv4Addr::new(127, 0, 0, number).into();
        for number in 0..=255 {
            bench.add(host(number));
        }
        let before = bench.table.entries.len();
        assert!((0..8).all(|number| bench.add(local(number)).is_none()));
        assert_eq!(bench.table.entries.len(), before + 8);
        assert_eq!(bench.add(Ipv6Addr::LOCALHOST.into()), Some(256), "all its addresses together");
        let oldest = bench.add(host(7)).unwrap();
        assert!(oldest < 256, "strangers do not take its places: {oldest}");
    }

    #[test]
    fn the_addresses_of_a_network_count_as_one_peer() {
        let mut bench = Bench::new();
        let address = |number| Ipv6Addr::new(0xfd00, 0, 0, 7, 0, 0, number, 1).into();
        assert!((0..8).all(|number| bench.add(address(number)).is_none()));
        assert_eq!(bench.add(address(8)), Some(0));
        assert_eq!(bench.add(Ipv6Addr::new(0xfd00, 0, 0, 8, 0, 0, 0, 1).into()), None);
    }
}
