//! The location cache: a look-aside cache of the children that have each file (decision 023).
//!
//! A location lists the children that have a path, those where the file is only being staged or not
//! yet closed, and those that have not been queried yet. It is kept for a fixed window (8 h) from
//! its last *query*, not from its last use, so that stale contents end by themselves. There is no
//! scan, neither for expiry nor when children join ([`Bounces`]).
//!
//! The cache is divided into shards. Each has its own lock, held for one look-up (well below 1 µs;
//! a growing index occasionally holds it for some 100 µs). So the loops of connections read the
//! cache beside the cluster's thread, which alone decides its contents: see `resolve`. The number
//! of locations is bounded; beyond it, eviction removes the oldest, and a location used meanwhile
//! gets a second chance.
//!
//! Paths are not stored: a location is identified by at least 96 bits of a hash. The hash is keyed
//! at the start, so that an attacker cannot construct collisions. Among ten million locations the
//! probability of a collision is below 10^-15.
//!
//! | bytes of a location | |
//! |---|---|
//! | 48 | masks, clocks, bits of the hash |
//! | 6 to 12 | index, by its filling; a third more of that while a shard's index grows |
//! | 1 | its block |
//!
//! Source: cms protocol 3, section "location cache".

mod bounces;
mod location;
mod shard;

use std::hash::Hasher;
use std::ops::Add;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::Rng;
use siphasher::sip128::{Hasher128, SipHasher13};

pub use bounces::Bounces;
pub use location::{CacheStats, CachedLocation, PLACEMENT_HOLD, WINDOW_TICKS};

use crate::leases::LEASE;
use crate::slots::Slot;
use shard::{HashedName, LookupContext, Shard};

/// The default time for which a location is kept after its last query (`cms.fxhold`).
pub const WINDOW: Duration = Duration::from_secs(8 * 3600);
/// The default maximum number of locations: about 600 MB.
pub const LOCATIONS_MAX: usize = 10_000_000;
/// The maximum number of shards. With it the growth of one shard's index at [`LOCATIONS_MAX`] stays
/// below 1 ms.
const SHARDS_MAX: usize = 1024;
/// The number of locations per shard above which another shard is added.
const SHARD_LOCATIONS: usize = 4096;
/// The value of the seconds at the start of the process: a lease of which it learns may have begun
/// before that.
const FIRST_SECOND: Duration = LEASE;
/// The number of shards handled by one [`Cache::sweep`].
const SWEEP_SHARDS: usize = 16;

/// The settings of a cache.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// The time for which a location is kept after its last query; at least 1 s.
    pub window: Duration,
    /// The time for which a missing file stays cached; `None`: the whole window. (`cms.fxhold
    /// noloc`)
    pub nowhere: Option<Duration>,
    /// The maximum number of locations.
    pub locations_max: usize,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self { window: WINDOW, nowhere: None, locations_max: LOCATIONS_MAX }
    }
}

/// The location cache. Shared: every method takes `&self`.
///
/// `now` is the time since the start of the process, equal for all callers up to the jitter between
/// threads. `bounces` is the caller's view of the slots. A loop whose view is older than that of
/// the cluster's thread finds nothing for locations that the thread has written with newer
/// knowledge.
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// The maximum number of locations of one shard.
    most: usize,
    window: Window,
    key: (u64, u64),
    swept: AtomicUsize,
}

/// The window in the units of the shards.
#[derive(Clone, Copy, Debug)]
struct Window {
    tick_nanos: u64,
    nowhere: Option<u32>,
}

