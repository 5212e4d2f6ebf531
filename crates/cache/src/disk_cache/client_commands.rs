//! Commands of clients about single files: the removal from the cache, and the question whether all of a file is stored.

use super::cached_file::CachedFile;
use super::{CacheOrigin, DiskCache};
use crate::store::DecodedState;
use crate::{CacheKey, store};
use base::Owner;
use std::sync::Arc;

/// The result of the removal of a file from the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileEviction {
    /// It was removed.
    Removed,
    /// It stays, because it is pinned.
    Pinned,
    /// It stays, because a client has it open, or opens it.
    InUse,
    /// Nothing of it is stored.
    NotCached,
    /// The disk has failed.
    Failed,
}

/// Removes the stored data of a file. See [`DiskCache::evict_file`].
pub(super) async fn evict<O: CacheOrigin>(
    cache: &Arc<DiskCache<O>>,
    key: &CacheKey,
    with_open: bool,
    owner: Owner,
) -> FileEviction {
    if cache.shared.is_pinned(key) {
        return FileEviction::Pinned;
    }
    let (cache, key) = (cache.clone(), key.clone());
    // In a task, because the slot of the file must be held until the disk has answered, also if the client leaves.
    let evicted = cache.shared.runtime.clone().spawn(async move {
        let slot = cache.table.slot(&key);
        let locked = match with_open {
            true => Some(slot.lock_owned().await),
            false => slot.lock_closed(),
        };
        match locked {
            Some(mut open) => evict_locked(&cache, &key, open.take(), owner).await,
            None => FileEviction::InUse,
        }
    });
    evicted.await.unwrap_or(FileEviction::Failed)
}

/// Removes the stored data of a file. The caller has its slot.
async fn evict_locked<O: CacheOrigin>(
    cache: &DiskCache<O>,
    key: &CacheKey,
    open: Option<Arc<CachedFile<O>>>,
    owner: Owner,
) -> FileEviction {
    let Some(file) = open else {
        return match cache.remove_closed(key, owner).await {
            Some(true) => FileEviction::Removed,
            Some(false) => FileEviction::NotCached,
            None => FileEviction::Failed,
        };
    };
    let had_bytes = file.stored_bytes() > 0;
    match (cache.retire(&file, true, owner).await, had_bytes) {
        (false, _) => FileEviction::Failed,
        (true, false) => FileEviction::NotCached,
        (true, true) => {
            cache.remove_empty_directories(key, owner).await;
            FileEviction::Removed
        }
    }
}

/// Reports whether all of a file is stored, without a look at the origin.
pub(super) async fn is_cached<O: CacheOrigin>(cache: &DiskCache<O>, key: &CacheKey, owner: Owner) -> bool {
    let slot = cache.table.slot(key);
    let open = slot.try_lock().ok().and_then(|open| open.clone());
    drop(slot);
    if let Some(file) = open {
        return file.stored_bytes() == file.version().size;
    }
    let (context, of) = (cache.shared.context.clone(), key.clone());
    let is_complete = move || match context.load(&of) {
        Ok(Some(DecodedState::Valid(state))) => {
            state.cinfo.is_complete() && matches!(store::found(context.disk.open(of.data())), Ok(Some(_)))
        }
        _ => false,
    };
    cache.shared.on_disk_for(owner, is_complete).await.unwrap_or(false)
}
