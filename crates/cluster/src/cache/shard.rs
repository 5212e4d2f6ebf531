//! One shard of the cache: a log of blocks in the order of entry, and an index into it.
//!
//! ```text
//! index   hash -> id = block · 128 + place
//! blocks  [oldest] … [newest]      128 entries each, of one tick
//! ```
//!
//! The log is the time wheel: the entries that expire first are at its front. So expiry and
//! eviction remove whole blocks from there and look at no other block. A location whose window
//! starts again is appended at the end, and its old place becomes blank. At an early eviction, a
//! location with a look-up since its entry is carried over to the end once.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashTable;

use super::bounces::Bounces;
use super::location::{CacheStats, CachedLocation, FAILED_HOLD, PLACEMENT_HOLD, WINDOW_TICKS};
use crate::leases::LEASE;
use crate::slots::{Slot, SlotMask};

/// The number of entries of a block; a power of two.
const BLOCK_ENTRIES: u32 = 128;
const PLACE_BITS: u32 = BLOCK_ENTRIES.trailing_zeros();
/// The number at which block numbers wrap; far more than can exist at once.
const BLOCK_NUMBERS: u32 = 1 << (32 - PLACE_BITS);
/// The maximum number of entries of one evicted block that are carried over, so that eviction
/// always frees space.
const CARRIED_MAX: usize = 16;
/// The maximum number of expired blocks that are removed at once, so that the lock is held briefly.
const EXPIRED_BLOCKS_MAX: usize = 4;

/// The margin before the end of a lease: an end earlier than this was made by the child.
const LEASE_MARGIN: Duration = Duration::from_secs(2);

const LIVE: u8 = 1;
const USED: u8 = 2;
const QUERYING: u8 = 4;
/// The query asks only some of the children.
const PARTIAL: u8 = 8;
const NOWHERE: u8 = u8::MAX;

/// The key of a path: bits of its keyed hash. Other bits select the shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HashedName {
    /// The bits for the index.
    pub(super) hash: u32,
    /// The bits that distinguish it from all other paths.
    pub(super) check: u64,
}

/// The caller's time and view of the slots.
pub(super) struct LookupContext<'a> {
    /// The time, in ticks of the window.
    pub(super) tick: u32,
    /// The time, in seconds.
    pub(super) seconds: u32,
    pub(super) bounces: &'a Bounces,
    /// The number of seconds for which a missing file stays cached.
    pub(super) nowhere: Option<u32>,
}

/// 48 bytes.
struct CacheEntry {
    /// Holders that are not draining.
    have: u64,
    /// For bits of `have`: it is being staged there. Other bits: draining holders.
    pending: u64,
    unasked: u64,
    check: u64,
    /// The hash that the index needs when it grows.
    hash: u32,
    /// The bounce clock at the last check.
    clock: u32,
    /// The second in which the lease of its last placement began, or, after its end, a query of all
    /// children ended. The absences are not older.
    since: u32,
    /// The low bits of the tick at which its window began, at most a window before the block's.
    tick: u8,
    flags: u8,
    /// The slot of the unconfirmed placement, or `NOWHERE`.
    placed: u8,
    /// The slot of the child that ended the last placement without a file, or `NOWHERE`.
    failed: u8,
}

const _: () = assert!(size_of::<CacheEntry>() == 48);

#[derive(Default)]
struct EntryBlock {
    tick: u32,
    entries: Vec<CacheEntry>,
}

#[derive(Default)]
pub(super) struct Shard {
    index: HashTable<u32>,
    blocks: VecDeque<EntryBlock>,
    /// The number of the front block.
    front: u32,
    entries: usize,
    counts: CacheStats,
}

impl Shard {
    pub(super) fn lookup(&mut self, name: HashedName, at: &LookupContext<'_>) -> Option<CachedLocation> {
        let entry = self.current(name, at)?;
        entry.flags |= USED;
        let location = entry.location();
        self.counts.hits += 1;
        Some(location)
    }

    pub(super) fn update<R>(
        &mut self,
        name: HashedName,
        at: &LookupContext<'_>,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> Option<R> {
        let entry = self.current(name, at)?;
        let mut location = entry.location();
        let result = change(&mut location);
        entry.set(&location, at.seconds);
        Some(result)
    }

    /// Sets the second in which the lease of a placed path began, if this child has it.
    pub(super) fn set_placed_since(
        &mut self,
        name: HashedName,
        slot: Slot,
        since: u32,
        at: &LookupContext<'_>,
    ) {
        if let Some(entry) = self.current(name, at)
            && entry.placed == slot.number()
        {
            entry.since = since;
        }
    }

