//! Orders of the administrator, and reasons of this node itself, to take no clients.

use std::time::Duration;

use super::super::action::NodeAction;
use super::super::blacklist::Blacklist;
use super::super::members::Members;
use super::ClusterNode;
use crate::Slot;

/// The reasons why a node drains. The end of one leaves the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DrainReasons {
    /// The administrator has ordered it, here or at a parent.
    ordered: bool,
    /// The origin of this node, a proxy, does not answer.
    origin_failed: bool,
}

impl DrainReasons {
    const fn any(self) -> bool {
        self.ordered || self.origin_failed
    }
}

impl ClusterNode {
    /// Starts or ends draining by order: the clients of this node move elsewhere, and it serves only
    /// files that no other node has.
    pub fn set_draining(&mut self, draining: bool, out: &mut Vec<NodeAction>) {
        self.drains.ordered = draining;
        self.report_draining(out);
    }

    /// Does the same while the origin of this node does not answer, whatever was ordered.
    pub fn set_origin_failed(&mut self, has_failed: bool, out: &mut Vec<NodeAction>) {
        let before = self.drains.any();
        self.drains.origin_failed = has_failed;
        if before != self.drains.any() {
            self.report_draining(out);
        }
    }

    fn report_draining(&mut self, out: &mut Vec<NodeAction>) {
        let draining = self.drains.any();
        for membership in &mut self.memberships {
            membership.set_draining(draining, out);
        }
        out.push(NodeAction::Drain { draining, door: self.door() });
    }

    /// Drains a child or ends that; `false` if the slot is empty.
    pub fn drain(&mut self, slot: Slot, draining: bool, now: Duration, out: &mut Vec<NodeAction>) -> bool {
        let from = out.len();
        let done = self.members.as_mut().is_some_and(|members| members.drain(slot, draining, out));
        self.couple(from, now, out);
        done
    }

    /// Returns the ids of nodes below that are drained by order; the driver keeps them over a
    /// restart.
    pub fn drained(&self) -> impl Iterator<Item = &str> {
        self.members.iter().flat_map(Members::drained)
    }

    /// Restores the ids of [`Self::drained`] from the last run.
    pub fn set_drained(&mut self, ids: impl IntoIterator<Item = String>) {
        if let Some(members) = &mut self.members {
            members.set_drained(ids);
        }
    }

    /// Suspends the service of all nodes below, or resumes it.
    pub fn suspend(&mut self, suspended: bool, now: Duration, out: &mut Vec<NodeAction>) {
        let from = out.len();
        if let Some(members) = &mut self.members {
            members.suspend(suspended, now, out);
        }
        self.couple(from, now, out);
    }

    /// Replaces the black list.
    pub fn set_blacklist(&mut self, list: Blacklist, now: Duration, out: &mut Vec<NodeAction>) {
        let from = out.len();
        if let Some(members) = &mut self.members {
            members.set_blacklist(list, now, out);
        }
        self.couple(from, now, out);
    }
}
