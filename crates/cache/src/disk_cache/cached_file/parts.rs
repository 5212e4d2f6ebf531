//! The parts of an open file: which of them readers request, and the removal of one.

use super::{CacheOrigin, CachedFile};
use std::sync::atomic::Ordering;

/// The result of the removal of a part from an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::disk_cache) enum PartEviction {
    /// It stays, because a reader is in it.
    InUse,
    /// It stays, because it was requested since the order of removals was told of requests. It knows this one now.
    Requested,
    /// This number of bytes of it are given up. The next flush frees them. The others are being read.
    Evicted(u64),
}

impl<O: CacheOrigin> CachedFile<O> {
    /// Records that a reader has opened the file. For the first one, the sizes of its parts are those on disk.
    pub(in crate::disk_cache) fn note_opened(&self, is_first: bool) {
        let used = self.shared.used_now();
        let sizes = {
            let state = self.state();
            let (block_bytes, size) = (self.store.block_bytes(), self.version().size);
            let sizes = || state.parts.sizes(state.fill.stored(), block_bytes, size);
            state.parts.are_known().then(|| if is_first { sizes() } else { Vec::new() })
        };
        match sizes {
            Some(sizes) if is_first => self.shared.index.opened_in_parts(&self.key, &sizes, used),
            Some(_) => self.shared.index.used(&self.key, used),
            None => self.shared.index.opened(&self.key, self.stored_bytes(), used),
        }
    }

    /// Tells the order of removals which parts were requested since the last call. To be called in each round.
    pub(in crate::disk_cache) fn note_requests(&self) {
        let requested = {
            let mut state = self.state();
            if !state.parts.are_known() {
                return;
            }
            state.readers.values_mut().for_each(|reader| reader.part.pass_round());
            state.parts.take_requests()
        };
        if !requested.is_empty() && !self.is_retired.load(Ordering::Acquire) {
            self.shared.index.requested(&self.key, &requested);
        }
    }

    /// Gives up the stored blocks of a part that nobody reads now.
    pub(in crate::disk_cache) fn evict_part(&self, part: u32) -> PartEviction {
        let mut state = self.state();
        // Clients that read directly find zeros in the place of a part that is given up.
        let is_read = self.direct.is_used() || state.readers.values().any(|reader| reader.part.is_in(part));
        if is_read || self.is_retired.load(Ordering::Acquire) {
            return PartEviction::InUse;
        }
        if state.parts.take_request(part) {
            self.shared.index.requested(&self.key, &[part]);
            return PartEviction::Requested;
        }
        let bytes = state.parts.bytes_of(part);
        let block_bytes = self.store.block_bytes();
        let end = bytes.end.min(self.version().size).div_ceil(block_bytes);
        let blocks: Vec<u64> =
            (bytes.start / block_bytes..end).filter(|block| state.fill.evict(*block)).collect();
        // Both know of it before another read can fetch the blocks again.
        self.store.evict(&blocks);
        let bytes =
            blocks.iter().map(|block| state.fill.bytes_of(*block)).map(|bytes| bytes.end - bytes.start);
        let bytes = bytes.sum();
        self.shared.index.shrink(&self.key, (Some(part), bytes), &self.is_retired);
        PartEviction::Evicted(bytes)
    }
}
