//! The service of the cell: its quorum, and the time at which it is settled.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::limits::{FIRST_START, SETTLE, SETTLE_MAX, STABLE};
use super::super::member_slots::MemberSlots;
use super::super::parent::{Minimum, ParentSettings};
use crate::SlotMask;

/// The state of the service, and of the wait for nodes that have not arrived yet.
#[derive(Debug)]
pub(super) struct CellService {
    minimum: Minimum,
    /// The expected number of nodes of the cluster; 0 if it is unknown.
    expected: usize,
    serves: bool,
    suspended_by_order: bool,
    /// The time before which the cell is not settled.
    first_settled: Duration,
    /// The last arrival of any node.
    last_arrival: Duration,
    /// The time since which it serves without being settled.
    unsettled: Option<Duration>,
    /// The time at which it stopped serving, and the value of `unsettled` then.
    stopped: Option<(Duration, Option<Duration>)>,
}

impl CellService {
    pub(super) fn new(settings: &ParentSettings, now: Duration) -> Self {
        Self {
            minimum: settings.minimum,
            expected: settings.expected,
            serves: false,
            suspended_by_order: false,
            first_settled: now + if settings.first_start { FIRST_START } else { Duration::ZERO },
            last_arrival: now,
            unsettled: None,
            stopped: None,
        }
    }

    /// Reports whether clients are served.
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Suspends service by order, or resumes it, from the next [`Self::review`] on.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.suspended_by_order = suspended;
    }

    /// Records the arrival of a node.
    pub(super) fn note_arrival(&mut self, now: Duration) {
        self.last_arrival = now;
    }

    /// Starts or stops service for this number of active children and this quorum. Reports whether
    /// that changed it.
    pub(super) fn review(&mut self, active: usize, quorum: usize, now: Duration) -> bool {
        let serves = active >= quorum && !self.suspended_by_order;
        if serves == self.serves {
            return false;
        }
        self.serves = serves;
        if serves {
            // A short interruption of service is not a new start: children lost in it are expected
            // anyway.
            let short = self.stopped.take().filter(|(at, _)| now < *at + STABLE);
            self.unsettled = short.map_or(Some(now), |(_, unsettled)| unsettled);
        } else {
            self.stopped = Some((now, self.unsettled.take()));
        }
        true
    }

    /// Reports whether all expected nodes appear to be connected; `known` is their number.
    pub(super) fn is_settled(&self, known: impl FnOnce() -> usize, now: Duration) -> bool {
        self.serves
            && (self.expected > 0 && known() >= self.expected || self.settles_at().is_none_or(|at| at <= now))
    }

    /// Returns the time at which the cell is settled if no further node arrives; `None` if it is
    /// settled or does not serve. It stays settled: a node that arrives later is queried from then
    /// on.
    pub(super) fn settles_at(&self) -> Option<Duration> {
        let since = self.unsettled?;
        let settles = (self.last_arrival + SETTLE).clamp(since, since + SETTLE_MAX);
        Some(settles.max(self.first_settled))
    }

    /// Records that the cell is settled when the time for that has passed.
    pub(super) fn settle(&mut self, now: Duration) {
        if self.settles_at().is_some_and(|at| at <= now) {
            self.unsettled = None;
        }
    }

    /// Returns the quorum: the least number of active children for service. It is a part of those
    /// that serve and those that are missed, so it falls again when children leave for good.
    ///
    /// * Not missed: a child that never served, one that was lost before it sent anything, and a
    ///   connected supervisor without children (a spare one).
    /// * Missed for as long as it served: any other child.
    /// * Of children that served for a moment only, one for each address is missed, so that many
    ///   logins under different names count as one.
    pub(super) fn quorum(&self, cell: &MemberSlots, unheard: SlotMask, now: Duration) -> usize {
        let mut known = 0;
        let mut addresses = BTreeSet::new();
        for (slot, member) in cell.iter() {
            let spare = member.role.has_children() && member.is_online();
            let missed = member.service.missed_until().is_some_and(|until| until > now);
            known += usize::from(match () {
                () if member.is_active() => true,
                () if spare || !missed || unheard.contains(slot) => false,
                () => member.service.is_proven() || addresses.insert(member.identity.ip),
            });
        }
        self.minimum.of(known).max(1)
    }
}

/// Records the children that serve now. Returns the time at which the next of the others is no
/// longer missed.
pub(super) fn note_service(cell: &mut MemberSlots, now: Duration) -> Option<Duration> {
    for slot in cell.used() {
        if let Some(member) = cell.get_mut(slot) {
            let active = member.is_active();
            member.service.note(active, now);
        }
    }
    let missed = cell.iter().filter_map(|(_, member)| member.service.missed_until());
    missed.filter(|until| *until > now).min()
}
