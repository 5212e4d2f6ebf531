//! [`CacheCounters`]: counters of a cache since its start.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of all threads.
#[derive(Default)]
pub(crate) struct CacheCounter(AtomicU64);

impl CacheCounter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a cache.
#[derive(Default)]
pub(super) struct CacheCounters {
    pub(super) opens: CacheCounter,
    pub(super) uncached_opens: CacheCounter,
    pub(super) direct_opens: CacheCounter,
    pub(super) closes: CacheCounter,
    pub(super) bytes_delivered: CacheCounter,
    pub(super) bytes_hit: CacheCounter,
    pub(super) bytes_missed: CacheCounter,
    pub(super) bytes_shared: CacheCounter,
    pub(super) bytes_ahead: CacheCounter,
    pub(super) bypasses: CacheCounter,
    pub(super) bytes_bypassed: CacheCounter,
    pub(super) damaged_blocks: CacheCounter,
    pub(super) evicted_files: CacheCounter,
    pub(super) evicted_parts: CacheCounter,
    pub(super) evicted_bytes: CacheCounter,
}

/// The state of a cache, and its counters since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskCacheStatus {
    /// Number of files on disk, as far as they are known.
    pub files: u64,
    /// Number of bytes that are stored of them.
    pub bytes: u64,
    /// All files of the disk are known, because it was looked through.
    pub is_known: bool,
    /// Number of files that are open.
    pub open_files: u64,
    /// Total size of the file system, and the used bytes above which files are removed, and down to which.
    pub disk: (u64, u64, u64),
    /// Used bytes of the file system at the last look, also by other files.
    pub disk_used: u64,
    /// Maximum number of bytes between their request at the origin and their arrival on disk.
    pub memory_limit: u64,
    /// Number of blocks that wait for the disk.
    pub waiting_writes: u64,
    /// Number of bytes between their request at the origin and their arrival on disk.
    pub memory: u64,
    /// The disk is full or has failed, so nothing is stored.
    pub is_paused: bool,
    /// Number of opens of files through the cache.
    pub opens: u64,
    /// Number of opens of files that could not be cached then.
    pub uncached_opens: u64,
    /// Number of closes of such files.
    pub closes: u64,
    /// Number of opens after which clients read a file directly on this machine. Their bytes count as read from the disk.
    pub direct_opens: u64,
    /// Number of bytes that readers got.
    pub bytes_delivered: u64,
    /// Number of bytes that were read from the disk.
    pub bytes_hit: u64,
    /// Number of bytes that were fetched from the origin to be stored, also ahead of readers.
    pub bytes_missed: u64,
    /// Number of bytes that readers got from memory where they were fetched to be stored. Never falls.
    pub bytes_shared: u64,
    /// Those of the fetched bytes that were fetched ahead of readers.
    pub bytes_ahead: u64,
    /// Number of requests for bytes that were not stored.
    pub bypasses: u64,
    /// Number of bytes that were read from the origin for one read, and not stored.
    pub bytes_bypassed: u64,
    /// Number of bytes that were stored.
    pub bytes_stored: u64,
    /// Number of stored blocks that were wrong, and were fetched again.
    pub damaged_blocks: u64,
    /// Number of files that were removed to make room.
    pub evicted_files: u64,
    /// Number of parts that were removed from files of which others stay, to make room.
    pub evicted_parts: u64,
    /// The bytes of both.
    pub evicted_bytes: u64,
}
