//! [`CacheTable`]: the files that are open, and those that are being opened, changed or removed. All of these
//! take turns by the slot of the file, so that there is never a second store of it.

use super::CacheOrigin;
use super::cached_file::CachedFile;
use crate::CacheKey;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slot of a file: the file while it is open.
pub(super) type Slot<O> = tokio::sync::Mutex<Option<Arc<CachedFile<O>>>>;

/// A slot that is locked.
pub(super) type LockedSlot<O> = tokio::sync::OwnedMutexGuard<Option<Arc<CachedFile<O>>>>;

/// The slots in use.
pub(super) struct CacheTable<O: CacheOrigin>(Mutex<SlotMap<O>>);

/// The slots with the number of their users.
type SlotMap<O> = HashMap<CacheKey, (Arc<Slot<O>>, usize)>;

/// A slot in use. The table forgets it with its last user, unless the file is open.
pub(super) struct SlotInUse<O: CacheOrigin> {
    table: Arc<CacheTable<O>>,
    key: CacheKey,
    slot: Arc<Slot<O>>,
}

impl<O: CacheOrigin> CacheTable<O> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(HashMap::new())))
    }

    fn lock(&self) -> MutexGuard<'_, SlotMap<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the slot of a file.
    pub(super) fn slot(self: &Arc<Self>, key: &CacheKey) -> SlotInUse<O> {
        let slot = {
            let mut slots = self.lock();
            let (slot, users) = slots.entry(key.clone()).or_default();
            *users += 1;
            slot.clone()
        };
        SlotInUse { table: self.clone(), key: key.clone(), slot }
    }

    /// Returns the files that are open and not being opened, changed or removed.
    pub(super) fn files(&self) -> Vec<Arc<CachedFile<O>>> {
        let slots = self.lock();
        slots.values().filter_map(|(slot, _)| slot.try_lock().ok().and_then(|file| file.clone())).collect()
    }

    /// Reports whether a file is open, or being opened, changed or removed.
    pub(super) fn is_used(&self, key: &CacheKey) -> bool {
        self.lock().contains_key(key)
    }

    /// Returns the names of all files that are open, or being opened, changed or removed.
    pub(super) fn keys(&self) -> Vec<CacheKey> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<O: CacheOrigin> SlotInUse<O> {
    /// Waits for the slot and locks it.
    pub(super) async fn lock_owned(&self) -> LockedSlot<O> {
        self.slot.clone().lock_owned().await
    }

    /// Locks the slot; `None` if the file is open, or being opened, changed or removed.
    pub(super) fn lock_closed(&self) -> Option<LockedSlot<O>> {
        self.slot.clone().try_lock_owned().ok().filter(|file| file.is_none())
    }
}

impl<O: CacheOrigin> Deref for SlotInUse<O> {
    type Target = Slot<O>;

    fn deref(&self) -> &Slot<O> {
        &self.slot
    }
}

impl<O: CacheOrigin> Drop for SlotInUse<O> {
    fn drop(&mut self) {
        let mut slots = self.table.lock();
        let Some((slot, users)) = slots.get_mut(&self.key) else { return };
        *users -= 1;
        if *users == 0 && slot.try_lock().is_ok_and(|file| file.is_none()) {
            slots.remove(&self.key);
        }
    }
}
