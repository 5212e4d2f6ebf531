//! [`FileFill`]: reads of one version of a file of which parts are cached.
//!
//! It does no I/O: it receives events and returns the [`FillAction`]s that its owner performs. So
//! each byte is fetched once for any number of reads that wait for it, and reads get bytes as soon as
//! they have arrived. A version has its own `FileFill`, so no read gets bytes of two versions.
//! Decision 050.

mod fetch;
mod read_pattern;

#[cfg(test)]
mod tests;

use crate::block_map::BlockMap;
use fetch::{Fetch, Waiter};
pub use read_pattern::ReadPattern;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Maximum number of bytes of a fetch of more than one block. A longer range is fetched in parts, so
/// that the memory of the first parts becomes free before the last ones arrive.
const FETCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The number of a read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

/// The number of a reader: reads of one reader fail together with its connection to the origin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReaderId(pub u64);

/// The number of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(u64);

/// An action of the owner. The actions of a list are performed in its order, except that stores may follow all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FillAction {
    /// Request these bytes at the origin, for this reader, into memory of the fetch.
    Fetch {
        /// The fetch.
        fetch: FetchId,
        /// The reader whose connection to the origin is used.
        reader: ReaderId,
        /// The bytes of the file.
        bytes: Range<u64>,
    },
    /// Request these bytes at the origin for this read only, because the memory limit is reached.
    Bypass {
        /// The read.
        read: ReadId,
        /// The bytes of the file.
        bytes: Range<u64>,
    },
    /// Read these bytes from the disk.
    ReadStored {
        /// The read.
        read: ReadId,
        /// The bytes of the file.
        bytes: Range<u64>,
    },
    /// Copy these bytes from the memory of a fetch.
    Copy {
        /// The read.
        read: ReadId,
        /// The fetch.
        fetch: FetchId,
        /// The bytes of the file.
        bytes: Range<u64>,
    },
    /// Write a block to the disk, from the memory of a fetch.
    Store {
        /// The fetch.
        fetch: FetchId,
        /// The number of the block.
        block: u64,
    },
    /// Release the memory of a fetch.
    Release {
        /// The fetch.
        fetch: FetchId,
        /// The size of the memory in bytes.
        bytes: u64,
    },
    /// A read has ended.
    Done {
        /// The read.
        read: ReadId,
        /// Whether it has all its bytes.
        is_complete: bool,
    },
}

/// A read that has not ended.
struct PendingRead {
    reader: ReaderId,
    /// Bytes that it does not have yet.
    missing: u64,
}

/// The reads and fetches of one version of a file.
pub struct FileFill {
    size: u64,
    block_bytes: u64,
    stored: BlockMap,
    /// The fetches in progress, by their first block. Their blocks do not overlap.
    fetches: BTreeMap<u64, Fetch>,
    first_blocks: HashMap<FetchId, u64>,
    reads: HashMap<ReadId, PendingRead>,
    /// Bytes that are being read from the disk.
    disk_reads: Vec<(ReadId, Range<u64>)>,
    next_fetch: u64,
}

impl FileFill {
    /// Creates the state of a file of `size` bytes, of which these blocks are on disk. `None` if the
    /// map has another number of blocks, or blocks have no bytes.
    #[must_use]
    pub fn new(size: u64, block_bytes: u64, stored: BlockMap) -> Option<Self> {
        let is_right = block_bytes > 0 && stored.len() == size.div_ceil(block_bytes);
        is_right.then(|| Self {
            size,
            block_bytes,
            stored,
            fetches: BTreeMap::new(),
            first_blocks: HashMap::new(),
            reads: HashMap::new(),
            disk_reads: Vec::new(),
            next_fetch: 0,
        })
    }

    /// Returns the blocks that are on disk.
    #[must_use]
    pub const fn stored(&self) -> &BlockMap {
        &self.stored
    }

