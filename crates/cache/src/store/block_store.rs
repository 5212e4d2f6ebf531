//! [`BlockStore`]: the blocks of one version of a file, and the claim of those that are durable.
//!
//! The state file claims the blocks that are stored. It is replaced only after the data of these blocks is durable,
//! so a claim is true after a power cut at any point. Each block is compared with its checksum when it is
//! read, in case something else has changed the data.

mod direct_data;
mod ending;
mod release;

use super::page_checksums::append_page_checksums;
use super::page_read::PageRead;
use super::state_file::{DecodedState, block_bytes_for};
use super::store_context::{DATA_ATTRIBUTE, found, is_unclaimed};
use super::{CacheDiskFile, CacheKey, OriginVersion, StoreContext, StoredState, access_history};
use crate::{BlockMap, CacheAccess, CacheChecks};
use digest::{Algorithm, RunningChecksum, crc32c, pages::PAGE_BYTES};
use release::{UnfreedBlocks, forget};
use std::collections::{HashMap, HashSet};
use std::io::{self, IoSliceMut};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use thiserror::Error;

pub(crate) use direct_data::DirectData;

/// Maximum number of bytes that are read at once.
const PIECE_BYTES: u64 = 256 * 1024;
/// Maximum number of bytes that are read at once without waiting. They stay in the processor's cache for their checksum.
const NOW_PIECE_BYTES: u64 = 32 * 1024;
/// Maximum number of bytes that a read without waiting reads and compares.
const NOW_BYTES_MAX: u64 = 256 * 1024;
/// Maximum number of pages of a read without waiting that compares pages.
const NOW_PAGES_MAX: usize = NOW_BYTES_MAX as usize / PAGE_BYTES + 1;
/// Maximum number of bytes of blocks that are verified for each byte of a read without waiting, beyond [`NOW_SMALL_BYTES`].
/// Reads that compare pages have at most two pages more than their bytes. A request of many small pieces would otherwise keep its thread busy with blocks of which it wants little.
const NOW_FACTOR: u64 = 4;
/// Number of bytes that may be verified for any read without waiting.
const NOW_SMALL_BYTES: u64 = 4096;
/// Time in seconds after which a state file is replaced only for the record of accesses.
const ACCESS_INTERVAL: i64 = 60;

