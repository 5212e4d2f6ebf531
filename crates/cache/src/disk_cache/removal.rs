//! Periodic work: files are removed when the disk is too full, and the new blocks of open files are flushed.

use super::aged_removal::AgedRemoval;
use super::cache_index::ParkedFiles;
use super::pins::PinnedPaths;
use super::table::{LockedSlot, SlotInUse};
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval in which the used space is compared with the limits.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of files that one job of the disk removes.
pub(super) const BATCH_FILES: usize = 64;
/// Maximum number of files that are looked at for a batch, because files in use are passed over.
const BATCH_LOOKS: usize = 256;

/// A file that nobody has open. Nobody can open it until it has been removed.
pub(super) struct RemovableFile<O: CacheOrigin> {
    // Unlocked before the table is asked whether the slot is still used.
    _locked: LockedSlot<O>,
    _slot: SlotInUse<O>,
    key: CacheKey,
    bytes: u64,
}

impl<O: CacheOrigin> RemovableFile<O> {
    pub(super) fn new(locked: LockedSlot<O>, slot: SlotInUse<O>, key: CacheKey, bytes: u64) -> Self {
        Self { _locked: locked, _slot: slot, key, bytes }
    }
}

/// The result of the removal of some files.
#[derive(Default)]
pub(super) struct RemovedBatch {
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Number of bytes of files that were not there.
    pub(super) missing: u64,
    /// Files that could not be removed, with their sizes.
    pub(super) failed: Vec<(CacheKey, u64)>,
    /// The disk has failed.
    pub(super) has_failed: bool,
}

/// One round of removals.
struct RemovalRound {
    /// Total and used bytes of the file system at the begin.
    usage: (u64, u64),
    /// Number of bytes that had been stored since the start of the server then.
    stored: u64,
    /// Numbers of bytes that are still to be removed: of the disk, and of the cached files.
    excesses: (u64, u64),
    removed: u64,
    /// Files that are in use or pinned.
    passed_over: ParkedFiles,
    pinned: PinnedPaths,
    /// Files that could not be removed, with their sizes.
    failed: Vec<(CacheKey, u64)>,
}

impl RemovalRound {
    /// Returns the number of bytes that are still to be removed.
    fn excess(&self) -> u64 {
        self.excesses.0.max(self.excesses.1)
    }

    /// Takes the result of a removal. Files that were only recorded count as cached, and use nothing of the disk.
    fn add(&mut self, removed: RemovedBatch) {
        let (of_disk, of_files) = self.excesses;
        let of_index = removed.bytes.saturating_add(removed.missing);
        self.excesses = (of_disk.saturating_sub(removed.bytes), of_files.saturating_sub(of_index));
        self.removed = self.removed.saturating_add(removed.bytes);
        self.failed.extend(removed.failed);
    }
}