    /// Reports whether no read waits, and nothing is fetched or read from the disk.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.fetches.is_empty() && self.disk_reads.is_empty()
    }

    /// Returns the reader of a read that has not ended.
    #[must_use]
    pub fn reader_of(&self, read: ReadId) -> Option<ReaderId> {
        self.reads.get(&read).map(|pending| pending.reader)
    }

    /// Reports whether a read waits for a fetch of another reader.
    #[must_use]
    pub fn waits_for_another(&self, read: ReadId) -> bool {
        let Some(reader) = self.reader_of(read) else { return false };
        let mut others = self.fetches.values().filter(|fetch| fetch.reader != reader);
        others.any(|fetch| fetch.waiters.iter().any(|waiter| waiter.read == read))
    }

    /// Reports whether a read waits for bytes from the disk.
    #[must_use]
    pub fn waits_for_disk(&self, read: ReadId) -> bool {
        self.reads.contains_key(&read) && self.disk_reads.iter().any(|(one, _)| *one == read)
    }

    /// Reports whether blocks are being fetched, stored, or read from the disk.
    #[must_use]
    pub fn is_busy(&self, blocks: &Range<u64>) -> bool {
        let bytes = self.bytes_of(blocks.start).start..self.bytes_of(blocks.end.saturating_sub(1)).end;
        let is_read = |(_, read): &(ReadId, Range<u64>)| read.start < bytes.end && bytes.start < read.end;
        // Fetches do not overlap, so the last one that begins before the end has the last block.
        let fetch = self.fetches.range(..blocks.end).next_back();
        fetch.is_some_and(|(_, fetch)| fetch.blocks.end > blocks.start) || self.disk_reads.iter().any(is_read)
    }

    /// Gives up blocks, whose bytes on disk may be removed then. Returns `false` if some of them are busy.
    pub fn evict(&mut self, blocks: &Range<u64>) -> bool {
        let is_busy = self.is_busy(blocks);
        if !is_busy {
            blocks.clone().for_each(|block| self.stored.remove(block));
        }
        !is_busy
    }

    /// Returns the bytes of a block.
    #[must_use]
    pub fn bytes_of(&self, block: u64) -> Range<u64> {
        let begin = block.saturating_mul(self.block_bytes);
        begin..begin.saturating_add(self.block_bytes).min(self.size)
    }

    /// Starts a read. Bytes behind the end of the file are left out. At most `memory` bytes of new
    /// fetches are requested; the rest is fetched for this read only.
    pub fn read(
        &mut self,
        read: ReadId,
        reader: ReaderId,
        bytes: Range<u64>,
        mut memory: u64,
    ) -> Vec<FillAction> {
        let end = bytes.end.min(self.size);
        let bytes = bytes.start.min(end)..end;
        let mut actions = Vec::new();
        self.reads.insert(read, PendingRead { reader, missing: bytes.end - bytes.start });
        self.request(read, bytes, &mut memory, &mut actions);
        self.finish(read, &mut actions);
        actions
    }

    /// Fetches bytes that a reader will probably read, as far as they are missing. Fetches nothing if it
    /// takes more than `memory` bytes.
    pub fn prefetch(&mut self, reader: ReaderId, bytes: Range<u64>, memory: u64) -> Vec<FillAction> {
        let (mut actions, mut memory) = (Vec::new(), memory);
        let end = bytes.end.min(self.size);
        let mut block = bytes.start / self.block_bytes;
        while self.bytes_of(block).start < end {
            if let Some(fetch) = self.fetch_of(block) {
                block = fetch.blocks.end;
                continue;
            }
            let last = self.last_of_run(block, end);
            if !self.stored.contains(block) {
                let size = self.bytes_of(last).end - self.bytes_of(block).start;
                if size > memory {
                    break;
                }
                memory -= size;
                self.start(reader, block..last + 1, &mut actions);
            }
            block = last + 1;
        }
        actions
    }

    /// Takes the bytes of a fetch up to `end`, an offset in the file. They arrive in order.
    pub fn arrived(&mut self, fetch: FetchId, end: u64) -> Vec<FillAction> {
        let mut actions = Vec::new();
        let Some(first) = self.first_blocks.get(&fetch).copied() else { return actions };
        let Some(state) = self.fetches.get_mut(&first) else { return actions };
        let before = state.arrived;
        state.arrived = end.clamp(before, state.bytes.end);
        let (arrived, blocks) = (state.arrived, state.blocks.clone());
        let copied = state.take_arrived();
        for (read, bytes) in copied {
            actions.push(FillAction::Copy { read, fetch, bytes: bytes.clone() });
            self.has(read, &bytes, &mut actions);
        }
        for block in blocks {
            let end = self.bytes_of(block).end;
            if end > before && end <= arrived {
                actions.push(FillAction::Store { fetch, block });
            }
        }
        actions
    }

    /// Takes the end of a store. A block that could not be written is fetched again by its next read.
    pub fn stored_block(&mut self, fetch: FetchId, block: u64, is_written: bool) -> Vec<FillAction> {
        let mut actions = Vec::new();
        let Some(first) = self.first_blocks.get(&fetch).copied() else { return actions };
        let Some(state) = self.fetches.get_mut(&first) else { return actions };
        if is_written {
            self.stored.insert(block);
        }
        state.unstored = state.unstored.saturating_sub(1);
        if state.unstored == 0 {
            self.release(fetch, &mut actions);
        }
        actions
    }

    /// Takes the failure of a fetch. Reads of its reader that wait for it end. The fetch is made again
    /// for another reader, if one waits.
    pub fn failed(&mut self, fetch: FetchId, mut memory: u64) -> Vec<FillAction> {
        let mut actions = Vec::new();
        let Some(first) = self.first_blocks.get(&fetch).copied() else { return actions };
        let Some(state) = self.fetches.get_mut(&first) else { return actions };
        let waiters = std::mem::take(&mut state.waiters);
        let (reader, arrived) = (state.reader, state.arrived);
        // Blocks that have arrived are being written, and their memory is needed until then.
        let end = if arrived == state.bytes.end { state.blocks.end } else { arrived / self.block_bytes };
        state.unstored = state.unstored.saturating_sub(state.blocks.end - end);
        state.blocks.end = end;
        state.bytes.end = state.bytes.end.min(end.saturating_mul(self.block_bytes));
        state.arrived = state.bytes.end;
        if state.unstored == 0 {
            self.release(fetch, &mut actions);
        }
        for Waiter { read, bytes } in waiters {
            match self.reads.get(&read) {
                Some(pending) if pending.reader == reader => self.end(read, &mut actions),
                Some(_) => self.request(read, bytes, &mut memory, &mut actions),
                None => {}
            }
        }
        actions
    }

    /// Takes bytes that were read from the disk, also for a read that was cancelled. `damaged` are the blocks
    /// whose checksum was wrong, in order: they are dropped and fetched again for this read.
    pub fn read_stored(
        &mut self,
        read: ReadId,
        bytes: Range<u64>,
        damaged: &[u64],
        mut memory: u64,
    ) -> Vec<FillAction> {
        let mut actions = Vec::new();
        if let Some(at) = self.disk_reads.iter().position(|one| *one == (read, bytes.clone())) {
            self.disk_reads.swap_remove(at);
        }
        let mut good = bytes.start;
        for &block in damaged {
            self.stored.remove(block);
            let of_block = self.bytes_of(block);
            let bad = of_block.start.max(good)..of_block.end.min(bytes.end);
            if bad.start < bad.end {
                self.has(read, &(good..bad.start), &mut actions);
                self.request(read, bad.clone(), &mut memory, &mut actions);
                good = bad.end;
            }
        }
        self.has(read, &(good..bytes.end), &mut actions);
        actions
    }

    /// Takes the end of a request for one read only.
    pub fn bypassed(&mut self, read: ReadId, bytes: Range<u64>, is_complete: bool) -> Vec<FillAction> {
        let mut actions = Vec::new();
        match is_complete {
            true => self.has(read, &bytes, &mut actions),
            false => self.end(read, &mut actions),
        }
        actions
    }

    /// Forgets a read whose client has left. What it requested is still stored.
    pub fn cancel(&mut self, read: ReadId) {
        self.reads.remove(&read);
        for fetch in self.fetches.values_mut() {
            fetch.waiters.retain(|waiter| waiter.read != read);
        }
    }

    /// Requests bytes of a read: from the disk, from fetches in progress, or by new fetches, which take from
    /// `memory`.
    fn request(&mut self, read: ReadId, bytes: Range<u64>, memory: &mut u64, actions: &mut Vec<FillAction>) {
        let Some(reader) = self.reads.get(&read).map(|pending| pending.reader) else { return };
        let mut at = bytes.start;
        while at < bytes.end {
            let block = at / self.block_bytes;
            if let Some(fetch) = self.fetch_of(block) {
                let part = at..bytes.end.min(fetch.bytes.end);
                at = part.end;
                self.join(read, block, part, actions);
                continue;
            }
            let is_stored = self.stored.contains(block);
            let last = self.last_of_run(block, bytes.end);
            let part = at..bytes.end.min(self.bytes_of(last).end);
            at = part.end;
            let whole = self.bytes_of(block).start..self.bytes_of(last).end;
            if is_stored {
                self.disk_reads.push((read, part.clone()));
                actions.push(FillAction::ReadStored { read, bytes: part });
            } else if whole.end - whole.start <= *memory {
                *memory -= whole.end - whole.start;
                self.start(reader, block..last + 1, actions);
                self.join(read, block, part, actions);
            } else {
                actions.push(FillAction::Bypass { read, bytes: part });
            }
        }
    }

    /// Returns the last block that can be read or fetched together with a block, among those with bytes
    /// before `end`.
    fn last_of_run(&self, block: u64, end: u64) -> u64 {
        let is_stored = self.stored.contains(block);
        let begin = self.bytes_of(block).start;
        let mut last = block;
        while self.bytes_of(last).end < end
            && self.stored.contains(last + 1) == is_stored
            && self.fetch_of(last + 1).is_none()
            && (is_stored || self.bytes_of(last + 1).end - begin <= FETCH_BYTES_MAX)
        {
            last += 1;
        }
        last
    }

    /// Returns the fetch of a block.
    fn fetch_of(&self, block: u64) -> Option<&Fetch> {
        let (_, fetch) = self.fetches.range(..=block).next_back()?;
        fetch.blocks.contains(&block).then_some(fetch)
    }

    fn start(&mut self, reader: ReaderId, blocks: Range<u64>, actions: &mut Vec<FillAction>) {
        let id = FetchId(self.next_fetch);
        self.next_fetch += 1;
        let bytes = self.bytes_of(blocks.start).start..self.bytes_of(blocks.end - 1).end;
        actions.push(FillAction::Fetch { fetch: id, reader, bytes: bytes.clone() });
        self.first_blocks.insert(id, blocks.start);
        self.fetches.insert(blocks.start, Fetch::new(id, reader, blocks, bytes));
    }

    /// Lets a read wait for bytes of the fetch of a block, or takes those that have arrived.
    fn join(&mut self, read: ReadId, block: u64, bytes: Range<u64>, actions: &mut Vec<FillAction>) {
        let Some((_, fetch)) = self.fetches.range_mut(..=block).next_back() else { return };
        let id = fetch.id;
        fetch.waiters.push(Waiter { read, bytes });
        for (read, bytes) in fetch.take_arrived() {
            actions.push(FillAction::Copy { read, fetch: id, bytes: bytes.clone() });
            self.has(read, &bytes, actions);
        }
    }

    fn release(&mut self, fetch: FetchId, actions: &mut Vec<FillAction>) {
        let Some(first) = self.first_blocks.remove(&fetch) else { return };
        if let Some(state) = self.fetches.remove(&first) {
            actions.push(FillAction::Release { fetch, bytes: state.memory });
        }
    }

    /// Takes bytes that a read has got.
    fn has(&mut self, read: ReadId, bytes: &Range<u64>, actions: &mut Vec<FillAction>) {
        if let Some(pending) = self.reads.get_mut(&read) {
            pending.missing = pending.missing.saturating_sub(bytes.end.saturating_sub(bytes.start));
            self.finish(read, actions);
        }
    }

    /// Ends a read that has all its bytes.
    fn finish(&mut self, read: ReadId, actions: &mut Vec<FillAction>) {
        if self.reads.get(&read).is_some_and(|pending| pending.missing == 0) {
            self.reads.remove(&read);
            actions.push(FillAction::Done { read, is_complete: true });
        }
    }

    /// Ends a read without its bytes.
    fn end(&mut self, read: ReadId, actions: &mut Vec<FillAction>) {
        if self.reads.remove(&read).is_some() {
            for fetch in self.fetches.values_mut() {
                fetch.waiters.retain(|waiter| waiter.read != read);
            }
            actions.push(FillAction::Done { read, is_complete: false });
        }
    }
}
