//! The parts of an open file: which of them readers request, and their removal.

use super::{CacheOrigin, CachedFile, CachedFileState};
use crate::disk_cache::cache_index::TakenUnit;
use crate::part_layout::PartLayout;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How a part of an open file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::disk_cache) enum PartUse {
    /// A reader is in it, blocks of it are being read from the disk, fetched or stored, or clients read the file directly.
    InUse,
    /// It was requested since requests were last reported to the order of removals. The order has this request now.
    Requested,
    Unused,
}

/// A part of an open file that is to be removed, and its place in the order of removals.
pub(in crate::disk_cache) type TakenPart = (u32, TakenUnit);

/// The parts of an open file, or none.
pub(in crate::disk_cache) struct OpenFileParts<'a, O: CacheOrigin>(
    pub(in crate::disk_cache) &'a CachedFile<O>,
);

impl<O: CacheOrigin> OpenFileParts<'_, O> {
    /// Records that a reader has opened the file. For the first one, the sizes of its parts are those on disk.
    pub(in crate::disk_cache) fn note_opened(&self, is_first: bool) {
        let used = self.0.shared.used_now();
        match self.layout() {
            Some(layout) if is_first => {
                let sizes = layout.sizes(self.0.state().fill.stored());
                self.0.shared.index.opened_in_parts(&self.0.key, &sizes, used);
            }
            Some(_) => self.0.shared.index.used(&self.0.key, used),
            None => self.0.shared.index.opened(&self.0.key, self.0.stored_bytes(), used),
        }
    }

    fn layout(&self) -> Option<PartLayout> {
        self.0.state().parts.layout()
    }

    /// Tells the order of removals which parts were requested since the last call. To be called in each round.
    pub(in crate::disk_cache) fn note_requests(&self) {
        let requested = {
            let mut state = self.0.state();
            if state.parts.layout().is_none() {
                return;
            }
            state.readers.values_mut().for_each(|reader| reader.parts.pass_round());
            state.parts.take_requests()
        };
        if !requested.is_empty() && !self.0.is_retired.load(Ordering::Acquire) {
            self.0.shared.index.requested(&self.0.key, &requested);
        }
    }

    /// Returns how a part is used now.
    pub(in crate::disk_cache) fn part_use(&self, part: u32) -> PartUse {
        self.use_now(&mut self.0.state(), part)
    }

    fn use_now(&self, state: &mut CachedFileState<O>, part: u32) -> PartUse {
        let Some(layout) = state.parts.layout() else { return PartUse::InUse };
        let is_in =
            self.0.direct.is_used() || state.readers.values().any(|reader| reader.parts.protect(part));
        let is_retired = self.0.is_retired.load(Ordering::Acquire);
        if is_in || is_retired || state.fill.is_busy(&layout.blocks_of(part)) {
            return PartUse::InUse;
        }
        if state.parts.take_request(part) {
            self.0.shared.index.requested(&self.0.key, &[part]);
            return PartUse::Requested;
        }
        PartUse::Unused
    }

    /// Removes parts, unless they are used by then. Returns the number of bytes of each whose space is free now, and the
    /// first error. Blocks.
    pub(in crate::disk_cache) fn release(&self, parts: &[TakenPart]) -> (Vec<(u32, u64)>, io::Result<()>) {
        let Some(layout) = self.layout() else { return (Vec::new(), Ok(())) };
        let ranges: Vec<Range<u64>> = parts.iter().map(|(part, _)| layout.blocks_of(*part)).collect();
        let mut freed = Vec::new();
        let result = self.0.store.release(
            &ranges,
            |blocks| self.give_up(layout.of_block(blocks.start), blocks),
            |blocks| {
                let part = layout.of_block(blocks.start);
                let taken = parts.iter().find(|(taken, _)| *taken == part).map(|(_, taken)| taken);
                let bytes = self.0.shared.index.evict_part(&self.0.key, (part, taken), &self.0.is_retired);
                freed.extend(bytes.map(|bytes| (part, bytes)));
            },
        );
        (freed, result)
    }

    /// Gives up the blocks of a part that is not used. Returns whether it is so.
    fn give_up(&self, part: u32, blocks: &Range<u64>) -> bool {
        let mut state = self.0.state();
        let may_go = self.use_now(&mut state, part) == PartUse::Unused && state.fill.evict(blocks);
        if may_go {
            // Both know of it before another read can fetch the blocks again.
            self.0.store.give_up(blocks);
        }
        may_go
    }

    /// Frees the space of parts that were given up when that has failed.
    pub(super) fn free(&self) -> io::Result<()> {
        let Some(layout) = self.layout() else { return Ok(()) };
        self.0.store.free(|blocks| {
            let part = layout.of_block(blocks.start);
            self.0.shared.index.evict_part(&self.0.key, (part, None), &self.0.is_retired);
        })
    }
}
