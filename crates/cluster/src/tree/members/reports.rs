//! What children say about themselves, and what goes up to the own parents from it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::action::{Action, ChildChange};
use super::super::limits::{LEVELS_MAX, REPORT, RESERVATION};
use super::super::link::LinkId;
use super::super::member::{Load, Member};
use super::super::message::{CellReport, Message, Status};
use super::super::role::Acceptor;
use super::{Members, Position};
use crate::{Slot, SlotMask};
use wire::cms::message::SpaceSums;

/// Levels below a node of which it takes reports: as deep as real supervisors might be stacked.
const DEPTH_MAX: u8 = 2 * LEVELS_MAX;

/// Nodes that one report names as newly arrived: a report fits a frame even if every cell has so many.
const JOINED_MAX: usize = 256;

/// The space and load of all active children together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Active children.
    pub children: usize,
    /// Sum of their total space, in MB.
    pub total_mb: u64,
    /// Sum of their free space, in MB.
    pub free_mb: u64,
    /// Free space of the best of those that may be written to, in MB.
    pub best_free_mb: u32,
    /// How full that one is, in percent.
    pub best_used_percent: u8,
    /// Whether any of them can bring files online.
    pub stages: bool,
    /// The mean of their loads.
    pub load: Load,
}

/// Changes of cells that the parents of a supervisor do not know yet.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    /// Whether there is anybody to report to; a manager has none.
    enabled: bool,
    due: Option<Duration>,
    own: bool,
    joined: Vec<u64>,
    below: BTreeMap<u64, CellReport>,
}

impl Reporter {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    fn arm(&mut self, now: Duration) {
        if self.enabled {
            self.due.get_or_insert(now + REPORT);
        }
    }

    /// The own cell has other places.
    pub(super) fn changed(&mut self, now: Duration) {
        self.own = true;
        self.arm(now);
    }

    /// A node joined the own cell.
    pub(super) fn joined(&mut self, node: u64, now: Duration) {
        if self.enabled && self.joined.len() < JOINED_MAX {
            self.joined.push(node);
        }
        self.changed(now);
    }

    /// A cell below is out of reach.
    pub(super) fn gone(&mut self, id: u64, now: Duration) {
        if !self.enabled {
            return;
        }
        self.arm(now);
        let address = super::super::address::Address::new("", 0);
        self.below.insert(id, CellReport { id, address, depth: 1, places: None, joined: Vec::new() });
    }

    /// A cell below has reported; `report` is as seen from here.
    fn relay(&mut self, mut report: CellReport, now: Duration) {
        self.arm(now);
        if let Some(before) = self.below.remove(&report.id) {
            report.joined.splice(0..0, before.joined);
            report.joined.truncate(JOINED_MAX);
        }
        self.below.insert(report.id, report);
    }

    /// When the changes are to be sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }
}

impl Members {
    /// Changes of the own cell and those below, for all parents that are our own; empty when none are due.
    pub fn reports(&mut self, now: Duration) -> Vec<CellReport> {
        if self.reporter.due.take_if(|due| *due <= now).is_none() {
            return Vec::new();
        }
        let mut reports = Vec::new();
        let joined = std::mem::take(&mut self.reporter.joined);
        if std::mem::take(&mut self.reporter.own) {
            reports.push(CellReport { joined, ..self.own_report() });
        }
        reports.extend(std::mem::take(&mut self.reporter.below).into_values());
        reports
    }

