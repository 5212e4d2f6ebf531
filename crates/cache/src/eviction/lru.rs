//! [`LruPolicy`]: the unit whose last request is longest ago goes first.

use super::EvictionPolicy;
use super::unit_queue::{QueueKind, UnitArena, UnitQueue};
use std::hash::{BuildHasher, Hash, RandomState};

/// Least recently used: the measure of other policies, and the order of XRootD's
/// disk cache.
pub struct LruPolicy<K, S = RandomState> {
    arena: UnitArena<K, S>,
    queue: UnitQueue,
}

impl<K: Copy + Eq + Hash, S: BuildHasher> LruPolicy<K, S> {
    /// Creates an empty cache.
    pub fn with_hasher(hasher: S) -> Self {
        Self { arena: UnitArena::new(hasher), queue: UnitQueue::default() }
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> EvictionPolicy<K> for LruPolicy<K, S> {
    fn request(&mut self, key: K) -> bool {
        let Some(position) = self.arena.position(key) else { return false };
        self.queue.take(&mut self.arena, position);
        self.queue.push(&mut self.arena, position);
        true
    }

    fn insert(&mut self, key: K, bytes: u64) {
        if let Some(position) = self.arena.add(key, bytes, QueueKind::Main) {
            self.queue.push(&mut self.arena, position);
        }
    }

    fn evict(&mut self) -> Option<(K, u64)> {
        let key = self.arena.get(self.queue.oldest()?)?.key;
        self.remove(key).map(|bytes| (key, bytes))
    }

    fn remove(&mut self, key: K) -> Option<u64> {
        let position = self.arena.position(key)?;
        let bytes = self.arena.get(position)?.bytes;
        self.queue.take(&mut self.arena, position);
        self.arena.forget(key);
        Some(bytes)
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }
}
