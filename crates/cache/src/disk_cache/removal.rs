//! Periodic work: files are removed when the disk is too full, and the new blocks of open files are flushed.

use super::cache_index::ParkedFiles;
use super::{CacheOrigin, DiskCache};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval in which the used space is compared with the limits.
const INTERVAL: Duration = Duration::from_secs(10);

impl<O: CacheOrigin> DiskCache<O> {
    /// Starts the task that removes files. It ends with the cache.
    pub(super) fn start_removal(self: &Arc<Self>) {
        let (cache, shared) = (Arc::downgrade(self), self.shared.clone());
        self.shared.runtime.spawn(async move {
            loop {
                tokio::select! {
                    () = shared.removal.notified() => {}
                    () = tokio::time::sleep(INTERVAL) => {}
                }
                let Some(cache) = Weak::upgrade(&cache) else { return };
                cache.make_room().await;
                cache.flush().await;
            }
        });
    }

    /// Removes files until the used space is within the limits. Files with readers stay.
    pub async fn make_room(self: &Arc<Self>) {
        let context = self.shared.context.clone();
        let usage = self.shared.on_disk(move || context.disk.usage()).await;
        let Some(Ok(mut used)) = usage else { return };
        let mut excess = self.limits.excess(used, self.shared.index.bytes());
        self.shared.index.set_capacity(self.limits.capacity(used, self.shared.index.bytes()));
        let (mut removed, mut in_use) = (0_u64, ParkedFiles::default());
        while excess > 0 {
            let Some((key, bytes)) = self.shared.index.next_to_remove() else { break };
            let slot = self.table.slot(&key);
            let open = slot.try_lock();
            if !open.as_ref().is_ok_and(|file| file.is_none()) {
                self.shared.index.park(&key, &mut in_use);
                continue;
            }
            self.shared.index.evict(&key);
            if self.remove_stored(&key).await {
                (excess, removed) = (excess.saturating_sub(bytes), removed.saturating_add(bytes));
                self.remove_empty_directories(&key).await;
            }
        }
        self.shared.index.put_back(in_use);
        if excess > 0 && self.shared.may_log() {
            tracing::warn!(
                too_much = excess,
                cached = self.shared.index.bytes(),
                "the disk of the cache is too full, and what is left belongs to others or is in use; nothing is stored"
            );
        }
        used.1 = used.1.saturating_sub(removed);
        self.shared.set_room(self.limits.room(used, self.shared.index.bytes()));
        self.shared.set_full(excess > 0 || self.shared.has_failed());
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

    /// Removes the directories of a file that has gone, as far as they are empty.
    pub(super) async fn remove_empty_directories(&self, key: &crate::CacheKey) {
        let (context, mut directory) = (self.shared.context.clone(), key.directory());
        self.shared
            .on_disk(move || {
                while let Some(above) = directory.parent() {
                    if context.disk.remove_directory(&directory).is_err() {
                        break;
                    }
                    directory = above;
                }
            })
            .await;
    }
}
