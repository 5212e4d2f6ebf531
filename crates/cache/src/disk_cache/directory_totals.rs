//! [`DirectoryTotals`]: the stored bytes of some directories, kept up to date with each file.

use crate::CacheKey;
use base::LogicalPath;
use std::collections::HashMap;

/// The stored bytes at and below some paths.
#[derive(Default, Debug)]
pub(super) struct DirectoryTotals(HashMap<LogicalPath, CountedDirectory>);

#[derive(Clone, Copy, Default, Debug)]
struct CountedDirectory {
    bytes: u64,
    /// Number of those that want to know it.
    users: usize,
}

impl DirectoryTotals {
    /// Begins to count a path. `sum` returns its bytes, unless it is counted already.
    pub(super) fn add(&mut self, path: &LogicalPath, sum: impl FnOnce() -> u64) {
        let total = self.0.entry(path.clone()).or_insert_with(|| CountedDirectory { bytes: sum(), users: 0 });
        total.users += 1;
    }

    /// Ends the count for one of its users.
    pub(super) fn remove(&mut self, path: &LogicalPath) {
        let Some(total) = self.0.get_mut(path) else { return };
        total.users = total.users.saturating_sub(1);
        if total.users == 0 {
            self.0.remove(path);
        }
    }

    /// Returns the bytes of a path that is counted.
    pub(super) fn bytes(&self, path: &LogicalPath) -> u64 {
        self.0.get(path).map_or(0, |total| total.bytes)
    }

    /// Records the size of a file before and after a change.
    pub(super) fn change(&mut self, key: &CacheKey, before: u64, after: u64) {
        if self.0.is_empty() || before == after {
            return;
        }
        for path in std::iter::successors(Some(key.data().clone()), LogicalPath::parent) {
            if let Some(total) = self.0.get_mut(&path) {
                total.bytes = total.bytes.saturating_sub(before).saturating_add(after);
            }
        }
    }
}
