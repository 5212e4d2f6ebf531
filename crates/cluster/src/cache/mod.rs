//! Where files are, as far as it is known: the look-aside location cache.
//!
//! A location says of a path which children have it, where it is only on its way (being staged, or not yet closed),
//! and which children have still to be asked. It is kept for a fixed window (8 h) from its last *query*, not from its
//! last use, so that whatever is wrong in it ends by itself; there is no scan, neither for expiry nor when children
//! join ([`Bounces`]).
//!
//! The cache is cut into shards, each with a lock of its own that is held for one look-up (well under a microsecond;
//! a shard's index growing, once in a while, holds it for some hundred). So the loops of connections read it beside
//! the cluster's thread, which alone decides what stands in it: see `resolve`. Their number is bounded; beyond, the oldest
//! go, and what was used meanwhile gets a second chance.
//!
//! Paths are not kept: a location is known by at least 96 bits of a hash keyed at the start, which nobody outside can
//! aim at. Among ten million locations two paths are taken for one with a probability under 10^-15.
//!
//! | bytes of a location | |
//! |---|---|
//! | 48 | masks, clocks, bits of the hash |
//! | 6 to 12 | index, by its filling; a third more of that while a shard's index grows |
//! | 1 | its block |
//!
//! Source: cms protocol 3, section "location cache".

mod bounces;
mod shard;

use std::hash::Hasher;
use std::ops::{Add, AddAssign};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Rng;
use siphasher::sip128::{Hasher128, SipHasher13};

pub use bounces::Bounces;

use crate::slots::{Slot, SlotMask};
use shard::{Moment, Name, Shard};

/// How long a location is kept from its last query, unless configured (`cms.fxhold`).
pub const WINDOW: Duration = Duration::from_secs(8 * 3600);
/// Steps in which the window advances; a location lives for 63 to 64 of them.
pub const WINDOW_TICKS: u32 = 64;
/// Locations kept at most, unless configured: about 600 MB.
pub const LOCATIONS_MAX: usize = 10_000_000;
/// How long a child that was chosen to create a file counts as its holder without having said so itself. It is as long as the
/// clients of XRootD try to connect by default (`XRD_CONNECTIONWINDOW`), because a real daemon lets a client create the file
/// however late it comes. A child that takes leases ends the placement itself, with its lease.
pub const PLACEMENT_HOLD: Duration = Duration::from_secs(120);

/// How long a child is avoided for a new file whose lease it has ended without a file.
pub(crate) const FAILED_HOLD: Duration = Duration::from_secs(300);

/// Shards at most: so many that the growth of one's index at [`LOCATIONS_MAX`] stays under a millisecond.
const SHARDS_MAX: usize = 1024;
/// Locations for which one more shard is worth it.
const SHARD_LOCATIONS: usize = 4096;
/// Shards looked at by one [`Cache::sweep`].
const SWEEP_SHARDS: usize = 16;

/// The numbers of a cache.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// How long a location is kept from its last query; at least a second.
    pub window: Duration,
    /// How long "nobody has it" is believed; `None`: the whole window. (`cms.fxhold noloc`)
    pub nowhere: Option<Duration>,
    /// Locations kept at most.
    pub locations_max: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { window: WINDOW, nowhere: None, locations_max: LOCATIONS_MAX }
    }
}

/// What is known of one path.
///
/// ```text
/// have       children that have it, be it only on its way
/// pending    those of them where it is on its way
/// draining   those of them where it is only below nodes that are being emptied; never in pending
/// unasked    children that have to be asked before silence of theirs means anything
/// ```
///
/// A child in none of them does not have it. Slots nobody sits in may stand anywhere: whoever reads this keeps
/// to the children that export the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// Children that have it.
    pub have: SlotMask,
    /// Children where it is being staged or not yet closed; also in `have`.
    pub pending: SlotMask,
    /// Children below which only nodes have it whose clients are being moved away; also in `have`.
    pub draining: SlotMask,
    /// Children yet to be asked.
    pub unasked: SlotMask,
    /// A query for it is under way.
    pub querying: bool,
    /// The child that was chosen to create or stage it and has not yet said that it did; also in `have` and `pending`.
    pub placed: Option<Slot>,
    /// The child that was chosen to create it last, and has ended the lease without a file.
    pub failed: Option<Slot>,
}

