//! [`RemovalBatch`]: files and parts of files that are removed together.

use super::cache_index::{RemovalUnit, TakenUnit};
use super::cached_file::{CachedFile, OpenFileParts, PartUse, TakenPart};
use super::removal::DISK_FAILURES_MAX;
use super::shared::is_about_disk;
use super::table::{LockedSlot, SlotInUse};
use super::{CacheOrigin, DiskCache};
use crate::CacheKey;
use crate::store::{FilePartsToRemove, RemainingFile, StoreError, is_full};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Maximum number of files that one job of the disk removes.
pub(super) const BATCH_FILES: usize = 64;

/// Maximum number of files of which a batch removes parts. Each replaces a state file.
const BATCH_PARTED_FILES: usize = 8;

/// A file that nobody has open, and that the index does not know any longer. Nobody can open it until it was removed.
pub(super) struct RemovableFile<O: CacheOrigin> {
    // Unlocked before the table is asked whether the slot is still used.
    _locked: LockedSlot<O>,
    _slot: SlotInUse<O>,
    key: CacheKey,
    bytes: u64,
}

impl<O: CacheOrigin> RemovableFile<O> {
    pub(super) fn new(locked: LockedSlot<O>, slot: SlotInUse<O>, key: CacheKey, bytes: u64) -> Self {
        Self { _locked: locked, _slot: slot, key, bytes }
    }
}

/// A file of which parts are to be removed. The index counts them until their space is free.
struct PartedFile {
    key: CacheKey,
    what: TakenParts,
}

enum TakenParts {
    Parts(Vec<TakenPart>),
    /// As many as have this number of bytes, of a file that is one unit.
    AtLeast(u64, TakenUnit),
}

/// The result of the removal of some files.
#[derive(Default)]
pub(super) struct RemovedBatch {
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Number of bytes of files that were not there.
    pub(super) missing: u64,
    /// Files that could not be removed, with their sizes.
    pub(super) failed: Vec<(CacheKey, u64)>,
    /// The disk has failed.
    pub(super) has_failed: bool,
    /// Number of files of which parts could not be removed because of an error of the disk, which is not full.
    pub(super) disk_failures: usize,
    /// Files of which parts could not be removed.
    pub(super) failed_parts: Vec<CacheKey>,
    /// Files of which parts could not be removed because the disk is full.
    pub(super) kept: Vec<CacheKey>,
    /// The disk is too full to remove a part of a file.
    pub(super) is_full: bool,
    /// Units that are in use, or whose removal has failed.
    pub(super) passed_over: Vec<TakenUnit>,
    /// Units that are to be removed next, because they are left in part, or the disk is full.
    pub(super) next: Vec<TakenUnit>,
}

/// Files that nobody has open, and files of which parts are removed.
pub(super) struct RemovalBatch<O: CacheOrigin> {
    whole: Vec<RemovableFile<O>>,
    parted: Vec<PartedFile>,
    bytes: u64,
}

impl<O: CacheOrigin> Default for RemovalBatch<O> {
    fn default() -> Self {
        Self { whole: Vec::new(), parted: Vec::new(), bytes: 0 }
    }
}

impl<O: CacheOrigin> From<Vec<RemovableFile<O>>> for RemovalBatch<O> {
    fn from(whole: Vec<RemovableFile<O>>) -> Self {
        Self { whole, ..Self::default() }
    }
}

