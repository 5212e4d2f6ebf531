//! File descriptors: one budget of the process for connections and open files.
//!
//! A part is kept for the server itself (journals, directories, log files, jobs of its pools), and a part for new connections,
//! so that sessions that hold many files shut nobody out. Each session gets a share of what is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files that a session may have open as long as there are any descriptors for files.
pub const SESSION_FILES_MIN: usize = 16;

/// A session may hold one part in `SESSION_SHARE` of the descriptors that others do not use.
const SESSION_SHARE: usize = 4;

/// Descriptors kept for the server itself: one part in `OWN_SHARE`, at most `OWN_MAX`.
const OWN_SHARE: usize = 4;
const OWN_MAX: usize = 1024;

/// Descriptors kept for new connections: one part in `NEWCOMERS_SHARE`.
const NEWCOMERS_SHARE: usize = 8;

/// The descriptors of the process.
#[derive(Debug)]
pub struct DescriptorBudget {
    /// For connections and files.
    for_all: usize,
    /// For files, connections that are there included.
    for_files: usize,
    used: AtomicUsize,
}

impl Default for DescriptorBudget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl DescriptorBudget {
    /// Creates the budget of a process that may have `total` descriptors.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let for_all = total - (total / OWN_SHARE).min(OWN_MAX);
        Self { for_all, for_files: for_all - for_all / NEWCOMERS_SHARE, used: AtomicUsize::new(0) }
    }

    /// Descriptors in use by connections and files.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, fits: impl Fn(usize) -> bool) -> bool {
        let take = |used: usize| fits(used).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Takes one for a new connection, until [`DescriptorBudget::disconnect`]; `false` if there is none left.
    pub fn connect(&self) -> bool {
        self.take(|used| used < self.for_all)
    }

    /// A connection has ended.
    pub fn disconnect(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes one for a file of a session that has `own` open. `None`: there is none left, or the session has its share.
    pub fn open(self: &Arc<Self>, own: usize) -> Option<Descriptor> {
        let fits = |used: usize| {
            let free = self.for_files.saturating_sub(used);
            free > 0 && (own < SESSION_FILES_MIN || own < free.saturating_add(own) / SESSION_SHARE)
        };
        self.take(fits).then(|| Descriptor(Some(self.clone())))
    }
}

/// The right to one descriptor. It returns when it is dropped.
#[derive(Debug, Default)]
#[must_use = "it returns when it is dropped"]
pub struct Descriptor(Option<Arc<DescriptorBudget>>);

impl Descriptor {
    /// What needs none.
    pub const NONE: Self = Self(None);
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.disconnect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens files of one session until it gets no more.
    fn greedy(budget: &Arc<DescriptorBudget>) -> Vec<Descriptor> {
        let mut files = Vec::new();
        while let Some(file) = budget.open(files.len()) {
            files.push(file);
        }
        files
    }

    #[test]
    fn a_session_gets_a_share_and_leaves_the_rest_to_others() {
        let budget = Arc::new(DescriptorBudget::new(400));
        let first = greedy(&budget);
        let second = greedy(&budget);
        assert_eq!(budget.for_files, 263);
        assert_eq!((first.len(), second.len()), (65, 49));
        drop(first);
        assert_eq!(budget.used(), second.len());
    }

    #[test]
    fn files_leave_room_for_connections_and_both_for_the_server() {
        let budget = Arc::new(DescriptorBudget::new(400));
        let files: Vec<_> = (0..400).map(|_| greedy(&budget)).collect();
        assert_eq!(budget.used(), budget.for_files);
        assert_eq!((0..400).take_while(|_| budget.connect()).count(), 300 - 263);
        (0..300 - 263).for_each(|_| budget.disconnect());
        drop(files);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_session_of_few_files_is_served_while_any_are_left() {
        let budget = Arc::new(DescriptorBudget::new(80));
        let files = greedy(&budget);
        assert_eq!(files.len(), SESSION_FILES_MIN);
    }
}
