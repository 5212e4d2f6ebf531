//! A child as its parent knows it: who it is, where it listens, how it feels.

use std::time::Duration;

use super::address::Address;
use super::connection_id::ConnectionId;
use super::identity::NodeIdentity;
use super::limits::{MISSED, PROVEN};
use wire::cms::Extensions;
use wire::cms::login::Role;
use wire::cms::message::SpaceSums;

/// Space of a node, in MB of 2^20 bytes as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceReport {
    /// Total space of all file systems.
    pub total_mb: u32,
    /// Free space of the file system that has most of it.
    pub free_mb: u32,
    /// Below this the node is not chosen for writing.
    pub minimum_mb: u32,
    /// Part that is used, in percent.
    pub used_percent: u8,
    /// How many file systems.
    pub file_systems: u16,
}

impl SpaceReport {
    /// Whether the node has space for another file.
    pub const fn is_writable(self) -> bool {
        self.free_mb >= self.minimum_mb
    }
}

/// Load of a node, each part 0 to 100.
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
    /// The parts in the order of the wire.
    pub const fn parts(self) -> [u8; 6] {
        [self.cpu, self.net, self.run_queue, self.memory, self.paging, self.disk]
    }

    /// Whether any part but the filling of disks, which is told with the space, is further away from `other` than `by`.
    pub fn differs(self, other: Self, by: u8) -> bool {
        self.parts().into_iter().zip(other.parts()).take(5).any(|(one, two)| one.abs_diff(two) > by)
    }

    /// The load of these parts, each cut to 100.
    pub fn from_parts(parts: [u8; 6]) -> Self {
        let [cpu, net, run_queue, memory, paging, disk] = parts.map(|part| part.min(100));
        Self { cpu, net, run_queue, memory, paging, disk }
    }
}

/// What a child has said and what was decided about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Condition {
    /// It said that it cannot serve now.
    pub suspended: bool,
    /// It cannot bring files online; normal for servers without staging.
    pub nostage: bool,
    /// The administrator of this parent moves its clients away: nothing new is sent there.
    pub draining: bool,
    /// The same by word of the node itself.
    pub drains_itself: bool,
}

impl Condition {
    /// Whether its clients move away, by whosever order.
    pub fn drains(self) -> bool {
        self.draining || self.drains_itself
    }
}

/// A child, connected or remembered.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    /// Who it is.
    pub identity: NodeIdentity,
    /// What it is to this parent.
    pub role: Role,
    /// Where it takes connections of the cluster protocol: what a `try` names.
    pub address: Address,
    /// Where clients find it. The port may change with each `resume`.
    pub data: Address,
    /// Its paths as it sent them; empty stands for `r /`.
    pub paths: String,
    /// Name of its site, if it gave one.
    pub site: Option<String>,
    /// What it calls its host; empty when it did not say.
    pub host: String,
    /// Name and version of its program; only our own nodes say it.
    pub software: Option<String>,
    /// Name of its instance; only our own nodes send it.
    pub instance: Option<String>,
    /// The version of the protocol it speaks.
    pub version: u16,
    /// What both ends can do beyond the protocol; nothing for a real node.
    pub extensions: Extensions,
    /// How it feels.
    pub condition: Condition,
    /// Its space.
    pub space: SpaceReport,
    /// Space of all nodes below it together, where it told.
    pub sums: Option<SpaceSums>,
    /// The share of clients that it wants, in percent; 0: it did not say.
    pub share: u8,
    /// Its load.
    pub load: LoadReport,
    /// Its connection; `None` while it is away.
    pub link: Option<ConnectionId>,
    /// When it joined or returned, or was lost: since when `link` is what it is.
    pub since: Duration,
    /// When a byte of it came last.
    pub heard: Duration,
    /// When it was pinged last.
    pub pinged: Duration,
    /// How often it was pinged.
    pub pings: u32,
    /// How it has served so far.
    pub service: Service,
}

/// Since when a child serves or does not, and for how long it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Whether it serves.
    pub active: bool,
    /// Whether it ever did.
    pub ever: bool,
    /// When that changed last.
    pub since: Duration,
    /// For how long it served before.
    pub total: Duration,
}

impl Service {
    /// It serves now, or does not.
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

    /// Until when one that does not serve is missed: for as long as it did, and a while at least.
    pub fn missed_until(&self) -> Option<Duration> {
        (!self.active && self.ever).then(|| self.since.saturating_add(self.total.max(MISSED)))
    }

    /// Whether it served for so long that it counts for itself, however many its address has.
    pub fn is_proven(&self) -> bool {
        self.total >= PROVEN
    }
}

impl ClusterMember {
    /// Whether it is a node of our own.
    pub const fn is_own(&self) -> bool {
        self.extensions.is_own()
    }

    /// Whether it is connected.
    pub const fn is_online(&self) -> bool {
        self.link.is_some()
    }

    /// Whether it counts towards the minimum and may be chosen.
    pub const fn is_active(&self) -> bool {
        self.link.is_some() && !self.condition.suspended
    }

    /// Whether it may be displaced by a parent: it has no children.
    pub const fn is_leaf(&self) -> bool {
        !self.role.has_children()
    }
}