impl<O: CacheOrigin> DiskCache<O> {
    /// Starts the tasks that remove files and flush open ones. They end with the cache.
    pub(super) fn start_removal(self: &Arc<Self>) {
        let (cache, shared) = (Arc::downgrade(self), self.shared.clone());
        self.shared.runtime.spawn(async move {
            loop {
                tokio::select! {
                    () = shared.removal.notified() => shared.quotas.notify_one(),
                    () = tokio::time::sleep(INTERVAL) => {}
                }
                let Some(cache) = Weak::upgrade(&cache) else { return };
                cache.make_room_on_disk().await;
            }
        });
        let cache = Arc::downgrade(self);
        self.shared.runtime.spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(cache) = Weak::upgrade(&cache) else { return };
                cache.flush().await;
            }
        });
    }

    /// Removes files until directories are within their quotas, and the used space is within the limits. Files with
    /// readers and pinned files stay.
    pub async fn make_room(self: &Arc<Self>) {
        AgedRemoval(self).keep_quotas().await;
        self.make_room_on_disk().await;
    }

    /// Removes files until the used space is within the limits, and determines how much can be stored.
    async fn make_room_on_disk(self: &Arc<Self>) {
        let (context, stored) = (self.shared.context.clone(), self.shared.stored());
        let usage = self.shared.on_disk(move || context.disk.usage()).await;
        let Some(Ok(usage)) = usage else { return };
        self.shared.total.store(usage.0, Ordering::Relaxed);
        self.shared.used.store(usage.1, Ordering::Relaxed);
        let excesses = self.limits.excesses(usage, self.shared.index.bytes());
        let capacity = self.limits.capacity(usage, self.shared.index.bytes());
        self.shared.index.set_capacity(capacity);
        if self.shared.trust.is_compared() {
            self.shared.pins.set_capacity(capacity);
        }
        let (passed_over, failed) = (ParkedFiles::default(), Vec::new());
        let pinned = self.shared.kept_paths();
        let mut round = RemovalRound { usage, stored, excesses, removed: 0, passed_over, pinned, failed };
        let mut is_full = self.note_room(&round);
        while round.excess() > 0 && !self.shared.trust.holds_removals() {
            let (batch, is_last) = self.next_batch(&mut round);
            let removed = self.remove_batch(batch).await;
            let has_failed = removed.has_failed;
            round.add(removed);
            is_full = self.note_room(&round);
            if is_last && round.excess() > 0 && !self.shared.trust.is_compared() {
                // What is too much is not known yet.
                self.shared.trust.hurry();
            }
            if is_last || has_failed {
                break;
            }
            tokio::task::yield_now().await;
        }
        let too_much = round.excess();
        self.shared.index.put_back(round.passed_over);
        for (key, bytes) in round.failed {
            self.shared.index.put_again(&key, Some(bytes), self.shared.clock.now());
        }
        if is_full && self.shared.may_log() {
            tracing::warn!(
                too_much,
                cached = self.shared.index.bytes(),
                "the disk of the cache is too full, and what is left belongs to others, is in use or pinned; nothing is stored"
            );
        }
    }

    /// Takes the next files without readers out of the index. Returns also whether there are no more.
    fn next_batch(self: &Arc<Self>, round: &mut RemovalRound) -> (Vec<RemovableFile<O>>, bool) {
        let (mut batch, mut bytes_of_batch) = (Vec::new(), 0_u64);
        for _ in 0..BATCH_LOOKS {
            if batch.len() >= BATCH_FILES || bytes_of_batch >= round.excess() {
                break;
            }
            let Some((key, bytes)) = self.shared.index.next_to_remove() else { return (batch, true) };
            let slot = self.table.slot(&key);
            match slot.lock_closed().filter(|_| !round.pinned.contain(&key)) {
                Some(locked) => {
                    self.shared.index.evict(&key);
                    bytes_of_batch = bytes_of_batch.saturating_add(bytes);
                    batch.push(RemovableFile::new(locked, slot, key, bytes));
                }
                None => self.shared.index.park(&key, &mut round.passed_over),
            }
        }
        (batch, false)
    }

    /// Removes files.
    pub(super) async fn remove_batch(&self, batch: Vec<RemovableFile<O>>) -> RemovedBatch {
        let mut removed = RemovedBatch::default();
        if batch.is_empty() {
            return removed;
        }
        let context = self.shared.context.clone();
        let keys: Vec<CacheKey> = batch.iter().map(|file| file.key.clone()).collect();
        let results = self.shared.on_disk(move || context.remove_all(&keys)).await.unwrap_or_default();
        removed.has_failed = results.len() < batch.len();
        // Without a result, a file may still be there.
        let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (file, result) in batch.into_iter().zip(results) {
            match result.and_then(|result| self.note_removed(&file.key, result)) {
                Some(true) => {
                    self.shared.counters.evicted_files.add(1);
                    self.shared.counters.evicted_bytes.add(file.bytes);
                    removed.files += 1;
                    removed.bytes = removed.bytes.saturating_add(file.bytes);
                }
                Some(false) => removed.missing = removed.missing.saturating_add(file.bytes),
                None => {
                    removed.has_failed |= self.shared.has_failed();
                    removed.failed.push((file.key.clone(), file.bytes));
                }
            }
        }
        removed
    }

    /// Determines how much can be stored until the next look at the disk. While that is nothing and files have to
    /// be removed, nothing is stored. Returns whether this is so.
    fn note_room(&self, round: &RemovalRound) -> bool {
        let (total, used) = round.usage;
        let stored = self.shared.stored().saturating_sub(round.stored);
        let used = used.saturating_add(stored).saturating_sub(round.removed);
        let room = self.limits.room((total, used), self.shared.index.bytes());
        self.shared.set_room(room);
        let is_full = room == 0 && round.excess() > 0;
        self.shared.set_full(is_full || self.shared.has_failed());
        is_full
    }

    /// Makes durable what was stored of open files, unless the disk has failed lately.
    pub async fn flush(&self) {
        for file in self.table.files() {
            if self.shared.has_failed() {
                return;
            }
            if file.store.unclaimed_bytes() > 0 {
                self.shared.on_disk(move || file.flush()).await;
            }
        }
    }
}