    pub(super) fn enter<R>(
        &mut self,
        name: HashedName,
        at: &LookupContext<'_>,
        most: usize,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> R {
        let known =
            self.current(name, at).map(|entry| (entry.location(), entry.since, entry.flags & PARTIAL));
        self.counts.misses += u64::from(known.is_none());
        let (mut location, since, partial) = known.unwrap_or((CachedLocation::UNKNOWN, at.seconds, 0));
        let result = change(&mut location);
        self.forget(name);
        self.expire(at.tick);
        self.make_room(at.tick, most);
        let mut entry = CacheEntry {
            have: 0,
            pending: 0,
            unasked: SlotMask::ALL.0,
            check: name.check,
            hash: name.hash,
            clock: at.bounces.clock(),
            since,
            tick: 0,
            flags: LIVE,
            placed: NOWHERE,
            failed: NOWHERE,
        };
        if let Some((before, ..)) = known {
            entry.set(&before, since);
            entry.since = since;
            entry.flags = entry.flags & !PARTIAL | partial;
        }
        entry.set(&location, at.seconds);
        self.append(at.tick, at.tick, entry);
        result
    }

    pub(super) fn forget(&mut self, name: HashedName) {
        let Self { index, blocks, front, .. } = self;
        let same = |id: &u32| entry_at(blocks, *front, *id).is_some_and(|(_, entry)| entry.is(name));
        let Ok(place) = index.find_entry(spread(name.hash), same) else { return };
        let (id, _) = place.remove();
        if let Some(entry) = entry_at_mut(blocks, *front, id) {
            entry.flags = 0;
        }
    }

    /// Removes blocks whose window has ended.
    pub(super) fn expire(&mut self, tick: u32) {
        for _ in 0..EXPIRED_BLOCKS_MAX {
            match self.blocks.front() {
                Some(block) if tick.saturating_sub(block.tick) >= WINDOW_TICKS => {}
                _ => return,
            }
            let Some(block) = self.pop_block() else { return };
            self.counts.expired +=
                block.entries.iter().filter(|entry| entry.flags & LIVE != 0).count() as u64;
        }
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats { locations: self.entries as u64, ..self.counts }
    }

    /// Returns the live entry of `path`, updated for bounces, expiry and unconfirmed placements.
    fn current(&mut self, name: HashedName, at: &LookupContext<'_>) -> Option<&mut CacheEntry> {
        let Self { index, blocks, front, .. } = self;
        let same = |id: &u32| entry_at(blocks, *front, *id).is_some_and(|(_, entry)| entry.is(name));
        let id = *index.find(spread(name.hash), same)?;
        let (block, entry) = entry_at(blocks, *front, id)?;
        // It was written with newer knowledge than the caller's, so the caller cannot judge it.
        if at.tick.saturating_sub(block.began(entry)) >= WINDOW_TICKS || entry.clock > at.bounces.clock() {
            return None;
        }
        let entry = entry_at_mut(blocks, *front, id)?;
        entry.check(at);
        Some(entry)
    }

    /// Evicts from the front until one more entry fits.
    fn make_room(&mut self, tick: u32, most: usize) {
        while !self.blocks.is_empty() && self.entries >= most.max(1) {
            let Some(block) = self.pop_block() else { return };
            let mut carried = 0;
            for entry in &block.entries {
                if entry.flags & LIVE == 0 {
                    continue;
                }
                let kept = entry.flags & USED != 0
                    && carried < CARRIED_MAX
                    && block.entries.len() > CARRIED_MAX
                    && tick.saturating_sub(block.began(entry)) < WINDOW_TICKS;
                if kept {
                    carried += 1;
                    let again = CacheEntry { flags: entry.flags & !USED, ..*entry };
                    self.append(tick, block.began(entry), again);
                } else {
                    self.counts.evicted += 1;
                }
            }
        }
    }

    /// Appends an entry whose window began with the tick `began`.
    fn append(&mut self, tick: u32, began: u32, mut entry: CacheEntry) {
        let open = self
            .blocks
            .back()
            .is_some_and(|block| block.tick >= tick && block.entries.len() < BLOCK_ENTRIES as usize);
        if !open {
            // The clocks of threads differ slightly; the log must not go back.
            let tick = self.blocks.back().map_or(tick, |last| last.tick.max(tick));
            if let Some(full) = self.blocks.back_mut() {
                full.entries.shrink_to_fit();
            }
            self.blocks.push_back(EntryBlock { tick, ..EntryBlock::default() });
        }
        let number = self.front.wrapping_add(self.blocks.len() as u32 - 1) % BLOCK_NUMBERS;
        let Self { index, blocks, front, .. } = self;
        let Some(block) = blocks.back_mut() else { return };
        let began = if began == tick { block.tick } else { began };
        entry.tick = began as u8;
        let (half, id) = (entry.hash, number << PLACE_BITS | block.entries.len() as u32);
        block.entries.push(entry);
        self.entries += 1;
        index.insert_unique(spread(half), id, |id| {
            entry_at(blocks, *front, *id).map_or(0, |(_, entry)| spread(entry.hash))
        });
    }

    /// Removes the oldest block from log and index.
    fn pop_block(&mut self) -> Option<EntryBlock> {
        let number = self.front;
        let block = self.blocks.pop_front()?;
        self.front = (number + 1) % BLOCK_NUMBERS;
        for (place, entry) in block.entries.iter().enumerate() {
            let id = number << PLACE_BITS | place as u32;
            if entry.flags & LIVE != 0
                && let Ok(found) = self.index.find_entry(spread(entry.hash), |other| *other == id)
            {
                found.remove();
            }
        }
        self.entries -= block.entries.len();
        Some(block)
    }
}

impl EntryBlock {
    /// Returns the tick at which the entry's window began.
    fn began(&self, entry: &CacheEntry) -> u32 {
        self.tick.saturating_sub(u32::from((self.tick as u8).wrapping_sub(entry.tick)))
    }
}

impl CacheEntry {
    fn is(&self, name: HashedName) -> bool {
        self.check == name.check && self.hash == name.hash
    }

