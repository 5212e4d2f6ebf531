//! The memory cache of a server: pages of files of origins, without a disk.
//!
//! | file | contents |
//! |---|---|
//! | `memory_file` | `MemoryFile`: one version of a file, and its fetches in progress |
//! | `page_table` | `PageTable`: the pages of all files, and the order of their removal |
//! | `reader` | [`MemoryCacheReader`]: a reader of a file |
//!
//! It recognises versions and changes as the disk cache does: a reader has the pages of the version that it has opened,
//! a request at the origin is followed by a comparison of the version, and files that were modified a moment ago are
//! not cached.

mod memory_file;
mod page_table;
mod reader;

#[cfg(test)]
mod tests;

pub use reader::MemoryCacheReader;

use crate::disk_cache::{CacheCounter, ChangeGuard, ChangeTable};
use crate::{CacheClock, CacheKey, CacheOrigin, OpenTicket, OriginVersion};
use base::LogicalPath;
use memory_file::MemoryFile;
use page_table::PageTable;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum number of files of which pages can be found, as in XRootD. Pages of others are removed when their turn comes.
const FILES_MAX: usize = 16_384;

/// Bytes of a permit for fetches.
const FETCH_UNIT: u64 = 1024;

/// Returns the permits for a fetch of these bytes.
fn fetch_units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(FETCH_UNIT))
        .map_or(Semaphore::MAX_PERMITS, |units| units.min(Semaphore::MAX_PERMITS))
}

/// Sizes of a memory cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryCacheSettings {
    /// Maximum number of bytes of all pages and of their table.
    pub bytes: u64,
    /// Size of a page; a power of two.
    pub page_bytes: u64,
    /// Reads of more bytes are not kept.
    pub read_bytes_max: u64,
    /// Time that a reader waits for the connection of another one.
    pub patience: Duration,
}

/// The counters of a memory cache.
#[derive(Default)]
struct MemoryCacheCounters {
    opens: CacheCounter,
    uncached_opens: CacheCounter,
    closes: CacheCounter,
    bytes_delivered: CacheCounter,
    bytes_hit: CacheCounter,
    bytes_missed: CacheCounter,
    bytes_shared: CacheCounter,
    bypasses: CacheCounter,
    bytes_bypassed: CacheCounter,
}

/// The state of a memory cache, and its counters since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryCacheStatus {
    /// Maximum number of bytes.
    pub limit: u64,
    /// Number of bytes in use.
    pub bytes: u64,
    /// Number of pages.
    pub pages: u64,
    /// Number of opens of files through the cache.
    pub opens: u64,
    /// Number of opens of files that could not be cached then.
    pub uncached_opens: u64,
    /// Number of files that readers have closed.
    pub closes: u64,
    /// Number of bytes that readers got.
    pub bytes_delivered: u64,
    /// Number of those from memory.
    pub bytes_hit: u64,
    /// Number of bytes that were fetched and kept.
    pub bytes_missed: u64,
    /// Number of bytes that readers got from these fetches.
    pub bytes_shared: u64,
    /// Number of requests for more bytes than are kept of a read.
    pub bypasses: u64,
    /// Number of their bytes.
    pub bytes_bypassed: u64,
    /// Number of bytes that were removed for others.
    pub evicted_bytes: u64,
}

/// A memory cache in front of origins.
pub struct MemoryCache {
    settings: MemoryCacheSettings,
    clock: CacheClock,
    changes: Arc<ChangeTable>,
    files: Mutex<FileTable>,
    pages: PageTable,
    /// The memory for replies of the origins that have not become pages, in units of [`FETCH_UNIT`].
    fetches: Arc<Semaphore>,
    counters: MemoryCacheCounters,
}

/// The current version of each file.
#[derive(Default)]
struct FileTable {
    files: HashMap<CacheKey, Arc<MemoryFile>>,
    /// The number of the last version.
    last: u64,
}

