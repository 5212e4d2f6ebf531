//! [`ThirdPartyCounts`]: numbers of third-party copies since the start.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of third-party copies from and to this server since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ThirdPartyCounts {
    /// Destinations that got a file by a grant.
    pub granted: u64,
    /// Grants and destinations that were refused.
    pub denied: u64,
    /// Copies to this server that failed.
    pub failed: u64,
    /// Grants that no destination used in time, and destinations that waited in vain for one.
    pub expired: u64,
}

/// The counters of these numbers.
#[derive(Default)]
pub(crate) struct ThirdPartyCounters {
    pub(super) granted: CopyCounter,
    pub(super) denied: CopyCounter,
    pub(super) failed: CopyCounter,
    pub(super) expired: CopyCounter,
}

#[derive(Default)]
pub(super) struct CopyCounter(AtomicU64);

impl CopyCounter {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl ThirdPartyCounters {
    /// Returns the numbers.
    pub(crate) fn counts(&self) -> ThirdPartyCounts {
        let count = |counter: &CopyCounter| counter.0.load(Ordering::Relaxed);
        ThirdPartyCounts {
            granted: count(&self.granted),
            denied: count(&self.denied),
            failed: count(&self.failed),
            expired: count(&self.expired),
        }
    }
}
