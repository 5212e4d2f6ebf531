//! The parts of the front end that one host may use: connections, TLS handshakes, open files.
//!
//! Clients have no login before their first request, so without these limits one host could take all
//! places of HTTP, and all descriptors, also those of the xroot protocol. A host counts by its network
//! for IPv6, because one host can have many addresses.

use crate::{
    CONNECTIONS_MAX, DASHBOARD_VIEWERS_MAX, HANDSHAKES_PER_HOST_MAX, HOST_CONNECTIONS_MIN, HOST_SHARE,
    IDLE_CONNECTIONS_MAX,
};
use base::ClientHost;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files leave one part in this many to connections, and new connections leave it to idle ones that are used again.
const RESERVED_SHARE: usize = 8;

/// A part of the front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SharedPart {
    /// A connection, or a request that goes on without it.
    Connection,
    /// A connection that is idle and has no buffers.
    Idle,
    /// A TLS handshake in progress.
    Handshake,
    /// An open file.
    File,
    /// A viewer of the dashboard.
    Viewer,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct PartsInUse {
    connections: usize,
    idle: usize,
    handshakes: usize,
    files: usize,
    viewers: usize,
}

impl PartsInUse {
    fn part(&mut self, part: SharedPart) -> &mut usize {
        match part {
            SharedPart::Connection => &mut self.connections,
            SharedPart::Idle => &mut self.idle,
            SharedPart::Handshake => &mut self.handshakes,
            SharedPart::File => &mut self.files,
            SharedPart::Viewer => &mut self.viewers,
        }
    }

    fn all_connections(self) -> usize {
        self.connections.saturating_add(self.idle)
    }

    fn descriptors(self) -> usize {
        self.all_connections().saturating_add(self.files)
    }
}

#[derive(Default)]
struct SharesState {
    all: PartsInUse,
    hosts: HashMap<ClientHost, PartsInUse>,
}

impl SharesState {
    fn give_back(&mut self, host: ClientHost, part: SharedPart) {
        let all = self.all.part(part);
        *all = all.saturating_sub(1);
        if let Some(own) = self.hosts.get_mut(&host) {
            let used = own.part(part);
            *used = used.saturating_sub(1);
            if *own == PartsInUse::default() {
                self.hosts.remove(&host);
            }
        }
    }
}

/// The use of the front end by its hosts.
pub(crate) struct HostShares {
    connections_max: usize,
    idle_max: usize,
    /// Maximum number of connections and files.
    descriptors_max: usize,
    state: Mutex<SharesState>,
}

