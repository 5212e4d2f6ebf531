//! Liveness of children: pings, timeouts, and places kept for lost children.
//!
//! Real and own nodes are handled in one place, because they differ only in intervals and limits.

use std::time::Duration;

use super::super::action::{NodeAction, Notice};
use super::super::connection_id::ConnectionId;
use super::super::limits::{ORPHANED, PING, PING_MIN, SILENT_PINGS_MAX, SILENT_PINGS_OWN_MAX};
use super::super::member::ClusterMember;
use super::super::message::NodeMessage;
use super::{ConnectionRole, Members, RootDistance};
use crate::Slot;

impl Members {
    /// Returns the interval between two pings to a child. A real node leaves after three of its own
    /// intervals without a byte, so the interval to it is never long, whatever the configuration.
    pub(super) fn interval(&self, member: &ClusterMember) -> Duration {
        if member.is_own() { self.settings.ping_own } else { self.settings.ping.clamp(PING_MIN, PING) }
    }

    fn silence(&self, member: &ClusterMember) -> Duration {
        let pings = if member.is_own() { SILENT_PINGS_OWN_MAX } else { SILENT_PINGS_MAX };
        self.interval(member) * pings
    }

    pub(super) fn wake_health(&mut self, at: Duration) {
        self.health_at = Some(self.health_at.map_or(at, |before| before.min(at)));
    }

    /// Records that bytes arrived on a connection.
    pub fn note_received(&mut self, link: ConnectionId, now: Duration, out: &mut Vec<NodeAction>) {
        match self.links.get(&link) {
            Some(ConnectionRole::Child(slot)) => {
                let slot = *slot;
                self.unheard.remove(slot);
                if let Some(member) = self.cell.get_mut(slot) {
                    member.heard = now;
                }
                if !self.contests.is_empty() {
                    self.contest_lost(slot, out);
                }
            }
            Some(ConnectionRole::Alternate(_)) => {
                if let Some(member) = self.cell.alternate_mut(link) {
                    member.heard = now;
                }
            }
            Some(ConnectionRole::Parked | ConnectionRole::Contest) | None => {}
        }
    }

    /// Sends due pings, closes timed-out connections, and frees places at the end of their time.
    pub(super) fn check_health(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        if self.health_at.is_none_or(|due| due > now) {
            return;
        }
        self.health_at = None;
        for slot in self.cell.used() {
            self.check_child(slot, now, out);
        }
        self.check_alternates(now, out);
        self.review(now, out);
        if let RootDistance::Alone(since) = self.standing {
            if now < since + ORPHANED {
                self.wake_health(since + ORPHANED);
            } else {
                // Parents cannot find files below this node, so its children are redirected
                // elsewhere.
                for slot in self.cell.used() {
                    self.send_away(slot, now, out);
                }
            }
        }
    }

    fn check_child(&mut self, slot: Slot, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(member) = self.cell.get(slot) else { return };
        let (interval, silence) = (self.interval(member), self.silence(member));
        let Some(link) = member.link else {
            let due = member.since + self.kept_for(slot);
            if due > now {
                return self.wake_health(due);
            }
            self.free(slot, now, out);
            return self.review(now, out);
        };
        if now >= member.heard + silence {
            out.push(NodeAction::Notice(Notice::Silent { address: member.address.clone() }));
            self.close(link, out);
            return self.lost(slot, now, out);
        }
        let mut pinged = member.pinged;
        // Pings that are due soon are sent together: one round for the cell (batch), not one for
        // each child.
        if now + interval / 4 >= pinged + interval {
            pinged = now;
            let usage = self.settings.usage;
            if !member.is_own() && usage > 0 && member.pings.is_multiple_of(usage) {
                out.push(NodeAction::Send { link, message: NodeMessage::Usage });
            }
            out.push(NodeAction::Send { link, message: NodeMessage::Ping });
        }
        if let Some(member) = self.cell.get_mut(slot) {
            member.pings = member.pings.wrapping_add(u32::from(member.pinged != pinged));
            member.pinged = pinged;
            let silent = member.heard + silence;
            self.wake_health((pinged + interval).min(silent));
        }
    }

    fn check_alternates(&mut self, now: Duration, out: &mut Vec<NodeAction>) {
        let mut silent = Vec::new();
        let mut due = Vec::new();
        for (_, member) in self.cell.alternates() {
            let Some(link) = member.link else { continue };
            if now >= member.heard + self.silence(member) {
                silent.push(link);
            } else if now >= member.pinged + self.interval(member) {
                due.push(link);
            }
        }
        for link in silent {
            self.cell.dismiss(link);
            self.close(link, out);
        }
        for link in due {
            out.push(NodeAction::Send { link, message: NodeMessage::Ping });
            if let Some(member) = self.cell.alternate_mut(link) {
                member.pinged = now;
            }
        }
        let next = self.cell.alternates().map(|(_, member)| member.pinged + self.interval(member)).min();
        if let Some(next) = next {
            self.wake_health(next);
        }
    }
}
