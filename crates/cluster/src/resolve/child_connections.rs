//! The connections of the children, and the times for which lost or new children are waited for.
//!
//! The cell holds the state of each child as clients need it. This record holds the times at which
//! that state ends by itself.

use std::time::Duration;

use base::IdMap;

use super::limits::{ANNOUNCED, EXPECTED_BACK};
use crate::cell::{Cell, CellChild, Newness};
use crate::slots::Slot;
use crate::tree::limits::STABLE;
use crate::tree::{ChildChange, ConnectionId};

/// The connection of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AttachedChild {
    link: ConnectionId,
    since: Duration,
}

/// The connections of children, and the times at which the waits for them end.
pub(super) struct ChildConnections {
    /// The time until which each lost child is expected to reconnect. For a child that has only
    /// just reconnected, it still counts from the first loss (flapping).
    expected: Vec<(Duration, Slot)>,
    /// The time until which files wait that each child with [`Newness::Announced`] would get.
    announced: Vec<(Duration, Slot)>,
    /// The connections of the children, as reported by the tree.
    links: IdMap<Slot, AttachedChild>,
    /// The quorum of children is present, as reported by the driver.
    pub(super) has_quorum: bool,
}

impl ChildConnections {
    pub(super) fn new(has_quorum: bool) -> Self {
        Self { expected: Vec::new(), announced: Vec::new(), links: IdMap::default(), has_quorum }
    }

    /// Records the connection of a child. Reports whether it changed.
    pub(super) fn attach(&mut self, slot: Slot, link: Option<ConnectionId>, now: Duration) -> bool {
        let before = self.links.get(&slot).map(|attached| attached.link);
        match link {
            Some(link) if before != Some(link) => {
                self.links.insert(slot, AttachedChild { link, since: now });
            }
            Some(_) => {}
            None => drop(self.links.remove(&slot)),
        }
        before != link
    }

    /// Forgets the child in a slot that is free now.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.links.remove(&slot);
        self.forget_loss(slot);
    }

    /// Forgets the losses of the child in a slot, because the slot has another child.
    pub(super) fn forget_loss(&mut self, slot: Slot) {
        self.expected.retain(|(_, other)| *other != slot);
    }

    /// Returns the knowledge of the other managers about a child. A new child that reports that all
    /// of them know it gets no files for a moment. A child that an earlier run of this node has
    /// chosen is not new.
    pub(super) fn newness(
        &mut self,
        cell: &Cell,
        slot: Slot,
        child: &CellChild,
        change: ChildChange,
        now: Duration,
    ) -> Newness {
        let before = cell.child(slot).filter(|before| before.id == child.id);
        let is_login = matches!(change, ChildChange::Joined { .. });
        let is_of_earlier_run = cell.absent().iter().any(|one| one.id == child.id && one.seat.is_none());
        match (before.map(|before| before.state.newness), child.state.newness) {
            (_, Newness::Unknown) if is_login && is_of_earlier_run => Newness::None,
            (Some(Newness::None), Newness::Unknown) if !is_login => Newness::None,
            (Some(Newness::Unknown), Newness::None) => {
                self.announced.retain(|(_, other)| *other != slot);
                self.announced.push((now.saturating_add(ANNOUNCED), slot));
                Newness::Announced
            }
            (Some(Newness::Announced), Newness::None) => Newness::Announced,
            (_, newness) => newness,
        }
    }

    /// Takes the new children that have been known to all managers for a moment.
    pub(super) fn take_announced(&mut self, now: Duration) -> Vec<Slot> {
        self.announced.extract_if(.., |(until, _)| *until <= now).map(|(_, slot)| slot).collect()
    }

    /// Returns the time of the next result of [`Self::take_announced`].
    pub(super) fn next_announced(&self) -> Option<Duration> {
        self.announced.iter().map(|(until, _)| *until).min()
    }

    /// Reports whether a lost child is expected to reconnect. The time counts from its first loss,
    /// however often it reconnected briefly since (flapping).
    pub(super) fn expect(&mut self, slot: Slot, now: Duration) -> bool {
        let known = self.expected.iter().find(|(_, other)| *other == slot).map(|(until, _)| *until);
        if let Some(until) = known.filter(|_| !self.has_stayed(slot, now)) {
            return until > now;
        }
        self.forget_loss(slot);
        self.expected.push((now.saturating_add(EXPECTED_BACK), slot));
        true
    }

    /// Reports whether the lost child had been connected for more than a moment.
    pub(super) fn has_stayed(&self, slot: Slot, now: Duration) -> bool {
        self.links.get(&slot).is_none_or(|attached| now >= attached.since.saturating_add(STABLE))
    }

    /// Returns the expected children of the cell that were lost too long ago.
    pub(super) fn overdue(&self, cell: &Cell, now: Duration) -> Vec<Slot> {
        let expected = cell.expected();
        let over = self.expected.iter().filter(|(until, slot)| *until <= now && expected.contains(*slot));
        over.map(|(_, slot)| *slot).collect()
    }

    /// Returns the time of the next result of [`Self::overdue`].
    pub(super) fn next_overdue(&self, cell: &Cell) -> Option<Duration> {
        let expected = self.expected.iter().filter(|(_, slot)| cell.expected().contains(*slot));
        expected.map(|(until, _)| *until).min()
    }
}
