//! What a parent of a tree is told at its start.

use std::time::Duration;

use super::address::Address;
use super::identity::SystemId;
use super::limits::{DROP, DROP_SUPERVISOR, MINIMUM_PERCENT, PING, PING_OWN};
use super::role::Acceptor;
use wire::cms::Extensions;

/// How many children must be there for service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Minimum {
    /// That many.
    Count(usize),
    /// That part of those that have a place, in percent; at least one.
    Percent(u8),
}

impl Minimum {
    /// The number, when `known` children have a place.
    pub fn of(self, known: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (known * usize::from(percent) / 100).max(1),
        }
    }
}

/// What is the same for all children of a parent.
#[derive(Clone, Debug)]
pub struct ParentSettings {
    /// What the parent is.
    pub acceptor: Acceptor,
    /// Its system id.
    pub id: SystemId,
    /// Name of its site.
    pub site: Option<String>,
    /// Where it listens, as its children know it.
    pub address: Address,
    /// Where clients of the cluster begin, if it is here: its children send clients there that are to move elsewhere.
    pub door: Option<Address>,
    /// Whether other managers hold the same tree.
    pub replicas: bool,
    /// What it can do beyond the protocol with nodes that can it too.
    pub extensions: Extensions,
    /// Time between pings to real nodes.
    pub ping: Duration,
    /// Time between pings to our own nodes.
    pub ping_own: Duration,
    /// Pings to real nodes between two questions for their load; 0: never.
    pub usage: u32,
    /// How long the place of a lost child is kept.
    pub drop: Duration,
    /// Told to children as the time that requests are held back.
    pub hold: Duration,
    /// How many children must be there for service.
    pub minimum: Minimum,
    /// How many nodes the cluster will have, where that is known; 0 where not.
    pub expected: usize,
    /// No earlier run of this cluster is on record, and how many nodes it has is not configured.
    pub first_start: bool,
}

impl ParentSettings {
    /// Those of a parent about which nothing special is configured.
    pub fn new(acceptor: Acceptor, id: SystemId, address: Address) -> Self {
        let inner = acceptor == Acceptor::Supervisor;
        let one = inner || acceptor == Acceptor::MetaManager;
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
