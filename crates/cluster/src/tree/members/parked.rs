//! Logins that wait for a place: those of parents, and those of other nodes.

use std::time::Duration;

use super::super::connection_id::ConnectionId;
use super::super::limits::SETTLE;
use super::super::member::ClusterMember;
use super::super::parking::{Parked, Parking};

/// Logins that are held back.
#[derive(Debug, Default)]
pub(super) struct ParkedLogins {
    parents: Parking,
    leaves: Parking,
    /// The time at which reserved places are given to waiting logins.
    relax_at: Option<Duration>,
    /// The operator was warned that the cells are full, since logins began to wait.
    is_warned: bool,
    /// Places are being assigned.
    is_releasing: bool,
}

impl ParkedLogins {
    pub(super) fn of(&self, parents: bool) -> &Parking {
        if parents { &self.parents } else { &self.leaves }
    }

    pub(super) fn of_mut(&mut self, parents: bool) -> &mut Parking {
        if parents { &mut self.parents } else { &mut self.leaves }
    }

    /// Returns the number of waiting logins.
    pub(super) fn len(&self) -> usize {
        self.leaves.len() + self.parents.len()
    }

    /// Returns the node of a waiting login.
    pub(super) fn member_mut(&mut self, link: ConnectionId) -> Option<&mut ClusterMember> {
        self.leaves.get_mut(link).or_else(|| self.parents.get_mut(link))
    }

    /// Holds a login back; returns it if the limit is reached.
    pub(super) fn park(
        &mut self,
        link: ConnectionId,
        member: Box<ClusterMember>,
        returned: bool,
        now: Duration,
    ) -> Result<(), Box<ClusterMember>> {
        self.of_mut(member.role.has_children()).park(link, member, returned, now)?;
        self.relax_at.get_or_insert(now + SETTLE);
        Ok(())
    }

    /// Reports whether the operator is to be warned that the cells are full: once, while logins
    /// wait.
    pub(super) fn take_warning(&mut self) -> bool {
        !std::mem::replace(&mut self.is_warned, true)
    }

    /// Removes a login.
    pub(super) fn remove(&mut self, link: ConnectionId) -> Option<Parked> {
        self.leaves.release(link).or_else(|| self.parents.release(link))
    }

    /// Starts to assign places; `false` if nothing waits or the assignment is in progress, because
    /// an assigned place may start it again.
    pub(super) fn begin_release(&mut self) -> bool {
        self.len() > 0 && !std::mem::replace(&mut self.is_releasing, true)
    }

    /// Ends the assignment of places. Reports whether logins still wait.
    pub(super) fn end_release(&mut self) -> bool {
        self.is_releasing = false;
        self.is_warned = self.len() > 0;
        self.is_warned
    }

    /// Gives reserved places to waiting logins at the first of these times.
    pub(super) fn relax_at(&mut self, times: [Option<Duration>; 2]) {
        self.relax_at = times.into_iter().flatten().chain(self.relax_at).min();
    }

    /// Reports whether reserved places are to be given to waiting logins now.
    pub(super) fn take_relaxed(&mut self, now: Duration) -> bool {
        self.relax_at.take_if(|due| *due <= now).is_some()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        [self.leaves.deadline(), self.parents.deadline(), self.relax_at].into_iter().flatten().min()
    }
}
