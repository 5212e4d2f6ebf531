//! The tree as the world knows it: the parents of each host over connections that work.
//!
//! Checks use it, because each process knows its own side of a connection only.

use std::time::Duration;

use crate::host::{HostKind, SimHost};
use crate::network::Network;
use crate::own_process::QueryBehaviour;

/// The time after which a file is known to all nodes concerned, if it stays in place and the tree
/// does not change. Before it messages are in transit: replies to queries, and reports of a node
/// that joined meanwhile.
pub(crate) const KNOWN_AFTER: Duration = Duration::from_secs(1);

/// The hosts and the connections of a world at one time.
#[derive(Clone, Copy)]
pub(crate) struct TreeView<'a> {
    pub(crate) now: Duration,
    pub(crate) hosts: &'a [SimHost],
    pub(crate) network: &'a Network,
}

impl TreeView<'_> {
    /// Returns the parents of a host from its own up to a manager, over working connections.
    pub(crate) fn ancestors(&self, index: usize) -> Vec<usize> {
        let mut above = Vec::new();
        let mut at = index;
        while let Some(parent) = self.parent(at).filter(|parent| !above.contains(parent)) {
            above.push(parent);
            at = parent;
        }
        above
    }

    /// Returns one parent of a host, if both sides agree and the connection works.
    fn parent(&self, index: usize) -> Option<usize> {
        self.parents_of(index, self.now).into_iter().next()
    }

    /// Returns the parents of a host, if both sides agree and the connection works. Pairs of which
    /// a side or the connection was stalled at that time are left out, because messages were held
    /// up.
    pub(crate) fn parents_of(&self, index: usize, at: Duration) -> Vec<usize> {
        let host = &self.hosts[index];
        if host.stood_still(at, KNOWN_AFTER) {
            return Vec::new();
        }
        let carries = |link: &cluster::tree::ConnectionId| {
            let link = self.network.get(host.number(*link)?)?;
            let [near, far] = link.ends;
            let parent = self.hosts.get(far.host as usize)?;
            let still = link.stood_still(at, KNOWN_AFTER) || parent.stood_still(at, KNOWN_AFTER);
            let carries = !link.silent && !still;
            let stands = near.open && far.open && carries && parent.epoch == far.epoch;
            let seated = parent.child_links().contains(&far.link);
            (stands && seated && !self.network.is_cut(link)).then_some(far.host as usize)
        };
        host.parent_links().iter().filter_map(carries).collect()
    }

    /// Reports whether a host is in the tree of a manager, through nodes of our own, and was so for
    /// a while at that time.
    pub(crate) fn belongs(&self, index: usize, manager: usize, at: Duration) -> bool {
        let host = &self.hosts[index];
        if host.machine.is_none()
            || host.behaviour != QueryBehaviour::Honest
            || host.seated + KNOWN_AFTER > at
        {
            return false;
        }
        self.parents_of(index, at).into_iter().any(|parent| {
            let kind = self.hosts[parent].kind;
            parent == manager || (kind == HostKind::Supervisor && self.belongs(parent, manager, at))
        })
    }

    /// Reports whether all nodes are our own and without deliberate faults.
    pub(crate) fn is_honest(&self) -> bool {
        self.hosts.iter().all(|host| host.kind.is_own() && host.behaviour == QueryBehaviour::Honest)
    }
}
