//! [`DirectRoom`]: how many files clients can read directly. They stay in the cache meanwhile, so with pinned files they have
//! at most half of it.

use super::pins::PINNED_SHARE;
use super::{CacheOrigin, DiskCache};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of files with a second name. Each has an open descriptor.
const FILES_MAX: usize = 512;

/// The files that have a second name, or are compared for one.
#[derive(Clone, Default)]
pub(super) struct DirectRoom(Arc<Mutex<DirectFiles>>);

#[derive(Default)]
struct DirectFiles {
    files: usize,
    bytes: u64,
}

/// The place of a file, until it is dropped.
pub(super) struct DirectPermit {
    room: DirectRoom,
    bytes: u64,
}

impl DirectRoom {
    fn lock(&self) -> MutexGuard<'_, DirectFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a file of this size, if all have at most `limit` bytes then.
    pub(super) fn take(&self, bytes: u64, limit: u64) -> Option<DirectPermit> {
        let mut taken = self.lock();
        let all = taken.bytes.checked_add(bytes).filter(|all| *all <= limit && taken.files < FILES_MAX)?;
        *taken = DirectFiles { files: taken.files + 1, bytes: all };
        Some(DirectPermit { room: self.clone(), bytes })
    }
}

impl Drop for DirectPermit {
    fn drop(&mut self) {
        let mut taken = self.room.lock();
        *taken = DirectFiles { files: taken.files - 1, bytes: taken.bytes - self.bytes };
    }
}

/// Returns the number of bytes that files can have which clients read directly.
pub(super) fn limit<O: CacheOrigin>(cache: &DiskCache<O>) -> u64 {
    let shared = &cache.shared;
    let usage = (shared.total.load(Ordering::Relaxed), shared.used.load(Ordering::Relaxed));
    // Before all files are known, it is less.
    let capacity = cache.limits.capacity(usage, shared.index.bytes());
    (capacity / PINNED_SHARE).saturating_sub(shared.pinned_bytes())
}