impl Location {
    /// Nothing is known: every child has to be asked.
    pub const UNKNOWN: Self = Self {
        have: SlotMask::EMPTY,
        pending: SlotMask::EMPTY,
        draining: SlotMask::EMPTY,
        unasked: SlotMask::ALL,
        querying: false,
        placed: None,
        failed: None,
    };

    /// A child said that it has it, or that it is on its way there.
    pub fn found(&mut self, slot: Slot, pending: bool) {
        self.have.insert(slot);
        self.draining.remove(slot);
        if pending {
            self.pending.insert(slot);
        } else {
            self.pending.remove(slot);
        }
        self.unasked.remove(slot);
        if self.placed == Some(slot) {
            self.placed = None;
        }
        if self.failed == Some(slot) {
            self.failed = None;
        }
    }

    /// A child said that nodes below it have it, and that clients are being moved away from all of them.
    pub fn found_draining(&mut self, slot: Slot) {
        self.found(slot, false);
        self.draining.insert(slot);
    }

    /// A child said that it does not have it any more.
    pub fn missed(&mut self, slot: Slot) {
        self.void(slot.mask());
        self.unasked.remove(slot);
    }

    /// A child, asked, said that it does not have it. From one that was just chosen to create it that means nothing:
    /// its client may be on the way.
    pub fn absent(&mut self, slot: Slot) {
        if self.placed == Some(slot) {
            self.unasked.remove(slot);
        } else {
            self.missed(slot);
        }
    }

    /// A child was chosen to create or stage it: others who ask are sent there too.
    pub fn place(&mut self, slot: Slot) {
        self.found(slot, true);
        self.placed = Some(slot);
    }

    /// What is known of these children holds no longer; they have to be asked again.
    pub fn doubt(&mut self, slots: SlotMask) {
        self.void(slots);
        self.unasked |= slots;
    }

    /// Everything is to be asked anew; only a choice made a moment ago stands.
    pub fn reset(&mut self) {
        let placed = self.placed;
        *self = Self { querying: self.querying, failed: self.failed, ..Self::UNKNOWN };
        if let Some(slot) = placed {
            self.place(slot);
            self.unasked.insert(slot);
        }
    }

    fn void(&mut self, slots: SlotMask) {
        self.have -= slots;
        self.pending -= slots;
        self.draining -= slots;
        if self.placed.is_some_and(|slot| slots.contains(slot)) {
            self.placed = None;
        }
    }
}

/// What happened in a cache so far, and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Locations held, those that were replaced and not yet swept away among them.
    pub locations: u64,
    /// Look-ups that found something.
    pub hits: u64,
    /// Paths that were unknown and entered.
    pub misses: u64,
    /// Locations that went because their window was over.
    pub expired: u64,
    /// Locations that went before their time because the cache was full.
    pub evicted: u64,
}

impl Add for CacheStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            locations: self.locations + other.locations,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            expired: self.expired + other.expired,
            evicted: self.evicted + other.evicted,
        }
    }
}

impl AddAssign for CacheStats {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The location cache. Shared: every method takes `&self`.
///
/// `now` is the time since the start of the process, the same for all callers up to the jitter between threads.
/// `bounces` is what the caller knows of slots; a loop that is behind the cluster's thread finds nothing where that
/// thread has already written with newer knowledge.
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// Locations of one shard at most.
    most: usize,
    window: Window,
    key: (u64, u64),
    swept: AtomicUsize,
}

/// The window as the shards count it.
#[derive(Clone, Copy, Debug)]
struct Window {
    tick_nanos: u128,
    nowhere: Option<u32>,
}

