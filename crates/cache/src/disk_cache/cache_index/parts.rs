//! The parts of files in the index: each is a unit of the order of removals, and the file itself is none then.

use super::{CacheIndex, IndexState, PartUnit, TakenUnit};
use crate::disk_cache::clock::FileUse;
use crate::eviction::ParkedUnit;
use crate::{CacheKey, EvictionPolicy};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

impl CacheIndex {
    /// Records that a file was opened whose parts have these sizes. Requests for parts are recorded by
    /// [`CacheIndex::requested`].
    pub(in crate::disk_cache) fn opened_in_parts(&self, key: &CacheKey, parts: &[(u32, u64)], used: FileUse) {
        let mut state = self.lock();
        state.set(key, parts.iter().map(|(_, bytes)| bytes).sum(), used);
        let is_split = state.split(key, parts);
        if !is_split {
            let number = state.number(key);
            state.policy.request(number);
        }
    }

    /// Records requests for parts of a file, or one for the file if it is one unit.
    pub(in crate::disk_cache) fn requested(&self, key: &CacheKey, parts: &[u32]) {
        let mut state = self.lock();
        let file = state.number(key);
        if !state.split.contains(file) {
            state.policy.request(file);
            return;
        }
        for &part in parts {
            let number = state.part_number(key, part);
            state.policy.request(number);
        }
    }

    /// Removes a part of a file because its space is free now, if the entry of the file is that of the caller. `taken` is the
    /// unit, if it is not in the order. Returns the size.
    pub(in crate::disk_cache) fn evict_part(
        &self,
        key: &CacheKey,
        (part, taken): (u32, Option<&TakenUnit>),
        is_retired: &AtomicBool,
    ) -> Option<u64> {
        let mut state = self.lock();
        let file = state.files.get(key).filter(|_| !is_retired.load(Ordering::Acquire))?.number;
        let bytes = state.split.get(file, part)?.bytes;
        if let Some(taken) = taken {
            state.policy.put_back(&taken.parked, bytes);
        }
        state.shrink(key, Some(part), bytes);
        Some(bytes)
    }

    /// Reports whether no part of a file was requested lately, so all of them are among the next to be removed.
    pub(in crate::disk_cache) fn is_quiet(&self, key: &CacheKey) -> bool {
        let state = self.lock();
        let Some(entry) = state.files.get(key) else { return false };
        let has_hits = |(_, unit): (u32, PartUnit)| state.policy.has_hits(unit.number);
        !state.split.parts(entry.number).any(has_hits) && !state.policy.has_hits(entry.number)
    }
}

impl IndexState {
    /// Returns the number of a part of a file, also if it is not known.
    pub(super) fn part_number(&self, key: &CacheKey, part: u32) -> u64 {
        let known = self.files.get(key).and_then(|entry| self.split.get(entry.number, part));
        known.map_or_else(|| self.free_number(self.hasher.hash_one((key, part))), |unit| unit.number)
    }

    /// Returns the size of the unit with this number: a file or a part of it; `None` if the number belongs to no unit of this
    /// file any longer.
    pub(super) fn bytes_of_unit(&self, key: &CacheKey, number: u64) -> Option<u64> {
        let entry = self.files.get(key)?;
        match self.split.name(number) {
            Some((name, part)) if **name == *key => self.split.get(entry.number, part).map(|unit| unit.bytes),
            // The number is that of another unit now.
            Some(_) => None,
            None => (entry.number == number && !self.split.contains(number)).then_some(entry.bytes),
        }
    }

    /// Returns the rank of a file in the order of removals: that of its best part.
    pub(super) fn rank(&self, file: u64) -> u8 {
        let of_parts = self.split.parts(file).map(|(_, unit)| self.policy.rank(unit.number)).max();
        of_parts.unwrap_or_else(|| self.policy.rank(file))
    }

