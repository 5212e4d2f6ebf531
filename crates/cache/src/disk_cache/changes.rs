//! [`ChangeTable`]: files that are being changed through this server. They are not cached meanwhile, and a reader
//! that asked the origin before a change does not use the cache after it.

use crate::CacheKey;
use base::LogicalPath;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of counters that files share by their hash. A change of another file with the same counter costs a
/// reader the cache for one open.
const COUNTERS: usize = 4096;

/// What the changes of a file are at a time. See [`super::DiskCache::ticket`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenTicket {
    file: u64,
    trees: u64,
}

/// The changes in progress.
pub(super) struct ChangeTable {
    hasher: RandomState,
    state: Mutex<ChangeState>,
}

struct ChangeState {
    /// Files and directories that are being changed, and how often.
    active: HashMap<LogicalPath, usize>,
    /// Numbers of changes that have begun and ended, by the hash of the file.
    counters: Vec<u64>,
    /// The same for all changes of names, which can be those of directories.
    trees: u64,
}

impl ChangeTable {
    pub(super) fn new() -> Arc<Self> {
        let state = ChangeState { active: HashMap::new(), counters: vec![0; COUNTERS], trees: 0 };
        Arc::new(Self { hasher: RandomState::new(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, ChangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self, path: &LogicalPath) -> usize {
        (self.hasher.hash_one(path) % COUNTERS as u64) as usize
    }

    /// Returns the ticket of a file; `None` while it is being changed.
    pub(super) fn ticket(&self, key: &CacheKey) -> Option<OpenTicket> {
        let state = self.state();
        let above = std::iter::successors(Some(key.data().clone()), LogicalPath::parent);
        if !state.active.is_empty() && above.into_iter().any(|path| state.active.contains_key(&path)) {
            return None;
        }
        let file = state.counters.get(self.counter(key.data())).copied()?;
        Some(OpenTicket { file, trees: state.trees })
    }

    /// Begins a change of a file, or of a file or directory of this name.
    pub(super) fn begin(self: &Arc<Self>, path: &LogicalPath, is_of_name: bool) -> ChangeGuard {
        let path = path.without_slash();
        let mut state = self.state();
        *state.active.entry(path.clone()).or_default() += 1;
        state.count(self.counter(&path), is_of_name);
        drop(state);
        ChangeGuard { table: self.clone(), path, is_of_name }
    }
}

impl ChangeState {
    fn count(&mut self, counter: usize, is_of_name: bool) {
        if let Some(counter) = self.counters.get_mut(counter) {
            *counter += 1;
        }
        self.trees += u64::from(is_of_name);
    }
}

/// A change in progress, until it is dropped.
#[must_use]
pub struct ChangeGuard {
    table: Arc<ChangeTable>,
    path: LogicalPath,
    is_of_name: bool,
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        let counter = self.table.counter(&self.path);
        let mut state = self.table.state();
        state.count(counter, self.is_of_name);
        if let Some(number) = state.active.get_mut(&self.path) {
            *number -= 1;
            if *number == 0 {
                state.active.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_ticket_is_not_valid_during_and_after_a_change() {
        let (table, key) = (ChangeTable::new(), CacheKey::new(&path("/d/f")).unwrap());
        let before = table.ticket(&key).unwrap();
        assert_eq!(table.ticket(&key), Some(before));
        let (one, two) = (table.begin(&path("/d/f"), false), table.begin(&path("/d/f"), false));
        assert_eq!(table.ticket(&key), None);
        drop(one);
        assert_eq!(table.ticket(&key), None, "the other change continues");
        drop(two);
        let after = table.ticket(&key).unwrap();
        assert_ne!(after, before);
        let directory = table.begin(&path("/d/"), true);
        assert_eq!(table.ticket(&key), None);
        drop(directory);
        assert_ne!(table.ticket(&key), Some(after));
        assert!(table.state().active.is_empty());
    }
}
