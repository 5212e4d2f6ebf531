//! The disk cache of a server: open files, their stored blocks, and the removal of these.
//!
//! | file | contents |
//! |---|---|
//! | `cache_index` | `CacheIndex`: the files on disk with their sizes, and the order of their removal |
//! | `cached_file` | `CachedFile`: one version of a file that readers have open |
//! | `changes` | [`CacheChange`], [`OpenTicket`]: changes of files through this server |
//! | `aged_removal` | the removal of the oldest files: quotas of directories, and files that are cold |
//! | `closing` | `FileClosing`: ends the uses of files |
//! | `client_commands` | removals of single files by clients |
//! | `clock` | [`CacheClock`]: the time of day and the uptime, and the last use of a file |
//! | `counters` | [`DiskCacheStatus`]: the state of the cache and its counters |
//! | `direct_access` | files that clients on this machine read without this server |
//! | `direct_room` | how many bytes these can have |
//! | `directory_totals` | `DirectoryTotals`: the stored bytes of some directories |
//! | `fetch_memory` | `FetchMemory`: the limit of the memory of fetches |
//! | `file_parts` | `FileParts`: the parts of an open file, and which of them readers request |
//! | `index_recorder` | `IndexRecorder`: the index is recorded for the next process |
//! | `index_trust` | `IndexTrust`: how far the index agrees with the disk |
//! | `origin` | [`CacheOrigin`]: the source of a cached file |
//! | `own_files` | the lock, the pins, and files left by an earlier process |
//! | `period` | [`CacheObserver`]: the ends of periods in which readers had a file open |
//! | `pins` | files that stay because an administrator has pinned them |
//! | `reader` | [`CacheReader`]: a reader of a cached file |
//! | `removal` | the removal of files when the disk is full, and regular flushes |
//! | `removal_batch` | `RemovalBatch`: files and parts of files that are removed together |
//! | `scan` | the search for files that earlier processes have stored |
//! | `settings` | [`DiskCacheSettings`] |
//! | `shared` | `CacheShared`: what all files share |
//! | `split_files` | `SplitFiles`: the files of which the index knows the parts |
//! | `table` | `CacheTable`: the files that are open or being opened |
//! | `work` | requests at the origin, and calls of the disk |
//!
//! Nothing here blocks the caller: requests are tasks, and calls of the disk are jobs of two pools.

mod aged_removal;
mod cache_index;
mod cached_file;
mod changes;
mod client_commands;
mod clock;
mod closing;
mod counters;
mod direct_access;
mod direct_room;
mod directory_totals;
mod fetch_memory;
mod file_parts;
mod index_recorder;
mod index_trust;
mod origin;
mod own_files;
mod paused_removals;
mod period;
mod pins;
mod reader;
mod removal;
mod removal_batch;
mod scan;
mod settings;
mod shared;
mod split_files;
mod table;
mod work;

#[cfg(test)]
pub(crate) mod tests;

pub use changes::{CacheChange, OpenTicket};
pub(crate) use changes::{ChangeGuard, ChangeTable};
pub use client_commands::FileEviction;
pub use clock::CacheClock;
pub(crate) use counters::CacheCounter;
pub use counters::DiskCacheStatus;
pub use direct_access::DIRECT_DIRECTORY;
pub(crate) use direct_access::remove_names;
pub use origin::{CacheOrigin, CacheReadError};
pub(crate) use own_files::lock;
use own_files::{load_pins, remove_own_files, with_own_files};
pub use period::{CacheObserver, ClosedCacheFile};
pub use pins::{CachePinFailure, CachePinStatus};
pub use reader::{CacheRead, CacheReader};
pub use settings::{
    CacheLimits, CacheStartError, ColdFiles, DirectoryQuota, DiskCacheSettings, DiskShare, FileShares,
};

use crate::store::{BlockStore, StoreContext, StoreError};
use crate::{CacheDisk, CacheDiskFile, CacheKey, OriginVersion};
use aged_removal::AgedRemoval;
use base::{LogicalPath, Owner};
use cache_index::CacheIndex;
use cached_file::{CachedFile, OpenFileParts};
use direct_access::DirectNames;
use fetch_memory::FetchMemory;
use index_recorder::IndexRecorder;
use shared::CacheShared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::Pool;
use table::CacheTable;
use tokio::runtime::Handle;

