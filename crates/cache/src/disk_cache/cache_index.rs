//! [`CacheIndex`]: the files on disk with their sizes, and the order of their removal.

use super::clock::{CacheTime, FileUse};
use super::directory_totals::DirectoryTotals;
use super::split_files::{PartUnit, SplitFiles};
use crate::eviction::ParkedUnit;
use crate::store::RecordedFile;
use crate::{CacheKey, EvictionPolicy, S3FifoPolicy};
use base::LogicalPath;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of units for which the policy keeps frequencies at least.
const UNITS_MIN: usize = 1 << 16;

/// Maximum number of parts that are counted, of all files. Each takes about 200 bytes. A file that would have more is one
/// unit.
const PARTS_MAX: usize = 1 << 21;

/// Number of files that are put back into the order while the index is locked.
const PUT_BACK_AT_ONCE: usize = 256;

/// The files on disk.
pub(super) struct CacheIndex(Mutex<IndexState>);

/// The files by their names.
type IndexFiles = BTreeMap<Arc<CacheKey>, IndexEntry>;

struct IndexState {
    files: IndexFiles,
    /// The names by the numbers. Both share the name, because there is one for each file.
    keys: HashMap<u64, Arc<CacheKey>>,
    /// The units are whole files, and parts of files that are split. Their numbers are hashes of their names, so a unit that
    /// comes back is known.
    policy: S3FifoPolicy<u64>,
    split: SplitFiles,
    /// Maximum number of parts of all files.
    parts_max: usize,
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
    /// Set if the entry was recorded by an earlier process. The disk may be different.
    is_recorded: bool,
}

/// A file of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexedFile {
    pub(super) key: CacheKey,
    pub(super) bytes: u64,
    pub(super) used: FileUse,
}

/// The next unit to remove.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RemovalUnit {
    pub(super) key: CacheKey,
    /// `None` for the whole file.
    pub(super) part: Option<u32>,
    pub(super) bytes: u64,
}

/// The difference between a file on disk and its entry in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileDifference {
    /// There is none, or the file was used or removed meanwhile.
    AsKnown,
    /// It was not known, or with another size, and is known now.
    Corrected,
    /// It is not known.
    Unknown,
}

/// The place of a recorded file in the order of removals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordedPlace {
    /// The last use in seconds, and the rank in the last eight bits.
    used: u64,
    number: u64,
    bytes: u64,
}

/// A unit that was taken out of the order of removals.
#[derive(Clone)]
pub(super) struct TakenUnit {
    key: CacheKey,
    parked: ParkedUnit<u64>,
}

/// Units that cannot be removed now.
#[derive(Default)]
pub(super) struct ParkedFiles(Vec<TakenUnit>);

impl ParkedFiles {
    pub(super) fn push(&mut self, unit: TakenUnit) {
        self.0.push(unit);
    }
}

impl CacheIndex {
    /// Creates the index of a cache of about this number of bytes, which removes parts of files of this size.
    pub(super) fn new(capacity: u64, part_bytes: Option<u64>) -> Self {
        Self::with_parts_max(capacity, part_bytes, PARTS_MAX)
    }