/// The reason why a file cannot be stored.
#[derive(Error, Debug)]
pub enum StoreError {
    /// Something that the cache cannot identify is at its place. It is left alone.
    #[error("its place is taken by something that is not a file of the cache")]
    Foreign,
    /// An error of the disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// How the data file is read.
#[derive(Clone, Copy)]
enum BlockRead {
    Waiting,
    /// Only bytes that are in memory.
    Now,
}

impl BlockRead {
    const fn piece_bytes(self) -> u64 {
        match self {
            Self::Waiting => PIECE_BYTES,
            Self::Now => NOW_PIECE_BYTES,
        }
    }
}

/// The blocks of a read whose content is wrong, in order.
pub type DamagedBlocks = Vec<u64>;

/// The blocks of one version of a file.
pub struct BlockStore {
    context: Arc<StoreContext>,
    key: CacheKey,
    data: OnceLock<Arc<dyn CacheDiskFile>>,
    version: OriginVersion,
    block_bytes: u64,
    state: Mutex<StoreState>,
    /// Held while the state file is replaced, and while the files are removed.
    claiming: Mutex<Claiming>,
    /// The number of this store among the checksums of pages.
    number: u64,
}

struct Claiming {
    /// The files at the names are no longer those of this store, or it is closed.
    is_removed: bool,
    /// When the last record of accesses was written, in seconds since the epoch.
    recorded: i64,
}

struct StoreState {
    /// The state as it is on disk, or as it will be after the next flush.
    stored: StoredState,
    /// Blocks that were written and not claimed yet, and the number of the write.
    unclaimed: HashMap<u64, u64>,
    writes: u64,
    /// Blocks that were dropped and that the state on disk may still claim.
    dropped: HashSet<u64>,
    /// In the order in which they were given up.
    unfreed: Vec<UnfreedBlocks>,
    has_new_claims: bool,
    has_new_accesses: bool,
    /// The store is closed or removed, so another one can release blocks of the same data.
    is_ended: bool,
    /// Number of bytes that the state on disk claims.
    claimed: u64,
}

impl StoreState {
    /// Returns the checksum of a stored block, which one of XRootD has not at first. `None` if the block is not
    /// stored.
    fn checksum(&self, block: u64) -> Option<Option<u32>> {
        let is_stored = self.stored.cinfo.blocks.contains(block) || self.unclaimed.contains_key(&block);
        is_stored.then(|| self.stored.checksums.get(block))
    }
}

impl Drop for BlockStore {
    fn drop(&mut self) {
        if let Some(data) = self.data.take() {
            self.context.close(data);
        }
    }
}

impl BlockStore {
    /// Opens the stored blocks of a version, and removes those of another version. The caller has no other
    /// store of this key, or has detached it.
    pub(crate) fn open(
        context: &Arc<StoreContext>,
        key: &CacheKey,
        version: OriginVersion,
        now: i64,
    ) -> Result<Self, StoreError> {
        let state = context.load(key)?;
        let data = match found(context.disk.open(key.data())) {
            // An empty directory is what is left of removed files.
            Err(StoreError::Foreign) if context.disk.remove_directory(key.data()).is_ok() => None,
            other => other?,
        };
        let (stored, data) = match (state, data) {
            (Some(DecodedState::Foreign), _) => return Err(StoreError::Foreign),
            (Some(DecodedState::Valid(state)), Some(data))
                if state.is_of(&version) && data.status()?.size >= state.stored_end() =>
            {
                // A stop between the end of a claim and the release of its space leaves it. The next open tries it again.
                context.free_empty_parts(&state, &*data).ok();
                (StoredState { version: Some(version), ..*state }, OnceLock::from(data))
            }
            (Some(_), data) => {
                context.unlink(key, data.is_some(), true)?;
                (Self::new_state(context, version, now)?, OnceLock::new())
            }
            (None, Some(data)) if is_unclaimed(&*data)? => {
                context.unlink(key, true, false)?;
                (Self::new_state(context, version, now)?, OnceLock::new())
            }
            (None, Some(_)) => return Err(StoreError::Foreign),
            (None, None) => (Self::new_state(context, version, now)?, OnceLock::new()),
        };
        let block_bytes = stored.cinfo.block_bytes;
        let claimed = stored.stored_bytes();
        let recorded = stored.cinfo.accesses.last().map_or(0, |last| last.detached.max(last.attached));
        let state = StoreState {
            claimed,
            stored,
            unclaimed: HashMap::new(),
            writes: 0,
            dropped: HashSet::new(),
            unfreed: Vec::new(),
            has_new_claims: false,
            has_new_accesses: false,
            is_ended: false,
        };
        Ok(Self {
            context: context.clone(),
            key: key.clone(),
            data,
            version,
            block_bytes,
            state: Mutex::new(state),
            claiming: Mutex::new(Claiming { is_removed: false, recorded }),
            number: context.pages.next_store(),
        })
    }

    /// Returns the state of a file of which nothing is stored.
    fn new_state(
        context: &StoreContext,
        version: OriginVersion,
        now: i64,
    ) -> Result<StoredState, StoreError> {
        let block_bytes = block_bytes_for(version.size, context.block_bytes);
        StoredState::new(version, block_bytes, now).ok_or(StoreError::Foreign)
    }

