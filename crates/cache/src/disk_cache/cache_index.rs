//! [`CacheIndex`]: the files on disk with their sizes, and the order of their removal.

use super::clock::{CacheTime, FileUse};
use super::directory_totals::DirectoryTotals;
use crate::eviction::ParkedUnit;
use crate::{CacheKey, EvictionPolicy, S3FifoPolicy};
use base::LogicalPath;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of files for which the policy keeps frequencies.
const UNITS: usize = 1 << 16;

/// Number of files that are put back into the order while the index is locked.
const PUT_BACK_AT_ONCE: usize = 256;

/// The files on disk.
pub(super) struct CacheIndex(Mutex<IndexState>);

struct IndexState {
    files: BTreeMap<CacheKey, IndexEntry>,
    keys: HashMap<u64, CacheKey>,
    /// The units are whole files. Their numbers are hashes of their names, so a file that comes back is known.
    policy: S3FifoPolicy<u64>,
    bytes: u64,
    totals: DirectoryTotals,
    hasher: RandomState,
    /// Files that were removed during the search of the disk, which may have seen them before.
    removed: Option<HashSet<CacheKey>>,
}

struct IndexEntry {
    number: u64,
    bytes: u64,
    used: FileUse,
}

/// A file of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexedFile {
    pub(super) key: CacheKey,
    pub(super) bytes: u64,
    pub(super) used: FileUse,
}

/// Files that cannot be removed now.
#[derive(Default)]
pub(super) struct ParkedFiles(Vec<(CacheKey, ParkedUnit<u64>)>);

impl CacheIndex {
    /// Creates the index of a cache of about this number of bytes.
    pub(super) fn new(capacity: u64) -> Self {
        let policy = S3FifoPolicy::new(capacity, UNITS);
        let (files, keys, hasher) = (BTreeMap::new(), HashMap::new(), RandomState::new());
        let totals = DirectoryTotals::default();
        Self(Mutex::new(IndexState { files, keys, policy, bytes: 0, totals, hasher, removed: None }))
    }

