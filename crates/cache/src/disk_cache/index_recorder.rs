//! [`IndexRecorder`]: the index is recorded for the next process, and that of earlier ones is loaded.

use super::shared::CacheShared;
use super::{CacheOrigin, CacheStartError, DiskCache};
use crate::CacheKey;
use crate::store::{RecordedIndex, SnapshotWriter, StoreContext, resume_index};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Interval in which records in memory are written.
const INTERVAL: Duration = Duration::from_secs(10);
/// Number of files that are looked at while the index is locked.
const PAGE_FILES: usize = 256;
/// Size of a journal that is not yet replaced by a snapshot.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// The part of a snapshot that the journal can have: one in this number.
const JOURNAL_SHARE: u64 = 8;
/// Number of journals after which a snapshot is made.
const JOURNALS_MAX: u64 = 16;
/// The part of the disk by which its used space can differ from what is recorded: one in this number.
const DIFFERENCE_SHARE: u64 = 50;
/// Seconds between two attempts to write a snapshot.
const RETRY_INTERVAL: i64 = 300;

/// Records the index of a cache.
pub(super) struct IndexRecorder {
    /// The identity of the disk; `None` if nothing can be recorded.
    disk: Option<u64>,
    /// The next generation. It is locked while a snapshot is written, because generations must follow each other.
    next: Mutex<u64>,
    /// The size of the last snapshot.
    snapshot_bytes: AtomicU64,
    /// The files of the cache are not those of the last snapshot and the journals.
    is_outdated: AtomicBool,
    /// The uptime of the last attempt to write a snapshot that has failed.
    failed: AtomicI64,
    /// Wakes the task that records.
    due: Arc<Notify>,
}

/// The result of loading an index.
pub(super) struct LoadedIndex {
    /// Files that have to be looked at.
    pub(super) unresolved: Vec<CacheKey>,
    /// All other files of the cache are as they were loaded, unless another program has changed them.
    pub(super) is_complete: bool,
    /// The used space of the disk is about what was recorded.
    pub(super) is_like_disk: bool,
}

impl IndexRecorder {
    /// Finds the index of earlier processes. Changes are recorded from now on, if there is one. Blocks.
    ///
    /// # Errors
    /// [`CacheStartError::Index`] if the index can neither be continued nor removed. Later processes would believe it.
    pub(super) fn new(context: &StoreContext) -> Result<(Self, Option<RecordedIndex>), CacheStartError> {
        let (found, (next, disk)) = match resume_index(context) {
            Ok((found, (next, disk))) => (found, (next, Some(disk))),
            Err(error) => {
                context.journal.distrust().map_err(CacheStartError::Index)?;
                tracing::warn!("the index of the cache is not recorded: {error}");
                (None, (1, None))
            }
        };
        let snapshot_bytes = found.as_ref().map_or(0, RecordedIndex::snapshot_bytes);
        let journals = found.as_ref().map_or(u64::MAX, RecordedIndex::journals);
        let recorder = Self {
            disk,
            next: Mutex::new(next),
            snapshot_bytes: AtomicU64::new(snapshot_bytes),
            is_outdated: AtomicBool::new(journals > JOURNALS_MAX),
            failed: AtomicI64::new(i64::MIN),
            due: Arc::default(),
        };
        Ok((recorder, found))
    }

    /// Records that the index differs from what is recorded.
    pub(super) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Lets a snapshot be written now, if there is none.
    pub(super) fn notify(&self) {
        self.due.notify_one();
    }

    /// Starts recording. It ends with the cache.
    pub(super) fn start<O: CacheOrigin>(cache: &Arc<DiskCache<O>>) {
        let (runtime, cache) = (cache.shared.runtime.clone(), Arc::downgrade(cache));
        runtime.spawn(async move {
            while let Some(cache) = Weak::upgrade(&cache) {
                let (of_job, context) = (cache.clone(), cache.shared.context.clone());
                let job = move || {
                    context.journal.flush();
                    if of_job.shared.index.is_searching() {
                        return;
                    }
                    of_job.recorder.record_if_needed(&of_job);
                };
                cache.shared.on_disk(job).await;
                let due = cache.recorder.due.clone();
                drop(cache);
                tokio::time::timeout(INTERVAL, due.notified()).await.ok();
            }
        });
    }

