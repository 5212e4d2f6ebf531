//! Reports of children about themselves, and the resulting reports to the own parents.
//!
//! Changes are collected into batches, so that a wave of joins causes few messages at the parents.

use std::time::Duration;

use super::super::action::{ChildChange, NodeAction};
use super::super::address::Address;
use super::super::connection_id::ConnectionId;
use super::super::limits::{LEVELS_MAX, RESERVATION};
use super::super::member::ClusterMember;
use super::super::message::{CellReport, NodeMessage, StatusMessage};
use super::Members;
use super::connections::ConnectionRole;
use super::reporter::{DueReports, Totals};
use crate::{Slot, SlotMask};

/// The maximum depth of reported cells below a node: as deep as real supervisors might be stacked.
const DEPTH_MAX: u8 = 2 * LEVELS_MAX;

impl Members {
    /// Returns the changes of the own cell and those below, for all parents of our own; empty if
    /// none are due.
    pub fn reports(&mut self, now: Duration) -> Vec<CellReport> {
        let Some(DueReports { joined, below }) = self.reporter.take_due(now) else { return Vec::new() };
        let own = joined.map(|joined| CellReport { joined, ..self.own_report() });
        own.into_iter().chain(below.into_values()).collect()
    }

    /// Returns all cells, for a new parent.
    pub fn all_reports(&self) -> Vec<CellReport> {
        let below = self.directory.entries().iter().filter(|entry| entry.reports).map(|entry| CellReport {
            id: entry.id,
            address: entry.address.clone(),
            depth: entry.depth,
            places: Some(entry.places),
            joined: Vec::new(),
        });
        // A parent that keeps a place for one of these nodes is notified that it has another.
        let joined = self.cell.iter().filter(|(_, member)| member.is_online());
        let joined = joined.map(|(_, member)| member.identity.id.digest()).collect();
        std::iter::once(CellReport { joined, ..self.own_report() }).chain(below).collect()
    }

    fn own_report(&self) -> CellReport {
        CellReport {
            id: self.settings.id.digest(),
            address: self.settings.address.clone(),
            depth: 0,
            places: Some(self.places()),
            joined: Vec::new(),
        }
    }

    /// Handles a message about the tree from a child, an alternate or a waiting login.
    pub fn message(
        &mut self,
        link: ConnectionId,
        message: NodeMessage,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        match (self.links.role(link), message) {
            (Some(_), NodeMessage::Disc) => {
                // The node found its place elsewhere: no place is kept for it.
                out.push(NodeAction::Send { link, message: NodeMessage::Disc });
                let slot = self.slot(link);
                let was_reported = slot.is_some_and(|slot| self.elsewhere.contains_key(&slot));
                self.closed(link, now, out);
                if let Some(slot) =
                    slot.filter(|slot| self.cell.get(*slot).is_some_and(|member| !member.is_online()))
                {
                    if was_reported {
                        self.free_moved(slot, now, out);
                    } else {
                        self.free(slot, now, out);
                    }
                    self.review(now, out);
                }
                out.push(NodeAction::Close { link });
            }
            (Some(ConnectionRole::Child(slot)), message) => self.child_message(slot, message, now, out),
            (Some(ConnectionRole::Alternate(_)), message) => {
                if let Some(member) = self.cell.alternate_mut(link) {
                    take(member, &message);
                }
            }
            (Some(ConnectionRole::Parked), message) => {
                // The reply is sent before the place is assigned, so that it is valid from the
                // first moment.
                if let Some(member) = self.waiting.member_mut(link) {
                    take(member, &message);
                }
            }
            (Some(ConnectionRole::Contest), message) => {
                if let Some(member) = self.contests.member_mut(link) {
                    take(member, &message);
                }
            }
            (None, _) => {}
        }
    }

    fn child_message(&mut self, slot: Slot, message: NodeMessage, now: Duration, out: &mut Vec<NodeAction>) {
        if let NodeMessage::Occupancy(reports) = message {
            return self.take_reports(slot, reports, now, out);
        }
        if matches!(message, NodeMessage::Status(StatusMessage { reset: true, .. }))
            && self.resets.arrived(slot, now)
        {
            out.push(NodeAction::Child { slot, change: ChildChange::Reset });
        }
        let Some(member) = self.cell.get_mut(slot) else { return };
        let drained = member.condition.drains();
        match take(member, &message) {
            ReportedChange::Condition => {
                let change = if drained == member.condition.drains() {
                    ChildChange::Condition
                } else {
                    ChildChange::Draining
                };
                out.push(NodeAction::Child { slot, change });
                self.review(now, out);
            }
            ReportedChange::Figures => out.push(NodeAction::Child { slot, change: ChildChange::Figures }),
            ReportedChange::Nothing => {}
        }
    }