    /// Creates the data file before the first block is written, unless the files of this store were removed. The state
    /// file follows with the first flush.
    fn create_data(&self) -> io::Result<()> {
        let claiming = self.claiming();
        if claiming.is_removed {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.data.get().is_some() {
            return Ok(());
        }
        let data = self.context.create_data(&self.key)?;
        if data.set_attribute(DATA_ATTRIBUTE, b"1").is_err() {
            // Without attributes, the state file is what identifies the data.
            let content = self.state().stored.encode();
            if let Err(error) = self.context.replace_state(&self.key, &content, self.version.size) {
                self.context.disk.remove(self.key.data()).ok();
                return Err(error);
            }
        }
        // Only this function sets it.
        self.data.set(data).ok();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claiming(&self) -> MutexGuard<'_, Claiming> {
        self.claiming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the data file.
    fn data(&self) -> io::Result<&dyn CacheDiskFile> {
        self.data.get().map(|data| &**data).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the version of the file.
    #[must_use]
    pub const fn version(&self) -> OriginVersion {
        self.version
    }

    /// Returns the size of a block.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Returns the blocks that are stored when the file is opened. An empty file has none.
    pub(crate) fn blocks(&self) -> BlockMap {
        let state = self.state();
        let blocks = self.version.size.div_ceil(self.block_bytes);
        let bytes = state.stored.cinfo.blocks.as_bytes();
        let count = usize::try_from(BlockMap::byte_count(blocks)).unwrap_or(0);
        let bytes = bytes.get(..count).unwrap_or_default().to_vec();
        BlockMap::new(bytes, blocks).unwrap_or_else(|| state.stored.cinfo.blocks.clone())
    }

    fn bytes_of(&self, block: u64) -> Range<u64> {
        let begin = block.saturating_mul(self.block_bytes);
        begin..begin.saturating_add(self.block_bytes).min(self.version.size)
    }

    /// Reads bytes of stored blocks into `into`. The bytes of blocks that are returned as damaged have no
    /// meaning. These blocks are no longer stored.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> DamagedBlocks {
        let mut damaged = DamagedBlocks::new();
        self.read_blocks(BlockRead::Waiting, offset, into, |block| {
            self.drop_block(block);
            damaged.push(block);
            ControlFlow::Continue(())
        });
        damaged
    }

    /// Reads stored bytes that are in memory, without waiting for the disk, and compares their pages or blocks with
    /// their checksums. Returns whether all of `into` was read; otherwise it may be written partly.
    pub(crate) fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(read) = PageRead::new(offset, into.len(), self.version.size) else { return false };
        self.read_pages_now(&read, into).unwrap_or_else(|| self.read_blocks_now(offset, into))
    }

    /// Reads and compares pages. `None` if their checksums are not known, or the read is too long.
    fn read_pages_now(&self, read: &PageRead, into: &mut [u8]) -> Option<bool> {
        let pages = read.pages();
        let mut expected = [0; NOW_PAGES_MAX];
        let expected = expected.get_mut(..usize::try_from(pages.end - pages.start).ok()?)?;
        if !self.has_whole_pages() || !self.context.pages.look_up(self.number, pages.start, expected) {
            return None;
        }
        let pages_of_block = self.block_bytes / PAGE_BYTES as u64;
        let mut blocks = pages.start / pages_of_block..=(pages.end - 1) / pages_of_block;
        let state = self.state();
        let is_stored = blocks.all(|block| state.checksum(block).is_some());
        drop(state);
        Some(is_stored && self.data().is_ok_and(|data| read.run(data, into, expected)))
    }

    /// Reports whether each page belongs to one block.
    const fn has_whole_pages(&self) -> bool {
        self.block_bytes.is_multiple_of(PAGE_BYTES as u64)
    }

    fn read_blocks_now(&self, offset: u64, into: &mut [u8]) -> bool {
        let end = offset.saturating_add(into.len() as u64);
        let (first, last) = (offset / self.block_bytes, (end - 1) / self.block_bytes);
        let verified = self.bytes_of(last).end - self.bytes_of(first).start;
        if verified > NOW_BYTES_MAX || verified > NOW_SMALL_BYTES.max(into.len() as u64 * NOW_FACTOR) {
            return false;
        }
        let mut is_good = true;
        self.read_blocks(BlockRead::Now, offset, into, |_| {
            is_good = false;
            ControlFlow::Break(())
        });
        is_good
    }

    /// Reads bytes of stored blocks, and passes the blocks that could not be read, or are damaged, to `wrong`.
    fn read_blocks(
        &self,
        how: BlockRead,
        offset: u64,
        into: &mut [u8],
        mut wrong: impl FnMut(u64) -> ControlFlow<()>,
    ) {
        let mut piece = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(into.len() as u64));
        while at < end {
            let block = at / self.block_bytes;
            let bytes = self.bytes_of(block);
            let until = bytes.end.min(end);
            if until <= at {
                break;
            }
            let place = (at - offset) as usize..(until - offset) as usize;
            let is_good = into.get_mut(place).is_some_and(|part| {
                self.read_block(how, (block, &bytes), (at, part), &mut piece).unwrap_or(false)
            });
            if !is_good && wrong(block).is_break() {
                break;
            }
            at = until;
        }
    }

