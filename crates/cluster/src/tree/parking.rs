//! Parked logins: they are held back until a cell has room, instead of being refused.
//!
//! A real node waits a ping interval (60 s by default) for the reply to its login. So a cell that
//! appears a moment later costs it nothing, while a refusal costs it a pause of 9 s. Source: cms
//! protocol 3, sections 2.1 and 3.2.

use std::collections::BTreeMap;
use std::time::Duration;

use base::IdMap;

use super::connection_id::ConnectionId;
use super::limits::{PARK, PARKED_MAX, PARKED_NOTICE};
use super::member::ClusterMember;

/// A parked login.
#[derive(Debug)]
pub(super) struct Parked {
    /// The node; `link` is its connection.
    pub(super) member: Box<ClusterMember>,
    /// The time of its arrival.
    pub(super) since: Duration,
    /// It had been redirected to a cell a moment before.
    pub(super) returned: bool,
}

/// Parked logins in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Parking {
    parked: BTreeMap<u64, Parked>,
    by_link: IdMap<ConnectionId, u64>,
    /// Notices for own nodes, and expiries for all: times with the tickets, oldest first.
    notices: std::collections::VecDeque<(Duration, u64)>,
    next: u64,
}

impl Parking {
    /// Parks a login; returns it if the limit is reached.
    pub(super) fn park(
        &mut self,
        link: ConnectionId,
        member: Box<ClusterMember>,
        returned: bool,
        now: Duration,
    ) -> Result<(), Box<ClusterMember>> {
        if self.parked.len() >= PARKED_MAX {
            return Err(member);
        }
        let ticket = self.next;
        self.next += 1;
        if member.is_own() {
            self.notices.push_back((now + PARKED_NOTICE, ticket));
        }
        self.parked.insert(ticket, Parked { member, since: now, returned });
        self.by_link.insert(link, ticket);
        Ok(())
    }

    /// Returns the connections of the logins that `wanted` selects.
    pub(super) fn links(&self, wanted: impl Fn(&ClusterMember) -> bool) -> Vec<ConnectionId> {
        self.parked
            .values()
            .filter(|parked| wanted(&parked.member))
            .filter_map(|parked| parked.member.link)
            .collect()
    }

    /// Returns a parked login.
    pub(super) fn get_mut(&mut self, link: ConnectionId) -> Option<&mut ClusterMember> {
        let ticket = self.by_link.get(&link)?;
        self.parked.get_mut(ticket).map(|parked| &mut *parked.member)
    }

    /// Returns the login that has waited longest.
    pub(super) fn oldest(&self) -> Option<&Parked> {
        self.parked.values().next()
    }

    /// Removes a login.
    pub(super) fn release(&mut self, link: ConnectionId) -> Option<Parked> {
        let ticket = self.by_link.remove(&link)?;
        self.parked.remove(&ticket)
    }

    /// Returns the first-time login that has waited longest.
    pub(super) fn oldest_new(&self) -> Option<&Parked> {
        self.parked.values().find(|parked| !parked.returned)
    }

    /// Returns the number of parked logins.
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Removes a login that has waited for too long.
    pub(super) fn overdue(&mut self, now: Duration) -> Option<Box<ClusterMember>> {
        let oldest = self.oldest()?;
        if oldest.since + PARK > now {
            return None;
        }
        let link = oldest.member.link?;
        self.release(link).map(|parked| parked.member)
    }

    /// Returns the next node of our own for which a notice is due.
    pub(super) fn notice(&mut self, now: Duration) -> Option<ConnectionId> {
        while let Some((_, ticket)) = self.notices.pop_front_if(|(due, _)| *due <= now) {
            let Some(parked) = self.parked.get_mut(&ticket) else { continue };
            self.notices.push_back((now + PARKED_NOTICE, ticket));
            return parked.member.link;
        }
        None
    }

    /// Returns the time of the next work.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let notice = self.notices.front().map(|(due, _)| *due);
        let overdue = self.oldest().map(|parked| parked.since + PARK);
        [notice, overdue].into_iter().flatten().min()
    }
}
