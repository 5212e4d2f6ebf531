//! Logins with the identity of a connected node.
//!
//! The older connection must answer a ping at once, otherwise it is considered dead. Real managers
//! refuse the newcomer until the dead connection times out, after up to three pings.

use std::time::Duration;

use super::super::connection_id::ConnectionId;
use super::super::member::ClusterMember;
use crate::Slot;

/// A login with the identity of a connected node.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) link: ConnectionId,
    pub(super) member: Box<ClusterMember>,
    /// The slot of the connected node.
    pub(super) slot: Slot,
    /// The time until which the connected node has to answer.
    pub(super) due: Duration,
}

/// All undecided contests, at most one for each slot.
#[derive(Debug, Default)]
pub(super) struct Contests(Vec<Contest>);

impl Contests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, contest: Contest) {
        self.0.push(contest);
    }

    /// Takes the contest for a slot.
    pub(super) fn take(&mut self, slot: Slot) -> Option<Contest> {
        let at = self.0.iter().position(|contest| contest.slot == slot)?;
        Some(self.0.swap_remove(at))
    }

    /// Forgets the contest of a newcomer whose connection has ended.
    pub(super) fn forget(&mut self, link: ConnectionId) {
        self.0.retain(|contest| contest.link != link);
    }

    /// Returns the newcomer of a connection.
    pub(super) fn member_mut(&mut self, link: ConnectionId) -> Option<&mut ClusterMember> {
        self.0.iter_mut().find(|contest| contest.link == link).map(|contest| &mut *contest.member)
    }

    /// Returns the slot of a node that has not answered in time.
    pub(super) fn overdue(&self, now: Duration) -> Option<Slot> {
        self.0.iter().find(|contest| contest.due <= now).map(|contest| contest.slot)
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.0.iter().map(|contest| contest.due).min()
    }
}
