//! The ends of the periods in which readers have a file open.

use super::{CachedFile, PeriodFigures};
use crate::CacheAccess;
use crate::disk_cache::{CacheOrigin, ClosedCacheFile};

impl<O: CacheOrigin> CachedFile<O> {
    /// Records this period, and passes it to the observer.
    pub(in crate::disk_cache) fn end_period(&self) {
        let access = self.take_access();
        self.store.record_access(access, self.shared.now());
        self.tell(access, self.store.opens());
    }

    /// Passes the last period of a file that is no longer stored to the observer, once.
    pub(in crate::disk_cache) fn end_last_period(&self) {
        let access = self.take_access();
        if access.opens > 0 {
            self.tell(access, self.store.opens().saturating_add(u64::try_from(access.opens).unwrap_or(0)));
        }
    }

    /// Passes a period to the observer.
    fn tell(&self, access: CacheAccess, opens: u64) {
        let mut state = self.state();
        let PeriodFigures { stored, ahead, damaged, remotes } = std::mem::take(&mut state.period);
        let blocks_stored = state.fill.stored().present();
        drop(state);
        if let Some(observer) = self.shared.observer.get() {
            observer.closed(&ClosedCacheFile {
                path: self.key.data(),
                size: self.version().size,
                block_bytes: self.store.block_bytes(),
                blocks_stored,
                opens,
                access,
                stored,
                ahead,
                damaged,
                remotes: &remotes,
            });
        }
    }

    /// Returns the record of this period, once.
    fn take_access(&self) -> CacheAccess {
        let mut state = self.state();
        let now = self.shared.now();
        let next = CacheAccess { attached: now, ..state.access };
        let next =
            CacheAccess { opens: 0, duration: 0, bytes_hit: 0, bytes_missed: 0, bytes_bypassed: 0, ..next };
        CacheAccess { detached: now, ..std::mem::replace(&mut state.access, next) }
    }
}
