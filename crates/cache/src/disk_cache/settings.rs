//! [`DiskCacheSettings`]: the configuration of a disk cache.

use base::LogicalPath;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// The configuration of a disk cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskCacheSettings {
    /// Size of the blocks of new files.
    pub block_bytes: u64,
    /// Size of the parts of larger files that are removed one by one, rounded up to whole blocks; `None` to remove whole
    /// files only. So it is on a file system that cannot free parts of files.
    pub part_bytes: Option<u64>,
    /// Maximum number of bytes in memory between their request at the origin and their arrival on disk.
    pub memory_bytes: u64,
    /// Number of bytes of files whose pages have checksums in memory; they take 1/680 of it. More than the system can
    /// keep of files in its memory is of no use.
    pub paged_bytes: u64,
    /// Maximum number of bytes that are fetched ahead of a reader; 0 for none.
    pub prefetch_bytes: u64,
    /// Time that a reader waits for bytes that another one fetches, before it requests them by its own connection.
    pub patience: Duration,
    /// When files are removed.
    pub limits: CacheLimits,
    /// The removal of files that nobody has opened for long; `None` for none.
    pub cold: Option<ColdFiles>,
    /// Limits of directories.
    pub quotas: Vec<DirectoryQuota>,
    /// Time in which a client on this machine opens the complete file to which it was sent; `None` if clients may not read
    /// files directly.
    pub direct: Option<Duration>,
}

/// The removal of files that nobody has opened for long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdFiles {
    /// Time since the last use, in seconds.
    pub age: i64,
    /// Interval of the removals.
    pub interval: Duration,
}

/// The limit of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryQuota {
    /// Its name in the cache.
    pub directory: LogicalPath,
    /// Maximum number of stored bytes of all files below it.
    pub bytes: u64,
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
    /// Limits of cached files that depend on the use of the file system; `None` for `high` and `low` only.
    pub shares: Option<FileShares>,
}

/// Limits of the bytes of all cached files on a file system that others use too.
///
/// Cached files have at most `most` while no more than `low` of the file system is used. The limit falls evenly to
/// `nominal` at `high`, and to `base` on a full file system. So `base` is theirs whatever others use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileShares {
    /// The bytes that cached files can always have.
    pub base: DiskShare,
    /// Their limit when `high` is used.
    pub nominal: DiskShare,
    /// Their limit when `low` or less is used.
    pub most: DiskShare,
}

/// The part of a limit to which files are reduced, in percent.
const LOW_PERCENT: u64 = 95;

/// Returns the number of bytes to remove from files that use `bytes`. Those up to `base` stay.
pub(super) fn excess_over(bytes: u64, limit: u64, base: u64) -> u64 {
    if bytes <= limit {
        return 0;
    }
    let base = base.min(limit);
    let above = u128::from(limit - base) * u128::from(LOW_PERCENT) / 100;
    // It is at most the limit.
    bytes - base - above as u64
}

/// Returns the value at `at` on the line between two points. Outside of these it is that of the nearest one.
fn between(at: u64, (first, begin): (u64, u64), (last, end): (u64, u64)) -> u64 {
    if at <= first || last <= first {
        return begin;
    }
    let (way, length) = (u128::from(at.min(last) - first), u128::from(last - first));
    let change = (u128::from(begin.abs_diff(end)) * way / length) as u64;
    if begin < end { begin + change } else { begin - change }
}

impl CacheLimits {
    /// Reports whether the limits are in order on a file system of this size.
    pub(super) fn is_ordered(&self, total: u64) -> bool {
        let (high, low) = self.marks(total);
        let shares = self.shares.map(|FileShares { base, nominal, most }| {
            [base.bytes(total), nominal.bytes(total), most.bytes(total), low]
        });
        low <= high && shares.is_none_or(|limits| limits.is_sorted_by(|one, next| one < next))
    }

    /// Returns the maximum number of bytes of all cached files by the used bytes of the file system.
    fn allowed(&self, (total, used): (u64, u64)) -> u64 {
        let of_shares = self.shares.map_or(u64::MAX, |FileShares { base, nominal, most }| {
            let ((high, low), nominal) = (self.marks(total), nominal.bytes(total));
            match used <= high {
                true => between(used, (low, most.bytes(total)), (high, nominal)),
                false => between(used, (high, nominal), (total, base.bytes(total))),
            }
        });
        self.files.unwrap_or(u64::MAX).min(of_shares)
    }

    /// Returns the number of bytes that cached files can have, by the total and used bytes of the file system and
    /// those of all cached files.
    pub(super) fn capacity(&self, (total, used): (u64, u64), files: u64) -> u64 {
        let of_others = used.saturating_sub(files);
        if self.shares.is_none() {
            let of_disk = self.high.bytes(total).min(total).saturating_sub(of_others);
            return self.files.unwrap_or(u64::MAX).min(of_disk);
        }
        // The limit falls while files grow, so there is one number of bytes up to which they are within it.
        let (mut within, mut beyond) = (0, total.saturating_sub(of_others).saturating_add(1));
        while within + 1 < beyond {
            let middle = within + (beyond - within) / 2;
            match middle <= self.allowed((total, of_others.saturating_add(middle))) {
                true => within = middle,
                false => beyond = middle,
            }
        }
        within
    }

