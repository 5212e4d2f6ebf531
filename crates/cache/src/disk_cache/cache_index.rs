//! [`CacheIndex`]: the files on disk with their sizes, and the order of their removal.

use crate::{CacheKey, EvictionPolicy, S3FifoPolicy};
use base::LogicalPath;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of files for which the policy keeps frequencies.
const UNITS: usize = 1 << 16;

/// The files on disk.
pub(super) struct CacheIndex(Mutex<IndexState>);

struct IndexState {
    files: BTreeMap<CacheKey, IndexEntry>,
    keys: HashMap<u64, CacheKey>,
    /// The units are whole files. Their sizes in the policy are those at their insertion.
    policy: S3FifoPolicy<u64>,
    bytes: u64,
    next: u64,
}

struct IndexEntry {
    number: u64,
    bytes: u64,
}

impl CacheIndex {
    /// Creates the index of a cache of about this number of bytes.
    pub(super) fn new(capacity: u64) -> Self {
        let policy = S3FifoPolicy::new(capacity, UNITS);
        let (files, keys) = (BTreeMap::new(), HashMap::new());
        Self(Mutex::new(IndexState { files, keys, policy, bytes: 0, next: 0 }))
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

    /// Records that a file was opened, and its size.
    pub(super) fn opened(&self, key: &CacheKey, bytes: u64) {
        let mut state = self.lock();
        state.set(key, bytes);
        if let Some(number) = state.files.get(key).map(|entry| entry.number) {
            state.policy.request(number);
        }
    }

    /// Sets the size of a file.
    pub(super) fn set(&self, key: &CacheKey, bytes: u64) {
        self.lock().set(key, bytes);
    }

    /// Adds a file that was found on disk, unless it is known.
    pub(super) fn found(&self, key: &CacheKey, bytes: u64) {
        let mut state = self.lock();
        if !state.files.contains_key(key) {
            state.set(key, bytes);
        }
    }

    /// Adds to the size of a file that is known.
    pub(super) fn grow(&self, key: &CacheKey, bytes: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.files.get_mut(key) {
            entry.bytes = entry.bytes.saturating_add(bytes);
            state.bytes = state.bytes.saturating_add(bytes);
        }
    }

    /// Removes a file.
    pub(super) fn remove(&self, key: &CacheKey) {
        let mut state = self.lock();
        if let Some(entry) = state.files.remove(key) {
            state.bytes = state.bytes.saturating_sub(entry.bytes);
            state.keys.remove(&entry.number);
            state.policy.remove(entry.number);
        }
    }

    /// Returns the next file to remove, with its size. It stays in the index, at the end of the order.
    pub(super) fn next_to_remove(&self) -> Option<(CacheKey, u64)> {
        let mut state = self.lock();
        let (number, _) = state.policy.evict()?;
        let key = state.keys.get(&number)?.clone();
        let bytes = state.files.get(&key)?.bytes;
        state.policy.insert(number, bytes);
        Some((key, bytes))
    }

    /// Returns the files at and below a path, at most this number.
    pub(super) fn within(&self, path: &LogicalPath, most: usize) -> Vec<CacheKey> {
        let state = self.lock();
        let Some(first) = CacheKey::new(path) else { return Vec::new() };
        let later = state.files.range::<CacheKey, _>((Bound::Included(&first), Bound::Unbounded));
        // Names like `/a-b` and `/a.b` are between `/a` and `/a/b`.
        let prefix = path.as_bytes();
        let near = later.take_while(|(key, _)| key.data().as_bytes().starts_with(prefix)).map(|(key, _)| key);
        near.filter(|key| key.data().is_within(path)).take(most).cloned().collect()
    }
}

impl IndexState {
    fn set(&mut self, key: &CacheKey, bytes: u64) {
        if let Some(entry) = self.files.get_mut(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes).saturating_add(bytes);
            entry.bytes = bytes;
            return;
        }
        let number = self.next;
        self.next += 1;
        self.files.insert(key.clone(), IndexEntry { number, bytes });
        self.keys.insert(number, key.clone());
        // A new file has little on disk; its size in the order is an estimate.
        self.policy.insert(number, bytes.max(1));
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> CacheKey {
        CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_sum_is_that_of_the_files() {
        let index = CacheIndex::new(1000);
        index.opened(&key("/a"), 10);
        index.found(&key("/a"), 500);
        index.found(&key("/b"), 7);
        index.grow(&key("/a"), 5);
        index.grow(&key("/missing"), 5);
        assert_eq!((index.bytes(), index.len()), (22, 2));
        index.set(&key("/a"), 3);
        index.remove(&key("/b"));
        index.remove(&key("/b"));
        assert_eq!((index.bytes(), index.len()), (3, 1));
    }

    #[test]
    fn each_file_is_next_at_some_time() {
        let index = CacheIndex::new(1000);
        (0..50).for_each(|number| index.opened(&key(&format!("/{number}")), 10));
        let mut seen = std::collections::HashSet::new();
        while seen.len() < 50 {
            let (next, bytes) = index.next_to_remove().unwrap();
            assert_eq!(bytes, 10);
            if seen.insert(next.clone()) && seen.len() % 2 == 0 {
                index.remove(&next);
            }
        }
        assert_eq!(index.bytes(), 250);
    }

    #[test]
    fn files_below_a_directory_are_found() {
        let index = CacheIndex::new(1000);
        ["/a", "/a-b", "/a/x", "/a/y/z", "/ab", "/b"].into_iter().for_each(|text| index.found(&key(text), 1));
        let within = |text: &str, most| {
            let found = index.within(&LogicalPath::parse(text.as_bytes()).unwrap(), most);
            found.iter().map(|key| key.data().text().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(within("/a", 9), ["/a", "/a/x", "/a/y/z"]);
        assert_eq!(within("/a", 2), ["/a", "/a/x"]);
        assert_eq!(within("/c", 9), [""; 0]);
    }
}