impl HostShares {
    /// Creates the shares of a front end that may use this number of descriptors.
    pub(crate) fn new(descriptors_max: usize) -> Arc<Self> {
        let connections_max = CONNECTIONS_MAX.min(descriptors_max);
        let idle_max = IDLE_CONNECTIONS_MAX.min(descriptors_max / 2);
        Arc::new(Self { connections_max, idle_max, descriptors_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, SharesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether a host may have one more of a part, apart from descriptors.
    fn fits(&self, all: PartsInUse, own: PartsInUse, part: SharedPart) -> bool {
        let is_below = |all: usize, own: usize, max: usize| {
            all < max && own < (max / HOST_SHARE).max(HOST_CONNECTIONS_MIN)
        };
        match part {
            SharedPart::Connection => is_below(all.connections, own.connections, self.connections_max),
            SharedPart::Idle => is_below(all.idle, own.idle, self.idle_max),
            SharedPart::Viewer => is_below(all.viewers, own.viewers, DASHBOARD_VIEWERS_MAX),
            SharedPart::Handshake => own.handshakes < HANDSHAKES_PER_HOST_MAX,
            SharedPart::File => true,
        }
    }

    /// Takes a part for a host, if it may have a further one.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr, part: SharedPart) -> Option<HeldShare> {
        let host = ClientHost::from(Some(address));
        let mut state = self.state();
        let own = state.hosts.get(&host).copied().unwrap_or_default();
        let used = state.all.descriptors();
        let without_reserve = |max: usize| max - max / RESERVED_SHARE;
        let may_take = match part {
            SharedPart::Connection => {
                let of_host = (self.descriptors_max / HOST_SHARE).max(HOST_CONNECTIONS_MIN);
                used < self.descriptors_max
                    && own.all_connections() < of_host
                    && state.all.connections < without_reserve(self.connections_max)
            }
            SharedPart::File => used < without_reserve(self.descriptors_max),
            SharedPart::Idle | SharedPart::Handshake | SharedPart::Viewer => true,
        };
        if !may_take || !self.fits(state.all, own, part) {
            return None;
        }
        *state.all.part(part) += 1;
        *state.hosts.entry(host).or_default().part(part) += 1;
        Some(HeldShare { shares: self.clone(), host, part, before: *{ own }.part(part) })
    }
}

/// A part that a host uses. It is free again on drop.
#[must_use = "the part is free on drop"]
pub(crate) struct HeldShare {
    shares: Arc<HostShares>,
    host: ClientHost,
    part: SharedPart,
    before: usize,
}

impl HeldShare {
    /// Returns the part.
    pub(crate) fn part(&self) -> SharedPart {
        self.part
    }

    /// Takes another part in place of this one, with the same descriptor. Reports whether there was one.
    pub(crate) fn exchange(&mut self, part: SharedPart) -> bool {
        let mut state = self.shares.state();
        let own = state.hosts.get(&self.host).copied().unwrap_or_default();
        if !self.shares.fits(state.all, own, part) {
            return false;
        }
        *state.all.part(part) += 1;
        *state.hosts.entry(self.host).or_default().part(part) += 1;
        state.give_back(self.host, self.part);
        self.part = part;
        true
    }

    /// Returns the number of such parts that the host used before this one.
    pub(crate) fn before(&self) -> usize {
        self.before
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        self.shares.state().give_back(self.host, self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn take_all(shares: &Arc<HostShares>, host: u8, part: SharedPart) -> Vec<HeldShare> {
        std::iter::from_fn(|| shares.take(address(host), part)).take(10_000).collect()
    }

    #[test]
    fn one_host_has_a_part_and_all_hosts_half() {
        let shares = HostShares::new(usize::MAX);
        let one = take_all(&shares, 1, SharedPart::Connection);
        assert_eq!(one.len(), CONNECTIONS_MAX / HOST_SHARE);
        let rest: Vec<_> = (2..10).flat_map(|host| take_all(&shares, host, SharedPart::Connection)).collect();
        // The last places are those of idle connections that are used again.
        assert_eq!(one.len() + rest.len(), CONNECTIONS_MAX / 8 * 7);
        drop((one, rest));
        assert_eq!(shares.state().all, PartsInUse::default());
        assert!(shares.state().hosts.is_empty());
    }

    #[test]
    fn idle_connections_leave_their_places_to_others() {
        let shares = HostShares::new(usize::MAX);
        let of_host = CONNECTIONS_MAX / HOST_SHARE;
        let mut idle = Vec::new();
        while idle.len() < IDLE_CONNECTIONS_MAX / HOST_SHARE {
            let mut connections = take_all(&shares, 1, SharedPart::Connection);
            assert_eq!(connections.len(), of_host);
            assert!(connections.iter_mut().all(|connection| connection.exchange(SharedPart::Idle)));
            idle.extend(connections);
        }
        let mut further = take_all(&shares, 1, SharedPart::Connection);
        assert!(!further.iter_mut().any(|connection| connection.exchange(SharedPart::Idle)));
        assert_eq!(shares.state().all.descriptors(), idle.len() + of_host);
        // One that is wanted again needs a place.
        assert!(!idle[0].exchange(SharedPart::Connection));
        further.pop();
        assert!(idle[0].exchange(SharedPart::Connection));
        assert!(
            shares
                .take(address(2), SharedPart::Connection)
                .is_some_and(|mut other| other.exchange(SharedPart::Idle))
        );
        drop((idle, further));
        assert_eq!(shares.state().all, PartsInUse::default());
        assert!(shares.state().hosts.is_empty());
    }

    #[test]
    fn a_host_with_idle_connections_leaves_descriptors_to_others() {
        let shares = HostShares::new(160);
        let mut held = Vec::new();
        for round in 0..4 {
            let mut connections = take_all(&shares, 1, SharedPart::Connection);
            assert_eq!(connections.len(), if round == 0 { 40 } else { 0 });
            let idle =
                connections.iter_mut().filter_map(|one| one.exchange(SharedPart::Idle).then_some(())).count();
            assert_eq!(idle, if round == 0 { 20 } else { 0 });
            held.extend(connections);
        }
        assert!(shares.take(address(2), SharedPart::Connection).is_some());
        assert!(shares.take(address(2), SharedPart::File).is_some());
        // All hosts together have idle ones on half of the descriptors.
        for host in 3..20 {
            for mut connection in take_all(&shares, host, SharedPart::Connection) {
                if connection.exchange(SharedPart::Idle) {
                    held.push(connection);
                }
            }
        }
        assert_eq!(shares.state().all.idle, 80);
    }

    #[test]
    fn new_connections_leave_places_to_idle_ones() {
        let shares = HostShares::new(usize::MAX);
        let mut idle: Vec<_> = take_all(&shares, 1, SharedPart::Connection);
        assert!(idle.iter_mut().all(|connection| connection.exchange(SharedPart::Idle)));
        let _others: Vec<_> =
            (2..20).flat_map(|host| take_all(&shares, host, SharedPart::Connection)).collect();
        assert!(shares.take(address(30), SharedPart::Connection).is_none());
        let woken =
            idle.iter_mut().filter_map(|one| one.exchange(SharedPart::Connection).then_some(())).count();
        assert_eq!(woken, CONNECTIONS_MAX / 8);
    }

    #[test]
    fn one_host_has_a_part_of_the_viewers() {
        let shares = HostShares::new(usize::MAX);
        let one = take_all(&shares, 1, SharedPart::Viewer);
        assert_eq!(one.len(), DASHBOARD_VIEWERS_MAX / HOST_SHARE);
        let rest: Vec<_> = (2..10).flat_map(|host| take_all(&shares, host, SharedPart::Viewer)).collect();
        assert_eq!(one.len() + rest.len(), DASHBOARD_VIEWERS_MAX);
    }

    #[test]
    fn few_descriptors_are_divided() {
        let shares = HostShares::new(160);
        let one = take_all(&shares, 1, SharedPart::Connection);
        assert_eq!(one.len(), 40);
        let files = take_all(&shares, 1, SharedPart::File);
        assert_eq!(files.iter().map(HeldShare::before).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        // The last places are those of connections.
        assert!(shares.take(address(2), SharedPart::File).is_none());
        assert_eq!(take_all(&shares, 2, SharedPart::Connection).len(), 20);
        // A host with few connections is served where there is hardly a descriptor.
        let shares = HostShares::new(20);
        assert_eq!(take_all(&shares, 1, SharedPart::Connection).len(), HOST_CONNECTIONS_MIN);
    }

    #[test]
    fn handshakes_of_one_host_leave_room_for_others() {
        let shares = HostShares::new(usize::MAX);
        let one = take_all(&shares, 1, SharedPart::Handshake);
        assert_eq!(one.len(), HANDSHAKES_PER_HOST_MAX);
        assert!(shares.take(address(2), SharedPart::Handshake).is_some());
        drop(one);
        assert!(shares.take(address(1), SharedPart::Handshake).is_some());
    }
}
