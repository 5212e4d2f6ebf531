//! Periodic work: files and parts of files are removed when the disk is too full, and the new blocks of open files are
//! flushed.

use super::aged_removal::AgedRemoval;
use super::cache_index::{ParkedFiles, RemovalUnit};
use super::cached_file::OpenFileParts;
use super::paused_removals::PausedRemovals;
use super::pins::PinnedPaths;
use super::removal_batch::{RemovalBatch, RemovedBatch};
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval in which the used space is compared with the limits.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of units that are looked at for a batch, because those in use are passed over.
const BATCH_LOOKS: usize = 256;
/// Number of files with an error of the disk, after which a round ends. A single one may be an error of that file.
pub(super) const DISK_FAILURES_MAX: usize = 2;

/// One round of removals.
struct RemovalRound<'a> {
    /// Total and used bytes of the file system at the begin.
    usage: (u64, u64),
    /// Number of bytes that had been stored since the start of the server then.
    stored: u64,
    /// Numbers of bytes that are still to be removed: of the disk, and of the cached files.
    excesses: (u64, u64),
    removed: u64,
    /// Units that are in use or pinned, or whose removal has failed.
    passed_over: ParkedFiles,
    /// Units that are left in part, or that a full disk could not remove.
    next: ParkedFiles,
    /// Files of which nothing is removed in this round, because that has failed, or because they are removed as a whole
    /// only and were requested.
    kept: HashSet<CacheKey>,
    /// Files of which nothing is removed for a while, and the uptime.
    paused: (&'a mut PausedRemovals, i64),
    /// Number of files with an error of the disk.
    disk_failures: usize,
    /// The disk is too full to remove parts of files, so only files go.
    is_whole_only: bool,
    pinned: PinnedPaths,
    /// Files that could not be removed, with their sizes.
    failed: Vec<(CacheKey, u64)>,
}

impl<'a> RemovalRound<'a> {
    fn new(
        (usage, stored): ((u64, u64), u64),
        excesses: (u64, u64),
        pinned: PinnedPaths,
        paused: (&'a mut PausedRemovals, i64),
    ) -> Self {
        Self {
            usage,
            stored,
            excesses,
            removed: 0,
            passed_over: ParkedFiles::default(),
            next: ParkedFiles::default(),
            kept: HashSet::new(),
            paused,
            disk_failures: 0,
            is_whole_only: false,
            pinned,
            failed: Vec::new(),
        }
    }

    /// Returns the number of bytes that are still to be removed.
    fn excess(&self) -> u64 {
        self.excesses.0.max(self.excesses.1)
    }

    /// Reports whether a file keeps all its parts in this round.
    fn must_stay(&mut self, key: &CacheKey) -> bool {
        self.pinned.contain(key) || self.kept.contains(key) || self.paused.0.contain(key, self.paused.1)
    }

    /// Takes the result of a removal. Files that were only recorded count as cached, and use nothing of the disk.
    fn add(&mut self, removed: RemovedBatch) {
        // New state files have room where bytes were removed.
        self.is_whole_only = removed.is_full || self.is_whole_only && removed.bytes == 0;
        self.disk_failures += removed.disk_failures;
        for key in removed.failed_parts {
            self.paused.0.add(key.clone(), self.paused.1);
            self.kept.insert(key);
        }
        self.kept.extend(removed.kept);
        removed.passed_over.into_iter().for_each(|unit| self.passed_over.push(unit));
        removed.next.into_iter().for_each(|unit| self.next.push(unit));
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
        let mut paused = self.shared.round.lock().await;
        let (context, stored) = (self.shared.context.clone(), self.shared.stored());
        let look = move || {
            // The start may not have found out whether there can be parts.
            context.try_discard().ok();
            context.disk.usage()
        };
        let usage = self.shared.on_disk(look).await;
        let Some(Ok(usage)) = usage else { return };
        self.shared.total.store(usage.0, Ordering::Relaxed);
        self.shared.used.store(usage.1, Ordering::Relaxed);
        let excesses = self.limits.excesses(usage, self.shared.index.bytes());
        let capacity = self.limits.capacity(usage, self.shared.index.bytes());
        self.shared.index.set_capacity(capacity);
        if self.shared.trust.is_compared() {
            self.shared.pins.set_capacity(capacity);
        }
        let paused = (&mut *paused, self.shared.clock.now().uptime);
        let mut round = RemovalRound::new((usage, stored), excesses, self.shared.kept_paths(), paused);
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
            if is_last || has_failed || round.disk_failures >= DISK_FAILURES_MAX {
                break;
            }
            tokio::task::yield_now().await;
        }
        let too_much = round.excess();
        self.shared.index.put_back(round.passed_over);
        self.shared.index.put_back_as_oldest(round.next);
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
    fn next_batch(self: &Arc<Self>, round: &mut RemovalRound<'_>) -> (RemovalBatch<O>, bool) {
        let mut batch = RemovalBatch::default();
        for _ in 0..BATCH_LOOKS {
            if batch.is_full() || batch.bytes() >= round.excess() {
                break;
            }
            let Some(unit) = self.shared.index.next_to_remove() else { return (batch, true) };
            if !self.take_unit(&mut batch, &unit, round) {
                self.shared.index.park(&unit, &mut round.passed_over);
            }
        }
        (batch, false)
    }

    /// Takes a unit, if it may go. On a full disk, a file without requests goes as a whole instead of a part of it.
    fn take_unit(
        &self,
        batch: &mut RemovalBatch<O>,
        unit: &RemovalUnit,
        round: &mut RemovalRound<'_>,
    ) -> bool {
        if round.must_stay(&unit.key) {
            return false;
        }
        if !round.is_whole_only {
            return batch.take(self, unit, round.excess().saturating_sub(batch.bytes()));
        }
        let is_taken = batch.take_whole(self, unit);
        if !is_taken {
            round.kept.insert(unit.key.clone());
        }
        is_taken
    }

    /// Determines how much can be stored until the next look at the disk. While that is nothing and files have to
    /// be removed, nothing is stored. Returns whether this is so.
    fn note_room(&self, round: &RemovalRound<'_>) -> bool {
        let (total, used) = round.usage;
        let stored = self.shared.stored().saturating_sub(round.stored);
        let used = used.saturating_add(stored).saturating_sub(round.removed);
        let room = self.limits.room((total, used), self.shared.index.bytes());
        self.shared.set_room(room);
        let is_full = room == 0 && round.excess() > 0;
        self.shared.set_full(is_full || self.shared.has_failed());
        is_full
    }

    /// Makes the stored blocks of open files durable, unless the disk has failed lately, and reports to the order of removals
    /// which of their parts were requested.
    pub async fn flush(&self) {
        let files = self.table.files();
        files.iter().for_each(|file| OpenFileParts(file).note_requests());
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