    /// Reads a piece of the data file. Returns whether all of it was read.
    fn read_piece(&self, how: BlockRead, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        let data = self.data()?;
        Ok(match how {
            BlockRead::Waiting => data.read_at(offset, into)? == into.len(),
            BlockRead::Now => data.read_now(offset, &mut [IoSliceMut::new(into)]),
        })
    }

    /// Reads a part of a block and compares all of the block with its checksum.
    fn read_block(
        &self,
        how: BlockRead,
        (block, bytes): (u64, &Range<u64>),
        (at, part): (u64, &mut [u8]),
        piece: &mut Vec<u8>,
    ) -> io::Result<bool> {
        if self.state().checksum(block).is_none() {
            // Another read has found it damaged meanwhile.
            return Ok(false);
        }
        let mut pages = Vec::new();
        if bytes.start == at && bytes.end - bytes.start == part.len() as u64 {
            let is_good = self.read_piece(how, at, part)? && self.has_checksum(block, crc32c(part));
            if is_good && self.has_whole_pages() {
                append_page_checksums(&mut pages, part);
                self.record_pages(bytes.start, &pages);
            }
            return Ok(is_good);
        }
        let mut running = RunningChecksum::new(Algorithm::Crc32c);
        let mut from = bytes.start;
        while from < bytes.end {
            let length = (bytes.end - from).min(how.piece_bytes()) as usize;
            piece.resize(length, 0);
            if !self.read_piece(how, from, piece)? {
                return Ok(false);
            }
            running.update(piece);
            // Pieces have whole pages.
            append_page_checksums(&mut pages, piece);
            let until = from + length as u64;
            let (begin, end) = (at.max(from), (at + part.len() as u64).min(until));
            if begin < end {
                let source = piece.get((begin - from) as usize..(end - from) as usize);
                let target = part.get_mut((begin - at) as usize..(end - at) as usize);
                if let (Some(source), Some(target)) = (source, target) {
                    target.copy_from_slice(source);
                }
            }
            from = until;
        }
        let value = running.finish().bytes().iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        let is_good = self.has_checksum(block, value);
        if is_good && self.has_whole_pages() {
            self.record_pages(bytes.start, &pages);
        }
        Ok(is_good)
    }

    /// Keeps the checksums of the pages of a block that is right.
    fn record_pages(&self, begin: u64, checksums: &[u32]) {
        self.context.pages.record(self.number, begin / PAGE_BYTES as u64, checksums);
    }

    /// Compares a checksum with that of a block as it is now, or records that of a block that XRootD has stored.
    pub(super) fn has_checksum(&self, block: u64, found: u32) -> bool {
        let mut state = self.state();
        match state.checksum(block) {
            Some(Some(expected)) => expected == found,
            // They may be zeros of a hole.
            Some(None) if state.is_ended && self.context.part_bytes().is_some() => false,
            Some(None) => {
                state.stored.checksums.set(block, Some(found));
                state.has_new_accesses = true;
                true
            }
            None => false,
        }
    }

    /// Gives up a block whose content is wrong.
    fn drop_block(&self, block: u64) {
        let mut state = self.state();
        state.stored.cinfo.blocks.remove(block);
        state.stored.checksums.set(block, None);
        state.unclaimed.remove(&block);
        state.dropped.insert(block);
        state.has_new_claims = true;
    }

