//! The changes of cells below a node, collected for its parents.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::address::Address;
use super::super::limits::REPORT;
use super::super::member::LoadReport;
use super::super::message::CellReport;

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

/// Changes of cells that the parents of a supervisor have not received yet.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    /// The node has parents to report to; a manager has none.
    enabled: bool,
    pub(super) due: Option<Duration>,
    pub(super) own: bool,
    pub(super) joined: Vec<u64>,
    pub(super) below: BTreeMap<u64, CellReport>,
}

impl Reporter {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, ..Self::default() }
    }

    pub(super) fn arm(&mut self, now: Duration) {
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

    /// Returns the time at which the changes are to be sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }
}