    fn location(&self) -> CachedLocation {
        CachedLocation {
            have: SlotMask(self.have | self.pending),
            pending: SlotMask(self.pending & self.have),
            draining: SlotMask(self.pending & !self.have),
            unasked: SlotMask(self.unasked),
            querying: self.flags & QUERYING != 0,
            placed: Slot::new(self.placed),
            failed: Slot::new(self.failed),
        }
    }

    fn set(&mut self, location: &CachedLocation, seconds: u32) {
        let placed = location.placed.map_or(NOWHERE, Slot::number);
        // A lease that ended by itself was not used. That is not a failure of the child, and other
        // parents choose it again.
        let age = Duration::from_secs(seconds.saturating_sub(self.since).into());
        let failed = location.failed.map_or(NOWHERE, Slot::number);
        if failed == NOWHERE || age + LEASE_MARGIN < LEASE {
            self.failed = failed;
        }
        let (was_querying, was_partial) = (self.flags & QUERYING != 0, self.flags & PARTIAL != 0);
        // The end of a query does not make a lease younger.
        let has_all_replies = was_querying && !location.querying && !was_partial;
        if placed != self.placed || has_all_replies && placed == NOWHERE {
            self.since = seconds;
        }
        if !was_querying && location.querying {
            let partial = if self.unasked == SlotMask::ALL.0 { 0 } else { PARTIAL };
            self.flags = self.flags & !PARTIAL | partial;
        }
        self.have = (location.have - location.draining).0;
        self.pending = (location.pending | location.draining).0;
        self.unasked = location.unasked.0;
        self.placed = placed;
        self.flags = if location.querying { self.flags | QUERYING } else { self.flags & !QUERYING };
    }

    /// Updates the entry for bounces and for states whose time has ended.
    fn check(&mut self, at: &LookupContext<'_>) {
        let mut location = self.location();
        let bounced = at.bounces.since(self.clock);
        location.unasked |= at.bounces.invalidated_since(self.clock);
        self.clock = at.bounces.clock();
        let age = at.seconds.saturating_sub(self.since);
        if !bounced.is_empty() {
            location.invalidate(bounced);
        }
        if let Some(slot) = location.placed
            && u64::from(age) > PLACEMENT_HOLD.as_secs()
        {
            location.invalidate(slot.mask());
        }
        if location.failed.is_some_and(|slot| bounced.contains(slot))
            || u64::from(age) > FAILED_HOLD.as_secs()
        {
            location.failed = None;
        }
        if location.have.is_empty() && !location.querying && at.nowhere.is_some_and(|limit| age > limit) {
            location.unasked = SlotMask::ALL;
        }
        self.set(&location, at.seconds);
    }
}

fn entry_at(blocks: &VecDeque<EntryBlock>, front: u32, id: u32) -> Option<(&EntryBlock, &CacheEntry)> {
    let block = blocks.get(block_of(front, id))?;
    Some((block, block.entries.get(place_of(id))?))
}

fn entry_at_mut(blocks: &mut VecDeque<EntryBlock>, front: u32, id: u32) -> Option<&mut CacheEntry> {
    blocks.get_mut(block_of(front, id))?.entries.get_mut(place_of(id))
}

/// Returns the position of the block of an id, counted from the front.
fn block_of(front: u32, id: u32) -> usize {
    ((id >> PLACE_BITS).wrapping_sub(front) % BLOCK_NUMBERS) as usize
}

fn place_of(id: u32) -> usize {
    (id % BLOCK_ENTRIES) as usize
}

/// Mixes the bits, because the index uses the upper bits of the hash, too.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