/// Number of threads that read from the disk, and of those for everything else.
const READ_THREADS: usize = 16;
const WRITE_THREADS: usize = 8;

/// Maximum number of cached files below a renamed directory that are removed before it is renamed. The others are
/// recognised as other versions, because the identity of a file at its origin is part of it.
const RENAMED_FILES_MAX: usize = 4096;

/// Number of names that an eviction takes from the index at once. Opens wait for the index meanwhile.
const EVICTED_AT_ONCE: usize = 256;

/// Time that opens and changes wait for the disk.
const DISK_TIME: Duration = Duration::from_secs(5);

/// The result of a removal by an administrator, in numbers of files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheEviction {
    /// Removed.
    pub removed: u64,
    /// They stay, because clients have them open.
    pub in_use: u64,
    /// They stay, because they are pinned.
    pub pinned: u64,
    /// They stay, because the disk has failed.
    pub failed: u64,
    /// The cache is still looked through, so files that are not known yet may stay.
    pub is_partial: bool,
}

/// A disk cache in front of origins of one kind.
pub struct DiskCache<O: CacheOrigin> {
    shared: Arc<CacheShared>,
    table: Arc<CacheTable<O>>,
    changes: Arc<ChangeTable>,
    limits: CacheLimits,
    cold: Option<ColdFiles>,
    quotas: Vec<DirectoryQuota>,
    /// The names at which clients on this machine read files, if they may.
    direct: Option<DirectNames>,
    recorder: IndexRecorder,
    /// Locks the disk for this process.
    _lock: Arc<dyn CacheDiskFile>,
}

