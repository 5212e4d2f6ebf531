//! [`Candidates`]: files of one file system that may be removed, in the order of their removals.

use crate::purge_policy::last_access;
use base::LogicalPath;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use storage::Metadata;

/// Maximum number of bytes that the candidates of a file system take in memory.
const MEMORY_MAX: usize = 64 * 1024 * 1024;

/// Bytes of memory of a candidate, besides its path. A heap that grows has room for twice as many.
const ENTRY_BYTES: usize = 2 * size_of::<PurgeCandidate>();

/// Seconds of one row of [`AgeTable`], and the number of rows: ten years.
const ROW_SECONDS: i64 = 3600;
const ROWS_MAX: i64 = 10 * 365 * 24;

/// A file that may be removed. The order is that of removals: the oldest access first, and of those
/// in the same second the largest file first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PurgeCandidate {
    accessed: i64,
    size: Reverse<u64>,
    pub(crate) path: LogicalPath,
}

impl PurgeCandidate {
    fn memory(&self) -> usize {
        ENTRY_BYTES + self.path.as_bytes().len()
    }
}

/// The bytes of files by the hour of their last access.
#[derive(Default)]
struct AgeTable(BTreeMap<i64, u64>);

impl AgeTable {
    fn add(&mut self, accessed: i64, size: u64) {
        let row = accessed.div_euclid(ROW_SECONDS);
        let bytes = self.0.entry(row).or_default();
        *bytes = bytes.saturating_add(size);
        // The oldest rows become one.
        while self.0.len() > usize::try_from(ROWS_MAX).unwrap_or(usize::MAX) {
            let Some((_, oldest)) = self.0.pop_first() else { return };
            if let Some(mut next) = self.0.first_entry() {
                *next.get_mut() = next.get().saturating_add(oldest);
            }
        }
    }

    /// Returns the time before which files of this number of bytes were accessed last, or of all.
    fn time_of(&self, wanted: u64) -> Option<i64> {
        let mut bytes = 0u64;
        let reached = self.0.iter().find(|(_, of_row)| {
            bytes = bytes.saturating_add(**of_row);
            bytes >= wanted
        });
        let (row, _) = reached.or_else(|| self.0.last_key_value())?;
        Some((row + 1).saturating_mul(ROW_SECONDS))
    }
}

/// The first candidates of one file system in the order of removals, and the ages of all.
pub(crate) struct Candidates {
    /// The last one is on top.
    first: BinaryHeap<PurgeCandidate>,
    ages: AgeTable,
    /// Number of bytes that are enough.
    wanted: u64,
    /// Bytes of the files in `first`, and of its memory.
    bytes: u64,
    memory: usize,
    memory_max: usize,
    /// Some were left out because others are enough, and some because there was no memory for them.
    has_more: bool,
    is_short_of_memory: bool,
}

impl Candidates {
    /// Returns a place for candidates of this number of bytes.
    pub(crate) fn new(wanted: u64) -> Self {
        Self::within(wanted, MEMORY_MAX)
    }

    fn within(wanted: u64, memory_max: usize) -> Self {
        let (first, ages) = (BinaryHeap::new(), AgeTable::default());
        Self {
            first,
            ages,
            wanted,
            bytes: 0,
            memory: 0,
            memory_max,
            has_more: false,
            is_short_of_memory: false,
        }
    }

    pub(crate) fn add(&mut self, path: LogicalPath, metadata: &Metadata) {
        let candidate =
            PurgeCandidate { accessed: last_access(metadata), size: Reverse(metadata.size), path };
        self.ages.add(candidate.accessed, metadata.size);
        self.memory += candidate.memory();
        self.bytes = self.bytes.saturating_add(metadata.size);
        self.first.push(candidate);
        while let Some(last) = self.first.peek() {
            let (size, memory) = (last.size.0, last.memory());
            let is_too_large = self.memory > self.memory_max;
            if !is_too_large && self.bytes.saturating_sub(size) < self.wanted {
                break;
            }
            self.has_more = true;
            self.is_short_of_memory |= self.bytes.saturating_sub(size) < self.wanted;
            self.first.pop();
            self.memory = self.memory.saturating_sub(memory);
            self.bytes = self.bytes.saturating_sub(size);
        }
    }

    /// Returns the candidates in the order of removals.
    pub(crate) fn take(&mut self) -> Vec<PurgeCandidate> {
        (self.bytes, self.memory) = (0, 0);
        std::mem::take(&mut self.first).into_sorted_vec()
    }

    /// Returns the time before which files were accessed last that are enough, if those that were taken are
    /// not. Each round has twice as many bytes as the one before. `None` if none was left out.
    pub(crate) fn removal_age(&self, round: u32) -> Option<i64> {
        // Unless memory was short, all of the first round were taken, and some have stayed.
        let doublings = if self.is_short_of_memory { round } else { round + 1 };
        let wanted = self.wanted.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
        self.ages.time_of(wanted).filter(|_| self.has_more)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::purge_policy::tests::file as regular_file;

    fn file(accessed: i64, size: u64) -> Metadata {
        regular_file(accessed, 0, size)
    }

    /// A model: all files, sorted.
    #[test]
    fn the_oldest_go_first_and_the_largest_of_one_second() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for wanted in [1, 7, 100, 1_000_000] {
            let mut candidates = Candidates::new(wanted);
            let mut all = Vec::new();
            for number in 0..500 {
                let (accessed, size) = (i64::try_from(next(40)).unwrap(), 1 + next(5));
                let path = LogicalPath::parse(format!("/{number}").as_bytes()).unwrap();
                candidates.add(path.clone(), &file(accessed, size));
                all.push((accessed, Reverse(size), path));
            }
            all.sort();
            let mut bytes = 0;
            all.retain(|(_, size, _)| {
                let is_needed = bytes < wanted;
                bytes += size.0;
                is_needed
            });
            assert!(!candidates.is_short_of_memory);
            assert_eq!(candidates.removal_age(0).is_some(), all.len() < 500);
            let found: Vec<_> = candidates.take().into_iter().map(|one| one.path).collect();
            assert_eq!(found, all.into_iter().map(|(_, _, path)| path).collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_is_bounded_and_the_age_of_the_others_is_known() {
        let path = LogicalPath::parse(b"/f").unwrap();
        let memory = 3 * (ENTRY_BYTES + 2);
        let mut candidates = Candidates::within(10, memory);
        // One byte in each hour, the newest first.
        for hour in (0..100).rev() {
            candidates.add(path.clone(), &file(hour * ROW_SECONDS + 5, 1));
            assert!(candidates.memory <= memory && candidates.first.len() <= 3);
        }
        assert_eq!(candidates.removal_age(0), Some(10 * ROW_SECONDS));
        assert_eq!(candidates.removal_age(1), Some(20 * ROW_SECONDS));
        assert_eq!(candidates.removal_age(64), Some(100 * ROW_SECONDS));
        let ages: Vec<_> = candidates.take().into_iter().map(|one| one.accessed).collect();
        assert_eq!(ages, [5, ROW_SECONDS + 5, 2 * ROW_SECONDS + 5]);
        let mut ages = AgeTable::default();
        for row in 0..ROWS_MAX + 10 {
            ages.add(row * ROW_SECONDS, 1);
        }
        assert_eq!(i64::try_from(ages.0.len()).unwrap(), ROWS_MAX);
        assert_eq!(ages.0.first_key_value(), Some((&10, &11)));
    }
}
