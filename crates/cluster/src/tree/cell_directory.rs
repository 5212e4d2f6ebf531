//! The directory of the cells below a node, and of the nodes redirected to them.
//!
//! With it a manager names the final cell of a newcomer at once. Our supervisors report their free
//! places, and forward the reports of supervisors below. A real supervisor sends no reports. Its
//! cell counts as empty except for the nodes redirected there, until one of them returns.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::address::Address;
use super::identity::affinity;
use super::limits::{CELLS_MAX, FULL_PENALTY, LEVELS_MAX, RESERVATION};
use crate::{CELL_SLOTS, Slot};

/// The time for which a failed placement is recorded, so that a node is not redirected to a cell
/// that just rejected it.
const FAILURE: Duration = Duration::from_secs(30);

/// The maximum number of recorded failed placements of one node.
const FAILURES_MAX: usize = 4;

/// The places of a cell, as counted by its supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeSlots {
    /// Free places.
    pub free: u8,
    /// Children that are parents.
    pub parents: u8,
    /// Children that are not parents: they make way for parents.
    pub leaves: u8,
}

impl FreeSlots {
    /// The places of a cell without a report.
    pub const UNKNOWN: Self = Self { free: CELL_SLOTS as u8, parents: 0, leaves: 0 };
}

/// A cell below.
#[derive(Clone, Debug)]
pub struct CellRecord {
    /// Digest of its supervisor's system id.
    pub id: u64,
    /// The address of its supervisor.
    pub address: Address,
    /// The number of levels down to its supervisor; 1 for a child.
    pub depth: u8,
    /// The child above it.
    pub via: Slot,
    /// The places of the last report; for a real supervisor an estimate.
    pub places: FreeSlots,
    /// It is one of our own and reports.
    pub reports: bool,
    /// Nodes redirected there that have not been reported yet.
    reserved: u16,
    /// The time until which it is not offered, because a node returned from it.
    closed_until: Duration,
}

impl CellRecord {
    /// Returns the number of places that can be assigned now.
    fn room(&self, now: Duration) -> u16 {
        if now < self.closed_until { 0 } else { u16::from(self.places.free).saturating_sub(self.reserved) }
    }

    /// Reports whether a supervisor finds a place there, if necessary by displacing a server.
    fn has_place_for_parent(&self, now: Duration) -> bool {
        self.depth + 1 < LEVELS_MAX
            && now >= self.closed_until
            && (self.places.free > 0 || self.places.leaves > 0)
    }
}

/// The placement of one node.
#[derive(Debug)]
struct Placement {
    cell: u64,
    at: Duration,
    counted: bool,
    failures: Vec<u64>,
}

/// The cells below a node, and the placements in progress.
#[derive(Debug, Default)]
pub struct CellDirectory {
    entries: Vec<CellRecord>,
    index: HashMap<u64, usize>,
    placements: HashMap<u64, Placement>,
    /// Placements that expire, in the order of their times; later they are forgotten.
    ageing: VecDeque<(Duration, u64)>,
    forgetting: VecDeque<(Duration, u64)>,
}

impl CellDirectory {
    /// Adds or updates a cell. `false` if there are too many cells.
    pub fn report(
        &mut self,
        id: u64,
        address: &Address,
        depth: u8,
        via: Slot,
        places: FreeSlots,
        reports: bool,
    ) -> bool {
        if let Some(entry) = self.index.get(&id).and_then(|at| self.entries.get_mut(*at)) {
            // A supervisor that moved may be reported by its old parent for a moment. The shorter
            // way is the newer one only by chance, so the last report counts.
            entry.address = address.clone();
            entry.depth = depth;
            entry.via = via;
            entry.places = places;
            entry.reports = reports;
            return true;
        }
        if self.entries.len() >= CELLS_MAX {
            return false;
        }
        self.index.insert(id, self.entries.len());
        self.entries.push(CellRecord {
            id,
            address: address.clone(),
            depth,
            via,
            places,
            reports,
            reserved: 0,
            closed_until: Duration::ZERO,
        });
        true
    }

    /// Forgets one cell if it is below `via`.
    pub fn remove(&mut self, id: u64, via: Slot) -> bool {
        let Some(at) = self.index.get(&id).copied() else { return false };
        if self.entries.get(at).is_none_or(|entry| entry.via != via) {
            return false;
        }
        self.entries.swap_remove(at);
        self.index.remove(&id);
        if let Some(moved) = self.entries.get(at) {
            self.index.insert(moved.id, at);
        }
        true
    }

    /// Forgets all cells below a lost child, and returns them.
    pub fn remove_below(&mut self, via: Slot) -> Vec<u64> {
        let gone: Vec<u64> =
            self.entries.iter().filter(|entry| entry.via == via).map(|entry| entry.id).collect();
        for id in &gone {
            self.remove(*id, via);
        }
        gone
    }

