//! The names of children with complete inventories: see [`Inventories`] (decision 002).

use crate::lookup_limiter::parent_directory;
use crate::slots::{CELL_SLOTS, Slot, SlotMask};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of rows of the table: a power of two. The table has 32 MiB, and room for 400,000
/// names of each child. With more names some queries are needless; with a million names, one in
/// six.
const ROWS: usize = 1 << 22;

/// The number of rows for each name.
const PROBES: usize = 4;

const _: () = assert!(ROWS.is_power_of_two() && PROBES <= 4 && CELL_SLOTS == 64);

/// A Bloom filter for each child, in one table. Row n holds bit n of all 64 filters, so the
/// children that may have a name are found by as many look-ups as for one child. Every added name
/// is found; false positives are rare. Names are never removed one by one, because a stale name
/// costs only a query to a child that does not have it.
///
/// One thread adds names. Others read at the same time, and see a name shortly after it was added.
pub(crate) struct Inventories {
    /// Allocated when the first name is added.
    rows: OnceLock<Box<[AtomicU64]>>,
    /// The children of which names were added since their last clearing.
    listed: AtomicU64,
    key: (u64, u64),
}

impl Inventories {
    /// Creates an empty table. Its hash is keyed, so that an attacker cannot direct names at the
    /// same rows.
    pub(crate) const fn new(key: (u64, u64)) -> Self {
        Self { rows: OnceLock::new(), listed: AtomicU64::new(0), key }
    }

    /// Adds a name of a child, and its parent directories.
    pub(crate) fn add(&self, slot: Slot, path: &[u8]) {
        self.listed.store(self.listed.load(Ordering::Relaxed) | slot.mask().0, Ordering::Relaxed);
        self.add_one(slot, path);
        let mut directory = parent_directory(path);
        while let Some(path) = directory {
            // A false positive does not prove that the directories above are present.
            if !self.candidates(path).contains(slot) {
                self.add_one(slot, path);
            }
            directory = parent_directory(path);
        }
    }

    fn add_one(&self, slot: Slot, path: &[u8]) {
        let rows = self.rows.get_or_init(|| (0..ROWS).map(|_| AtomicU64::new(0)).collect());
        for row in self.probes(path).filter_map(|at| rows.get(at)) {
            row.store(row.load(Ordering::Relaxed) | slot.mask().0, Ordering::Relaxed);
        }
    }

    /// Returns the children that may have a path, of those whose names are added here.
    pub(crate) fn candidates(&self, path: &[u8]) -> SlotMask {
        let Some(rows) = self.rows.get() else { return SlotMask::EMPTY };
        let rows = self.probes(path).filter_map(|at| rows.get(at));
        SlotMask(rows.fold(u64::MAX, |mask, row| mask & row.load(Ordering::Relaxed)))
    }

    /// Removes all names of a child. It takes milliseconds for a child that has any; every child
    /// that joins is cleared, and few list names. A reader that misses a name for that
    /// reason sees all earlier writes of this thread, if it has a fence of its own after its
    /// look-ups.
    pub(crate) fn clear(&self, slot: Slot) {
        fence(Ordering::Release);
        let listed = self.listed.load(Ordering::Relaxed);
        if listed & slot.mask().0 == 0 {
            return;
        }
        self.listed.store(listed & !slot.mask().0, Ordering::Relaxed);
        for row in self.rows.get().into_iter().flatten() {
            let slots = row.load(Ordering::Relaxed);
            if slots & slot.mask().0 != 0 {
                row.store(slots & !slot.mask().0, Ordering::Relaxed);
            }
        }
    }

    fn probes(&self, path: &[u8]) -> impl Iterator<Item = usize> {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write(path);
        let hash = hasher.finish128();
        let parts = [hash.h1, hash.h1 >> 32, hash.h2, hash.h2 >> 32];
        parts.into_iter().take(PROBES).map(|part| part as usize & (ROWS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> Vec<u8> {
        format!("/data/run{}/file{number}", number % 100).into_bytes()
    }

    #[test]
    fn added_names_are_found_and_false_positives_are_rare() {
        let table = Inventories::new((1, 2));
        let slots: Vec<Slot> = [0, 7, 63].into_iter().filter_map(Slot::new).collect();
        assert_eq!(table.candidates(b"/data"), SlotMask::EMPTY);
        for number in 0..30_000 {
            table.add(slots[number % 3], &path(number));
        }
        for number in 0..30_000 {
            assert!(table.candidates(&path(number)).contains(slots[number % 3]), "{number}");
        }
        for directory in ["/", "/data", "/data/run7"] {
            assert_eq!(table.candidates(directory.as_bytes()).len(), 3, "{directory}");
        }
        let wrong = (30_000..60_000).filter(|number| !table.candidates(&path(*number)).is_empty()).count();
        assert!(wrong < 10, "{wrong}");
    }

    #[test]
    fn the_names_of_one_child_are_removed() {
        let table = Inventories::new((1, 2));
        let (one, other) = (Slot::new(1).unwrap(), Slot::new(2).unwrap());
        table.add(one, b"/a/f");
        table.add(other, b"/a/f");
        table.clear(one);
        assert_eq!(table.candidates(b"/a/f"), other.mask());
        assert_eq!(table.candidates(b"/a"), other.mask());
        table.add(one, b"/a/f");
        table.clear(other);
        assert_eq!(table.candidates(b"/a/f"), one.mask());
        table.clear(one);
        assert_eq!(table.candidates(b"/a/f"), SlotMask::EMPTY);
    }
}
