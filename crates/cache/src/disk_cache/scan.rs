//! The search for files that earlier processes have stored. It runs beside the readers, who find their files
//! without it: it only makes the used space known, and removes what was never claimed.
//!
//! With the index of an earlier process, the used space is known as soon as that is loaded. Then the search only compares
//! the index with the disk, slowly, because another program can have changed the files.

use super::cache_index::FileDifference;
use super::clock::FileUse;
use super::index_recorder::{IndexRecorder, LoadedIndex, load};
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use crate::store::{CacheDirectory, DEPTH_MAX, DecodedState, RecordedIndex, look};
use base::{LogicalPath, Owner};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Time between the start and the comparison of a loaded index with the disk.
const COMPARISON_DELAY: Duration = Duration::from_secs(60);
/// The comparison pauses this number of times as long as it has looked at a directory.
const PAUSE_FACTOR: u32 = 9;
/// Maximum length of a pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Number of files that are looked at while the index is locked.
const PAGE_FILES: usize = 1024;

impl<O: CacheOrigin> DiskCache<O> {
    /// Loads the index of earlier processes and starts the search. It ends with the cache.
    pub(super) fn start_scan(self: &Arc<Self>, index: Option<RecordedIndex>) {
        let (cache, shared) = (Arc::downgrade(self), self.shared.clone());
        self.shared.index.set_searching(true);
        self.shared.trust.hold_removals(index.is_some());
        IndexRecorder::start(self);
        self.shared.runtime.spawn(async move {
            let (mut is_complete, mut is_like_disk) = (false, true);
            if let Some(index) = index {
                let of_job = shared.clone();
                let Some(loaded) = shared.on_disk(move || load(&of_job, &index)).await else { return };
                let Some(cache) = Weak::upgrade(&cache) else { return };
                match loaded {
                    Ok(loaded) => {
                        is_like_disk = loaded.is_like_disk;
                        is_complete = cache.check_unresolved(loaded).await && is_like_disk;
                        let (files, bytes) = (cache.files(), cache.bytes());
                        tracing::info!(
                            files,
                            bytes,
                            is_complete,
                            is_like_disk,
                            "the index of the cache was loaded"
                        );
                    }
                    Err(error) => tracing::warn!("the index of the cache is damaged: {error}"),
                }
            }
            // Files that are needed would be removed for those that are not known.
            shared.trust.hold_removals(!is_like_disk);
            shared.removal.notify_one();
            if is_complete {
                if !end_search(&cache) {
                    return;
                }
                shared.trust.rest(COMPARISON_DELAY).await;
            }
            let Some(is_changed) = compare(&cache, is_complete).await else { return };
            let Some(cache) = Weak::upgrade(&cache) else { return };
            if is_changed || !is_complete {
                cache.recorder.set_outdated();
            }
            shared.trust.set_compared();
            if !is_complete {
                end_search(&Arc::downgrade(&cache));
            }
            cache.shared.removal.notify_one();
        });
    }

    /// Looks at the files whose last change has no recorded result. Returns whether all files are known then.
    async fn check_unresolved(&self, loaded: LoadedIndex) -> bool {
        let mut is_complete = loaded.is_complete;
        for key in &loaded.unresolved {
            if self.check(key).await.is_none() {
                // For the next process.
                let (context, of) = (self.shared.context.clone(), key.clone());
                self.shared.on_disk(move || context.journal.started(&of)).await;
                is_complete = false;
            }
        }
        is_complete
    }