impl<O: CacheOrigin> RemovalBatch<O> {
    /// Returns the number of bytes that are to be removed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.whole.len() >= BATCH_FILES || self.parted.len() >= BATCH_PARTED_FILES
    }

    /// Takes a unit, to remove this number of bytes, out of the order of removals. Returns `false` if that is not possible
    /// now. A unit that was requested lately only loses its place.
    pub(super) fn take(&mut self, cache: &DiskCache<O>, unit: &RemovalUnit, needed: u64) -> bool {
        let taken = match unit.part {
            Some(part) => self.take_part(cache, unit, part),
            None => self.take_file(cache, unit, needed),
        };
        self.count(taken)
    }

    /// Adds the number of bytes that were taken. Reports whether anything was taken.
    fn count(&mut self, taken: Option<u64>) -> bool {
        self.bytes = self.bytes.saturating_add(taken.unwrap_or(0));
        taken.is_some()
    }

    /// Takes all of a closed file. A file that goes instead of a part of it must have no part that the order of removals
    /// knows a new request of. Returns `false` if that is not possible.
    pub(super) fn take_whole(&mut self, cache: &DiskCache<O>, unit: &RemovalUnit) -> bool {
        let may_go = unit.part.is_none() || cache.shared.index.is_quiet(&unit.key);
        let taken = may_go.then(|| self.take_closed(cache, &unit.key)).flatten();
        self.count(taken)
    }

    fn take_closed(&mut self, cache: &DiskCache<O>, key: &CacheKey) -> Option<u64> {
        // Parts of it may be taken already.
        if self.parted.iter().any(|file| file.key == *key) {
            return None;
        }
        let slot = cache.table.slot(key);
        let locked = slot.lock_closed()?;
        let bytes = cache.shared.index.evict(key)?;
        self.whole.push(RemovableFile::new(locked, slot, key.clone(), bytes));
        Some(bytes)
    }

    /// Takes a file that this process has not opened, or one without parts. If not all of it is needed, only parts of a
    /// large file are removed. Returns the number of bytes that will be freed.
    fn take_file(&mut self, cache: &DiskCache<O>, unit: &RemovalUnit, needed: u64) -> Option<u64> {
        if cache.shared.context.part_bytes().is_none_or(|part| unit.bytes <= part.max(needed)) {
            return self.take_closed(cache, &unit.key);
        }
        cache.table.slot(&unit.key).lock_closed()?;
        let taken = cache.shared.index.take(unit)?;
        self.parted.push(PartedFile { key: unit.key.clone(), what: TakenParts::AtLeast(needed, taken) });
        Some(needed)
    }

    /// Takes a part of a file. Returns the number of bytes that will be freed.
    fn take_part(&mut self, cache: &DiskCache<O>, unit: &RemovalUnit, part: u32) -> Option<u64> {
        let open = open_file(cache, &unit.key)?;
        if cache.shared.context.part_bytes().is_none() {
            // The disk cannot free parts any longer.
            return open.is_none().then(|| self.take_closed(cache, &unit.key)).flatten();
        }
        if let Some(file) = open {
            match OpenFileParts(&file).part_use(part) {
                PartUse::InUse => return None,
                PartUse::Requested => return Some(0),
                PartUse::Unused => {}
            }
        }
        let taken = (part, cache.shared.index.take(unit)?);
        match self.parted.iter_mut().find(|file| file.key == unit.key) {
            Some(PartedFile { what: TakenParts::Parts(parts), .. }) => parts.push(taken),
            _ => self.parted.push(PartedFile { key: unit.key.clone(), what: TakenParts::Parts(vec![taken]) }),
        }
        Some(unit.bytes)
    }

    /// Removes all of it. A file of which parts are removed can be opened before and afterwards.
    pub(super) async fn remove(self, cache: &DiskCache<O>) -> RemovedBatch {
        let mut removed = RemovedBatch::default();
        if !self.whole.is_empty() {
            remove_whole(cache, self.whole, &mut removed).await;
        }
        for file in self.parted {
            if removed.disk_failures >= DISK_FAILURES_MAX {
                removed.passed_over.extend(file.what.into_units());
            } else {
                file.remove(cache, &mut removed).await;
            }
        }
        removed
    }
}

/// Returns a file, if it is open; `None` if it is being opened, changed or removed.
fn open_file<O: CacheOrigin>(cache: &DiskCache<O>, key: &CacheKey) -> Option<Option<Arc<CachedFile<O>>>> {
    let slot = cache.table.slot(key);
    let file = slot.try_lock().ok()?.clone();
    Some(file)
}

/// Removes files that nobody has open.
async fn remove_whole<O: CacheOrigin>(
    cache: &DiskCache<O>,
    files: Vec<RemovableFile<O>>,
    removed: &mut RemovedBatch,
) {
    let context = cache.shared.context.clone();
    let keys: Vec<CacheKey> = files.iter().map(|file| file.key.clone()).collect();
    let results = cache.shared.on_disk(move || context.remove_all(&keys)).await.unwrap_or_default();
    removed.has_failed |= results.len() < files.len();
    // Without a result, a file may still be there.
    let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    for (file, result) in files.into_iter().zip(results) {
        match result.and_then(|result| cache.note_removed(&file.key, result)) {
            Some(true) => {
                cache.shared.counters.evicted_files.add(1);
                cache.shared.counters.evicted_bytes.add(file.bytes);
                removed.files += 1;
                removed.bytes = removed.bytes.saturating_add(file.bytes);
            }
            Some(false) => removed.missing = removed.missing.saturating_add(file.bytes),
            None => {
                removed.has_failed |= cache.shared.has_failed();
                removed.failed.push((file.key.clone(), file.bytes));
            }
        }
    }
}

impl PartedFile {
    /// Removes the parts. Opens of a closed file wait for that.
    async fn remove<O: CacheOrigin>(self, cache: &DiskCache<O>, removed: &mut RemovedBatch) {
        let slot = cache.table.slot(&self.key);
        if let Some(_locked) = slot.lock_closed() {
            self.remove_closed(cache, removed).await;
            return;
        }
        // An open file is not locked meanwhile. If it is closed or removed, its store does nothing any longer.
        let open = slot.try_lock().ok().and_then(|file| file.clone());
        match (self.what, open) {
            (TakenParts::Parts(parts), Some(file)) => release(cache, &file, parts, removed).await,
            (what, _) => removed.passed_over.extend(what.into_units()),
        }
    }