    /// Writes a block. It is durable and claimed after the next flush.
    ///
    /// # Errors
    /// Errors of the disk. `ResourceBusy` for a block that was given up and whose space is not free yet.
    pub fn write(&self, block: u64, content: &[u8], now: i64) -> io::Result<()> {
        let bytes = self.bytes_of(block);
        if bytes.end.saturating_sub(bytes.start) != content.len() as u64 || content.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A claim without checksum must not outlive the content that it is about.
        let (is_dropped, is_unfreed) = {
            let state = self.state();
            let is_unfreed = state.unfreed.iter().any(|unfreed| unfreed.blocks.contains(&block));
            (state.dropped.contains(&block), is_unfreed)
        };
        if is_unfreed {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        if is_dropped {
            self.flush(now)?;
        }
        if self.data.get().is_none() {
            self.create_data()?;
        }
        self.data()?.write_at(bytes.start, content)?;
        let mut state = self.state();
        state.writes += 1;
        let number = state.writes;
        state.stored.checksums.set(block, Some(crc32c(content)));
        state.unclaimed.insert(block, number);
        Ok(())
    }

    /// Returns the number of bytes that were written and are not claimed.
    #[must_use]
    pub fn unclaimed_bytes(&self) -> u64 {
        (self.state().unclaimed.len() as u64).saturating_mul(self.block_bytes)
    }

    /// Returns the number of bytes that the state on disk claims.
    pub(crate) fn claimed_bytes(&self) -> u64 {
        self.state().claimed
    }

    /// Returns the number of opens since the file is in the cache, as far as they are recorded.
    pub(crate) fn opens(&self) -> u64 {
        self.state().stored.cinfo.opens
    }

    /// Records a period in which clients had the file open.
    pub fn record_access(&self, access: CacheAccess, now: i64) {
        let mut state = self.state();
        let opens = u64::try_from(access.opens).unwrap_or(0);
        state.stored.cinfo.opens = state.stored.cinfo.opens.saturating_add(opens);
        access_history::add(&mut state.stored.cinfo.accesses, access, now);
        state.has_new_accesses = true;
    }

    /// Reports whether there is something to do for a flush, apart from the record of accesses.
    pub(crate) fn has_new_claims(&self) -> bool {
        let state = self.state();
        state.has_new_claims || !state.unclaimed.is_empty() || !state.unfreed.is_empty()
    }

    /// Makes all written blocks durable, and claims them.
    ///
    /// # Errors
    /// Errors of the disk. The blocks remain to be claimed then.
    pub fn flush(&self, now: i64) -> io::Result<()> {
        self.flush_claims(&mut self.claiming(), now)
    }

    fn flush_claims(&self, claiming: &mut Claiming, now: i64) -> io::Result<()> {
        if claiming.is_removed {
            return Ok(());
        }
        let (last, has_blocks) = {
            let state = self.state();
            let since = now.saturating_sub(claiming.recorded);
            // The clock may have been set back.
            let is_due = !(0..ACCESS_INTERVAL).contains(&since);
            // Of a file of which nothing is stored, nothing is recorded.
            let accesses = is_due && state.has_new_accesses && state.stored.cinfo.blocks.present() > 0;
            if state.unclaimed.is_empty() && !state.has_new_claims && !accesses {
                return Ok(());
            }
            (state.writes, !state.unclaimed.is_empty())
        };
        self.context.journal.started(&self.key);
        if has_blocks && let Err(error) = self.data().and_then(|data| data.sync()) {
            // The kernel may have dropped what it could not write, and a later sync would not report it.
            self.state().unclaimed.retain(|_, number| *number > last);
            return Err(error);
        }
        let (stored, has_accesses, dropped, (claimed, used)) = {
            let mut state = self.state();
            let synced: Vec<u64> = state
                .unclaimed
                .iter()
                .filter(|(_, number)| **number <= last)
                .map(|(block, _)| *block)
                .collect();
            for block in synced {
                state.unclaimed.remove(&block);
                state.stored.cinfo.blocks.insert(block);
            }
            if has_blocks {
                // Not every origin sends checksums of pages.
                state.stored.cinfo.checks = CacheChecks::None;
                state.stored.cinfo.unverified_since.get_or_insert(now);
            }
            state.has_new_claims = false;
            let has_accesses = std::mem::take(&mut state.has_new_accesses);
            let claimed = (state.stored.stored_bytes(), state.stored.last_use());
            // Encoded without the lock, for which reads on event loops wait.
            (state.stored.clone(), has_accesses, state.dropped.clone(), claimed)
        };
        let replaced = self.context.replace_state(&self.key, &stored.encode(), self.version.size);
        let mut state = self.state();
        match &replaced {
            Ok(()) => {
                if has_accesses {
                    claiming.recorded = now;
                }
                state.claimed = claimed;
                self.context.journal.stored(&self.key, claimed, used);
                forget(&mut state.dropped, &dropped);
            }
            Err(_) => state.has_new_claims = true,
        }
        replaced
    }
}