    /// Compares what is known about a file with the disk, unless it is in use. Returns whether there was a difference;
    /// `None` if the disk has failed.
    async fn check(&self, key: &CacheKey) -> Option<bool> {
        let slot = self.table.slot(key);
        let Some(_closed) = slot.lock_closed() else { return Some(false) };
        let (context, of) = (self.shared.context.clone(), key.clone());
        let look = move || match context.has_state_only(&of) {
            true => (Ok(None), true),
            false => (context.load(&of), context.is_unclaimed(&of)),
        };
        match self.shared.on_disk(look).await? {
            (Ok(Some(DecodedState::Valid(state))), _) => {
                let used = FileUse::recorded(state.last_use(), self.shared.clock.now());
                let found = self.shared.index.found(key, state.stored_bytes(), used);
                if found == FileDifference::Unknown {
                    self.shared.index.closed(key, state.stored_bytes(), used);
                }
                Some(found != FileDifference::AsKnown)
            }
            // Data without a state, or the other way round.
            (Ok(None), true) => {
                self.remove_stored(key, Owner::SERVER).await?;
                Some(self.shared.index.forget_recorded(key))
            }
            (Ok(_), _) | (Err(crate::StoreError::Foreign), _) => Some(self.shared.index.forget_recorded(key)),
            (Err(crate::StoreError::Disk(_)), _) => None,
        }
    }

    /// Adds the files of a directory to the index. Returns whether the index was different.
    async fn take_found(&self, found: CacheDirectory) -> bool {
        let mut is_changed = false;
        for file in found.files {
            let used = FileUse::recorded(file.used, self.shared.clock.now());
            is_changed |= match self.shared.index.found(&file.key, file.stored, used) {
                FileDifference::AsKnown => false,
                FileDifference::Corrected => true,
                // It may have been removed meanwhile.
                FileDifference::Unknown => self.check(&file.key).await.unwrap_or(false),
            };
        }
        for key in found.without_data {
            is_changed |= self.check(&key).await.unwrap_or(false);
        }
        for key in found.unclaimed {
            self.remove_unclaimed(&key).await;
        }
        is_changed
    }

    /// Removes data that a cache has left without claiming it, unless it is in use.
    async fn remove_unclaimed(&self, key: &CacheKey) {
        let slot = self.table.slot(key);
        let Ok(open) = slot.try_lock() else { return };
        let (context, of) = (self.shared.context.clone(), key.clone());
        let has_state = move || !matches!(context.load(&of), Ok(None));
        if open.is_none() && self.shared.on_disk(has_state).await == Some(false) {
            self.remove_stored(key, Owner::SERVER).await;
        }
    }
}

/// Ends the search: all files are known. Returns whether there is still a cache.
fn end_search<O: CacheOrigin>(cache: &Weak<DiskCache<O>>) -> bool {
    let Some(cache) = Weak::upgrade(cache) else { return false };
    cache.shared.index.set_searching(false);
    // What is used is known now.
    cache.shared.removal.notify_one();
    cache.recorder.notify();
    true
}

/// Compares the index with the disk, slowly if `is_paced`. Returns whether there was a difference; `None` if the cache
/// has ended.
pub(super) async fn compare<O: CacheOrigin>(cache: &Weak<DiskCache<O>>, is_paced: bool) -> Option<bool> {
    let (mut is_changed, mut directories) = (false, vec![(LogicalPath::root(), 0)]);
    let order = RandomState::new();
    while let Some((directory, depth)) = directories.pop() {
        let shared = Weak::upgrade(cache)?.shared.clone();
        let (context, begin) = (shared.context.clone(), Instant::now());
        let looked = shared.on_disk(move || look(&context, &directory)).await?;
        let Ok(mut found) = looked else { continue };
        if depth < DEPTH_MAX {
            let mut below = std::mem::take(&mut found.directories);
            // A comparison that restarts interrupt again and again comes to each directory in time.
            below.sort_by_cached_key(|path| order.hash_one(path));
            directories.extend(below.into_iter().map(|path| (path, depth + 1)));
        }
        is_changed |= Weak::upgrade(cache)?.take_found(found).await;
        if is_paced {
            shared.trust.rest((begin.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX)).await;
        }
    }
    // What is left was not found.
    let (mut after, mut is_last) = (None, false);
    while !is_last {
        let cache = Weak::upgrade(cache)?;
        let (keys, last) = cache.shared.index.unconfirmed(after.as_ref(), PAGE_FILES);
        for key in keys {
            is_changed |= cache.check(&key).await.unwrap_or(false);
        }
        is_last = last.is_none();
        after = last;
        tokio::task::yield_now().await;
    }
    Some(is_changed)
}
