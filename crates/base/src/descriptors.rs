//! The budget of file descriptors that connections and open files of the process share.
//!
//! One part is reserved for the server itself (journals, directories, log files, jobs of its
//! pools). Another part is reserved for new connections, so that sessions with many open files
//! cannot lock out other clients. Each session may use a share of the free descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of files that a session may open as long as any descriptor for files is free.
pub const SESSION_FILES_MIN: usize = 16;

/// A session may hold one part in `SESSION_SHARE` of the descriptors that others do not use.
const SESSION_SHARE: usize = 4;

/// Descriptors reserved for the server itself: one part in `OWN_SHARE`, at most `OWN_MAX`.
const OWN_SHARE: usize = 4;
const OWN_MAX: usize = 1024;

/// Descriptors reserved for new connections: one part in `NEWCOMERS_SHARE`.
const NEWCOMERS_SHARE: usize = 8;

/// The descriptors of the process.
#[derive(Debug)]
pub struct DescriptorBudget {
    /// Limit for connections and files together.
    for_all: usize,
    /// Limit up to which files may be opened; existing connections count towards it.
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

    /// Returns the limit for connections and files together.
    pub fn limit(&self) -> usize {
        self.for_all
    }

    /// Returns the number of descriptors in use by connections and files.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, fits: impl Fn(usize) -> bool) -> bool {
        let take = |used: usize| fits(used).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Takes a descriptor for a new connection, until [`DescriptorBudget::disconnect`]; returns
    /// `false` if none is free.
    pub fn connect(&self) -> bool {
        self.take(|used| used < self.for_all)
    }

    /// Returns the descriptor of a connection that has ended.
    pub fn disconnect(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a descriptor for a file of a session that has `own` files open. Returns `None` if none
    /// is free or the session has used its share.
    pub fn open(self: &Arc<Self>, own: usize) -> Option<Descriptor> {
        let fits = |used: usize| {
            let free = self.for_files.saturating_sub(used);
            free > 0 && (own < SESSION_FILES_MIN || own < free.saturating_add(own) / SESSION_SHARE)
        };
        self.take(fits).then(|| Descriptor(Some(self.clone())))
    }
}

/// The right to use one descriptor, which returns to the budget on drop.
#[derive(Debug, Default)]
#[must_use = "the descriptor returns on drop"]
pub struct Descriptor(Option<Arc<DescriptorBudget>>);

impl Descriptor {
    /// A right without a budget, for objects that need no descriptor.
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

    /// Opens files of one session until the budget refuses.
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
    fn files_leave_descriptors_for_connections_and_for_the_server() {
        let budget = Arc::new(DescriptorBudget::new(400));
        let files: Vec<_> = (0..400).map(|_| greedy(&budget)).collect();
        assert_eq!(budget.used(), budget.for_files);
        assert_eq!((0..400).take_while(|_| budget.connect()).count(), 300 - 263);
        (0..300 - 263).for_each(|_| budget.disconnect());
        drop(files);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_session_with_few_files_may_use_the_last_descriptors() {
        let budget = Arc::new(DescriptorBudget::new(80));
        let files = greedy(&budget);
        assert_eq!(files.len(), SESSION_FILES_MIN);
    }
}
