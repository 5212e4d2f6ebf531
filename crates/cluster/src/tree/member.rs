//! The record that a parent keeps of a child: identity, addresses, condition, load and space.

use std::time::Duration;

use super::address::Address;
use super::connection_id::ConnectionId;
use super::identity::{NodeId, NodeIdentity};
use super::limits::{MISSED, PROVEN};
use super::message::LoginMessage;
use super::peer_address::PeerAddress;
use wire::cms::Extensions;
use wire::cms::flags::Mode;
use wire::cms::login::Role;
use wire::cms::message::SpaceSums;

/// The port of a data server that did not report it. Source: cms protocol 3, login record.
const DATA_PORT: u16 = 1094;

/// The space of a node, in MB of 2^20 bytes as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceReport {
    /// Total space of all file systems.
    pub total_mb: u32,
    /// Free space of the file system with the most free space.
    pub free_mb: u32,
    /// The free space below which the node is not chosen for writing.
    pub minimum_mb: u32,
    /// The used part, in percent.
    pub used_percent: u8,
    /// Number of file systems.
    pub file_systems: u16,
}

impl SpaceReport {
    /// Reports whether the node has space for another file.
    pub const fn is_writable(self) -> bool {
        self.free_mb >= self.minimum_mb
    }
}

/// The load of a node, each component 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadReport {
    /// Processors.
    pub cpu: u8,
    /// Network.
    pub net: u8,
    /// Run queue.
    pub run_queue: u8,
    /// Memory.
    pub memory: u8,
    /// Paging.
    pub paging: u8,
    /// Disk space in use.
    pub disk: u8,
}

impl LoadReport {
    /// Returns the components in the order of the wire.
    pub const fn parts(self) -> [u8; 6] {
        [self.cpu, self.net, self.run_queue, self.memory, self.paging, self.disk]
    }

    /// Reports whether a component differs from that of `other` by more than `by`. The filling of
    /// disks does not count, because it is reported with the space.
    pub fn differs(self, other: Self, by: u8) -> bool {
        self.parts().into_iter().zip(other.parts()).take(5).any(|(one, two)| one.abs_diff(two) > by)
    }

    /// Creates a load from components in the order of the wire. A value above 100 counts as 100.
    pub fn from_parts(parts: [u8; 6]) -> Self {
        let [cpu, net, run_queue, memory, paging, disk] = parts.map(|part| part.min(100));
        Self { cpu, net, run_queue, memory, paging, disk }
    }
}

/// The restrictions of a child, as reported by itself and as decided here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Condition {
    /// The child reported that it cannot serve now.
    pub suspended: bool,
    /// The child cannot bring files online; normal for servers without staging.
    pub nostage: bool,
    /// The administrator of this parent is draining the child, so it gets no new clients.
    pub draining: bool,
    /// The child reported that it is being drained.
    pub drains_itself: bool,
    /// The child is not connected to all its managers yet, so they may not know it.
    pub newcomer: bool,
}

impl Condition {
    /// Reports whether the child is being drained, by order of either administrator.
    pub fn drains(self) -> bool {
        self.draining || self.drains_itself
    }
}

