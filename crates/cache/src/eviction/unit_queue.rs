//! [`UnitArena`] and [`UnitQueue`]: queues of units from whose middle a unit can be removed.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maximum count of requests that a unit remembers.
pub(super) const HITS_MAX: u8 = 3;

/// The queues a unit can be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum QueueKind {
    /// Units that are new.
    Small,
    /// All others.
    Main,
}

/// A unit in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedUnit<K> {
    pub(super) key: K,
    pub(super) bytes: u64,
    /// The number of requests since it entered its queue, at most [`HITS_MAX`].
    pub(super) hits: u8,
    pub(super) queue: QueueKind,
    /// The neighbour that entered later.
    newer: Option<u32>,
    /// The neighbour that entered earlier.
    older: Option<u32>,
}

/// The units of all queues, by their position and by their key.
pub(super) struct UnitArena<K, S> {
    units: Vec<CachedUnit<K>>,
    /// Positions that are free.
    free: Vec<u32>,
    positions: HashMap<K, u32, S>,
}

/// The order of some units of an arena.
#[derive(Default, Debug)]
pub(super) struct UnitQueue {
    newest: Option<u32>,
    oldest: Option<u32>,
    bytes: u64,
}

impl<K: Copy + Eq + Hash, S: BuildHasher> UnitArena<K, S> {
    pub(super) fn new(hasher: S) -> Self {
        Self { units: Vec::new(), free: Vec::new(), positions: HashMap::with_hasher(hasher) }
    }

    pub(super) fn hasher(&self) -> &S {
        self.positions.hasher()
    }

    pub(super) fn position(&self, key: K) -> Option<u32> {
        self.positions.get(&key).copied()
    }

    pub(super) fn get(&self, position: u32) -> Option<&CachedUnit<K>> {
        self.units.get(position as usize)
    }

    pub(super) fn get_mut(&mut self, position: u32) -> Option<&mut CachedUnit<K>> {
        self.units.get_mut(position as usize)
    }

    /// Adds a unit that is in no queue yet. `None` if its key is there, or all positions are taken.
    pub(super) fn add(&mut self, key: K, bytes: u64, queue: QueueKind) -> Option<u32> {
        if self.positions.contains_key(&key) {
            return None;
        }
        let unit = CachedUnit { key, bytes, hits: 0, queue, newer: None, older: None };
        let position = match self.free.pop() {
            Some(position) => {
                *self.get_mut(position)? = unit;
                position
            }
            None => {
                let position = u32::try_from(self.units.len()).ok()?;
                self.units.push(unit);
                position
            }
        };
        self.positions.insert(key, position);
        Some(position)
    }

    /// Returns the number of units.
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Forgets a unit that is in no queue any longer.
    pub(super) fn forget(&mut self, key: K) {
        if let Some(position) = self.positions.remove(&key) {
            self.free.push(position);
        }
    }
}

impl UnitQueue {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        self.oldest
    }

    /// Adds a unit of the arena as the newest one.
    pub(super) fn push<K: Copy + Eq + Hash, S: BuildHasher>(
        &mut self,
        arena: &mut UnitArena<K, S>,
        position: u32,
    ) {
        let Some(unit) = arena.get_mut(position) else { return };
        (unit.newer, unit.older) = (None, self.newest);
        self.bytes += unit.bytes;
        match self.newest.and_then(|newest| arena.get_mut(newest)) {
            Some(before) => before.newer = Some(position),
            None => self.oldest = Some(position),
        }
        self.newest = Some(position);
    }

    /// Adds a unit of the arena as the oldest one.
    pub(super) fn push_oldest<K: Copy + Eq + Hash, S: BuildHasher>(
        &mut self,
        arena: &mut UnitArena<K, S>,
        position: u32,
    ) {
        let Some(unit) = arena.get_mut(position) else { return };
        (unit.newer, unit.older) = (self.oldest, None);
        self.bytes += unit.bytes;
        match self.oldest.and_then(|oldest| arena.get_mut(oldest)) {
            Some(after) => after.older = Some(position),
            None => self.newest = Some(position),
        }
        self.oldest = Some(position);
    }

    /// Sets the size of a unit of the queue.
    pub(super) fn resize<K: Copy + Eq + Hash, S: BuildHasher>(
        &mut self,
        arena: &mut UnitArena<K, S>,
        position: u32,
        bytes: u64,
    ) {
        let Some(unit) = arena.get_mut(position) else { return };
        let before = std::mem::replace(&mut unit.bytes, bytes);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(bytes);
    }

    /// Takes a unit out of the queue. It must be in it.
    pub(super) fn take<K: Copy + Eq + Hash, S: BuildHasher>(
        &mut self,
        arena: &mut UnitArena<K, S>,
        position: u32,
    ) {
        let Some(&CachedUnit { newer, older, bytes, .. }) = arena.get(position) else { return };
        self.bytes = self.bytes.saturating_sub(bytes);
        match newer.and_then(|newer| arena.get_mut(newer)) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match older.and_then(|older| arena.get_mut(older)) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }
}