    /// Returns all cells.
    pub fn entries(&self) -> &[CellRecord] {
        &self.entries
    }

    /// Returns the address of a cell.
    pub fn address(&self, id: u64) -> Option<&Address> {
        self.index.get(&id).and_then(|at| self.entries.get(*at)).map(|entry| &entry.address)
    }

    /// Returns the cell for a server: the one of highest affinity among the topmost with room.
    pub fn cell_for_server(&self, node: u64, now: Duration) -> Option<u64> {
        self.choose(node, |entry| entry.room(now) > 0)
    }

    /// Returns the cell for a supervisor: one of the first level, which displaces a server if it is
    /// full.
    pub fn cell_for_parent(&self, node: u64, now: Duration) -> Option<u64> {
        self.choose(node, |entry| entry.id != node && entry.has_place_for_parent(now))
    }

    /// Returns a second cell to name beside `first`, as a fallback.
    pub fn second_choice(&self, node: u64, first: u64, now: Duration) -> Option<u64> {
        self.choose(node, |entry| entry.id != first && entry.id != node && entry.room(now) > 0)
    }

    fn choose(&self, node: u64, fits: impl Fn(&CellRecord) -> bool) -> Option<u64> {
        let failures = self.placements.get(&node).map_or(&[][..], |placement| &placement.failures);
        let weight = |entry: &CellRecord| {
            // A cell that rejected the node a moment ago comes last, but is still offered.
            let failed = failures.contains(&entry.id);
            (failed, entry.depth, std::cmp::Reverse(affinity(node, entry.id)))
        };
        self.entries
            .iter()
            .filter(|entry| fits(entry))
            .min_by_key(|entry| weight(entry))
            .map(|entry| entry.id)
    }

    /// Reports whether any cell has room for a server.
    pub fn has_room(&self, now: Duration) -> bool {
        self.entries.iter().any(|entry| entry.room(now) > 0)
    }

    /// Records that a node was redirected to a cell.
    pub fn sent(&mut self, node: u64, cell: u64, now: Duration) {
        self.uncount(node);
        let failures = self.placements.remove(&node).map(|placement| placement.failures).unwrap_or_default();
        let counted = self.entry_mut(cell).map(|entry| entry.reserved += 1).is_some();
        self.placements.insert(node, Placement { cell, at: now, counted, failures });
        self.ageing.push_back((now + RESERVATION, node));
        self.forgetting.push_back((now + FAILURE, node));
    }

    /// Records that a cell has reported a node: it counts there, not here.
    pub fn arrived(&mut self, node: u64) {
        self.uncount(node);
        self.placements.remove(&node);
    }

    /// Records that a node arrived at the manager. If it was redirected a moment ago, it was
    /// rejected there.
    pub fn came_back(&mut self, node: u64, now: Duration) -> bool {
        self.uncount(node);
        let Some(placement) = self.placements.get_mut(&node) else { return false };
        let cell = placement.cell;
        if placement.failures.contains(&cell) {
            return true;
        }
        if placement.failures.len() == FAILURES_MAX {
            placement.failures.remove(0);
        }
        placement.failures.push(cell);
        if let Some(entry) = self.entry_mut(cell)
            && !entry.reports
        {
            entry.closed_until = now + FULL_PENALTY;
        }
        true
    }

    /// Removes expired entries. Returns whether places became free. Adds to `settled` the nodes
    /// that count from now on as children of a real supervisor.
    pub fn age(&mut self, now: Duration, settled: &mut Vec<u64>) -> bool {
        let mut freed = false;
        while let Some((due, node)) = self.ageing.pop_front_if(|(due, _)| *due <= now) {
            let current =
                self.placements.get(&node).is_some_and(|placement| placement.at + RESERVATION == due);
            // A real supervisor never reports: a node that was redirected there and did not return
            // is there.
            let silent = current && self.settle_in_silence(node);
            settled.extend(silent.then_some(node));
            freed |= current && !silent && self.uncount(node);
        }
        while let Some((due, node)) = self.forgetting.pop_front_if(|(due, _)| *due <= now) {
            if self.placements.get(&node).is_some_and(|placement| placement.at + FAILURE == due) {
                self.placements.remove(&node);
            }
        }
        freed
    }

    /// Returns the time of the next work for [`age`](Self::age).
    pub fn deadline(&self) -> Option<Duration> {
        let first = |queue: &VecDeque<(Duration, u64)>| queue.front().map(|(due, _)| *due);
        [first(&self.ageing), first(&self.forgetting)].into_iter().flatten().min()
    }

    fn settle_in_silence(&mut self, node: u64) -> bool {
        let Some(placement) = self.placements.get_mut(&node) else { return false };
        if !placement.counted {
            return false;
        }
        let cell = placement.cell;
        let Some(entry) = self.entry_mut(cell) else { return false };
        if entry.reports {
            return false;
        }
        entry.reserved = entry.reserved.saturating_sub(1);
        entry.places.free = entry.places.free.saturating_sub(1);
        entry.places.leaves = entry.places.leaves.saturating_add(1);
        if let Some(placement) = self.placements.get_mut(&node) {
            placement.counted = false;
        }
        true
    }

