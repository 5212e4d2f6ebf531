//! Orders of the administrator: black list, drain, suspend; and the quorum of children.
//!
//! Both change the service of the node as a whole, so the quorum is computed here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::action::{ChildChange, NodeAction};
use super::super::blacklist::{Blacklist, BlacklistVerdict};
use super::super::message::{LoginRefusal, NodeMessage, StatusMessage};
use super::super::peer_address::PeerAddress;
use super::Members;
use crate::Slot;

impl Members {
    /// Replaces the black list: banned children are disconnected at once, waiting logins too.
    pub fn set_blacklist(&mut self, list: Blacklist, now: Duration, out: &mut Vec<NodeAction>) {
        self.blacklist = list;
        for slot in self.cell.used() {
            let Some(member) = self.cell.get(slot) else { continue };
            let peer = PeerAddress { ip: member.identity.ip, host: member.address.host().to_owned() };
            let verdict = self.blacklist.verdict(&peer);
            if verdict == BlacklistVerdict::Fine {
                continue;
            }
            if let Some(link) = member.link {
                let message = match verdict {
                    // An error would not belong to a request now: the node gets it at its next
                    // login.
                    BlacklistVerdict::Elsewhere(hosts) if member.is_own() => {
                        NodeMessage::Try { hosts, permanent: true }
                    }
                    _ => NodeMessage::Disc,
                };
                out.push(NodeAction::Send { link, message });
                self.close(link, out);
            }
            self.free(slot, now, out);
        }
        for parents in [true, false] {
            let banned = |member: &super::ClusterMember| {
                let peer = PeerAddress { ip: member.identity.ip, host: member.address.host().to_owned() };
                self.blacklist.verdict(&peer) != BlacklistVerdict::Fine
            };
            for link in self.waiting.of(parents).links(banned) {
                self.take_waiting(link);
                let refusal =
                    LoginRefusal { banned: true, text: "this node is on the black list".to_owned() };
                out.push(NodeAction::Send { link, message: NodeMessage::Refusal(refusal) });
                self.close(link, out);
            }
        }
        self.review(now, out);
    }

    /// Drains a child, or ends that: its clients move to others, and no connection is cut. `false`
    /// if there is no such child.
    pub fn drain(&mut self, slot: Slot, draining: bool, out: &mut Vec<NodeAction>) -> bool {
        let Some(member) = self.cell.get_mut(slot) else { return false };
        let id = member.identity.id.as_str();
        let news = if draining { self.drained.insert(id.to_owned()) } else { self.drained.remove(id) };
        // A child that has the order from elsewhere receives the end of it, too.
        if news || member.condition.draining != draining || (member.condition.drains_itself && !draining) {
            member.condition.draining = draining;
            if let Some(link) = member.link.filter(|_| member.is_own()) {
                // It moves its current clients, too.
                let status = StatusMessage { drains: Some(draining), ..StatusMessage::default() };
                out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
            }
            out.push(NodeAction::Child { slot, change: ChildChange::Draining });
        }
        true
    }

    /// Reports whether there are children and all of them are draining.
    pub fn all_drain(&self) -> bool {
        let mut active = self.cell.iter().filter(|(_, member)| member.is_active()).peekable();
        active.peek().is_some() && active.all(|(_, member)| member.condition.drains())
    }

    /// Returns the ids of nodes that are drained by order, connected or not.
    pub fn drained(&self) -> impl Iterator<Item = &str> {
        self.drained.iter().map(String::as_str)
    }

    /// Sets the nodes that were drained when this one ended: they get the order again when they
    /// join.
    pub fn set_drained(&mut self, ids: impl IntoIterator<Item = String>) {
        self.drained = ids.into_iter().collect();
    }

    /// Suspends service of all nodes below, or resumes it.
    pub fn suspend(&mut self, suspended: bool, now: Duration, out: &mut Vec<NodeAction>) {
        self.suspended_by_order = suspended;
        self.review(now, out);
    }

    /// Returns the quorum: the least number of active children for service. It is a part of those
    /// that serve and those that are missed, so it falls again when children leave for good.
    ///
    /// * Not missed: a child that never served, one that was lost before it sent anything, and a
    ///   connected supervisor without children (a spare one).
    /// * Missed for as long as it served: any other child.
    /// * Of children that served for a moment only, one for each address is missed, so that many
    ///   logins under different names count as one.
    pub fn minimum(&self, now: Duration) -> usize {
        let mut known = 0;
        let mut addresses = BTreeSet::new();
        for (slot, member) in self.cell.iter() {
            let spare = member.role.has_children() && member.is_online();
            let missed = member.service.missed_until().is_some_and(|until| until > now);
            known += usize::from(match () {
                () if member.is_active() => true,
                () if spare || !missed || self.unheard.contains(slot) => false,
                () => member.service.is_proven() || addresses.insert(member.identity.ip),
            });
        }
        self.settings.minimum.of(known).max(1)
    }

    /// Returns the time at which the next child is no longer missed.
    fn next_missed(&self, now: Duration) -> Option<Duration> {
        self.cell
            .iter()
            .filter_map(|(_, member)| member.service.missed_until())
            .filter(|until| *until > now)
            .min()
    }

    /// Records the children that serve now, and the times at which that changes.
    pub(super) fn note_service(&mut self, now: Duration) {
        for slot in self.cell.used() {
            if let Some(member) = self.cell.get_mut(slot) {
                let active = member.is_active();
                member.service.note(active, now);
            }
        }
        if let Some(until) = self.next_missed(now) {
            self.wake_health(until);
        }
    }
}
