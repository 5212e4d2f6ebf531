//! `SplitFiles`: the files of which the index knows the parts. Each part is a unit of the order of removals.

use crate::CacheKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A part of a file as a unit of the order of removals.
#[derive(Clone, Copy)]
pub(super) struct PartUnit {
    /// Its number in the order.
    pub(super) number: u64,
    pub(super) bytes: u64,
}

/// The parts of files. A part of which nothing is stored is not there.
#[derive(Default)]
pub(super) struct SplitFiles {
    /// The parts of each file, by the number of the file.
    files: HashMap<u64, BTreeMap<u32, PartUnit>>,
    /// The names of files and the parts, by the numbers of the parts.
    names: HashMap<u64, (Arc<CacheKey>, u32)>,
}

impl SplitFiles {
    /// Reports whether the parts of a file are known.
    pub(super) fn contains(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    /// Returns the number of parts of all files.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Reports whether a number is that of a part.
    pub(super) fn is_part(&self, number: u64) -> bool {
        self.names.contains_key(&number)
    }

    /// Returns the file and the part of a number.
    pub(super) fn name(&self, number: u64) -> Option<(&Arc<CacheKey>, u32)> {
        self.names.get(&number).map(|(key, part)| (key, *part))
    }

    /// Returns the parts of a file.
    pub(super) fn parts(&self, file: u64) -> impl Iterator<Item = (u32, PartUnit)> {
        self.files.get(&file).into_iter().flatten().map(|(part, unit)| (*part, *unit))
    }

    /// Returns a part of a file.
    pub(super) fn get(&self, file: u64, part: u32) -> Option<PartUnit> {
        self.files.get(&file)?.get(&part).copied()
    }

    /// Begins to know the parts of a file, which has none at first.
    pub(super) fn add_file(&mut self, file: u64) {
        self.files.entry(file).or_default();
    }

    /// Adds a part or sets its size.
    pub(super) fn set(&mut self, (file, key): (u64, &Arc<CacheKey>), part: u32, unit: PartUnit) {
        if let Some(parts) = self.files.get_mut(&file) {
            parts.insert(part, unit);
            self.names.insert(unit.number, (key.clone(), part));
        }
    }

    /// Removes a part.
    pub(super) fn remove(&mut self, file: u64, part: u32) -> Option<PartUnit> {
        let unit = self.files.get_mut(&file)?.remove(&part)?;
        self.names.remove(&unit.number);
        Some(unit)
    }

    /// Forgets the parts of a file. Returns them.
    pub(super) fn remove_file(&mut self, file: u64) -> Vec<PartUnit> {
        let units: Vec<PartUnit> =
            self.files.remove(&file).into_iter().flatten().map(|(_, unit)| unit).collect();
        units.iter().for_each(|unit| drop(self.names.remove(&unit.number)));
        units
    }
}
