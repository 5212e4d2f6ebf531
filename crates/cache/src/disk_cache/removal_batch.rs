//! [`RemovalBatch`]: files and parts of files that are removed together.

use super::cache_index::{ParkedFiles, RemovalUnit};
use super::cached_file::{CachedFile, PartEviction};
use super::file_parts::FileParts;
use super::table::{LockedSlot, SlotInUse};
use super::{CacheOrigin, DiskCache};
use crate::store::{FileRanges, RangesOfFile, RemainingFile};
use crate::{CacheKey, Cinfo};
use std::sync::Arc;

/// Maximum number of files that one job of the disk removes.
pub(super) const BATCH_FILES: usize = 64;

/// A file that nobody has open. Nobody can open it until it, or parts of it, have been removed.
pub(super) struct RemovableFile<O: CacheOrigin> {
    // Unlocked before the table is asked whether the slot is still used.
    _locked: LockedSlot<O>,
    _slot: SlotInUse<O>,
    key: CacheKey,
    what: RemovedPart,
    /// The number of bytes that the index has counted of it.
    bytes: u64,
}

/// What is removed of a file.
enum RemovedPart {
    /// All of it. The index does not know it any longer.
    Whole,
    /// These parts with their sizes. The index does not know them any longer.
    Parts(Vec<(u32, u64)>),
    /// The first parts that have this number of bytes together. The index knows the file, and not its parts.
    Bytes(u64),
}

impl<O: CacheOrigin> RemovableFile<O> {
    pub(super) fn new(locked: LockedSlot<O>, slot: SlotInUse<O>, key: CacheKey, bytes: u64) -> Self {
        Self { _locked: locked, _slot: slot, key, what: RemovedPart::Whole, bytes }
    }
}

/// An open file of which parts were given up.
struct OpenFileParts<O: CacheOrigin> {
    file: Arc<CachedFile<O>>,
    parts: u64,
    bytes: u64,
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
}

/// Files that nobody has open, to be removed wholly or in part, and open ones of which parts were given up.
pub(super) struct RemovalBatch<O: CacheOrigin> {
    closed: Vec<RemovableFile<O>>,
    open: Vec<OpenFileParts<O>>,
    bytes: u64,
}

impl<O: CacheOrigin> Default for RemovalBatch<O> {
    fn default() -> Self {
        Self { closed: Vec::new(), open: Vec::new(), bytes: 0 }
    }
}

impl<O: CacheOrigin> From<Vec<RemovableFile<O>>> for RemovalBatch<O> {
    fn from(closed: Vec<RemovableFile<O>>) -> Self {
        Self { closed, ..Self::default() }
    }
}

impl<O: CacheOrigin> RemovalBatch<O> {
    /// Returns the number of bytes that are to be removed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.closed.len() + self.open.len() >= BATCH_FILES
    }

    /// Takes a unit, to remove this number of bytes, out of the order of removals. Returns `false` if that is not possible
    /// now. A unit that was requested lately only loses its place.
    pub(super) fn take(
        &mut self,
        cache: &DiskCache<O>,
        (unit, needed): (&RemovalUnit, u64),
        passed_over: &mut ParkedFiles,
    ) -> bool {
        let taken = match unit.part {
            Some(part) => self.take_part(cache, &unit.key, part),
            None => self.take_file(cache, (unit, needed), passed_over),
        };
        self.bytes = self.bytes.saturating_add(taken.unwrap_or(0));
        taken.is_some()
    }

    /// Takes a file that this process has not opened, or one without parts. If not all of it is needed, only parts of a
    /// large file are removed, and its place is the same later. Returns the number of bytes that will be freed.
    fn take_file(
        &mut self,
        cache: &DiskCache<O>,
        (unit, needed): (&RemovalUnit, u64),
        passed_over: &mut ParkedFiles,
    ) -> Option<u64> {
        let slot = cache.table.slot(&unit.key);
        let locked = slot.lock_closed()?;
        let file = RemovableFile::new(locked, slot, unit.key.clone(), unit.bytes);
        if cache.shared.part_bytes.is_some_and(|part| unit.bytes > part.max(needed)) {
            cache.shared.index.park(unit, passed_over);
            self.closed.push(RemovableFile { what: RemovedPart::Bytes(needed), ..file });
            return Some(needed);
        }
        cache.shared.index.evict(&unit.key);
        self.closed.push(file);
        Some(unit.bytes)
    }

    /// Takes a part of a file. Returns the number of bytes that will be freed.
    fn take_part(&mut self, cache: &DiskCache<O>, key: &CacheKey, part: u32) -> Option<u64> {
        if let Some(file) = self.closed.iter_mut().find(|file| file.key == *key) {
            let RemovedPart::Parts(parts) = &mut file.what else { return None };
            let bytes = cache.shared.index.evict_part(key, part)?;
            parts.push((part, bytes));
            file.bytes = file.bytes.saturating_add(bytes);
            return Some(bytes);
        }
        let slot = cache.table.slot(key);
        if let Some(locked) = slot.lock_closed() {
            let bytes = cache.shared.index.evict_part(key, part)?;
            let file = RemovableFile::new(locked, slot, key.clone(), bytes);
            self.closed.push(RemovableFile { what: RemovedPart::Parts(vec![(part, bytes)]), ..file });
            return Some(bytes);
        }
        // Locked until the part is given up: otherwise the file could be closed before that, and claim it.
        let open = slot.try_lock().ok()?;
        let file = open.clone()?;
        match file.evict_part(part) {
            PartEviction::InUse | PartEviction::Evicted(0) => None,
            PartEviction::Requested => Some(0),
            PartEviction::Evicted(bytes) => {
                self.add_open(file, bytes);
                Some(bytes)
            }
        }
    }

    fn add_open(&mut self, file: Arc<CachedFile<O>>, bytes: u64) {
        match self.open.iter_mut().find(|open| Arc::ptr_eq(&open.file, &file)) {
            Some(open) => {
                open.parts += 1;
                open.bytes = open.bytes.saturating_add(bytes);
            }
            None => self.open.push(OpenFileParts { file, parts: 1, bytes }),
        }
    }

    /// Removes all of it.
    pub(super) async fn remove(self, cache: &DiskCache<O>) -> RemovedBatch {
        let mut removed = RemovedBatch::default();
        if !self.closed.is_empty() {
            remove_closed(cache, self.closed, &mut removed).await;
        }
        for OpenFileParts { file, parts, bytes } in self.open {
            match cache.shared.on_disk(move || file.flush()).await {
                Some(Ok(())) => {
                    cache.shared.counters.evicted_parts.add(parts);
                    cache.shared.counters.evicted_bytes.add(bytes);
                    removed.bytes = removed.bytes.saturating_add(bytes);
                }
                // A later flush frees them.
                Some(Err(_)) | None => removed.has_failed = true,
            }
        }
        removed
    }
}

