//! The release of blocks of an open file whose space others need.
//!
//! The order is: the state on disk that does not claim the blocks is durable, then memory gives them up, then their space
//! is freed. So a failure before the second step changes nothing but that the blocks are claimed again, and after it the
//! space is freed by a later call. A claim is true after a stop at any point.

use super::{BlockStore, StoreContext};
use std::collections::HashSet;
use std::io;
use std::ops::Range;

/// Blocks that were given up and whose space is not free yet. They are not written meanwhile.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UnfreedBlocks {
    pub(super) blocks: Range<u64>,
    /// The number of bytes that were stored of them.
    bytes: u64,
}

impl BlockStore {
    /// Releases ranges of blocks, in their order. Their claims end at first, durably. `give_up` calls
    /// [`BlockStore::give_up`], unless the range is in use by then: it is claimed again by the next flush. `freed` is called
    /// with each range whose space is free, also with those of earlier calls.
    ///
    /// # Errors
    /// Errors of the disk. Ranges that were given up remain to be freed then, the others are stored as before.
    pub(crate) fn release(
        &self,
        ranges: &[Range<u64>],
        mut give_up: impl FnMut(&Range<u64>) -> bool,
        mut freed: impl FnMut(&Range<u64>),
    ) -> io::Result<()> {
        let claiming = self.claiming();
        if claiming.is_removed {
            return Ok(());
        }
        // If this is not possible, nothing more is given up.
        self.free_blocks(&mut freed)?;
        if let Some(data) = self.data.get() {
            StoreContext::check_unread(&**data)?;
        }
        let result = self.end_claims(ranges).and_then(|()| {
            let mut given_up = ranges.iter().filter(|range| give_up(range));
            given_up.try_for_each(|_| self.free_blocks(&mut freed))
        });
        let mut state = self.state();
        let blocks = &state.stored.cinfo.blocks;
        if ranges.iter().any(|range| range.clone().any(|block| blocks.contains(block))) {
            state.has_new_claims = true;
        }
        result
    }

    /// Replaces the state on disk by one that does not claim these blocks. The caller has locked `claiming`.
    fn end_claims(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let (mut stored, dropped) = {
            let state = self.state();
            // Encoded without the lock, for which reads on event loops wait.
            (state.stored.clone(), state.dropped.clone())
        };
        let mut is_claimed = false;
        for block in ranges.iter().cloned().flatten() {
            is_claimed |= stored.cinfo.blocks.contains(block) || dropped.contains(&block);
            stored.cinfo.blocks.remove(block);
            stored.checksums.set(block, None);
        }
        if !is_claimed {
            return Ok(());
        }
        self.context.journal.started(&self.key);
        // The state may have been replaced in spite of an error.
        self.context
            .replace_state(&self.key, &stored.encode(), self.version.size)
            .inspect_err(|_| self.state().has_new_claims = true)?;
        let claimed = stored.stored_bytes();
        self.context.journal.stored(&self.key, claimed, stored.last_use());
        let mut state = self.state();
        state.claimed = claimed;
        forget(&mut state.dropped, &dropped);
        Ok(())
    }

    /// Gives up blocks within [`BlockStore::release`]. No read gets their bytes from now on. The caller does not read or
    /// write them, and has locked what lets others begin that.
    pub(crate) fn give_up(&self, blocks: &Range<u64>) {
        let mut state = self.state();
        let mut bytes = 0;
        for block in blocks.clone().filter(|block| state.checksum(*block).is_some()).collect::<Vec<_>>() {
            let range = self.bytes_of(block);
            bytes += range.end - range.start;
            state.stored.cinfo.blocks.remove(block);
            state.stored.checksums.set(block, None);
            state.unclaimed.remove(&block);
        }
        state.unfreed.push(UnfreedBlocks { blocks: blocks.clone(), bytes });
    }

    /// Frees the space of blocks that were given up earlier, as [`BlockStore::release`] does.
    ///
    /// # Errors
    /// Errors of the disk. It remains to be freed then. It is not tried on a disk that cannot free parts.
    pub(crate) fn free(&self, mut freed: impl FnMut(&Range<u64>)) -> io::Result<()> {
        let claiming = self.claiming();
        if claiming.is_removed || self.context.part_bytes().is_none() {
            return Ok(());
        }
        self.free_blocks(&mut freed)
    }

    /// Frees the space of all blocks that were given up. The caller has locked `claiming`.
    fn free_blocks(&self, freed: &mut impl FnMut(&Range<u64>)) -> io::Result<()> {
        loop {
            let Some(next) = self.state().unfreed.first().cloned() else { return Ok(()) };
            if let Some(data) = self.data.get() {
                self.context.discard(&**data, &next.blocks, self.block_bytes)?;
            }
            // Blocks that are written from now on count again.
            freed(&next.blocks);
            // Only callers with the lock remove any.
            self.state().unfreed.remove(0);
        }
    }

    /// Returns the number of bytes whose space the file has when all blocks are claimed: also of those that were given up
    /// and not freed.
    pub(crate) fn held_bytes(&self) -> u64 {
        let state = self.state();
        state.unfreed.iter().fold(state.claimed, |sum, unfreed| sum.saturating_add(unfreed.bytes))
    }
}

/// Forgets dropped blocks that the state on disk did not claim. The usual case is that there are none.
pub(super) fn forget(dropped: &mut HashSet<u64>, unclaimed: &HashSet<u64>) {
    if !unclaimed.is_empty() {
        dropped.retain(|block| !unclaimed.contains(block));
    }
}