    fn lock(&self) -> MutexGuard<'_, IndexState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.lock().files.len()
    }

    /// Sets the number of bytes that all files can have.
    pub(super) fn set_capacity(&self, capacity: u64) {
        self.lock().policy.set_capacity(capacity);
    }

    /// Records that a file was opened, and its size. The first open is what stores it, and no hit.
    pub(super) fn opened(&self, key: &CacheKey, bytes: u64, used: FileUse) {
        let mut state = self.lock();
        let number = state.number(key);
        state.policy.request(number);
        state.set(key, bytes, used);
    }

    /// Records that a file was closed, and its size.
    pub(super) fn closed(&self, key: &CacheKey, bytes: u64, used: FileUse) {
        self.lock().set(key, bytes, used);
    }

    /// Corrects the last use of a file by its record, unless it was used meanwhile.
    pub(super) fn correct(&self, file: &IndexedFile, used: FileUse) {
        let mut state = self.lock();
        if let Some(entry) = state.files.get_mut(&file.key).filter(|entry| entry.used == file.used) {
            entry.used = used;
        }
    }

    /// Reports whether a file is known.
    pub(super) fn contains(&self, key: &CacheKey) -> bool {
        self.lock().files.contains_key(key)
    }

    /// Begins to count the bytes at and below a path.
    pub(super) fn count_below(&self, path: &LogicalPath) {
        let mut state = self.lock();
        let IndexState { files, totals, .. } = &mut *state;
        totals.add(path, || below(files, path, None).map(|(_, entry)| entry.bytes).sum());
    }

    /// Ends a count that [`CacheIndex::count_below`] has begun.
    pub(super) fn end_count_below(&self, path: &LogicalPath) {
        self.lock().totals.remove(path);
    }

    /// Returns the bytes at and below a path that is counted.
    pub(super) fn bytes_below(&self, path: &LogicalPath) -> u64 {
        self.lock().totals.bytes(path)
    }

    /// Returns the next files at and below a path after one of them, at most this number, in the order of their names.
    pub(super) fn page(&self, path: &LogicalPath, after: Option<&CacheKey>, most: usize) -> Vec<IndexedFile> {
        let state = self.lock();
        let file = |(key, entry): (&CacheKey, &IndexEntry)| IndexedFile {
            key: key.clone(),
            bytes: entry.bytes,
            used: entry.used,
        };
        below(&state.files, path, after).take(most).map(file).collect()
    }

    /// Begins or ends the search of the disk.
    pub(super) fn set_searching(&self, is_searching: bool) {
        self.lock().removed = is_searching.then(HashSet::new);
    }

    /// Reports whether the disk is being searched.
    pub(super) fn is_searching(&self) -> bool {
        self.lock().removed.is_some()
    }

    /// Adds a file that was found on disk, unless it is known or was removed during the search.
    pub(super) fn found(&self, key: &CacheKey, bytes: u64, used: FileUse) {
        let mut state = self.lock();
        if !state.removed.as_ref().is_some_and(|removed| removed.contains(key)) {
            state.add(key, bytes, used);
        }
    }

    /// Adds a file that could not be removed, unless it is known. It is one of the first to be removed. If its size is
    /// not known, the search of the disk finds it.
    pub(super) fn put_again(&self, key: &CacheKey, bytes: Option<u64>, now: CacheTime) {
        let mut state = self.lock();
        if let Some(removed) = &mut state.removed {
            removed.remove(key);
        }
        if let Some(bytes) = bytes {
            state.add(key, bytes, FileUse::recorded(0, now));
        }
    }

    /// Adds to the size of a file that is known, if its entry is that of the caller. `is_retired` must be true before
    /// the entry is removed.
    pub(super) fn grow(&self, key: &CacheKey, bytes: u64, is_retired: &AtomicBool) {
        let mut state = self.lock();
        let entry = state.files.get(key).filter(|_| !is_retired.load(Ordering::Acquire));
        if let Some(before) = entry.map(|entry| entry.bytes) {
            state.resize(key, before.saturating_add(bytes));
        }
    }

    /// Reduces the size of a file, as [`CacheIndex::grow`] adds to it.
    pub(super) fn shrink(&self, key: &CacheKey, bytes: u64, is_retired: &AtomicBool) {
        let mut state = self.lock();
        let entry = state.files.get(key).filter(|_| !is_retired.load(Ordering::Acquire));
        if let Some(before) = entry.map(|entry| entry.bytes) {
            state.resize(key, before.saturating_sub(bytes));
        }
    }

    /// Removes a file. Returns its size; `None` if it is not known.
    pub(super) fn remove(&self, key: &CacheKey) -> Option<u64> {
        self.lock().remove(key, |policy, number| policy.remove(number))
    }

    /// Removes a file because there is too little room.
    pub(super) fn evict(&self, key: &CacheKey) {
        self.lock().remove(key, S3FifoPolicy::evict_unit);
    }

    /// Removes a file because it is old, unless it was used since `used`. Returns its size.
    pub(super) fn evict_unused(&self, key: &CacheKey, used: FileUse) -> Option<u64> {
        let mut state = self.lock();
        state.files.get(key).filter(|entry| entry.used == used)?;
        state.remove(key, S3FifoPolicy::evict_unit)
    }

    /// Returns the next file to remove, with its size.
    pub(super) fn next_to_remove(&self) -> Option<(CacheKey, u64)> {
        let mut state = self.lock();
        let number = state.policy.victim()?;
        let key = state.keys.get(&number)?.clone();
        let bytes = state.files.get(&key)?.bytes;
        Some((key, bytes))
    }

    /// Passes over a file that cannot be removed now.
    pub(super) fn park(&self, key: &CacheKey, parked: &mut ParkedFiles) {
        let mut state = self.lock();
        let Some(number) = state.files.get(key).map(|entry| entry.number) else { return };
        parked.0.extend(state.policy.park(number).map(|unit| (key.clone(), unit)));
    }

    /// Puts files that were passed over back into the order. Others can use the index in between, because there can be
    /// very many.
    pub(super) fn put_back(&self, parked: ParkedFiles) {
        for parked in parked.0.chunks(PUT_BACK_AT_ONCE) {
            let mut state = self.lock();
            for (key, unit) in parked {
                let known = state.files.get(key).filter(|entry| entry.number == unit.key);
                if let Some(bytes) = known.map(|entry| entry.bytes) {
                    state.policy.put_back(unit, bytes);
                }
            }
        }
    }

    /// Returns the files at and below a path, in order, at most this number. With `after`, only those that follow it.
    pub(super) fn within(&self, path: &LogicalPath, after: Option<&CacheKey>, most: usize) -> Vec<CacheKey> {
        let state = self.lock();
        below(&state.files, path, after).take(most).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
thread_local! {
    /// The number of entries that were looked at in searches for files below a path.
    static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts an entry that is looked at, in tests.
fn note_visit() {
    #[cfg(test)]
    VISITED.set(VISITED.get() + 1);
}

/// Returns the files at and below a path, in order. With `after`, only those that follow it. No others are looked at.
fn below<'a>(
    files: &'a BTreeMap<CacheKey, IndexEntry>,
    path: &LogicalPath,
    after: Option<&CacheKey>,
) -> impl Iterator<Item = (&'a CacheKey, &'a IndexEntry)> + use<'a> {
    let own = CacheKey::new(&path.without_slash()).filter(|key| after.is_none_or(|after| after < key));
    let own = own.and_then(|key| files.get_key_value(&key));
    // Names like `/a-b` and `/a.b` are between `/a` and `/a/b`.
    let bounds = CacheKey::bounds_below(path).and_then(|(first, end)| {
        let is_later = |after: &&CacheKey| !matches!(&first, Bound::Excluded(first) if **after < *first);
        let first = after.filter(is_later).map_or(first.clone(), |after| Bound::Excluded(after.clone()));
        // A range must not end before it begins.
        let has_files =
            !matches!((&first, &end), (Bound::Excluded(first), Bound::Excluded(end)) if first >= end);
        has_files.then_some((first, end))
    });
    let others = bounds.into_iter().flat_map(|bounds| files.range::<CacheKey, _>(bounds));
    own.into_iter().chain(others).inspect(|_| note_visit())
}

