//! Whether a file is in use, and whether it is still the version at the origin.

use super::{CacheOrigin, CachedFile, added};
use std::sync::atomic::Ordering;

impl<O: CacheOrigin> CachedFile<O> {
    pub(in crate::disk_cache) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Records that the file at the origin is another version.
    pub(in crate::disk_cache) fn set_changed(&self) {
        self.has_changed.store(true, Ordering::Release);
    }

    /// Reports whether blocks can be stored.
    pub(in crate::disk_cache) fn may_store(&self) -> bool {
        self.is_current() && self.shared.may_store()
    }

    /// Reports whether clients read the file, by this server or directly.
    pub(in crate::disk_cache) fn has_readers(&self) -> bool {
        !self.state().readers.is_empty() || self.direct.is_used()
    }

    /// Reports whether the file is that of the name in the cache, and the version at the origin as far as it is known.
    pub(in crate::disk_cache) fn is_current(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire) && !self.has_changed()
    }

    /// Counts a client that reads all of the file directly.
    pub(in crate::disk_cache) fn note_direct_read(&self) {
        let size = self.version().size;
        let mut state = self.state();
        state.access.bytes_hit = added(state.access.bytes_hit, size);
        self.shared.counters.bytes_hit.add(size);
        self.shared.counters.bytes_delivered.add(size);
    }
}
