//! The settings of a parent of a tree.
//!
//! They are separate from `members`, because a driver fills them from the configuration.

use std::time::Duration;

use super::address::Address;
use super::identity::NodeId;
use super::limits::{DROP, DROP_SUPERVISOR, MINIMUM_PERCENT, PING, PING_OWN};
use super::role::AcceptorRole;
use wire::cms::Extensions;

/// The quorum: the number of children that are needed for service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Minimum {
    /// A fixed number.
    Count(usize),
    /// A percentage of the children that have a place; at least one child.
    Percent(u8),
}

impl Minimum {
    /// Returns the number, if `known` children have a place.
    pub fn of(self, known: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (known * usize::from(percent) / 100).max(1),
        }
    }
}

/// The settings that are equal for all children of a parent.
#[derive(Clone, Debug)]
pub struct ParentSettings {
    /// The role of the parent.
    pub acceptor: AcceptorRole,
    /// Its system id.
    pub id: NodeId,
    /// The name of its site.
    pub site: Option<String>,
    /// Its address for its children.
    pub address: Address,
    /// The address at which clients enter the cluster, if it is here. Draining children redirect
    /// their clients there.
    pub door: Option<Address>,
    /// Other managers (replicas) have the same tree.
    pub replicas: bool,
    /// Its extensions of the protocol, for nodes that support them too.
    pub extensions: Extensions,
    /// The interval between pings to real nodes.
    pub ping: Duration,
    /// The interval between pings to our own nodes.
    pub ping_own: Duration,
    /// The number of pings to real nodes between two requests for their load; 0: never.
    pub usage: u32,
    /// The time for which the place of a lost child is kept.
    pub drop: Duration,
    /// The time for which requests are held, as sent to children.
    pub hold: Duration,
    /// The quorum of children for service.
    pub minimum: Minimum,
    /// The expected number of nodes of the cluster; 0 if it is unknown.
    pub expected: usize,
    /// There is no record of an earlier run of this cluster, and its number of nodes is not
    /// configured.
    pub first_start: bool,
}

impl ParentSettings {
    /// Returns the default settings of a parent.
    pub fn new(acceptor: AcceptorRole, id: NodeId, address: Address) -> Self {
        let inner = acceptor.is_supervisor();
        let one = inner || acceptor == AcceptorRole::MetaManager;
        Self {
            acceptor,
            id,
            site: None,
            address,
            door: None,
            replicas: false,
            extensions: Extensions::ALL,
            ping: PING,
            ping_own: PING_OWN,
            usage: 0,
            drop: if inner { DROP_SUPERVISOR } else { DROP },
            hold: Duration::from_millis(178),
            minimum: if one { Minimum::Count(1) } else { Minimum::Percent(MINIMUM_PERCENT) },
            expected: 0,
            first_start: false,
        }
    }
}