impl IndexState {
    /// Returns the number of a file, also if it is not known: the first free one that follows its hash.
    fn number(&self, key: &CacheKey) -> u64 {
        if let Some(entry) = self.files.get(key) {
            return entry.number;
        }
        let mut number = self.hasher.hash_one(key);
        while self.keys.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// Sets the size and the last use of a file.
    fn set(&mut self, key: &CacheKey, bytes: u64, used: FileUse) {
        if let Some(entry) = self.files.get_mut(key) {
            entry.used = used;
            return self.resize(key, bytes);
        }
        let number = self.number(key);
        self.files.insert(key.clone(), IndexEntry { number, bytes, used });
        self.totals.change(key, 0, bytes);
        self.keys.insert(number, key.clone());
        self.policy.insert(number, bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn resize(&mut self, key: &CacheKey, bytes: u64) {
        if let Some(entry) = self.files.get_mut(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes).saturating_add(bytes);
            self.totals.change(key, entry.bytes, bytes);
            entry.bytes = bytes;
            self.policy.resize(entry.number, bytes);
        }
    }

    fn add(&mut self, key: &CacheKey, bytes: u64, used: FileUse) {
        if !self.files.contains_key(key) {
            self.set(key, bytes, used);
        }
    }

    /// Removes a file, also one that was passed over, which is not in the order of the policy. Returns its size.
    fn remove(
        &mut self,
        key: &CacheKey,
        from: impl FnOnce(&mut S3FifoPolicy<u64>, u64) -> Option<u64>,
    ) -> Option<u64> {
        if let Some(removed) = &mut self.removed {
            removed.insert(key.clone());
        }
        let entry = self.files.remove(key)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        self.totals.change(key, entry.bytes, 0);
        self.keys.remove(&entry.number);
        from(&mut self.policy, entry.number);
        Some(entry.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: CacheTime = CacheTime { time_of_day: 100, uptime: 0 };

    fn used(time_of_day: i64) -> FileUse {
        FileUse::recorded(time_of_day, NOW)
    }

    fn key(text: &str) -> CacheKey {
        CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_sum_is_that_of_the_files() {
        let index = CacheIndex::new(1000);
        index.opened(&key("/a"), 10, used(50));
        index.found(&key("/a"), 500, used(60));
        index.found(&key("/b"), 7, used(60));
        let (current, retired) = (AtomicBool::new(false), AtomicBool::new(true));
        index.grow(&key("/a"), 5, &current);
        index.grow(&key("/a"), 500, &retired);
        index.grow(&key("/missing"), 5, &current);
        assert_eq!((index.bytes(), index.len()), (22, 2));
        index.closed(&key("/a"), 3, used(70));
        index.remove(&key("/b"));
        index.remove(&key("/b"));
        assert_eq!((index.bytes(), index.len()), (3, 1));
    }

    #[test]
    fn a_file_that_was_removed_during_the_search_is_not_found() {
        let index = CacheIndex::new(1000);
        index.set_searching(true);
        index.opened(&key("/a"), 10, used(50));
        index.evict(&key("/a"));
        index.remove(&key("/b"));
        ["/a", "/b", "/c"].into_iter().for_each(|text| index.found(&key(text), 7, used(60)));
        assert_eq!(index.bytes(), 7);
        index.put_again(&key("/a"), Some(10), NOW);
        index.put_again(&key("/c"), Some(10), NOW);
        assert_eq!(index.bytes(), 17);
        index.set_searching(false);
        index.remove(&key("/c"));
        index.found(&key("/c"), 3, used(60));
        assert_eq!((index.bytes(), index.len()), (13, 2));
    }

    #[test]
    fn each_file_is_next_at_some_time() {
        let index = CacheIndex::new(1000);
        (0..50).for_each(|number| index.opened(&key(&format!("/{number}")), 10, used(50)));
        let (mut seen, mut parked) = (std::collections::HashSet::new(), ParkedFiles::default());
        while let Some((next, bytes)) = index.next_to_remove() {
            assert_eq!((bytes, index.next_to_remove()), (10, Some((next.clone(), 10))));
            assert!(seen.insert(next.clone()));
            match seen.len() % 3 {
                0 => index.evict(&next),
                1 => assert_eq!(index.remove(&next), Some(10)),
                _ => index.park(&next, &mut parked),
            }
        }
        assert_eq!((seen.len(), index.bytes()), (50, 170));
        // Files that were passed over can grow and go meanwhile.
        index.remove(&key("/1"));
        index.grow(&key("/4"), 5, &AtomicBool::new(false));
        index.put_back(parked);
        let left: u64 = std::iter::from_fn(|| {
            let (next, bytes) = index.next_to_remove()?;
            index.evict(&next);
            Some(bytes)
        })
        .sum();
        assert_eq!((left, index.bytes(), index.len()), (165, 0, 0));
    }

    #[test]
    fn a_file_that_is_passed_over_can_be_removed() {
        let (index, mut parked) = (CacheIndex::new(1000), ParkedFiles::default());
        for (text, bytes) in [("/a", 10), ("/b", 20), ("/c", 40)] {
            index.opened(&key(text), bytes, used(50));
            index.park(&key(text), &mut parked);
        }
        assert_eq!(index.evict_unused(&key("/a"), used(50)), Some(10));
        assert_eq!(index.remove(&key("/b")), Some(20));
        assert_eq!((index.bytes(), index.len()), (40, 1));
        index.put_back(parked);
        assert_eq!(index.next_to_remove(), Some((key("/c"), 40)));
        index.evict(&key("/c"));
        assert_eq!((index.next_to_remove(), index.bytes()), (None, 0));
    }

    #[test]
    fn a_file_that_could_not_be_removed_during_the_search_is_found() {
        let index = CacheIndex::new(1000);
        index.set_searching(true);
        assert_eq!(index.remove(&key("/unknown")), None);
        index.put_again(&key("/unknown"), None, NOW);
        assert_eq!(index.len(), 0, "its size is not known");
        index.found(&key("/unknown"), 7, used(60));
        index.found(&key("/known"), 5, used(60));
        let bytes = index.remove(&key("/known"));
        index.put_again(&key("/known"), bytes, NOW);
        assert_eq!((index.bytes(), index.len()), (12, 2));
    }

    #[test]
    fn files_below_a_directory_are_found() {
        let index = CacheIndex::new(1000);
        ["/a", "/a-b", "/a/x", "/a/y/z", "/ab", "/b"]
            .into_iter()
            .for_each(|text| index.found(&key(text), 1, used(60)));
        let within = |text: &str, after: &str, most| {
            let after = (!after.is_empty()).then(|| key(after));
            let found = index.within(&LogicalPath::parse(text.as_bytes()).unwrap(), after.as_ref(), most);
            found.iter().map(|key| key.data().text().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(within("/a", "", 9), ["/a", "/a/x", "/a/y/z"]);
        assert_eq!(within("/a", "", 2), ["/a", "/a/x"]);
        assert_eq!(within("/a", "/a/x", 2), ["/a/y/z"]);
        assert_eq!(within("/a", "/a/y/z", 2), [""; 0]);
        assert_eq!(within("/c", "", 9), [""; 0]);
        assert_eq!(within("/", "", 9).len(), 6);
        assert_eq!(within("/", "/a/x", 9), ["/a/y/z", "/ab", "/b"]);
    }

    /// Names that begin with the same bytes are not below a path, and nobody waits for a look at them.
    #[test]
    fn only_files_below_a_path_are_looked_at() {
        let index = CacheIndex::new(1000);
        let names = [
            "/a", "/a!", "/a-b", "/a.b/c", "/a/\u{1}", "/a/x", "/a/x/y", "/a/x-y", "/a/~", "/a0", "/a0/x",
            "/b",
        ];
        names.into_iter().for_each(|text| index.found(&key(text), 1, used(60)));
        for number in 0..2000 {
            index.found(&key(&format!("/run{number}/f")), 1, used(60));
            index.found(&key(&format!("/run-{number}")), 1, used(60));
        }
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let looked_at = |text: &str, after: Option<&str>| {
            let before = VISITED.get();
            let found = index.within(&path(text), after.map(key).as_ref(), usize::MAX);
            (found.len(), VISITED.get() - before)
        };
        assert_eq!(looked_at("/run", None), (0, 0));
        assert_eq!(looked_at("/run1", None), (1, 1));
        assert_eq!(looked_at("/run1", Some("/run1/f")), (0, 0));
        assert_eq!(looked_at("/a", None), (6, 6));
        assert_eq!(looked_at("/a/x", Some("/a/x")), (1, 1));
        assert_eq!(looked_at("/a", Some("/a!")), (5, 5));
        assert_eq!(looked_at("/a", Some("/b")), (0, 0));
        assert_eq!(looked_at("/missing", None), (0, 0));
        assert_eq!(looked_at(&format!("/{}", "x".repeat(base::PATH_BYTES_MAX - 1)), None), (0, 0));
        // A comparison with all names, from each position.
        let all = index.within(&path("/"), None, usize::MAX);
        for directory in all.iter().map(|key| key.data().clone()).chain([path("/"), path("/run")]).take(20) {
            for after in [None].into_iter().chain(all.iter().take(20).map(Some)) {
                let is_found = |key: &&CacheKey| {
                    key.data().is_within(&directory) && after.is_none_or(|after| after < *key)
                };
                let expected: Vec<CacheKey> = all.iter().filter(is_found).cloned().collect();
                assert_eq!(index.within(&directory, after, usize::MAX), expected, "{directory:?} {after:?}");
            }
        }
    }

    #[test]
    fn bytes_of_directories_are_counted() {
        let index = CacheIndex::new(1000);
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        ["/a", "/a-b", "/a/x", "/a/y/z", "/b"]
            .into_iter()
            .for_each(|text| index.found(&key(text), 5, used(60)));
        ["/", "/a", "/a/y", "/a", "/none"].into_iter().for_each(|text| index.count_below(&path(text)));
        let totals = || ["/", "/a", "/a/y", "/none"].map(|text| index.bytes_below(&path(text)));
        assert_eq!(totals(), [25, 15, 5, 0]);
        index.end_count_below(&path("/a"));
        assert_eq!(totals(), [25, 15, 5, 0], "it was counted twice");
        index.opened(&key("/a/y/z"), 8, used(70));
        index.grow(&key("/a/y/z"), 2, &AtomicBool::new(false));
        index.opened(&key("/none/f"), 1, used(70));
        index.evict(&key("/a/x"));
        index.remove(&key("/b"));
        assert_eq!(totals(), [21, 15, 10, 1]);
        assert_eq!(index.bytes(), 21);
        index.put_again(&key("/a/x"), Some(5), NOW);
        let pages = [None, Some(key("/a")), Some(key("/a/x"))];
        let names = pages.map(|after| {
            let page = index.page(&path("/a"), after.as_ref(), 2);
            page.iter()
                .map(|file| format!("{} {}", file.key.data().text(), file.used.time_of_day))
                .collect::<Vec<_>>()
        });
        assert_eq!(names, [vec!["/a 60", "/a/x 0"], vec!["/a/x 0", "/a/y/z 70"], vec!["/a/y/z 70"]]);
    }
}