    async fn remove_closed<O: CacheOrigin>(self, cache: &DiskCache<O>, removed: &mut RemovedBatch) {
        let index = &cache.shared.index;
        let (what, may_go_whole) = match &self.what {
            TakenParts::Parts(parts) => {
                let parts = parts.iter().map(|(part, _)| *part).collect();
                (FilePartsToRemove::Parts(parts), index.is_quiet(&self.key))
            }
            TakenParts::AtLeast(bytes, _) => (FilePartsToRemove::AtLeast(*bytes), true),
        };
        let (context, key) = (cache.shared.context.clone(), self.key.clone());
        match cache.shared.on_disk(move || context.remove_parts(&key, &what, may_go_whole)).await {
            Some(Ok(Some(left))) if left.bytes > 0 => {
                let bytes = self.note_left(cache, left, removed);
                removed.note_parts(cache, left.parts, bytes);
            }
            Some(Ok(Some(_))) => {
                let bytes = index.evict(&self.key).unwrap_or(0);
                cache.shared.counters.evicted_files.add(1);
                cache.shared.counters.evicted_bytes.add(bytes);
                removed.files += 1;
                removed.bytes = removed.bytes.saturating_add(bytes);
            }
            Some(Ok(None) | Err(StoreError::Foreign)) => {
                removed.missing = removed.missing.saturating_add(index.remove(&self.key).unwrap_or(0));
            }
            Some(Err(StoreError::Disk(error))) => {
                removed.note_failure(cache, (self.key, self.what.into_units()), &error);
            }
            None => {
                removed.has_failed = true;
                removed.next.extend(self.what.into_units());
            }
        }
    }

    /// Records the remaining bytes of the file. Returns the number of bytes that were removed.
    fn note_left<O: CacheOrigin>(
        self,
        cache: &DiskCache<O>,
        left: RemainingFile,
        removed: &mut RemovedBatch,
    ) -> u64 {
        let (index, is_retired) = (&cache.shared.index, AtomicBool::new(false));
        let of_parts = match self.what {
            TakenParts::Parts(parts) => parts
                .iter()
                .filter_map(|(part, unit)| index.evict_part(&self.key, (*part, Some(unit)), &is_retired))
                .sum(),
            TakenParts::AtLeast(_, unit) => {
                removed.next.push(unit);
                0
            }
        };
        // The sizes of the parts of a file that is one unit are not known.
        index.correct_size(&self.key, left.bytes).saturating_add(of_parts)
    }
}

impl TakenParts {
    fn into_units(self) -> Vec<TakenUnit> {
        match self {
            Self::Parts(parts) => parts.into_iter().map(|(_, unit)| unit).collect(),
            Self::AtLeast(_, unit) => vec![unit],
        }
    }
}

impl RemovedBatch {
    fn note_parts<O: CacheOrigin>(&mut self, cache: &DiskCache<O>, parts: u64, bytes: u64) {
        cache.shared.counters.evicted_parts.add(parts);
        cache.shared.counters.evicted_bytes.add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Takes an error of the removal of parts of a file.
    fn note_failure<O: CacheOrigin>(
        &mut self,
        cache: &DiskCache<O>,
        (key, units): (CacheKey, Vec<TakenUnit>),
        error: &io::Error,
    ) {
        cache.shared.note_removal_failure(&key, error);
        if is_full(error) {
            self.is_full = true;
            self.kept.push(key);
            // Others would lose their claims in vain.
            self.next.extend(units);
        } else {
            self.disk_failures += usize::from(is_about_disk(error));
            self.failed_parts.push(key);
            // The next rounds begin with others.
            self.passed_over.extend(units);
        }
    }
}

/// Removes parts of an open file.
async fn release<O: CacheOrigin>(
    cache: &DiskCache<O>,
    file: &Arc<CachedFile<O>>,
    parts: Vec<TakenPart>,
    removed: &mut RemovedBatch,
) {
    let (releasing, taken) = (file.clone(), parts.clone());
    let released = cache.shared.on_disk(move || OpenFileParts(&releasing).release(&taken)).await;
    removed.has_failed |= released.is_none();
    let (freed, result) = released.unwrap_or_else(|| (Vec::new(), Ok(())));
    removed.note_parts(cache, freed.len() as u64, freed.iter().map(|(_, bytes)| bytes).sum());
    let left = parts.into_iter().filter(|(part, _)| !freed.iter().any(|(one, _)| one == part));
    let left = left.map(|(_, unit)| unit).collect();
    match result {
        // They were used in between.
        Ok(()) => removed.passed_over.extend::<Vec<_>>(left),
        Err(error) => removed.note_failure(cache, (file.key.clone(), left), &error),
    }
}
