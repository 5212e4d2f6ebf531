//! Logins that are held back until a cell has room, instead of being refused.
//!
//! A real node waits a ping interval (60 s by default) for its login's answer, so a cell that appears a moment later costs
//! it nothing, while a refusal costs it a pause of 9 s. Source: cms protocol 3, sections 2.1 and 3.2.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::limits::{PARK, PARKED_MAX, PARKED_NOTICE};
use super::link::LinkId;
use super::member::Member;

/// A login that is held back.
#[derive(Debug)]
pub(super) struct Parked {
    /// Whoever it is; `link` is its connection.
    pub(super) member: Box<Member>,
    /// When it came.
    pub(super) since: Duration,
    /// Whether it had been sent to a cell a moment before.
    pub(super) returned: bool,
}

/// Logins in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Parking {
    parked: BTreeMap<u64, Parked>,
    by_link: HashMap<LinkId, u64>,
    /// Own nodes to be told, and all to be let go: times with the tickets, oldest first.
    notices: std::collections::VecDeque<(Duration, u64)>,
    next: u64,
}

impl Parking {
    /// Holds a login back; gives it back when there are too many.
    pub(super) fn park(
        &mut self,
        link: LinkId,
        member: Box<Member>,
        returned: bool,
        now: Duration,
    ) -> Result<(), Box<Member>> {
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

    /// Connections of those that `wanted` names.
    pub(super) fn links(&self, wanted: impl Fn(&Member) -> bool) -> Vec<LinkId> {
        self.parked
            .values()
            .filter(|parked| wanted(&parked.member))
            .filter_map(|parked| parked.member.link)
            .collect()
    }

    /// One that waits.
    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Member> {
        let ticket = self.by_link.get(&link)?;
        self.parked.get_mut(ticket).map(|parked| &mut *parked.member)
    }

    /// The one that has waited longest.
    pub(super) fn oldest(&self) -> Option<&Parked> {
        self.parked.values().next()
    }

    /// Takes one out.
    pub(super) fn release(&mut self, link: LinkId) -> Option<Parked> {
        let ticket = self.by_link.remove(&link)?;
        self.parked.remove(&ticket)
    }

    /// The one that has waited longest of those that come for the first time.
    pub(super) fn oldest_new(&self) -> Option<&Parked> {
        self.parked.values().find(|parked| !parked.returned)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Takes out one that has waited for too long.
    pub(super) fn overdue(&mut self, now: Duration) -> Option<Box<Member>> {
        let oldest = self.oldest()?;
        if oldest.since + PARK > now {
            return None;
        }
        let link = oldest.member.link?;
        self.release(link).map(|parked| parked.member)
    }

    /// The next node of our own that has to be told now that it is not forgotten.
    pub(super) fn notice(&mut self, now: Duration) -> Option<LinkId> {
        while let Some((_, ticket)) = self.notices.pop_front_if(|(due, _)| *due <= now) {
            let Some(parked) = self.parked.get_mut(&ticket) else { continue };
            self.notices.push_back((now + PARKED_NOTICE, ticket));
            return parked.member.link;
        }
        None
    }

    /// When there is something to do next.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let notice = self.notices.front().map(|(due, _)| *due);
        let overdue = self.oldest().map(|parked| parked.since + PARK);
        [notice, overdue].into_iter().flatten().min()
    }
}
