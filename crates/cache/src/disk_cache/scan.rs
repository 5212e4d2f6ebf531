//! The search for files that earlier processes have stored. It runs beside the readers, who find their files
//! without it: it only makes the used space known, and removes what was never claimed.

use super::clock::FileUse;
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use crate::store::{DEPTH_MAX, look};
use base::{LogicalPath, Owner};
use std::sync::{Arc, Weak};

impl<O: CacheOrigin> DiskCache<O> {
    /// Starts the search. It ends with the cache.
    pub(super) fn start_scan(self: &Arc<Self>) {
        let (cache, shared) = (Arc::downgrade(self), self.shared.clone());
        self.shared.index.set_searching(true);
        self.shared.runtime.spawn(async move {
            let mut directories = vec![(LogicalPath::root(), 0)];
            while let Some((directory, depth)) = directories.pop() {
                let context = shared.context.clone();
                let looked = shared.on_disk(move || look(&context, &directory)).await;
                let (Some(cache), Some(looked)) = (Weak::upgrade(&cache), looked) else { return };
                let Ok(found) = looked else { continue };
                if depth < DEPTH_MAX {
                    directories.extend(found.directories.into_iter().map(|path| (path, depth + 1)));
                }
                for file in found.files {
                    let used = FileUse::recorded(file.used, shared.clock.now());
                    cache.shared.index.found(&file.key, file.stored, used);
                }
                for key in found.unclaimed {
                    cache.remove_unclaimed(&key).await;
                }
            }
            shared.index.set_searching(false);
            // What is used is known now.
            shared.removal.notify_one();
        });
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