    fn with_parts_max(capacity: u64, part_bytes: Option<u64>, parts_max: usize) -> Self {
        let parts = part_bytes.and_then(|bytes| capacity.checked_div(bytes)).unwrap_or(0);
        let units = usize::try_from(parts).unwrap_or(parts_max).min(parts_max).max(UNITS_MIN);
        let policy = S3FifoPolicy::new(capacity, units);
        let (files, keys, hasher) = (BTreeMap::new(), HashMap::new(), RandomState::new());
        let (totals, split) = (DirectoryTotals::default(), SplitFiles::default());
        let (bytes, removed) = (0, None);
        let state = IndexState { files, keys, policy, split, parts_max, bytes, totals, hasher, removed };
        Self(Mutex::new(state))
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

    /// Records a use of a file.
    pub(super) fn used(&self, key: &CacheKey, used: FileUse) {
        if let Some(entry) = self.lock().files.get_mut(key) {
            entry.used = used;
        }
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

    /// Compares a file on disk with its entry, and corrects an entry that an earlier process has recorded. During the
    /// search, a file without an entry is added, unless it was removed meanwhile. Returns the difference.
    pub(super) fn found(&self, key: &CacheKey, bytes: u64, used: FileUse) -> FileDifference {
        let mut state = self.lock();
        match state.files.get(key) {
            Some(entry) if entry.is_recorded => {
                let found =
                    if entry.bytes == bytes { FileDifference::AsKnown } else { FileDifference::Corrected };
                state.set(key, bytes, used);
                found
            }
            Some(_) => FileDifference::AsKnown,
            None => match &state.removed {
                Some(removed) if removed.contains(key) => FileDifference::AsKnown,
                Some(_) => {
                    state.set(key, bytes, used);
                    FileDifference::Corrected
                }
                None => FileDifference::Unknown,
            },
        }
    }

    /// Adds files that an earlier process has recorded, unless they are known or were removed since the start. They get
    /// into the order of removals by [`CacheIndex::put_recorded`]. Returns what that needs.
    pub(super) fn load(&self, files: Vec<RecordedFile>, now: CacheTime) -> Vec<RecordedPlace> {
        let mut state = self.lock();
        let mut order = Vec::with_capacity(files.len());
        for RecordedFile { key, bytes, used, rank } in files {
            let was_removed = state.removed.as_ref().is_some_and(|removed| removed.contains(&key));
            if was_removed || state.files.contains_key(&key) {
                continue;
            }
            let number = state.number(&key);
            state.bytes = state.bytes.saturating_add(bytes);
            state.totals.change(&key, 0, bytes);
            let key = Arc::new(key);
            state.keys.insert(number, key.clone());
            let used = FileUse::recorded(used, now);
            // The order of uses before 1970 does not matter.
            let second = u64::try_from(used.time_of_day).unwrap_or(0);
            order.push(RecordedPlace { used: second << 8 | u64::from(rank), number, bytes });
            state.files.insert(key, IndexEntry { number, bytes, used, is_recorded: true });
        }
        order
    }

    /// Puts files of [`CacheIndex::load`] into the order of removals, in this order.
    pub(super) fn put_recorded(&self, order: &[RecordedPlace]) {
        let mut state = self.lock();
        for place in order {
            // A file that was used meanwhile is there with its size, or its parts are.
            if state.keys.contains_key(&place.number) && !state.split.contains(place.number) {
                state.policy.put_back(&ParkedUnit::of_rank(place.number, place.used as u8), place.bytes);
            }
        }
    }

    /// Removes a file that is not on disk, if it is known only because an earlier process has recorded it. Returns whether
    /// it was.
    pub(super) fn forget_recorded(&self, key: &CacheKey) -> bool {
        let mut state = self.lock();
        state.files.get(key).is_some_and(|entry| entry.is_recorded)
            && state.remove(key, |policy, number| policy.remove(number)).is_some()
    }

    /// Removes all files that are known only because an earlier process has recorded them.
    pub(super) fn forget_all_recorded(&self) {
        let mut after = None;
        loop {
            let (keys, last) = self.unconfirmed(after.as_ref(), PUT_BACK_AT_ONCE);
            for key in &keys {
                self.forget_recorded(key);
                // The search of the disk can find it.
                if let Some(removed) = &mut self.lock().removed {
                    removed.remove(key);
                }
            }
            if last.is_none() {
                break;
            }
            after = last;
        }
    }

    /// Returns the next files after one of them that the disk has not confirmed yet, of the next `most` files, and the
    /// last one of these.
    pub(super) fn unconfirmed(
        &self,
        after: Option<&CacheKey>,
        most: usize,
    ) -> (Vec<CacheKey>, Option<CacheKey>) {
        let state = self.lock();
        let (mut found, mut last) = (Vec::new(), None);
        for (key, entry) in below(&state.files, &LogicalPath::root(), after).take(most) {
            if entry.is_recorded {
                found.push(key.clone());
            }
            last = Some(key);
        }
        (found, last.cloned())
    }

    /// Returns the next files after one of them as they are recorded for the next process.
    pub(super) fn to_record(&self, after: Option<&CacheKey>, most: usize) -> Vec<RecordedFile> {
        let state = self.lock();
        let file = |(key, entry): (&CacheKey, &IndexEntry)| RecordedFile {
            key: key.clone(),
            bytes: entry.bytes,
            used: entry.used.time_of_day,
            rank: state.rank(entry.number),
        };
        below(&state.files, &LogicalPath::root(), after).take(most).map(file).collect()
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
    /// the entry is removed. Returns whether the bytes are the first ones of their part.
    pub(super) fn grow(
        &self,
        key: &CacheKey,
        (part, bytes): (Option<u32>, u64),
        is_retired: &AtomicBool,
    ) -> bool {
        let mut state = self.lock();
        let is_ours = state.files.contains_key(key) && !is_retired.load(Ordering::Acquire);
        is_ours && state.grow(key, part, bytes)
    }

    /// Reduces the size of a file, as [`CacheIndex::grow`] adds to it.
    pub(super) fn shrink(&self, key: &CacheKey, (part, bytes): (Option<u32>, u64), is_retired: &AtomicBool) {
        let mut state = self.lock();
        if !is_retired.load(Ordering::Acquire) {
            state.shrink(key, part, bytes);
        }
    }

    /// Sets the size of a file of which parts were removed. A comparison that has looked at it before must not change it.
    /// Returns the number of bytes that it has less.
    pub(super) fn correct_size(&self, key: &CacheKey, bytes: u64) -> u64 {
        let mut state = self.lock();
        let Some(entry) = state.files.get_mut(key) else { return 0 };
        entry.is_recorded = false;
        let before = entry.bytes;
        state.resize(key, bytes);
        before.saturating_sub(bytes)
    }

    /// Removes a file. Returns its size; `None` if it is not known.
    pub(super) fn remove(&self, key: &CacheKey) -> Option<u64> {
        self.lock().remove(key, |policy, number| policy.remove(number))
    }

    /// Removes a file because there is too little room. Returns its size; `None` if it is not known.
    pub(super) fn evict(&self, key: &CacheKey) -> Option<u64> {
        self.lock().remove(key, S3FifoPolicy::evict_unit)
    }

    /// Removes a file because it is old, unless it was used since `used`. Returns its size.
    pub(super) fn evict_unused(&self, key: &CacheKey, used: FileUse) -> Option<u64> {
        let mut state = self.lock();
        state.files.get(key).filter(|entry| entry.used == used)?;
        state.remove(key, S3FifoPolicy::evict_unit)
    }

    /// Returns the next unit to remove.
    pub(super) fn next_to_remove(&self) -> Option<RemovalUnit> {
        let mut state = self.lock();
        let number = state.policy.victim()?;
        if let Some((key, part)) = state.split.name(number) {
            let bytes = state.split.get(state.files.get(key)?.number, part)?.bytes;
            return Some(RemovalUnit { key: CacheKey::clone(key), part: Some(part), bytes });
        }
        let key = state.keys.get(&number)?;
        let bytes = state.files.get(key)?.bytes;
        Some(RemovalUnit { key: CacheKey::clone(key), part: None, bytes })
    }

    /// Takes a unit out of the order until it is put back or removed. It still counts.
    pub(super) fn take(&self, unit: &RemovalUnit) -> Option<TakenUnit> {
        let mut state = self.lock();
        let file = state.files.get(&unit.key)?.number;
        let number = match unit.part {
            Some(part) => state.split.get(file, part)?.number,
            None => file,
        };
        let parked = state.policy.park(number)?;
        Some(TakenUnit { key: unit.key.clone(), parked })
    }

    /// Passes over a unit that cannot be removed now.
    pub(super) fn park(&self, unit: &RemovalUnit, parked: &mut ParkedFiles) {
        parked.0.extend(self.take(unit));
    }

    /// Puts units that were passed over back into the order. Others can use the index in between, because there can be
    /// very many.
    pub(super) fn put_back(&self, parked: ParkedFiles) {
        for parked in parked.0.chunks(PUT_BACK_AT_ONCE) {
            let mut state = self.lock();
            for TakenUnit { key, parked } in parked {
                if let Some(bytes) = state.bytes_of_unit(key, parked.key) {
                    state.policy.put_back(parked, bytes);
                }
            }
        }
    }

    /// Puts units whose removal has failed, or that are left in part, back into the order. They are the next to be removed.
    pub(super) fn put_back_as_oldest(&self, units: ParkedFiles) {
        for units in units.0.rchunks(PUT_BACK_AT_ONCE) {
            let mut state = self.lock();
            for TakenUnit { key, parked } in units.iter().rev() {
                if let Some(bytes) = state.bytes_of_unit(key, parked.key) {
                    state.policy.put_back_as_oldest(parked, bytes);
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
    files: &'a IndexFiles,
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
    own.into_iter().chain(others).map(|(key, entry)| (&**key, entry)).inspect(|_| note_visit())
}

impl IndexState {
    /// Returns the number of a file, also if it is not known: the first free one that follows its hash.
    fn number(&self, key: &CacheKey) -> u64 {
        if let Some(entry) = self.files.get(key) {
            return entry.number;
        }
        self.free_number(self.hasher.hash_one(key))
    }

    fn free_number(&self, mut number: u64) -> u64 {
        while self.keys.contains_key(&number) || self.split.is_part(number) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// Sets the size and the last use of a file.
    fn set(&mut self, key: &CacheKey, bytes: u64, used: FileUse) {
        if let Some(entry) = self.files.get_mut(key) {
            let was_recorded = std::mem::take(&mut entry.is_recorded);
            entry.used = used;
            let number = entry.number;
            self.resize(key, bytes);
            if was_recorded {
                // Recorded files get into the order with their recorded sizes, and this one may not be there yet.
                self.policy.insert(number, bytes);
            }
            return;
        }
        let number = self.number(key);
        let name = Arc::new(key.clone());
        self.files.insert(name.clone(), IndexEntry { number, bytes, used, is_recorded: false });
        self.totals.change(key, 0, bytes);
        self.keys.insert(number, name);
        self.policy.insert(number, bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Sets the size of a file. It is one unit afterwards, unless it has this size, because that of its parts is not
    /// known.
    fn resize(&mut self, key: &CacheKey, bytes: u64) {
        let Some(entry) = self.files.get(key).filter(|entry| entry.bytes != bytes) else { return };
        let number = entry.number;
        self.join(number);
        self.set_bytes(key, bytes);
        self.policy.resize(number, bytes);
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
        from: impl Fn(&mut S3FifoPolicy<u64>, u64) -> Option<u64>,
    ) -> Option<u64> {
        if let Some(removed) = &mut self.removed {
            removed.insert(key.clone());
        }
        let entry = self.files.remove(key)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        self.totals.change(key, entry.bytes, 0);
        self.keys.remove(&entry.number);
        from(&mut self.policy, entry.number);
        for unit in self.split.remove_file(entry.number) {
            from(&mut self.policy, unit.number);
        }
        Some(entry.bytes)
    }
}

mod parts;
#[cfg(test)]
mod tests;