impl<O: CacheOrigin> DiskCache<O> {
    /// Starts the cache of a disk, and the search for files stored there. Blocks.
    ///
    /// # Errors
    /// [`CacheStartError`] if another process uses the disk, or it cannot be used.
    pub fn start(
        disk: Arc<dyn CacheDisk>,
        settings: &DiskCacheSettings,
        (runtime, clock): (Handle, CacheClock),
    ) -> Result<Arc<Self>, CacheStartError> {
        let lock = lock(&*disk)?;
        remove_own_files(&*disk, "new")?;
        direct_access::remove_names(&*disk);
        // Names that an earlier process has removed must not come back beside new files.
        disk.sync_all()?;
        let usage = disk.usage()?;
        if !settings.limits.is_ordered(usage.0) {
            return Err(CacheStartError::Limits);
        }
        let writes = Pool::new("cache-write", WRITE_THREADS);
        let context = StoreContext::new(disk, settings.block_bytes).closing_on(writes.clone());
        let context = context.with_pages_of(settings.paged_bytes).with_parts_of(settings.part_bytes);
        if let Err(error) = context.try_discard() {
            // The start goes on: each round of removals tries it again.
            tracing::warn!("the cache removes whole files until the disk has freed a part of one: {error}");
        }
        let context = Arc::new(context);
        let capacity = settings.limits.capacity((usage.0, 0), 0);
        let index = CacheIndex::new(capacity, settings.part_bytes);
        let direct = settings.direct.filter(|_| match direct_access::check(&context) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "clients on this machine cannot read files on the disk of the cache directly");
                false
            }
        });
        let direct = direct.map(DirectNames::new);
        let shared = Arc::new(CacheShared::new(
            runtime,
            context,
            FetchMemory::new(settings.memory_bytes),
            index,
            Pool::new("cache-read", READ_THREADS),
            writes,
            (settings.prefetch_bytes, settings.patience),
            clock,
        ));
        // Each start of the recorder adds a journal, so the pins, which can stop the start, are first.
        shared.take_pins(load_pins(&shared.context)?);
        let (recorder, recorded) = IndexRecorder::new(&shared.context)?;
        shared.set_room(settings.limits.room(usage, 0));
        shared.total.store(usage.0, Ordering::Relaxed);
        shared.used.store(usage.1, Ordering::Relaxed);
        let cache = Arc::new(Self {
            shared,
            table: CacheTable::new(),
            changes: ChangeTable::new(),
            limits: settings.limits,
            cold: settings.cold,
            quotas: settings.quotas.clone(),
            direct,
            recorder,
            _lock: lock,
        });
        cache.quotas.iter().for_each(|quota| cache.shared.index.count_below(&quota.directory));
        cache.start_removal();
        AgedRemoval(&cache).start();
        cache.start_scan(recorded);
        Ok(cache)
    }

    /// Passes the ends of periods to an observer from now on. Has no effect if there is one.
    pub fn observe(&self, observer: Arc<dyn CacheObserver>) {
        self.shared.observer.set(observer).ok();
    }

    /// Returns the state of changes of a file, which a reader takes before it asks the origin for the version.
    /// `None` while the file is being changed.
    #[must_use]
    pub fn ticket(&self, key: &CacheKey) -> Option<OpenTicket> {
        self.changes.ticket(key)
    }

    /// Opens a version of a file that a reader of this session has open at its origin. `None` if it cannot be cached now; the
    /// reader uses the origin then.
    pub async fn open(
        self: &Arc<Self>,
        key: &CacheKey,
        ticket: OpenTicket,
        version: OriginVersion,
        (origin, owner): (Arc<O>, Owner),
    ) -> Option<CacheReader<O>> {
        let reader = self.open_within_time(key, ticket, version, (origin, owner)).await;
        let counters = &self.shared.counters;
        if reader.is_some() { &counters.opens } else { &counters.uncached_opens }.add(1);
        reader
    }

    async fn open_within_time(
        self: &Arc<Self>,
        key: &CacheKey,
        ticket: OpenTicket,
        version: OriginVersion,
        (origin, owner): (Arc<O>, Owner),
    ) -> Option<CacheReader<O>> {
        if version.size == 0 || !version.is_recognisable(self.shared.now()) {
            return None;
        }
        let (cache, key) = (self.clone(), key.clone());
        // In a task, because the slot of the file must be held until the disk has answered, also if the caller
        // leaves.
        let opened = self.shared.runtime.spawn(async move {
            let slot = cache.table.slot(&key);
            let mut open = slot.lock().await;
            if cache.changes.ticket(&key) != Some(ticket) {
                return None;
            }
            if let Some(file) = &*open {
                let current = file.version();
                if current == version && !file.has_changed() {
                    let id = file.attach(origin.clone(), owner);
                    OpenFileParts(file).note_opened(false);
                    return Some(CacheReader::new(cache.clone(), file.clone(), id, origin));
                }
                if current.modified > version.modified {
                    // This reader has an old version open.
                    return None;
                }
                let old = file.clone();
                *open = None;
                cache.retire(&old, false, Owner::SERVER).await;
            }
            let file = cache.open_file(&key, version).await?;
            *open = Some(file.clone());
            let id = file.attach(origin.clone(), owner);
            OpenFileParts(&file).note_opened(true);
            Some(CacheReader::new(cache.clone(), file, id, origin))
        });
        // A disk that hangs delays readers for a while, and then they are served from the origin.
        tokio::time::timeout(DISK_TIME, opened).await.ok()?.ok().flatten()
    }

    /// Opens the store of a file. The caller has its slot.
    async fn open_file(&self, key: &CacheKey, version: OriginVersion) -> Option<Arc<CachedFile<O>>> {
        let (context, of, now) = (self.shared.context.clone(), key.clone(), self.shared.now());
        let opened = self.shared.on_disk(move || BlockStore::open(&context, &of, version, now)).await?;
        match opened {
            Ok(store) => CachedFile::new(&self.shared, key, store),
            Err(StoreError::Disk(error)) => {
                self.shared.note_disk_failure(key, &error);
                None
            }
            Err(StoreError::Foreign) => {
                if self.shared.may_log() {
                    tracing::warn!(
                        file = %key.data().shown(),
                        "something else is at the place of this file in the cache; it is left alone, and the file is not cached"
                    );
                }
                None
            }
        }
    }

    /// Ends all storing of a file and removes its stored blocks. The caller has its slot. Returns whether they were
    /// removed.
    async fn retire(&self, file: &Arc<CachedFile<O>>, is_suspect: bool, owner: Owner) -> bool {
        file.retire(is_suspect);
        self.shared.index.remove(&file.key);
        let store = file.store.clone();
        match self.shared.on_disk_for(owner, move || store.remove()).await {
            Some(Ok(_)) => return true,
            Some(Err(error)) => self.shared.note_disk_failure(&file.key, &error),
            None => {}
        }
        self.shared.index.put_again(&file.key, Some(file.store.claimed_bytes()), self.shared.clock.now());
        false
    }

    /// Begins a change of the content of a file through this server, before the origin is asked for it.
    pub fn change_content(self: &Arc<Self>, path: &LogicalPath) -> CacheChange<O> {
        CacheChange::new(self, self.changes.begin(path, true))
    }

    /// Begins a removal or a renaming of a file or directory through this server.
    pub fn change_name(self: &Arc<Self>, path: &LogicalPath) -> CacheChange<O> {
        CacheChange::new(self, self.changes.begin(path, false))
    }

    /// Removes the stored blocks of a file. Unless only its content was changed, it may be a directory, and those of the
    /// files below it are removed too.
    async fn invalidate_all(&self, path: &LogicalPath, is_content: bool) {
        let mut keys: Vec<CacheKey> = CacheKey::new(path).into_iter().collect();
        if !is_content {
            keys.extend(self.shared.index.within(path, None, RENAMED_FILES_MAX));
            keys.dedup();
        }
        for key in keys {
            self.invalidate(&key, is_content).await;
        }
    }

    /// Removes the stored blocks of a file, whether it is open or not.
    async fn invalidate(&self, key: &CacheKey, is_suspect: bool) {
        let slot = self.table.slot(key);
        let mut open = slot.lock().await;
        match open.take() {
            Some(file) => {
                self.retire(&file, is_suspect, Owner::SERVER).await;
                self.remove_empty_directories(key, Owner::SERVER).await;
            }
            None => _ = self.remove_closed(key, Owner::SERVER).await,
        }
    }

    /// Removes a file that is not open, with its directories as far as they are empty. The caller has its slot. Returns
    /// whether there was one; `None` if it could not be removed, and is still counted.
    async fn remove_closed(&self, key: &CacheKey, owner: Owner) -> Option<bool> {
        let bytes = self.shared.index.remove(key);
        let removed = self.remove_stored(key, owner).await;
        match removed {
            Some(true) => self.remove_empty_directories(key, owner).await,
            Some(false) => {}
            None => self.shared.index.put_again(key, bytes, self.shared.clock.now()),
        }
        removed
    }

    /// Removes the directories of a file that has gone, as far as they are empty.
    async fn remove_empty_directories(&self, key: &CacheKey, owner: Owner) {
        let (context, of) = (self.shared.context.clone(), key.clone());
        self.shared.on_disk_for(owner, move || context.remove_empty_directories(&of)).await;
    }

    /// Removes the files of a key that is not open. The caller has its slot. Returns whether there were any; `None` if
    /// they could not be removed.
    async fn remove_stored(&self, key: &CacheKey, owner: Owner) -> Option<bool> {
        let (context, of) = (self.shared.context.clone(), key.clone());
        self.note_removed(key, self.shared.on_disk_for(owner, move || context.remove(&of)).await?)
    }

    /// Takes the result of a removal. Returns whether there was a file; `None` if it could not be removed.
    fn note_removed(&self, key: &CacheKey, result: Result<bool, StoreError>) -> Option<bool> {
        match result {
            Ok(was_there) => Some(was_there),
            Err(StoreError::Foreign) => Some(false),
            Err(StoreError::Disk(error)) => {
                self.shared.note_removal_failure(key, &error);
                None
            }
        }
    }

    /// Ends direct reads, and waits until no file is open and all ends of periods are recorded, at most for this time.
    /// Reports whether that is so.
    pub async fn closed(&self, limit: Duration) -> bool {
        self.direct.iter().for_each(DirectNames::end);
        self.shared.in_use.none(limit).await
    }

    /// Returns the state of the cache and its counters.
    #[must_use]
    pub fn status(&self) -> DiskCacheStatus {
        let (shared, counters) = (&self.shared, &self.shared.counters);
        let total = shared.total.load(Ordering::Relaxed);
        let (high, low) = self.limits.marks(total);
        DiskCacheStatus {
            files: shared.index.len() as u64,
            bytes: shared.index.bytes(),
            is_known: !shared.index.is_searching(),
            open_files: self.table.len() as u64,
            disk: (total, high, low),
            disk_used: shared.used.load(Ordering::Relaxed),
            memory_limit: shared.memory.limit(),
            waiting_writes: shared.writes.queued() as u64,
            memory: shared.memory.used(),
            is_paused: !shared.may_store(),
            opens: counters.opens.get(),
            uncached_opens: counters.uncached_opens.get(),
            closes: counters.closes.get(),
            direct_opens: counters.direct_opens.get(),
            bytes_delivered: counters.bytes_delivered.get(),
            bytes_hit: counters.bytes_hit.get(),
            bytes_missed: counters.bytes_missed.get(),
            bytes_shared: counters.bytes_shared.get(),
            bytes_ahead: counters.bytes_ahead.get(),
            bypasses: counters.bypasses.get(),
            bytes_bypassed: counters.bytes_bypassed.get(),
            bytes_stored: shared.stored(),
            damaged_blocks: counters.damaged_blocks.get(),
            evicted_files: counters.evicted_files.get(),
            evicted_parts: counters.evicted_parts.get(),
            evicted_bytes: counters.evicted_bytes.get(),
        }
    }

    /// Removes the cached files at and below a path that nobody has open, for an administrator. They do not come back
    /// after a power cut. Ends early when `is_wanted` is false.
    pub async fn evict(&self, path: &LogicalPath, is_wanted: impl Fn() -> bool) -> CacheEviction {
        let is_partial = self.shared.index.is_searching();
        let (mut result, path) =
            (CacheEviction { is_partial, ..CacheEviction::default() }, path.without_slash());
        // The index may not know the file itself.
        let mut keys: Vec<CacheKey> = CacheKey::new(&path).into_iter().collect();
        let mut after = None;
        loop {
            for key in &keys {
                if is_wanted() {
                    self.evict_counted(key, &mut result).await;
                }
            }
            after = keys.pop().or(after);
            keys = self.shared.index.within(&path, after.as_ref(), EVICTED_AT_ONCE);
            if keys.is_empty() || !is_wanted() {
                break;
            }
        }
        let context = self.shared.context.clone();
        if let Some(Err(error)) = self.shared.on_disk(move || context.sync_removals()).await {
            tracing::error!("removals from the cache may not be durable: {error}");
            (result.removed, result.failed) = (0, result.failed + result.removed);
        }
        result
    }

    /// Removes a cached file unless somebody has it open, or it is pinned.
    async fn evict_counted(&self, key: &CacheKey, result: &mut CacheEviction) {
        if self.shared.is_pinned(key) {
            result.pinned += u64::from(self.shared.index.contains(key));
            return;
        }
        let slot = self.table.slot(key);
        let Some(_closed) = slot.lock_closed() else {
            result.in_use += 1;
            return;
        };
        match self.remove_closed(key, Owner::SERVER).await {
            Some(true) => result.removed += 1,
            Some(false) => {}
            None => result.failed += 1,
        }
    }

    /// Removes the stored data of a file, for a client of this session. With `with_open`, also if clients have the file
    /// open: their readers use the removed data until they close the file, fetch the rest from the origin, and compare
    /// the version before each read.
    pub async fn evict_file(self: &Arc<Self>, key: &CacheKey, with_open: bool, owner: Owner) -> FileEviction {
        client_commands::evict(self, key, with_open, owner).await
    }

    /// Reports to a client of this session whether all of a file is stored, without a look at the origin.
    pub async fn is_cached(&self, key: &CacheKey, owner: Owner) -> bool {
        client_commands::is_cached(self, key, owner).await
    }

    /// Pins a file or directory until a time, in seconds since the epoch. It is durable afterwards. Returns its stored
    /// bytes.
    ///
    /// # Errors
    /// [`CachePinFailure`].
    pub async fn pin(&self, path: &LogicalPath, expires: i64) -> Result<u64, CachePinFailure> {
        self.shared.pin(path, expires).await
    }

    /// Ends the pin of a path. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn unpin(&self, path: &LogicalPath) -> io::Result<bool> {
        self.shared.unpin(path).await
    }

    /// Returns the pins that hold, and their effect.
    #[must_use]
    pub fn pins(&self) -> Vec<CachePinStatus> {
        self.shared.pin_status()
    }

    /// Reports whether files below a path are stored, as far as they are known.
    #[must_use]
    pub fn has_files_below(&self, path: &LogicalPath) -> bool {
        !self.shared.index.within(path, None, 1).is_empty()
    }

    /// Returns the number of bytes of all files on disk, as far as they are known.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.index.bytes()
    }

    /// Returns the number of files on disk, as far as they are known.
    #[must_use]
    pub fn files(&self) -> usize {
        self.shared.index.len()
    }

    /// Returns the number of bytes in the memory of fetches.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.shared.memory.used()
    }

    /// Returns the number of files that are open or being opened.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.table.len()
    }
}