    /// All cells as a new parent has to know them.
    pub fn all_reports(&self) -> Vec<CellReport> {
        let below = self.directory.entries().iter().filter(|entry| entry.reports).map(|entry| CellReport {
            id: entry.id,
            address: entry.address.clone(),
            depth: entry.depth,
            places: Some(entry.places),
            joined: Vec::new(),
        });
        // Whoever keeps a place for one of these learns that it has another.
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

    /// A message about the tree from a child, one standing by, or one that waits.
    pub fn message(&mut self, link: LinkId, message: Message, now: Duration, out: &mut Vec<Action>) {
        match (self.links.get(&link).copied(), message) {
            (Some(_), Message::Disc) => {
                // A node that found its place elsewhere: nothing is kept for it.
                out.push(Action::Send { link, message: Message::Disc });
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
                out.push(Action::Close { link });
            }
            (Some(Position::Child(slot)), message) => self.child_says(slot, message, now, out),
            (Some(Position::Alternate(_)), message) => {
                if let Some(member) = self.cell.alternate_mut(link) {
                    take(member, &message);
                }
            }
            (Some(Position::Parked), message) => {
                // Told before the place is given: it holds from the first moment on.
                let waiting = &mut self.waiting;
                if let Some(member) = waiting.leaves.get_mut(link).or_else(|| waiting.parents.get_mut(link)) {
                    take(member, &message);
                }
            }
            (Some(Position::Contest), message) => {
                if let Some(contest) = self.contests.iter_mut().find(|contest| contest.link == link) {
                    take(&mut contest.member, &message);
                }
            }
            (None, _) => {}
        }
    }

    fn child_says(&mut self, slot: Slot, message: Message, now: Duration, out: &mut Vec<Action>) {
        if let Message::Occupancy(reports) = message {
            return self.take_reports(slot, reports, now, out);
        }
        if matches!(message, Message::Status(Status { reset: true, .. })) && self.resets.arrived(slot, now) {
            out.push(Action::Child { slot, change: ChildChange::Reset });
        }
        let Some(member) = self.cell.get_mut(slot) else { return };
        let drained = member.condition.drains();
        match take(member, &message) {
            Told::Condition => {
                let change = if drained == member.condition.drains() {
                    ChildChange::Condition
                } else {
                    ChildChange::Draining
                };
                out.push(Action::Child { slot, change });
                self.review(now, out);
            }
            Told::Figures => out.push(Action::Child { slot, change: ChildChange::Figures }),
            Told::Nothing => {}
        }
    }

    fn take_reports(&mut self, slot: Slot, reports: Vec<CellReport>, now: Duration, out: &mut Vec<Action>) {
        let Some(member) = self.cell.get(slot) else { return };
        let relays = self.settings.acceptor == Acceptor::Supervisor;
        let (own, address) = (member.identity.id.digest(), member.address.clone());
        if !member.role.has_children() || !member.is_own() {
            return;
        }
        let mut nodes = Vec::new();
        for mut report in reports {
            report.depth = report.depth.saturating_add(1);
            // A child speaks for its own cell under the name and address that it logged in with.
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
            out.push(Action::JoinedBelow { nodes });
        }
        self.release(now, out);
    }

    /// A node was taken in below: the place that is kept for it here is not needed, and nobody has to wait for it.
    fn moved(&mut self, node: u64, now: Duration, out: &mut Vec<Action>) {
        let Some(slot) = self.cell.used().iter().find(|slot| self.is_in(*slot, node)) else { return };
        if !self.is_gone(slot, now) {
            // Its end of the connection may be gone: so it was, if nothing more comes from it. Or the report was under way
            // when it came here.
            if self.cell.get(slot).is_some_and(|member| now >= member.since + RESERVATION) {
                self.elsewhere.insert(slot, now);
            }
        } else {
            if let Some(link) = self.cell.get(slot).and_then(|member| member.link) {
                self.close(link, out);
            }
            self.free(slot, now, out);
            self.review(now, out);
        }
    }

    /// Whether the node in a slot is this one.
    fn is_in(&self, slot: Slot, node: u64) -> bool {
        self.cell.get(slot).is_some_and(|member| member.identity.id.digest() == node)
    }

    /// Whether the node in a slot is away: without a connection, or silent for longer than one that is there.
    fn is_gone(&self, slot: Slot, now: Duration) -> bool {
        self.cell.get(slot).is_some_and(|member| {
            let silent = now > member.heard + self.interval(member) * 2;
            !member.is_online() || silent
        })
    }

    /// Space and load of all that can serve now.
    pub fn totals(&self) -> Totals {
        self.totals_of(SlotMask::ALL)
    }

    /// The same of some of them.
    pub fn totals_of(&self, slots: SlotMask) -> Totals {
        let mut totals = Totals::default();
        let mut loads = [0u32; 6];
        let chosen = self.cell.iter().filter(|(slot, member)| slots.contains(*slot) && member.is_active());
        for (_, member) in chosen {
            totals.children += 1;
            // Without word of those below it, a node's own figures are all there is: of a real inner node those of its best.
            let own = SpaceSums {
                total_mb: u64::from(member.space.total_mb.max(member.space.free_mb)),
                free_mb: u64::from(member.space.free_mb),
            };
            let sums = member.sums.unwrap_or(own);
            totals.total_mb += sums.total_mb;
            totals.free_mb += sums.free_mb;
            totals.stages |= !member.condition.nostage;
            if member.space.is_writable() && member.space.free_mb >= totals.best_free_mb {
                totals.best_free_mb = member.space.free_mb;
                totals.best_used_percent = member.space.used_percent;
            }
            for (sum, part) in loads.iter_mut().zip(member.load.parts()) {
                *sum += u32::from(part);
            }
        }
        let count = totals.children.max(1) as u32;
        totals.load = Load::from_parts(loads.map(|sum| (sum / count) as u8));
        totals
    }
}

/// What others should know of what a node said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Figures,
    Condition,
}

/// Takes what a node says about itself.
fn take(member: &mut Member, message: &Message) -> Told {
    let figures = (member.load, member.space, member.sums);
    match message {
        Message::Status(status) => {
            let before = (member.condition, member.data.port());
            if let Some(serves) = status.serves {
                member.condition.suspended = !serves;
            }
            if let Some(stages) = status.stages {
                member.condition.nostage = !stages;
            }
            if let Some(port) = status.data_port {
                member.data = super::super::address::Address::new(member.data.host(), port);
            }
            // Bits without a meaning to others are not ours to read.
            if let Some(drains) = status.drains.filter(|_| member.is_own()) {
                member.condition.drains_itself = drains;
            }
            if before != (member.condition, member.data.port()) {
                return Told::Condition;
            }
        }
        Message::Load { load, free_mb } => {
            member.load = *load;
            member.space.free_mb = *free_mb;
            member.space.used_percent = load.disk;
        }
        Message::Avail { free_mb, used_percent, sums } => {
            member.space.free_mb = *free_mb;
            member.space.used_percent = (*used_percent).min(100);
            member.sums = sums.filter(|_| member.is_own());
        }
        _ => {}
    }
    if figures == (member.load, member.space, member.sums) { Told::Nothing } else { Told::Figures }
}
