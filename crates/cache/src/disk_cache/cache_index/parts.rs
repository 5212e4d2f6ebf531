//! The parts of files in the index: each is a unit of the order of removals, and the file itself is none then.

use super::{IndexEntry, IndexState, PartUnit};
use crate::eviction::ParkedUnit;
use crate::{CacheKey, EvictionPolicy};
use std::hash::BuildHasher;

impl IndexState {
    /// Returns the number of a part of a file, also if it is not known.
    pub(super) fn part_number(&self, key: &CacheKey, part: u32) -> u64 {
        let known = self.files.get(key).and_then(|entry| self.split.get(entry.number, part));
        known.map_or_else(|| self.free_number(self.hasher.hash_one((key, part))), |unit| unit.number)
    }

    /// Returns the size of a unit of a file: of the file itself, or of a part.
    pub(super) fn bytes_of(&self, entry: &IndexEntry, number: u64) -> Option<u64> {
        match self.split.name(number) {
            Some((_, part)) => self.split.get(entry.number, part).map(|unit| unit.bytes),
            None => (entry.number == number && !self.split.contains(number)).then_some(entry.bytes),
        }
    }

    /// Returns the rank of a file in the order of removals: that of its best part.
    pub(super) fn rank(&self, file: u64) -> u8 {
        let of_parts = self.split.parts(file).map(|(_, unit)| self.policy.rank(unit.number)).max();
        of_parts.unwrap_or_else(|| self.policy.rank(file))
    }

    /// Sets the parts of a file and their sizes, whose sum is the size of the file.
    pub(super) fn split(&mut self, key: &CacheKey, parts: &[(u32, u64)]) {
        let Some((name, entry)) = self.files.get_key_value(key) else { return };
        let (name, file) = (name.clone(), entry.number);
        let rank = self.rank(file);
        if !self.split.contains(file) {
            self.policy.remove(file);
            self.split.add_file(file);
        }
        let known: Vec<u32> = self.split.parts(file).map(|(part, _)| part).collect();
        for part in known.into_iter().filter(|part| !parts.iter().any(|(other, _)| other == part)) {
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
    }

    /// Makes a file that is split one unit again.
    pub(super) fn join(&mut self, file: u64) {
        if self.split.contains(file) {
            let rank = self.rank(file);
            for unit in self.split.remove_file(file) {
                self.policy.remove(unit.number);
            }
            self.policy.put_back(&ParkedUnit::of_rank(file, rank), 0);
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
        self.set_bytes(key, bytes);
        let known = self.split.get(file, part);
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
