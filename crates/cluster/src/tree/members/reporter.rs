//! The changes of cells below a node, collected for its parents.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::address::Address;
use super::super::limits::REPORT;
use super::super::member::{ClusterMember, LoadReport};
use super::super::message::CellReport;
use wire::cms::message::SpaceSums;

/// The maximum number of newly arrived nodes in one report, so that a report fits a frame even if
/// every cell has this number.
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
    /// The free space of the best writable child, in MB.
    pub best_free_mb: u32,
    /// The usage of that child, in percent.
    pub best_used_percent: u8,
    /// A child can stage files.
    pub stages: bool,
    /// The mean of their loads.
    pub load: LoadReport,
}

impl Totals {
    /// Returns space and load of these children.
    pub(super) fn of<'a>(children: impl Iterator<Item = &'a ClusterMember>) -> Self {
        let mut totals = Self::default();
        let mut loads = [0u32; 6];
        for member in children {
            totals.children += 1;
            // Without a report of the nodes below it, only a node's own figures are known: for a
            // real inner node those of its best child.
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
        totals.load = LoadReport::from_parts(loads.map(|sum| (sum / count) as u8));
        totals
    }
}

/// Changes of cells that the parents of a supervisor have not received yet.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    /// The node has parents to report to; a manager has none.
    enabled: bool,
    due: Option<Duration>,
    own: bool,
    joined: Vec<u64>,
    below: BTreeMap<u64, CellReport>,
}

/// Changes that are to be sent now.
#[derive(Debug)]
pub(super) struct DueReports {
    /// The nodes that joined; `None` if the own cell did not change.
    pub(super) joined: Option<Vec<u64>>,
    /// The changes of the cells below.
    pub(super) below: BTreeMap<u64, CellReport>,
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

    /// Records that the places of the own cell changed.
    pub(super) fn changed(&mut self, now: Duration) {
        self.own = true;
        self.arm(now);
    }

    /// Records that a node joined the own cell.
    pub(super) fn joined(&mut self, node: u64, now: Duration) {
        if self.enabled && self.joined.len() < JOINED_MAX {
            self.joined.push(node);
        }
        self.changed(now);
    }

    /// Records that a cell below is unreachable.
    pub(super) fn gone(&mut self, id: u64, now: Duration) {
        if !self.enabled {
            return;
        }
        self.arm(now);
        let address = Address::new("", 0);
        self.below.insert(id, CellReport { id, address, depth: 1, places: None, joined: Vec::new() });
    }

    /// Records the report of a cell below; `report` is as seen from here.
    pub(super) fn relay(&mut self, mut report: CellReport, now: Duration) {
        self.arm(now);
        if let Some(before) = self.below.remove(&report.id) {
            report.joined.splice(0..0, before.joined);
            report.joined.truncate(JOINED_MAX);
        }
        self.below.insert(report.id, report);
    }

    /// Takes the changes, if they are due.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<DueReports> {
        self.due.take_if(|due| *due <= now)?;
        let joined = std::mem::take(&mut self.joined);
        let joined = std::mem::take(&mut self.own).then_some(joined);
        Some(DueReports { joined, below: std::mem::take(&mut self.below) })
    }

    /// Returns the time at which the changes are to be sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }
}
