//! [`S3FifoPolicy`]: the policy of the cache.

use super::EvictionPolicy;
use super::frequency_sketch::FrequencySketch;
use super::ghost_table::GhostTable;
use super::unit_queue::{CachedUnit, HITS_MAX, QueueKind, UnitArena, UnitQueue};
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, RandomState};

/// The part of the capacity for new units: one in this number.
const SMALL_QUEUE_SHARE: u64 = 10;
/// Number of removed units that are remembered at least.
const GHOSTS_MIN: usize = 16;

/// Two queues without reordering at a request, and a memory of removed units (S3-FIFO). Frequencies
/// decide which units enter the main queue (TinyLFU).
///
/// New units enter a small queue. A unit that is requested there enters the main queue at its end;
/// another one is removed, and its hash is remembered. A unit that comes back while it is remembered
/// enters the main queue at once. If the main queue is full, a unit enters it only if it was requested
/// as often as the unit that would have to go, and at once if it was requested more often. The main
/// queue gives each unit another round for each request, at most three. So files that are read once, as in a scan, pass through a tenth of the
/// cache. Source: Yang et al., *FIFO queues are all you need for cache eviction*, SOSP 2023.
///
/// A hash is keyed with `S`, so that clients cannot choose names that share their counters.
pub struct S3FifoPolicy<K, S = RandomState> {
    arena: UnitArena<K, S>,
    queues: PolicyQueues,
    ghosts: GhostTable,
    frequencies: FrequencySketch,
    capacity: u64,
    units: usize,
}

/// A unit that was taken out of the order, because it could not be removed, or is being removed.
#[derive(Clone)]
pub(crate) struct ParkedUnit<K> {
    pub(crate) key: K,
    hits: u8,
    queue: QueueKind,
}

/// The bit of a rank that tells a unit of the main queue. The others are its hits.
const MAIN_RANK: u8 = 4;

impl<K> ParkedUnit<K> {
    /// Creates a unit of a rank that [`S3FifoPolicy::rank`] has returned.
    pub(crate) fn of_rank(key: K, rank: u8) -> Self {
        let queue = if rank & MAIN_RANK == 0 { QueueKind::Small } else { QueueKind::Main };
        Self { key, hits: rank & HITS_MAX, queue }
    }
}

/// The queues of the policy.
#[derive(Default)]
struct PolicyQueues {
    small: UnitQueue,
    main: UnitQueue,
}

impl PolicyQueues {
    fn of(&mut self, kind: QueueKind) -> &mut UnitQueue {
        match kind {
            QueueKind::Small => &mut self.small,
            QueueKind::Main => &mut self.main,
        }
    }
}