impl Cache {
    /// An empty cache. The placement of paths is keyed from `rng`, so that nobody can aim names at one shard.
    pub fn new(settings: &CacheSettings, rng: &mut dyn Rng) -> Self {
        let mut key = [[0; 8]; 2];
        key.iter_mut().for_each(|half| rng.fill(half));
        let wanted = settings.locations_max.div_ceil(SHARD_LOCATIONS).clamp(1, SHARDS_MAX);
        let shards = wanted.next_power_of_two();
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            most: settings.locations_max.div_ceil(shards),
            window: Window {
                tick_nanos: (settings.window.as_nanos() / u128::from(WINDOW_TICKS)).max(1),
                nowhere: settings.nowhere.map(seconds),
            },
            key: (u64::from_le_bytes(key[0]), u64::from_le_bytes(key[1])),
            swept: AtomicUsize::new(0),
        }
    }

    /// The key of its hash of paths.
    pub(crate) const fn key(&self) -> (u64, u64) {
        self.key
    }

    /// What is known of `path`; slots that bounced since stand among the unasked.
    pub fn lookup(&self, path: &[u8], now: Duration, bounces: &Bounces) -> Option<Location> {
        let (mut shard, name) = self.place(path);
        shard.lookup(name, &self.moment(now, bounces))
    }

    /// Changes what is known of `path`; `None` when nothing is.
    pub fn update<R>(
        &self,
        path: &[u8],
        now: Duration,
        bounces: &Bounces,
        change: impl FnOnce(&mut Location) -> R,
    ) -> Option<R> {
        let (mut shard, name) = self.place(path);
        shard.update(name, &self.moment(now, bounces), change)
    }

    /// Begins the window of `path` anew, with what is known of it or [`Location::UNKNOWN`], and changes it.
    pub fn enter<R>(
        &self,
        path: &[u8],
        now: Duration,
        bounces: &Bounces,
        change: impl FnOnce(&mut Location) -> R,
    ) -> R {
        let (mut shard, name) = self.place(path);
        shard.enter(name, &self.moment(now, bounces), self.most, change)
    }

    /// Forgets `path`: it was removed or renamed by order.
    pub fn forget(&self, path: &[u8]) {
        let (mut shard, name) = self.place(path);
        shard.forget(name);
    }

    /// Lets go of what expired in some of the shards; called now and then it reaches all. (A shard also does so by
    /// itself when something is entered.)
    pub fn sweep(&self, now: Duration) {
        let tick = self.tick(now);
        let from = self.swept.fetch_add(SWEEP_SHARDS, Ordering::Relaxed);
        for at in from..from + SWEEP_SHARDS.min(self.shards.len()) {
            if let Some(shard) = self.shards.get(at % self.shards.len()) {
                unpoisoned(shard).expire(tick);
            }
        }
    }

    /// What is in it and what happened, summed over the shards one after the other.
    pub fn stats(&self) -> CacheStats {
        self.shards.iter().map(|shard| unpoisoned(shard).stats()).fold(CacheStats::default(), Add::add)
    }

    fn tick(&self, now: Duration) -> u32 {
        // Clamped, not wrapped: at the shortest window that is two years after the start.
        u32::try_from(now.as_nanos() / self.window.tick_nanos).unwrap_or(u32::MAX)
    }

    fn moment<'a>(&self, now: Duration, bounces: &'a Bounces) -> Moment<'a> {
        Moment {
            tick: self.tick(now),
            seconds: u32::try_from(now.as_secs()).unwrap_or(u32::MAX),
            bounces,
            nowhere: self.window.nowhere,
        }
    }

    /// The shard of a path, held, and the path's name in it.
    fn place(&self, path: &[u8]) -> (MutexGuard<'_, Shard>, Name) {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write(path);
        let hash = hasher.finish128();
        // One half picks the shard and the place in it, by different bits; the other tells paths apart. There is a power
        // of two of shards.
        let at = (hash.h1 >> 32) as usize & (self.shards.len() - 1);
        (unpoisoned(&self.shards[at]), Name { hash: hash.h1 as u32, check: hash.h2 })
    }
}

/// A panic while a shard was held leaves at worst a location half changed, which the next query mends.
fn unpoisoned(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