    /// Sets the parts of a file, in order, and their sizes, whose sum is the size of the file. Returns `false` if there would
    /// be too many parts: the file is one unit then.
    pub(super) fn split(&mut self, key: &CacheKey, parts: &[(u32, u64)]) -> bool {
        let Some((name, entry)) = self.files.get_key_value(key) else { return false };
        let (name, file) = (name.clone(), entry.number);
        let has_sizes =
            self.split.parts(file).map(|(part, unit)| (part, unit.bytes)).eq(parts.iter().copied());
        if self.split.contains(file) && has_sizes {
            return true;
        }
        let others = self.split.len() - self.split.parts(file).count();
        if others.saturating_add(parts.len()) > self.parts_max {
            self.join(file);
            return false;
        }
        let rank = self.rank(file);
        if !self.split.contains(file) {
            self.policy.remove(file);
            self.split.add_file(file);
        }
        let is_gone = |part: &u32| parts.binary_search_by_key(part, |(part, _)| *part).is_err();
        let gone: Vec<u32> = self.split.parts(file).map(|(part, _)| part).filter(is_gone).collect();
        for part in gone {
            if let Some(unit) = self.split.remove(file, part) {
                self.policy.remove(unit.number);
            }
        }
        for &(part, bytes) in parts {
            let number = self.part_number(key, part);
            if self.split.get(file, part).is_some() {
                self.policy.resize(number, bytes);
            } else {
                self.policy.put_back(&ParkedUnit::of_rank(number, rank), bytes);
            }
            self.split.set((file, &name), part, PartUnit { number, bytes });
        }
        true
    }

    /// Makes a file that is split one unit again.
    pub(super) fn join(&mut self, file: u64) {
        if self.split.contains(file) {
            let rank = self.rank(file);
            for unit in self.split.remove_file(file) {
                self.policy.remove(unit.number);
            }
            let bytes =
                self.keys.get(&file).and_then(|key| self.files.get(key)).map_or(0, |entry| entry.bytes);
            self.policy.put_back(&ParkedUnit::of_rank(file, rank), bytes);
        }
    }

    /// Adds to the size of a file. Returns whether the bytes are the first ones of their part, whose request is recorded
    /// then.
    pub(super) fn grow(&mut self, key: &CacheKey, part: Option<u32>, more: u64) -> bool {
        let Some((name, entry)) = self.files.get_key_value(key) else { return false };
        let (name, file, bytes) = (name.clone(), entry.number, entry.bytes.saturating_add(more));
        let Some(part) = part.filter(|_| self.split.contains(file)) else {
            self.resize(key, bytes);
            return false;
        };
        let known = self.split.get(file, part);
        if known.is_none() && self.split.len() >= self.parts_max {
            self.join(file);
            self.resize(key, bytes);
            return false;
        }
        self.set_bytes(key, bytes);
        let number = known.map_or_else(|| self.part_number(key, part), |unit| unit.number);
        let of_part = known.map_or(0, |unit| unit.bytes).saturating_add(more);
        match known {
            Some(_) => self.policy.resize(number, of_part),
            None => {
                self.policy.request(number);
                self.policy.insert(number, of_part);
            }
        }
        self.split.set((file, &name), part, PartUnit { number, bytes: of_part });
        known.is_none()
    }

    /// Reduces the size of a file. A part of which nothing is left is one that was evicted.
    pub(super) fn shrink(&mut self, key: &CacheKey, part: Option<u32>, less: u64) {
        let Some((name, entry)) = self.files.get_key_value(key) else { return };
        let (name, file, bytes) = (name.clone(), entry.number, entry.bytes.saturating_sub(less));
        let known = part.and_then(|part| self.split.get(file, part).map(|unit| (part, unit)));
        let Some((part, unit)) = known else {
            self.resize(key, bytes);
            return;
        };
        self.set_bytes(key, bytes);
        let of_part = unit.bytes.saturating_sub(less);
        if of_part == 0 {
            self.policy.evict_unit(unit.number);
            self.split.remove(file, part);
        } else {
            self.policy.resize(unit.number, of_part);
            self.split.set((file, &name), part, PartUnit { bytes: of_part, ..unit });
        }
    }

    /// Sets the size of a file, and not that of its units.
    pub(super) fn set_bytes(&mut self, key: &CacheKey, bytes: u64) {
        if let Some(entry) = self.files.get_mut(key) {
            self.bytes = self.bytes.saturating_sub(entry.bytes).saturating_add(bytes);
            self.totals.change(key, entry.bytes, bytes);
            entry.bytes = bytes;
        }
    }
}
