//! The ends of periods in which readers have a file open, and what waits for all of them.

use super::DiskCache;
use super::cached_file::CachedFile;
use super::shared::CacheShared;
use crate::disk_cache::CacheOrigin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Number of readers, and of ends of periods that are in progress.
#[derive(Default)]
pub(super) struct FilesInUse(watch::Sender<usize>);

/// A reader, until its file is closed.
pub(super) struct FileInUse(Arc<CacheShared>);

impl FileInUse {
    pub(super) fn new(shared: &Arc<CacheShared>) -> Self {
        shared.in_use.0.send_modify(|number| *number += 1);
        Self(shared.clone())
    }
}

impl Drop for FileInUse {
    fn drop(&mut self) {
        self.0.in_use.0.send_modify(|number| *number = number.saturating_sub(1));
    }
}

impl<O: CacheOrigin> DiskCache<O> {
    /// Waits until no file is open and all ends of periods are recorded, at most for this time. Reports whether that
    /// is so.
    pub async fn closed(&self, limit: Duration) -> bool {
        let mut in_use = self.shared.in_use.0.subscribe();
        let none = in_use.wait_for(|number| *number == 0);
        matches!(tokio::time::timeout(limit, none).await, Ok(Ok(_)))
    }

    /// Ends the use of a file without readers, when nothing of it is fetched or stored any longer.
    pub(super) fn close_later(self: &Arc<Self>, file: &Arc<CachedFile<O>>, in_use: FileInUse) {
        let (cache, file) = (self.clone(), file.clone());
        self.shared.runtime.spawn(async move {
            file.wait_idle().await;
            cache.close(&file).await;
            drop(in_use);
        });
    }

    /// Ends the use of a file, unless it has readers again.
    async fn close(self: &Arc<Self>, file: &Arc<CachedFile<O>>) {
        let slot = self.table.slot(&file.key);
        let mut open = slot.lock().await;
        let is_current = open.as_ref().is_some_and(|current| Arc::ptr_eq(current, file));
        if file.has_readers() {
            return;
        }
        if !is_current {
            // It was removed, changed or replaced. Its use is told, and nothing of it is stored.
            file.end_last_period();
            return;
        }
        if !file.is_idle() {
            return;
        }
        let closing = file.clone();
        let closed = self.shared.on_disk(move || {
            closing.end_period();
            closing.flush().ok();
            let claimed = closing.store.claimed_bytes();
            if claimed == 0
                && let Ok(was_there) = closing.store.remove()
            {
                // Without a claim, the data was of no use.
                if was_there {
                    closing.shared.context.remove_empty_directories(&closing.key);
                }
                return 0;
            }
            claimed
        });
        let claimed = closed.await;
        *open = None;
        match claimed {
            Some(0) => _ = self.shared.index.remove(&file.key),
            Some(bytes) => self.shared.index.closed(&file.key, bytes, self.shared.used_now()),
            // The job did not run, so the disk is unchanged.
            None => {}
        }
    }
}
