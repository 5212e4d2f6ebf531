//! [`DiskCacheSettings`]: the configuration of a disk cache.

use std::io;
use std::time::Duration;
use thiserror::Error;

/// The configuration of a disk cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskCacheSettings {
    /// Size of the blocks of new files.
    pub block_bytes: u64,
    /// Maximum number of bytes in memory between their request at the origin and their arrival on disk.
    pub memory_bytes: u64,
    /// Maximum number of bytes that are fetched ahead of a reader; 0 for none.
    pub prefetch_bytes: u64,
    /// Time that a reader waits for bytes that another one fetches, before it requests them by its own connection.
    pub patience: Duration,
    /// When files are removed.
    pub limits: CacheLimits,
}

/// A part of the file system of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskShare {
    /// A part of its size.
    Millionths(u32),
    /// Bytes.
    Bytes(u64),
}

impl DiskShare {
    fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Millionths(part) => (u128::from(total) * u128::from(part) / 1_000_000) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The limits at which files are removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Files are removed when more of the file system is used, also by others.
    pub high: DiskShare,
    /// They are removed until no more is used.
    pub low: DiskShare,
    /// The maximum number of bytes of all cached files; `None` for no limit.
    pub files: Option<u64>,
}

/// The part of the limit of all files to which they are reduced, in percent.
const FILES_LOW_PERCENT: u64 = 95;

impl CacheLimits {
    /// Returns the number of bytes that cached files can have, by the total and used bytes of the file system and
    /// those of all cached files.
    pub(super) fn capacity(&self, (total, used): (u64, u64), files: u64) -> u64 {
        let of_others = used.saturating_sub(files);
        let of_disk = self.high.bytes(total).min(total).saturating_sub(of_others);
        self.files.unwrap_or(u64::MAX).min(of_disk)
    }

    /// Returns the number of bytes that can be stored before a limit is reached, by the total and used bytes of
    /// the file system and those of all cached files.
    pub(super) fn room(&self, (total, used): (u64, u64), files: u64) -> u64 {
        let of_files = self.files.unwrap_or(u64::MAX).saturating_sub(files);
        self.high.bytes(total).saturating_sub(used).min(of_files)
    }

    /// Returns the used bytes above which files are removed, and down to which, by the total bytes of the file system.
    pub(super) fn marks(&self, total: u64) -> (u64, u64) {
        (self.high.bytes(total), self.low.bytes(total))
    }

    /// Returns the number of bytes to remove, by the total and used bytes of the file system and those of all
    /// cached files.
    pub(super) fn excess(&self, (total, used): (u64, u64), files: u64) -> u64 {
        let (high, low) = (self.high.bytes(total), self.low.bytes(total));
        let of_disk = if used > high { used.saturating_sub(low.min(high)) } else { 0 };
        let of_files = match self.files {
            Some(most) if files > most => files.saturating_sub(most / 100 * FILES_LOW_PERCENT),
            _ => 0,
        };
        of_disk.max(of_files)
    }
}

/// The reason why a cache cannot start.
#[derive(Error, Debug)]
pub enum CacheStartError {
    /// Another process uses the disk.
    #[error("another process uses this cache; each server needs its own directory")]
    InUse,
    /// An error of the disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_removed_down_to_the_low_limit() {
        let limits =
            CacheLimits { high: DiskShare::Millionths(900_000), low: DiskShare::Bytes(800), files: None };
        let excess = |limits: CacheLimits, used, files| limits.excess((1000, used), files);
        assert_eq!((excess(limits, 900, 500), excess(limits, 901, 500)), (0, 101));
        let limits = CacheLimits { files: Some(500), ..limits };
        assert_eq!((excess(limits, 700, 500), excess(limits, 700, 501)), (0, 26));
        assert_eq!(excess(limits, 950, 510), 150, "the larger of both");
        let room = |used, files| limits.room((1000, used), files);
        assert_eq!((room(850, 100), room(100, 480), room(950, 0), room(0, 900)), (50, 20, 0, 0));
        let capacity = |used, files| limits.capacity((1000, used), files);
        assert_eq!((capacity(0, 0), capacity(700, 100), capacity(950, 0)), (500, 300, 0));
    }
}