    /// Writes a snapshot, if there is none or the journal is long.
    fn record_if_needed<O: CacheOrigin>(&self, cache: &DiskCache<O>) {
        let limit = JOURNAL_BYTES_MIN.max(self.snapshot_bytes.load(Ordering::Relaxed) / JOURNAL_SHARE);
        let is_long = cache.shared.context.journal.length().is_none_or(|length| length > limit);
        let now = cache.shared.clock.now().uptime;
        let has_failed = now.saturating_sub(self.failed.load(Ordering::Relaxed)) < RETRY_INTERVAL;
        if has_failed || !(is_long || self.is_outdated.load(Ordering::Acquire)) {
            return;
        }
        if let Err(error) = self.record(cache) {
            self.failed.store(now, Ordering::Relaxed);
            if cache.shared.may_log() {
                tracing::warn!("the index of the cache is not recorded: {error}");
            }
        }
    }

    /// Writes a snapshot. Files can be changed meanwhile. Blocks.
    pub(super) fn record<O: CacheOrigin>(&self, cache: &DiskCache<O>) -> io::Result<()> {
        let Some(disk) = self.disk else { return Ok(()) };
        let context = &*cache.shared.context;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Changes that were not recorded must not look like those of a journal that continues an earlier one.
        *next += u64::from(context.journal.length().is_none());
        let generation = (*next, disk);
        *next += 1;
        self.is_outdated.store(false, Ordering::Release);
        let recorded = context.journal.begin(generation).and_then(|()| {
            let others = context.disk.usage()?.1.saturating_sub(cache.shared.index.bytes());
            let mut writer = SnapshotWriter::new(context, generation, others)?;
            write(cache, &mut writer).inspect_err(|_| writer.cancel(context))
        });
        match recorded {
            Ok(bytes) => self.snapshot_bytes.store(bytes, Ordering::Relaxed),
            Err(_) => self.set_outdated(),
        }
        recorded.map(|_| ())
    }
}

/// Writes all files of the index. Returns the size of the snapshot.
fn write<O: CacheOrigin>(cache: &DiskCache<O>, writer: &mut SnapshotWriter) -> io::Result<u64> {
    let context = &*cache.shared.context;
    let mut page = cache.shared.index.to_record(None, PAGE_FILES);
    while let Some(last) = page.last() {
        let next = cache.shared.index.to_record(Some(&last.key), PAGE_FILES);
        page.iter().try_for_each(|file| writer.add(file))?;
        page = next;
    }
    // The index is ahead of the disk for files that are open, changed or removed now. All others are on disk as they
    // were written, or the new journal has their changes.
    cache.table.keys().iter().for_each(|key| context.journal.started(key));
    writer.finish(context)
}

/// Loads an index. Blocks.
pub(super) fn load(shared: &CacheShared, index: &RecordedIndex) -> io::Result<LoadedIndex> {
    let (disk, now) = (&*shared.context.disk, shared.clock.now());
    let mut changes = index.changes(disk)?;
    let (is_complete, unresolved) = (changes.is_complete, std::mem::take(&mut changes.unresolved));
    let (total, used) = disk.usage()?;
    let (mut order, mut bytes) = (Vec::new(), 0_u64);
    let loaded = index.files(disk, &mut changes, |files| {
        bytes = files.iter().fold(bytes, |sum, file| sum.saturating_add(file.bytes));
        if bytes <= used {
            order.extend(shared.index.load(files, now));
        }
        bytes <= used
    });
    if bytes > used {
        shared.index.forget_all_recorded();
        return Err(io::Error::other("its files have more bytes than the disk"));
    }
    // The oldest are the first to be removed.
    order.sort_unstable();
    order.chunks(PAGE_FILES).for_each(|part| shared.index.put_recorded(part));
    loaded?;
    let difference = used.saturating_sub(bytes).abs_diff(index.others());
    let is_like_disk = difference <= total / DIFFERENCE_SHARE;
    let unresolved = unresolved.into_iter().collect();
    Ok(LoadedIndex { unresolved, is_complete, is_like_disk })
}
