//! [`FetchMemory`]: the bytes of blocks between their request at the origin and their arrival on disk, which have
//! a limit.

use std::sync::atomic::{AtomicU64, Ordering};

/// The part of the limit above which nothing is fetched ahead of readers, in percent.
const PREFETCH_PERCENT: u64 = 70;

/// The memory of fetches.
#[derive(Debug)]
pub(super) struct FetchMemory {
    used: AtomicU64,
    limit: u64,
}

impl FetchMemory {
    pub(super) const fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit }
    }

    /// Takes up to this number of bytes. Returns how many.
    pub(super) fn take(&self, wanted: u64) -> u64 {
        self.take_below(wanted, self.limit)
    }

    /// Takes up to this number of bytes for a fetch that no reader waits for.
    pub(super) fn take_ahead(&self, wanted: u64) -> u64 {
        self.take_below(wanted, self.limit / 100 * PREFETCH_PERCENT)
    }

    fn take_below(&self, wanted: u64, limit: u64) -> u64 {
        let mut taken = 0;
        let take = |used: u64| {
            taken = wanted.min(limit.saturating_sub(used));
            Some(used + taken)
        };
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok();
        taken
    }

    /// Returns bytes that were taken.
    pub(super) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the maximum number of bytes.
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }
}
