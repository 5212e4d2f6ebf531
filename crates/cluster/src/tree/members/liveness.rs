//! Liveness of children: pings, timeouts, and the time for which places of lost children are kept.
//!
//! Real and own nodes are handled in one place, because they differ only in intervals and limits.

use std::time::Duration;

use super::super::action::NodeAction;
use super::super::connection_id::ConnectionId;
use super::super::limits::{DROP_UNHEARD, PING, PING_MIN, SILENT_PINGS_MAX, SILENT_PINGS_OWN_MAX};
use super::super::member::ClusterMember;
use super::super::member_slots::MemberSlots;
use super::super::message::NodeMessage;
use super::super::parent::ParentSettings;
use crate::{Slot, SlotMask};

/// The schedule of pings, and the children that have not proved to be alive.
#[derive(Debug)]
pub(super) struct Liveness {
    /// The interval between pings to real nodes.
    ping: Duration,
    ping_own: Duration,
    /// The number of pings to a real node between two requests for its load; 0: never.
    usage: u32,
    /// The time for which the place of a lost child is kept.
    drop: Duration,
    /// The time of the next check.
    next: Option<Duration>,
    /// Children that have sent nothing since their login.
    unheard: SlotMask,
}

impl Liveness {
    /// Creates the schedule of a parent. A real node leaves after three of its own intervals
    /// without a byte, so the interval to it is never long, whatever the configuration.
    pub(super) fn new(settings: &ParentSettings) -> Self {
        Self {
            ping: settings.ping.clamp(PING_MIN, PING),
            ping_own: settings.ping_own,
            usage: settings.usage,
            drop: settings.drop,
            next: None,
            unheard: SlotMask::EMPTY,
        }
    }

    /// Returns the interval between two pings to a child.
    pub(super) fn interval(&self, member: &ClusterMember) -> Duration {
        if member.is_own() { self.ping_own } else { self.ping }
    }

    fn silence(&self, member: &ClusterMember) -> Duration {
        let pings = if member.is_own() { SILENT_PINGS_OWN_MAX } else { SILENT_PINGS_MAX };
        self.interval(member) * pings
    }

    /// Reports whether a connected child has sent nothing for so long that it counts as lost.
    pub(super) fn is_silent(&self, member: &ClusterMember, now: Duration) -> bool {
        now >= member.heard + self.silence(member)
    }

    /// Schedules a check at this time, or keeps an earlier one.
    pub(super) fn wake(&mut self, at: Duration) {
        self.next = Some(self.next.map_or(at, |before| before.min(at)));
    }

    /// Returns the time of the next check.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.next
    }

    /// Reports whether a check is due. The check itself schedules the next one by [`Self::wake`].
    pub(super) fn take_due(&mut self, now: Duration) -> bool {
        self.next.take_if(|due| *due <= now).is_some()
    }

    /// Records a child that logged in for the first time.
    pub(super) fn note_login(&mut self, slot: Slot) {
        self.unheard.insert(slot);
    }

    /// Ends the wait for the first message of a child: it has sent something, or its slot is free.
    pub(super) fn end_first_wait(&mut self, slot: Slot) {
        self.unheard.remove(slot);
    }

    /// Returns the children that have sent nothing since their login.
    pub(super) fn unheard(&self) -> SlotMask {
        self.unheard
    }

    /// Returns the time for which the place of a lost child is kept.
    pub(super) fn kept_for(&self, slot: Slot) -> Duration {
        if self.unheard.contains(slot) { self.drop.min(DROP_UNHEARD) } else { self.drop }
    }

    /// Sends a connected child its ping if that is due.
    pub(super) fn ping(
        &mut self,
        link: ConnectionId,
        member: &mut ClusterMember,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let interval = self.interval(member);
        let before = member.pinged;
        // Pings that are due soon are sent together: one round for the cell (batch), not one for
        // each child.
        if now + interval / 4 >= before + interval {
            if !member.is_own() && self.usage > 0 && member.pings.is_multiple_of(self.usage) {
                out.push(NodeAction::Send { link, message: NodeMessage::Usage });
            }
            out.push(NodeAction::Send { link, message: NodeMessage::Ping });
            member.pinged = now;
        }
        member.pings = member.pings.wrapping_add(u32::from(before != member.pinged));
        let silent = member.heard + self.silence(member);
        self.wake((member.pinged + interval).min(silent));
    }

    /// Returns the connections of the alternates that are silent for so long that they count as
    /// lost.
    pub(super) fn silent_alternates(&self, cell: &MemberSlots, now: Duration) -> Vec<ConnectionId> {
        let silent = cell.alternates().filter(|(_, member)| self.is_silent(member, now));
        silent.filter_map(|(_, member)| member.link).collect()
    }

    /// Sends due pings to the alternates.
    pub(super) fn ping_alternates(
        &mut self,
        cell: &mut MemberSlots,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let due = cell.alternates().filter(|(_, member)| now >= member.pinged + self.interval(member));
        let due: Vec<ConnectionId> = due.filter_map(|(_, member)| member.link).collect();
        for link in due {
            out.push(NodeAction::Send { link, message: NodeMessage::Ping });
            if let Some(member) = cell.alternate_mut(link) {
                member.pinged = now;
            }
        }
        let next = cell.alternates().map(|(_, member)| member.pinged + self.interval(member)).min();
        if let Some(next) = next {
            self.wake(next);
        }
    }
}