impl<K: Copy + Eq + Hash> S3FifoPolicy<K> {
    /// Creates an empty cache of this many bytes and about this number of units.
    #[must_use]
    pub fn new(capacity: u64, units: usize) -> Self {
        Self::with_hasher(capacity, units, RandomState::new())
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> S3FifoPolicy<K, S> {
    /// Creates an empty cache whose hashes are made by `hasher`.
    pub fn with_hasher(capacity: u64, units: usize, hasher: S) -> Self {
        Self {
            arena: UnitArena::new(hasher),
            queues: PolicyQueues::default(),
            ghosts: GhostTable::new(units),
            frequencies: FrequencySketch::new(units),
            capacity,
            units,
        }
    }

    fn hash(&self, key: K) -> u64 {
        self.arena.hasher().hash_one(key)
    }

    /// Returns the unit that is looked at next: the oldest one of the queue that is too long.
    fn next(&self) -> Option<u32> {
        let small = self.queues.small.oldest().filter(|_| self.queues.small.bytes() > self.small_max());
        small.or(self.queues.main.oldest()).or(self.queues.small.oldest())
    }

    /// Sets the number of bytes that the cache can have. What is too much remains until it is evicted.
    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// Sets the size of a unit that is cached.
    pub(crate) fn resize(&mut self, key: K, bytes: u64) {
        let Some(position) = self.arena.position(key) else { return };
        let Some(queue) = self.arena.get(position).map(|unit| unit.queue) else { return };
        self.queues.of(queue).resize(&mut self.arena, position, bytes);
    }

    /// Returns the next unit to evict, which stays.
    pub(crate) fn victim(&mut self) -> Option<K> {
        loop {
            let position = self.next()?;
            let CachedUnit { key, bytes, hits, queue, .. } = *self.arena.get(position)?;
            match queue {
                QueueKind::Small
                    if hits > 0 && self.compare_in_main(self.hash(key), bytes) != Some(Ordering::Less) =>
                {
                    self.keep(position, 0);
                }
                QueueKind::Main if hits > 0 => self.keep(position, hits - 1),
                QueueKind::Small | QueueKind::Main => return Some(key),
            }
        }
    }

    /// Removes a unit because there is too little room. It is remembered if it was new.
    pub(crate) fn evict_unit(&mut self, key: K) -> Option<u64> {
        let unit = self.arena.get(self.arena.position(key)?)?;
        if unit.queue == QueueKind::Small {
            self.ghosts.add(self.hash(key));
        }
        self.remove(key)
    }

    /// Takes a unit out of the order until it is put back.
    pub(crate) fn park(&mut self, key: K) -> Option<ParkedUnit<K>> {
        let CachedUnit { hits, queue, .. } = *self.arena.get(self.arena.position(key)?)?;
        self.remove(key).map(|_| ParkedUnit { key, hits, queue })
    }

    /// Puts a unit back, at the new end of its queue.
    pub(crate) fn put_back(&mut self, parked: &ParkedUnit<K>, bytes: u64) {
        if let Some(position) = self.add_parked(parked, bytes) {
            self.queues.of(parked.queue).push(&mut self.arena, position);
        }
    }

    /// Puts a unit back, at the old end of its queue.
    pub(crate) fn put_back_as_oldest(&mut self, parked: &ParkedUnit<K>, bytes: u64) {
        if let Some(position) = self.add_parked(parked, bytes) {
            self.queues.of(parked.queue).push_oldest(&mut self.arena, position);
        }
    }

    fn add_parked(&mut self, parked: &ParkedUnit<K>, bytes: u64) -> Option<u32> {
        let position = self.arena.add(parked.key, bytes, parked.queue)?;
        if let Some(unit) = self.arena.get_mut(position) {
            unit.hits = parked.hits;
        }
        Some(position)
    }

    /// Reports whether a unit was requested since it entered its queue, or since the last round of the queue.
    pub(crate) fn has_hits(&self, key: K) -> bool {
        self.rank(key) & HITS_MAX > 0
    }

    /// Returns the queue and the hits of a unit in one number; 0 if it is not in the order.
    pub(crate) fn rank(&self, key: K) -> u8 {
        let unit = self.arena.position(key).and_then(|position| self.arena.get(position));
        unit.map_or(0, |unit| unit.hits | if unit.queue == QueueKind::Main { MAIN_RANK } else { 0 })
    }

    fn small_max(&self) -> u64 {
        self.capacity / SMALL_QUEUE_SHARE
    }

    /// Compares the frequency of a unit with that of the unit that would have to go if it entered the
    /// main queue. `None` if there is room.
    fn compare_in_main(&self, hash: u64, bytes: u64) -> Option<Ordering> {
        if self.queues.main.bytes().saturating_add(bytes) <= self.capacity - self.small_max() {
            return None;
        }
        let oldest = self.arena.get(self.queues.main.oldest()?)?;
        Some(self.frequencies.estimate(hash).cmp(&self.frequencies.estimate(self.hash(oldest.key))))
    }

    /// Moves a unit to the new end of the main queue.
    fn keep(&mut self, position: u32, hits: u8) {
        let Some(kind) = self.arena.get(position).map(|unit| unit.queue) else { return };
        self.queues.of(kind).take(&mut self.arena, position);
        if let Some(unit) = self.arena.get_mut(position) {
            (unit.hits, unit.queue) = (hits, QueueKind::Main);
        }
        self.queues.main.push(&mut self.arena, position);
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> EvictionPolicy<K> for S3FifoPolicy<K, S> {
    fn request(&mut self, key: K) -> bool {
        let hash = self.hash(key);
        self.frequencies.record(hash);
        let unit = self.arena.position(key).and_then(|position| self.arena.get_mut(position));
        let Some(unit) = unit else { return false };
        unit.hits = (unit.hits + 1).min(HITS_MAX);
        true
    }

    fn insert(&mut self, key: K, bytes: u64) {
        let hash = self.hash(key);
        // As many as are cached now, because the units can be larger than was expected.
        let remembered = self.arena.len().clamp(GHOSTS_MIN, self.units.max(GHOSTS_MIN));
        let is_back = self.ghosts.take(hash, remembered);
        let kind = match self.compare_in_main(hash, bytes) {
            Some(Ordering::Greater) => QueueKind::Main,
            Some(Ordering::Equal) | None if is_back => QueueKind::Main,
            _ => QueueKind::Small,
        };
        if let Some(position) = self.arena.add(key, bytes, kind) {
            self.queues.of(kind).push(&mut self.arena, position);
        }
    }

    fn evict(&mut self) -> Option<(K, u64)> {
        let key = self.victim()?;
        self.evict_unit(key).map(|bytes| (key, bytes))
    }

    fn remove(&mut self, key: K) -> Option<u64> {
        let position = self.arena.position(key)?;
        let CachedUnit { bytes, queue, .. } = *self.arena.get(position)?;
        self.queues.of(queue).take(&mut self.arena, position);
        self.arena.forget(key);
        Some(bytes)
    }

    fn bytes(&self) -> u64 {
        self.queues.small.bytes() + self.queues.main.bytes()
    }
}