    fn uncount(&mut self, node: u64) -> bool {
        let Some(placement) = self.placements.get_mut(&node) else { return false };
        if !std::mem::replace(&mut placement.counted, false) {
            return false;
        }
        let cell = placement.cell;
        if let Some(entry) = self.entry_mut(cell) {
            entry.reserved = entry.reserved.saturating_sub(1);
        }
        true
    }

    fn entry_mut(&mut self, id: u64) -> Option<&mut CellRecord> {
        self.index.get(&id).and_then(|at| self.entries.get_mut(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn slot(number: u8) -> Slot {
        Slot::new(number).expect("a slot")
    }

    fn places(free: u8) -> FreeSlots {
        FreeSlots { free, parents: 0, leaves: 64 - free }
    }

    fn directory(cells: &[(u64, u8, u8)], reports: bool) -> CellDirectory {
        let mut directory = CellDirectory::default();
        for (id, depth, free) in cells {
            let address = Address::new("sup", *id as u16);
            assert!(directory.report(*id, &address, *depth, slot(0), places(*free), reports));
        }
        directory
    }

    #[test]
    fn the_shallowest_cell_with_room_and_then_by_affinity() {
        let directory = directory(&[(1, 2, 64), (2, 1, 0), (3, 1, 5), (4, 1, 5)], true);
        let best = if affinity(9, 3) > affinity(9, 4) { 3 } else { 4 };
        assert_eq!(directory.cell_for_server(9, NOW), Some(best));
        assert_eq!(directory.second_choice(9, best, NOW), Some(7 - best));
    }

    #[test]
    fn places_are_not_given_away_twice() {
        let mut directory = directory(&[(1, 1, 2)], true);
        for node in [10, 11] {
            assert_eq!(directory.cell_for_server(node, NOW), Some(1));
            directory.sent(node, 1, NOW);
        }
        assert_eq!(directory.cell_for_server(12, NOW), None);
        // The report that names one of them counts it; the other is still on its way.
        directory.arrived(10);
        directory.report(1, &Address::new("sup", 1), 1, slot(0), places(1), true);
        assert!(!directory.has_room(NOW));
        // It never arrived: after a while its place is assigned to another node.
        let mut settled = Vec::new();
        assert!(directory.age(NOW + RESERVATION, &mut settled));
        assert!(directory.has_room(NOW + RESERVATION));
        assert_eq!(settled, [], "nobody knows where it is");
    }

    #[test]
    fn a_node_that_comes_back_is_redirected_elsewhere() {
        let mut directory = directory(&[(1, 1, 9), (2, 1, 9)], true);
        let first = directory.cell_for_server(10, NOW).expect("a cell");
        directory.sent(10, first, NOW);
        assert!(directory.came_back(10, NOW));
        assert_eq!(directory.cell_for_server(10, NOW), Some(3 - first));
        directory.sent(10, 3 - first, NOW);
        assert!(directory.came_back(10, NOW));
        assert!(directory.cell_for_server(10, NOW).is_some(), "no cell is worse than one that failed");
        assert!(!directory.came_back(11, NOW));
    }

    #[test]
    fn a_real_supervisor_is_counted_by_what_was_sent() {
        let mut directory = directory(&[(1, 1, 2)], false);
        directory.sent(10, 1, NOW);
        let mut settled = Vec::new();
        assert!(!directory.age(NOW + RESERVATION, &mut settled));
        assert_eq!(settled, [10]);
        directory.sent(11, 1, NOW + RESERVATION);
        assert!(!directory.has_room(NOW + RESERVATION));
        directory.came_back(11, NOW + RESERVATION);
        assert!(!directory.has_room(NOW + RESERVATION), "it turned one away");
        assert!(directory.has_room(NOW + RESERVATION + FULL_PENALTY));
    }

    #[test]
    fn supervisors_go_to_the_first_level_even_where_it_is_full_of_servers() {
        let directory = directory(&[(1, 1, 0), (2, 2, 64)], true);
        assert_eq!(directory.cell_for_parent(10, NOW), Some(1));
        assert_eq!(directory.cell_for_parent(1, NOW), None, "never below itself");
    }

    #[test]
    fn a_lost_child_takes_its_cells_along() {
        let mut directory = directory(&[(1, 1, 9), (2, 2, 9)], true);
        directory.report(3, &Address::new("sup", 3), 1, slot(1), places(9), true);
        assert_eq!(directory.remove_below(slot(0)), [1, 2]);
        assert!(!directory.remove(3, slot(0)) && directory.remove(3, slot(1)));
        assert!(directory.entries().is_empty());
    }
}
