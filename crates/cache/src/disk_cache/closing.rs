//! [`FileClosing`]: ends the periods in which readers have a file open.

use super::DiskCache;
use super::cached_file::{CachedFile, OpenFileParts};
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

impl FilesInUse {
    /// Waits until there are none, at most for this time. Reports whether that is so.
    pub(super) async fn none(&self, limit: Duration) -> bool {
        let mut in_use = self.0.subscribe();
        let none = in_use.wait_for(|number| *number == 0);
        matches!(tokio::time::timeout(limit, none).await, Ok(Ok(_)))
    }
}

/// Ends the uses of files.
pub(super) struct FileClosing<O: CacheOrigin>(pub(super) Arc<DiskCache<O>>);

impl<O: CacheOrigin> FileClosing<O> {
    /// Ends the use of a file without readers, when no block of it is being fetched or stored.
    pub(super) fn begin(self, file: &Arc<CachedFile<O>>, in_use: FileInUse) {
        let file = file.clone();
        self.0.shared.runtime.clone().spawn(async move {
            file.wait_idle().await;
            self.close(&file).await;
            drop(in_use);
        });
    }

    /// Ends the use of a file, unless it has readers again.
    async fn close(&self, file: &Arc<CachedFile<O>>) {
        let slot = self.0.table.slot(&file.key);
        let mut open = slot.lock().await;
        let is_current = open.as_ref().is_some_and(|current| Arc::ptr_eq(current, file));
        if file.has_readers() {
            return;
        }
        if !is_current {
            // It was removed, changed or replaced. Its use is reported, and no block of it is stored.
            file.end_last_period();
            return;
        }
        if !file.is_idle() {
            return;
        }
        OpenFileParts(file).note_requests();
        let closing = file.clone();
        let closed = self.0.shared.on_disk(move || {
            closing.end_period();
            closing.flush().ok();
            let claimed = closing.store.claimed_bytes();
            if claimed == 0 {
                // Without a claim, the data was of no use. If it cannot be removed, the next open does it.
                if matches!(closing.store.remove(), Ok(true)) {
                    closing.shared.context.remove_empty_directories(&closing.key);
                }
                return 0;
            }
            closing.store.detach(closing.shared.now());
            // The space of parts that were given up and could not be freed counts until it is.
            closing.store.held_bytes()
        });
        let held = closed.await;
        *open = None;
        match held {
            Some(0) => _ = self.0.shared.index.remove(&file.key),
            Some(bytes) => self.0.shared.index.closed(&file.key, bytes, self.0.shared.used_now()),
            // The job did not run, so the disk is unchanged.
            None => {}
        }
    }
}