    /// Returns the number of bytes that can be stored before a limit is reached, by the total and used bytes of
    /// the file system and those of all cached files.
    pub(super) fn room(&self, usage: (u64, u64), files: u64) -> u64 {
        self.capacity(usage, files).saturating_sub(files)
    }

    /// Returns the used bytes above which files are removed, and down to which, by the total bytes of the file system.
    pub(super) fn marks(&self, total: u64) -> (u64, u64) {
        (self.high.bytes(total), self.low.bytes(total))
    }

    /// Returns the number of bytes to remove, by the total and used bytes of the file system and those of all
    /// cached files.
    #[cfg(test)]
    fn excess(&self, usage: (u64, u64), files: u64) -> u64 {
        let (of_disk, of_files) = self.excesses(usage, files);
        of_disk.max(of_files)
    }

    /// Returns the numbers of bytes to remove, by the total and used bytes of the file system, and by those of all
    /// cached files.
    pub(super) fn excesses(&self, (total, used): (u64, u64), files: u64) -> (u64, u64) {
        let (high, low) = self.marks(total);
        let of_disk =
            if self.shares.is_none() && used > high { used.saturating_sub(low.min(high)) } else { 0 };
        let base = self.shares.map_or(0, |shares| shares.base.bytes(total));
        (of_disk, excess_over(files, self.allowed((total, used)), base))
    }
}

/// The reason why a cache cannot start.
#[derive(Error, Debug)]
pub enum CacheStartError {
    /// Another process uses the disk.
    #[error("another process uses this cache; each server needs its own directory")]
    InUse,
    /// The limits contradict each other on this disk.
    #[error(
        "the limits of the cache are not in order on this file system: base < nominal < max < low < high"
    )]
    Limits,
    /// The pins cannot be read. Without them, files would be removed that are to stay.
    #[error("the pins of the cache cannot be read ({0}); see .scalla-cache/pins in its directory")]
    Pins(io::Error),
    /// The recorded index can neither be continued nor removed. Later processes would believe it.
    #[error("the index of the cache cannot be removed ({0}); remove .scalla-cache/index in its directory")]
    Index(io::Error),
    /// An error of the disk.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_removed_down_to_the_low_limit() {
        let (high, low) = (DiskShare::Millionths(900_000), DiskShare::Bytes(800));
        let limits = CacheLimits { high, low, files: None, shares: None };
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
    /// On a file system of 1000 bytes: 700 up to the use of 800, 500 at 900, 300 at 1000.
    fn shared() -> CacheLimits {
        let [base, nominal, most, low, high] = [300, 500, 700, 800, 900].map(DiskShare::Bytes);
        CacheLimits { high, low, files: None, shares: Some(FileShares { base, nominal, most }) }
    }

    #[test]
    fn files_have_less_the_more_of_the_disk_is_used() {
        let limits = shared();
        let allowed = [0, 800, 850, 900, 950, 1000, 2000].map(|used| limits.allowed((1000, used)));
        assert_eq!(allowed, [700, 700, 600, 500, 400, 300, 300]);
        let excess = |used, files| limits.excess((1000, used), files);
        assert_eq!((excess(800, 700), excess(800, 701), excess(1000, 300)), (0, 21, 0));
        assert_eq!((excess(900, 600), excess(1000, 301)), (110, 1), "never below the base");
        let limits = CacheLimits { files: Some(400), ..limits };
        assert_eq!(limits.excess((1000, 0), 401), 6);
        assert_eq!(limits.allowed((1000, 1000)), 300);
    }

    #[test]
    fn no_file_passes_a_limit_that_falls_while_files_are_stored() {
        let limits = shared();
        for (used, files) in [(0, 0), (500, 200), (800, 700), (850, 400), (950, 300), (990, 10), (1000, 0)] {
            let room = limits.room((1000, used), files);
            let after = |more: u64| limits.excess((1000, used + more), files + more);
            assert!(room == 0 || after(room) == 0, "{used} {files}: {room}");
            assert!(used + room == 1000 || after(room + 1) > 0, "{used} {files}: {room} is too little");
        }
        // Others have all the rest of the disk.
        assert_eq!((limits.room((1000, 700), 0), limits.room((1000, 990), 0)), (300, 10));
    }

    #[test]
    fn limits_are_compared_when_the_size_of_the_disk_is_known() {
        assert!(shared().is_ordered(1000));
        let low = DiskShare::Millionths(800_000);
        let limits = CacheLimits { low, ..shared() };
        assert!(limits.is_ordered(1000) && !limits.is_ordered(800), "max is more than low");
        let limits = CacheLimits { shares: None, ..limits };
        assert!(limits.is_ordered(800) && !limits.is_ordered(2000), "low is more than high");
        assert!(limits.is_ordered(0));
    }
}