impl MemoryCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(settings: MemoryCacheSettings, clock: CacheClock) -> Arc<Self> {
        let page_bytes = settings.page_bytes.max(1);
        let settings = MemoryCacheSettings { page_bytes, ..settings };
        Arc::new(Self {
            settings,
            clock,
            changes: ChangeTable::new(),
            files: Mutex::default(),
            pages: PageTable::new(settings.bytes, page_bytes),
            fetches: Arc::new(Semaphore::new(fetch_units((settings.bytes / 4).max(page_bytes)))),
            counters: MemoryCacheCounters::default(),
        })
    }

    fn files(&self) -> MutexGuard<'_, FileTable> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of changes of a file, which a reader takes before it asks the origin for the version.
    /// `None` while the file is being changed.
    #[must_use]
    pub fn ticket(&self, key: &CacheKey) -> Option<OpenTicket> {
        self.changes.ticket(key)
    }

    /// Opens a version of a file that a reader has open at its origin. `None` if it cannot be cached now; the reader uses
    /// the origin then.
    pub fn open<O: CacheOrigin>(
        self: &Arc<Self>,
        key: &CacheKey,
        ticket: OpenTicket,
        version: OriginVersion,
        origin: Arc<O>,
    ) -> Option<MemoryCacheReader<O>> {
        let file = self.file(key, ticket, version);
        if file.is_some() { &self.counters.opens } else { &self.counters.uncached_opens }.add(1);
        Some(MemoryCacheReader::new(self.clone(), file?, origin))
    }

    fn file(&self, key: &CacheKey, ticket: OpenTicket, version: OriginVersion) -> Option<Arc<MemoryFile>> {
        if version.size == 0 || !version.is_recognisable(self.clock.seconds()) {
            return None;
        }
        let mut table = self.files();
        // With the lock, because the end of a change removes the file from this table.
        if self.changes.ticket(key) != Some(ticket) {
            return None;
        }
        if let Some(file) = table.files.get(key) {
            if file.version() == version && file.may_keep() {
                return Some(file.clone());
            }
            let is_read = Arc::strong_count(file) > 1 && file.may_keep();
            if is_read && file.version().modified > version.modified {
                // This reader may have an old version open.
                return None;
            }
            // Changes find the new version only, so readers of this one compare from now on.
            file.retire();
        } else if table.files.len() >= FILES_MAX {
            let unused = table.files.iter().find(|(_, file)| Arc::strong_count(file) == 1);
            let unused = unused.map(|(key, _)| key.clone())?;
            table.files.remove(&unused);
        }
        table.last += 1;
        let file = Arc::new(MemoryFile::new(table.last, key.clone(), version));
        table.files.insert(key.clone(), file.clone());
        Some(file)
    }

    /// Begins a change of the content of a file through this server, before the origin is asked for it.
    pub fn change_content(self: &Arc<Self>, path: &LogicalPath) -> MemoryCacheChange {
        MemoryCacheChange { cache: self.clone(), guard: self.changes.begin(path, true), is_reported: false }
    }

    /// Begins a removal or a renaming of a file or directory through this server.
    pub fn change_name(self: &Arc<Self>, path: &LogicalPath) -> MemoryCacheChange {
        MemoryCacheChange { cache: self.clone(), guard: self.changes.begin(path, false), is_reported: false }
    }

    /// Forgets a file. Unless only its content was changed, it may be a directory, and the files below it are forgotten
    /// too. Their pages are removed when their turn comes, because no reader finds them any longer.
    fn invalidate(&self, path: &LogicalPath, is_content: bool) {
        let mut table = self.files();
        if is_content {
            if let Some(file) = CacheKey::new(path).and_then(|key| table.files.remove(&key)) {
                file.retire();
            }
            return;
        }
        table.files.retain(|key, file| {
            let stays = !key.data().is_within(path);
            if !stays {
                file.retire();
            }
            stays
        });
    }

    /// Returns the state of the cache and its counters.
    #[must_use]
    pub fn status(&self) -> MemoryCacheStatus {
        let (counters, usage) = (&self.counters, self.pages.usage());
        MemoryCacheStatus {
            limit: self.settings.bytes,
            bytes: usage.bytes,
            pages: usage.pages,
            opens: counters.opens.get(),
            uncached_opens: counters.uncached_opens.get(),
            closes: counters.closes.get(),
            bytes_delivered: counters.bytes_delivered.get(),
            bytes_hit: counters.bytes_hit.get(),
            bytes_missed: counters.bytes_missed.get(),
            bytes_shared: counters.bytes_shared.get(),
            bypasses: counters.bypasses.get(),
            bytes_bypassed: counters.bytes_bypassed.get(),
            evicted_bytes: usage.evicted_bytes,
        }
    }
}

/// A change through this server. Until it is dropped, the file is not opened in the cache, and readers that have it open
/// compare its version before each read.
///
/// The end of the request must be reported. If it is dropped without a report, the change may have been made.
#[must_use]
pub struct MemoryCacheChange {
    cache: Arc<MemoryCache>,
    guard: ChangeGuard,
    is_reported: bool,
}

impl MemoryCacheChange {
    /// Reports that the change was made or may have been made. Readers do not get bytes of the time before it
    /// afterwards.
    pub fn made(&mut self) {
        self.is_reported = true;
        self.guard.record();
        self.cache.invalidate(self.guard.path(), self.guard.is_content());
    }

    /// Reports that nothing was changed.
    pub fn refused(mut self) {
        self.is_reported = true;
    }
}

impl Drop for MemoryCacheChange {
    fn drop(&mut self) {
        if !self.is_reported {
            self.made();
        }
    }
}