    fn take_reports(
        &mut self,
        slot: Slot,
        reports: Vec<CellReport>,
        now: Duration,
        out: &mut Vec<NodeAction>,
    ) {
        let Some(member) = self.cell.get(slot) else { return };
        let relays = self.settings.acceptor.is_supervisor();
        let (own, address) = (member.identity.id.digest(), member.address.clone());
        if !member.role.has_children() || !member.is_own() {
            return;
        }
        let mut nodes = Vec::new();
        for mut report in reports {
            report.depth = report.depth.saturating_add(1);
            // A child reports its own cell under the name and address of its login.
            let proper = if report.depth == 1 { report.id == own } else { report.id != own };
            if !proper || report.depth > DEPTH_MAX {
                continue;
            }
            if report.depth == 1 {
                report.address = address.clone();
            }
            for node in &report.joined {
                self.directory.arrived(*node);
                self.moved(*node, now, out);
            }
            nodes.extend_from_slice(&report.joined);
            match report.places {
                Some(places) => {
                    self.directory.report(report.id, &report.address, report.depth, slot, places, true);
                }
                None if report.depth == 1 => continue,
                None => {
                    self.directory.remove(report.id, slot);
                }
            }
            if relays {
                self.reporter.relay(report, now);
            }
        }
        if !nodes.is_empty() {
            out.push(NodeAction::JoinedBelow { nodes });
        }
        self.release(now, out);
    }

    /// Records that a cell below accepted a node: its place here and the wait for it end.
    fn moved(&mut self, node: u64, now: Duration, out: &mut Vec<NodeAction>) {
        let Some(slot) = self.cell.used().iter().find(|slot| self.is_in(*slot, node)) else { return };
        if !self.is_gone(slot, now) {
            // The node's end of the connection may be closed: then no further message arrives. Or
            // the report was on its way when the node came here.
            if self.cell.get(slot).is_some_and(|member| now >= member.since + RESERVATION) {
                self.elsewhere.insert(slot, now);
            }
        } else {
            if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
                self.links.close(link, out);
            }
            self.free(slot, now, out);
            self.review(now, out);
        }
    }

    /// Reports whether the node in a slot is this one.
    fn is_in(&self, slot: Slot, node: u64) -> bool {
        self.cell.get(slot).is_some_and(|member| member.identity.id.digest() == node)
    }

    /// Reports whether the node in a slot is absent: disconnected, or silent beyond the limit.
    fn is_gone(&self, slot: Slot, now: Duration) -> bool {
        self.cell.get(slot).is_some_and(|member| {
            let silent = now > member.heard + self.liveness.interval(member) * 2;
            !member.is_online() || silent
        })
    }

    /// Returns space and load of all children that can serve now.
    pub fn totals(&self) -> Totals {
        self.totals_of(SlotMask::ALL)
    }

    /// Returns space and load of these children.
    pub fn totals_of(&self, slots: SlotMask) -> Totals {
        let chosen = self.cell.iter().filter(|(slot, member)| slots.contains(*slot) && member.is_active());
        Totals::of(chosen.map(|(_, member)| member))
    }
}

/// The effect of a node's report on others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportedChange {
    Nothing,
    Figures,
    Condition,
}

/// Applies a report of a node about itself.
fn take(member: &mut ClusterMember, message: &NodeMessage) -> ReportedChange {
    let figures = (member.load, member.space, member.sums);
    match message {
        NodeMessage::Status(status) => {
            let before = (member.condition, member.data.port());
            if let Some(serves) = status.serves {
                member.condition.suspended = !serves;
            }
            if let Some(stages) = status.stages {
                member.condition.nostage = !stages;
            }
            if let Some(port) = status.data_port {
                member.data = Address::new(member.data.host(), port);
            }
            // Bits that have another meaning for real nodes are ignored.
            if let Some(drains) = status.drains.filter(|_| member.is_own()) {
                member.condition.drains_itself = drains;
            }
            if status.established {
                member.condition.newcomer = false;
            }
            if before != (member.condition, member.data.port()) {
                return ReportedChange::Condition;
            }
        }
        NodeMessage::Load { load, free_mb } => {
            member.load = *load;
            member.space.free_mb = *free_mb;
            member.space.used_percent = load.disk;
        }
        NodeMessage::Avail { free_mb, used_percent, sums } => {
            member.space.free_mb = *free_mb;
            member.space.used_percent = (*used_percent).min(100);
            member.sums = sums.filter(|_| member.is_own());
        }
        _ => {}
    }
    if figures == (member.load, member.space, member.sums) {
        ReportedChange::Nothing
    } else {
        ReportedChange::Figures
    }
}
