//! Bounded sets of names that changed, or were opened in vain, for the cluster's thread.
//!
//! A set holds each name once, however often it changed, because only the state at the time of the
//! look counts (decision 029).

use base::LogicalPath;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The maximum number of waiting names that changed, and their bytes.
pub const CHANGES_MAX: (usize, usize) = (1 << 14, 2 * 1024 * 1024);
/// The maximum number of waiting names that were opened in vain, and their bytes.
pub const MISSES_MAX: (usize, usize) = (1 << 10, 256 * 1024);

/// The waiting names.
#[derive(Default, Debug)]
pub(super) struct ChangedPaths {
    changed: Paths,
    missed: Paths,
    is_reset: bool,
}

/// Paths in the order of arrival, without duplicates.
#[derive(Default, Debug)]
struct Paths {
    order: VecDeque<Arc<LogicalPath>>,
    known: HashSet<Arc<LogicalPath>>,
    bytes: usize,
}

impl Paths {
    /// Adds a path unless it is present; `false` if the set is full.
    fn add(&mut self, path: &LogicalPath, (paths_max, bytes_max): (usize, usize)) -> bool {
        if self.known.contains(path) {
            return true;
        }
        let bytes = self.bytes + path.as_bytes().len();
        if self.order.len() >= paths_max || bytes > bytes_max {
            return false;
        }
        let path = Arc::new(path.clone());
        self.known.insert(path.clone());
        self.order.push_back(path);
        self.bytes = bytes;
        true
    }

    fn take(&mut self, most: usize) -> Vec<Arc<LogicalPath>> {
        let some = self.order.len().min(most);
        let taken: Vec<_> = self.order.drain(..some).collect();
        for path in &taken {
            self.known.remove(path);
            self.bytes -= path.as_bytes().len();
        }
        taken
    }
}

impl ChangedPaths {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.order.is_empty() && self.missed.order.is_empty() && !self.is_reset
    }

    /// Adds a name that was created or removed.
    pub(super) fn changed(&mut self, path: &LogicalPath) {
        if !self.changed.add(path, CHANGES_MAX) {
            // More names changed than can be listed.
            self.changed = Paths::default();
            self.is_reset = true;
        }
    }

    /// Adds a name that was opened in vain.
    pub(super) fn missed(&mut self, path: &LogicalPath) {
        if !self.changed.known.contains(path) {
            self.missed.add(path, MISSES_MAX);
        }
    }

    /// Records that a directory was renamed with all names below it.
    pub(super) fn moved(&mut self) {
        self.is_reset = true;
    }

    /// Returns the numbers and bytes of names that changed and of names that were opened in vain.
    pub(super) fn sizes(&self) -> ((usize, usize), (usize, usize)) {
        let size = |paths: &Paths| (paths.order.len(), paths.bytes);
        (size(&self.changed), size(&self.missed))
    }

    pub(super) fn take_reset(&mut self) -> bool {
        std::mem::take(&mut self.is_reset)
    }

    pub(super) fn take_changed(&mut self, most: usize) -> Vec<Arc<LogicalPath>> {
        self.changed.take(most)
    }

    pub(super) fn take_missed(&mut self, most: usize) -> Vec<Arc<LogicalPath>> {
        self.missed.take(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_that_changes_again_and_again_waits_once() {
        let mut news = ChangedPaths::default();
        for _ in 0..100_000 {
            news.missed(&path("/f"));
            news.changed(&path("/g"));
            news.missed(&path("/g"));
        }
        assert_eq!(news.take_changed(10).len(), 1);
        assert_eq!(news.take_missed(10).len(), 1);
        assert!(news.is_empty());
        news.changed(&path("/g"));
        assert_eq!(news.take_changed(10).len(), 1, "a later change counts again");
        assert_eq!((news.changed.bytes, news.missed.bytes), (0, 0));
    }

    #[test]
    fn the_sets_are_bounded() {
        let mut news = ChangedPaths::default();
        let long = "x".repeat(1000);
        let mut resets = 0;
        for n in 0..100_000 {
            news.missed(&path(&format!("/{long}/{n}")));
            news.changed(&path(&format!("/{long}/{n}")));
            assert!(news.changed.bytes <= CHANGES_MAX.1 && news.missed.bytes <= MISSES_MAX.1);
            resets += usize::from(news.take_reset());
        }
        assert!((1..100).contains(&resets), "{resets} resets");
        let mut news = ChangedPaths::default();
        for n in 0..100_000 {
            news.changed(&path(&format!("/{n}")));
            assert!(news.changed.order.len() <= CHANGES_MAX.0);
        }
        assert!(news.take_reset());
    }
}
