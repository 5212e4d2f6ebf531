//! Periodic work: files and parts of files are removed when the disk is too full, and the new blocks of open files are
//! flushed.

use super::aged_removal::AgedRemoval;
use super::cache_index::ParkedFiles;
use super::pins::PinnedPaths;
use super::removal_batch::{RemovalBatch, RemovedBatch};
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval in which the used space is compared with the limits.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of units that are looked at for a batch, because those in use are passed over.
const BATCH_LOOKS: usize = 256;

/// One round of removals.
struct RemovalRound {
    /// Total and used bytes of the file system at the begin.
    usage: (u64, u64),
    /// Number of bytes that had been stored since the start of the server then.
    stored: u64,
    /// Numbers of bytes that are still to be removed: of the disk, and of the cached files.
    excesses: (u64, u64),
    removed: u64,
    /// Units that are in use or pinned.
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
            let removed = batch.remove(self).await;
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

    /// Takes the next units without readers out of the index. Returns also whether there are no more.
    fn next_batch(self: &Arc<Self>, round: &mut RemovalRound) -> (RemovalBatch<O>, bool) {
        let mut batch = RemovalBatch::default();
        for _ in 0..BATCH_LOOKS {
            if batch.is_full() || batch.bytes() >= round.excess() {
                break;
            }
            let Some(unit) = self.shared.index.next_to_remove() else { return (batch, true) };
            let needed = round.excess().saturating_sub(batch.bytes());
            if round.pinned.contain(&unit.key) || !batch.take(self, (&unit, needed), &mut round.passed_over) {
                self.shared.index.park(&unit, &mut round.passed_over);
            }
        }
        (batch, false)
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

    /// Makes durable what was stored of open files, unless the disk has failed lately. Tells the order of removals which
    /// parts of them were requested.
    pub async fn flush(&self) {
        let files = self.table.files();
        files.iter().for_each(|file| file.note_requests());
        for file in files {
            if self.shared.has_failed() {
                return;
            }
            if file.store.has_new_claims() {
                self.shared.on_disk(move || file.flush()).await;
            }
        }
    }
}