/// A child that is connected, or whose slot is kept.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    /// The identity of the child.
    pub identity: NodeIdentity,
    /// The role towards this parent.
    pub role: Role,
    /// The address at which it accepts connections of the cluster protocol, as named in a `try`.
    pub address: Address,
    /// The address for clients. The port may change with each `resume`.
    pub data: Address,
    /// The exported paths as received; empty stands for `r /`.
    pub paths: String,
    /// Name of the site, if it was reported.
    pub site: Option<String>,
    /// The host name that the child reports; empty if none.
    pub host: String,
    /// Name and version of the program; only our own nodes report it.
    pub software: Option<String>,
    /// Name of the instance; only our own nodes report it.
    pub instance: Option<String>,
    /// The version of the protocol.
    pub version: u16,
    /// The protocol extensions that both ends support; none for a real node.
    pub extensions: Extensions,
    /// The restrictions.
    pub condition: Condition,
    /// The space.
    pub space: SpaceReport,
    /// The sum of the space of all nodes below, if it was reported.
    pub sums: Option<SpaceSums>,
    /// The share of clients that the child requests, in percent; 0 if none was reported.
    pub share: u8,
    /// The load.
    pub load: LoadReport,
    /// The connection; `None` while the child is away.
    pub link: Option<ConnectionId>,
    /// The time of the last change of `link`: the child joined, reconnected or was lost.
    pub since: Duration,
    /// The time of the last byte received.
    pub heard: Duration,
    /// The time of the last ping.
    pub pinged: Duration,
    /// Number of pings sent.
    pub pings: u32,
    /// The history of its service.
    pub service: Service,
}

/// The history of the service of a child, so that a child that served for long is missed for
/// longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// The child serves.
    pub active: bool,
    /// The child has served at some time.
    pub ever: bool,
    /// The time of the last change.
    pub since: Duration,
    /// The total time of service in earlier periods.
    pub total: Duration,
}

impl Service {
    /// Records whether the child serves now.
    pub fn note(&mut self, active: bool, now: Duration) {
        if self.active == active {
            return;
        }
        if self.active {
            self.total += now.saturating_sub(self.since);
        }
        (self.active, self.since) = (active, now);
        self.ever |= active;
    }

    /// Returns the time until which a child that does not serve is missed. It is missed for as long
    /// as it served, and for a minimum time.
    pub fn missed_until(&self) -> Option<Duration> {
        (!self.active && self.ever).then(|| self.since.saturating_add(self.total.max(MISSED)))
    }

    /// Reports whether the child served for long enough to be exempt from the limit of children per
    /// address.
    pub fn is_proven(&self) -> bool {
        self.total >= PROVEN
    }
}

impl ClusterMember {
    /// Creates the record of a node that logs in now. `extensions` are those that both ends support.
    pub(super) fn from_login(
        link: ConnectionId,
        peer: &PeerAddress,
        login: &LoginMessage,
        id: NodeId,
        role: Role,
        extensions: Extensions,
        now: Duration,
    ) -> Self {
        let data_port = if login.data_port == 0 { DATA_PORT } else { login.data_port };
        Self {
            identity: NodeIdentity { id, ip: peer.ip, data_port },
            role,
            address: Address::new(&peer.host, login.cluster_port).beside(&login.interfaces),
            data: Address::new(&peer.host, data_port),
            paths: login.paths.clone(),
            site: login.site.clone(),
            host: login.host.clone().unwrap_or_default(),
            software: login.software.clone(),
            instance: login.instance.clone(),
            version: login.version,
            extensions,
            condition: Condition {
                suspended: login.mode.contains(Mode::SUSPEND),
                nostage: login.mode.contains(Mode::NOSTAGE),
                ..Condition::default()
            },
            space: login.space,
            sums: None,
            share: login.mode.share_percent(),
            load: LoadReport::default(),
            link: Some(link),
            since: now,
            heard: now,
            pinged: now,
            pings: 0,
            service: Service::default(),
        }
    }

    /// Reports whether the child is a node of our own.
    pub const fn is_own(&self) -> bool {
        self.extensions.is_own()
    }

    /// Reports whether the child is connected.
    pub const fn is_online(&self) -> bool {
        self.link.is_some()
    }

    /// Reports whether the child counts towards the minimum and may be chosen.
    pub const fn is_active(&self) -> bool {
        self.link.is_some() && !self.condition.suspended
    }

    /// Reports whether the child is a leaf, which a supervisor may displace.
    pub const fn is_leaf(&self) -> bool {
        !self.role.has_children()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_above_100_count_as_100() {
        assert_eq!(LoadReport::from_parts([255; 6]).parts(), [100; 6]);
    }
}