impl Cache {
    /// Creates an empty cache. The hash that places paths is keyed from `rng`, so that an attacker
    /// cannot direct names at one shard.
    pub fn new(settings: &CacheSettings, rng: &mut dyn Rng) -> Self {
        let mut key = [[0; 8]; 2];
        key.iter_mut().for_each(|half| rng.fill(half));
        let wanted = settings.locations_max.div_ceil(SHARD_LOCATIONS).clamp(1, SHARDS_MAX);
        let shards = wanted.next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            most: settings.locations_max.div_ceil(shards),
            window: Window {
                tick_nanos: (whole_nanos(settings.window) / u64::from(WINDOW_TICKS)).max(1),
                nowhere: settings.nowhere.map(whole_seconds),
            },
            key: (u64::from_le_bytes(key[0]), u64::from_le_bytes(key[1])),
            swept: AtomicUsize::new(0),
        }
    }

    /// Returns the key of its hash of paths.
    pub(crate) const fn key(&self) -> (u64, u64) {
        self.key
    }

    /// Returns the location of `path`; slots that bounced since then count as not queried.
    pub fn lookup(&self, path: &[u8], now: Duration, bounces: &Bounces) -> Option<CachedLocation> {
        let (mut shard, name) = self.place(path);
        shard.lookup(name, &self.moment(now, bounces))
    }

    /// Changes the location of `path`; `None` if it is unknown.
    pub fn update<R>(
        &self,
        path: &[u8],
        now: Duration,
        bounces: &Bounces,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> Option<R> {
        let (mut shard, name) = self.place(path);
        shard.update(name, &self.moment(now, bounces), change)
    }

    /// Sets the age of the lease under which a child was chosen for `path`, at most [`LEASE`].
    pub(crate) fn set_placement_age(
        &self,
        path: &[u8],
        slot: Slot,
        age: Duration,
        now: Duration,
        bounces: &Bounces,
    ) {
        let (mut shard, name) = self.place(path);
        let began = now.saturating_add(FIRST_SECOND).saturating_sub(age.min(LEASE));
        shard.set_placed_since(name, slot, whole_seconds(began), &self.moment(now, bounces));
    }

    /// Returns the time for which locations are kept.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_nanos(self.window.tick_nanos.saturating_mul(u64::from(WINDOW_TICKS)))
    }

    /// Starts the window of `path` again, with its location or [`CachedLocation::UNKNOWN`], and
    /// changes it.
    pub fn enter<R>(
        &self,
        path: &[u8],
        now: Duration,
        bounces: &Bounces,
        change: impl FnOnce(&mut CachedLocation) -> R,
    ) -> R {
        let (mut shard, name) = self.place(path);
        shard.enter(name, &self.moment(now, bounces), self.most, change)
    }

    /// Forgets `path`, which was removed or renamed by order.
    pub fn forget(&self, path: &[u8]) {
        let (mut shard, name) = self.place(path);
        shard.forget(name);
    }

    /// Removes expired locations from some of the shards; repeated calls reach all. (A shard also
    /// does so by itself when a location is added.)
    pub fn sweep(&self, now: Duration) {
        let tick = self.tick(now);
        let from = self.swept.fetch_add(SWEEP_SHARDS, Ordering::Relaxed);
        for at in from..from + SWEEP_SHARDS.min(self.shards.len()) {
            if let Some(shard) = self.shards.get(at % self.shards.len()) {
                unpoisoned(shard).expire(tick);
            }
        }
    }

    /// Returns the counts, summed over the shards one after the other.
    pub fn stats(&self) -> CacheStats {
        self.shards.iter().map(|shard| unpoisoned(shard).stats()).fold(CacheStats::default(), Add::add)
    }

    fn tick(&self, now: Duration) -> u32 {
        // The value saturates instead of wrapping: at the shortest window that is two years after
        // the start.
        u32::try_from(whole_nanos(now) / self.window.tick_nanos).unwrap_or(u32::MAX)
    }

    fn moment<'a>(&self, now: Duration, bounces: &'a Bounces) -> LookupContext<'a> {
        LookupContext {
            tick: self.tick(now),
            seconds: whole_seconds(now.saturating_add(FIRST_SECOND)),
            bounces,
            nowhere: self.window.nowhere,
        }
    }

    /// Locks the shard of a path; returns it with the key of the path.
    fn place(&self, path: &[u8]) -> (MutexGuard<'_, Shard>, HashedName) {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write(path);
        let hash = hasher.finish128();
        // One half of the hash selects the shard and the place in it, by different bits; the other
        // half distinguishes paths. The number of shards is a power of two.
        let at = (hash.h1 >> 32) as usize & (self.shards.len() - 1);
        (unpoisoned(&self.shards[at]), HashedName { hash: hash.h1 as u32, check: hash.h2 })
    }
}

/// Returns the nanoseconds, at most those of 584 years.
fn whole_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Returns the shard even after a panic. At worst a location is half changed, and the next query
/// corrects it.
fn unpoisoned(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
