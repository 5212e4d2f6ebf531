//! [`MemoryFile`]: one version of a file, and its fetches in progress.

use crate::{CacheKey, OriginVersion};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// The lock of a page that is being fetched.
type PageLock = Arc<tokio::sync::Mutex<()>>;

/// One version of a file.
pub(super) struct MemoryFile {
    /// The number of the version in the cache. It is never used again.
    pub(super) number: u64,
    pub(super) key: CacheKey,
    version: OriginVersion,
    /// The file at the origin is another version now.
    has_changed: AtomicBool,
    /// Nothing is kept any longer.
    is_retired: AtomicBool,
    /// The file may have been changed through this server, so each read compares the version first.
    is_suspect: AtomicBool,
    fetches: Mutex<HashMap<u64, PageLock>>,
}

impl MemoryFile {
    pub(super) fn new(number: u64, key: CacheKey, version: OriginVersion) -> Self {
        let (has_changed, is_retired, is_suspect) = <(AtomicBool, AtomicBool, AtomicBool)>::default();
        Self { number, key, version, has_changed, is_retired, is_suspect, fetches: Mutex::default() }
    }

    pub(super) fn version(&self) -> OriginVersion {
        self.version
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Records that the file at the origin is another version.
    pub(super) fn set_changed(&self) {
        self.has_changed.store(true, Ordering::Release);
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Acquire)
    }

    /// Reports whether pages can be kept.
    pub(super) fn may_keep(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire) && !self.has_changed()
    }

    /// Ends the keeping of pages, because changes do not find this version any longer. Reads compare the version at the
    /// origin from now on.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        self.is_suspect.store(true, Ordering::Release);
    }

    fn fetches(&self) -> MutexGuard<'_, HashMap<u64, PageLock>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else fetches these pages. After `until` it does not wait any longer, because the connection of
    /// the other reader may hang. All readers take pages in ascending order, so they do not wait for each other.
    pub(super) async fn turn(&self, pages: Range<u64>, until: Instant) -> FetchTurn<'_> {
        let mut turn = FetchTurn { file: self, locks: Vec::new() };
        for page in pages {
            let lock = self.fetches().entry(page).or_default().clone();
            turn.locks.push((page, None));
            match timeout_at(until, lock.lock_owned()).await {
                Ok(guard) => {
                    if let Some(place) = turn.locks.last_mut() {
                        place.1 = Some(guard);
                    }
                }
                Err(_) => break,
            }
        }
        turn
    }

    #[cfg(test)]
    pub(super) fn fetches_in_progress(&self) -> usize {
        self.fetches().len()
    }
}

/// The right to fetch some pages, until it is dropped.
#[must_use]
pub(super) struct FetchTurn<'a> {
    file: &'a MemoryFile,
    locks: Vec<(u64, Option<OwnedMutexGuard<()>>)>,
}

impl Drop for FetchTurn<'_> {
    fn drop(&mut self) {
        let mut fetches = self.file.fetches();
        for (page, guard) in self.locks.drain(..) {
            drop(guard);
            // Another reader has its own copy of the lock while it holds or awaits it.
            if fetches.get(&page).is_some_and(|lock| Arc::strong_count(lock) == 1) {
                fetches.remove(&page);
            }
        }
    }
}