/// Removes files that nobody has open, or parts of them.
async fn remove_closed<O: CacheOrigin>(
    cache: &DiskCache<O>,
    files: Vec<RemovableFile<O>>,
    removed: &mut RemovedBatch,
) {
    let context = cache.shared.context.clone();
    let ranges: Vec<FileRanges> = files.iter().map(|file| ranges_of(cache, file)).collect();
    let results = cache.shared.on_disk(move || context.remove_all(&ranges)).await.unwrap_or_default();
    removed.has_failed = results.len() < files.len();
    // Without a result, a file may still be there.
    let results = results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    for (file, result) in files.into_iter().zip(results) {
        match result.and_then(|result| cache.note_removed(&file.key, result, None)) {
            Some(Some(left)) => note_removed(cache, &file, left, removed),
            Some(None) => {
                let bytes = forget(cache, &file);
                removed.missing = removed.missing.saturating_add(bytes);
            }
            None => {
                removed.has_failed |= cache.shared.has_failed();
                match &file.what {
                    RemovedPart::Whole => removed.failed.push((file.key.clone(), file.bytes)),
                    RemovedPart::Parts(parts) => cache.shared.index.put_parts_again(&file.key, parts),
                    RemovedPart::Bytes(_) => {}
                }
            }
        }
    }
}

/// Returns what is removed of a file. The bytes of its parts depend on the sizes of the file and of its blocks.
fn ranges_of<O: CacheOrigin>(cache: &DiskCache<O>, file: &RemovableFile<O>) -> FileRanges {
    let part_bytes = cache.shared.part_bytes;
    let layout = move |cinfo: &Cinfo| FileParts::new(cinfo.file_bytes, part_bytes, cinfo.block_bytes);
    let ranges: Option<RangesOfFile> = match &file.what {
        RemovedPart::Whole => None,
        RemovedPart::Parts(parts) => {
            let parts: Vec<u32> = parts.iter().map(|(part, _)| *part).collect();
            Some(Box::new(move |cinfo| {
                let layout = layout(cinfo);
                parts.iter().map(|part| layout.bytes_of(*part)).collect()
            }))
        }
        RemovedPart::Bytes(needed) => {
            let needed = *needed;
            Some(Box::new(move |cinfo| {
                let (layout, mut sum) = (layout(cinfo), 0_u64);
                let sizes = layout.sizes(&cinfo.blocks, cinfo.block_bytes, cinfo.file_bytes);
                let is_needed = |(_, bytes): &(u32, u64)| {
                    let is_needed = sum < needed;
                    sum = sum.saturating_add(*bytes);
                    is_needed
                };
                sizes.into_iter().take_while(is_needed).map(|(part, _)| layout.bytes_of(part)).collect()
            }))
        }
    };
    (file.key.clone(), ranges)
}

/// Forgets a file that is not there any longer. Returns the number of bytes that the index has counted of it.
fn forget<O: CacheOrigin>(cache: &DiskCache<O>, file: &RemovableFile<O>) -> u64 {
    let known = cache.shared.index.remove(&file.key).unwrap_or(0);
    match file.what {
        RemovedPart::Whole | RemovedPart::Parts(_) => file.bytes.saturating_add(known),
        RemovedPart::Bytes(_) => known,
    }
}

/// Takes the removal of a file of which this is left.
fn note_removed<O: CacheOrigin>(
    cache: &DiskCache<O>,
    file: &RemovableFile<O>,
    left: RemainingFile,
    removed: &mut RemovedBatch,
) {
    let counters = &cache.shared.counters;
    let bytes = if left.bytes == 0 {
        counters.evicted_files.add(1);
        removed.files += 1;
        forget(cache, file)
    } else {
        counters.evicted_parts.add(left.removed);
        cache.shared.index.correct_size(&file.key, left.bytes);
        match file.what {
            RemovedPart::Whole | RemovedPart::Parts(_) => file.bytes,
            RemovedPart::Bytes(_) => file.bytes.saturating_sub(left.bytes),
        }
    };
    counters.evicted_bytes.add(bytes);
    removed.bytes = removed.bytes.saturating_add(bytes);
}
