//! [`PageTable`]: the pages of all files, and the order of their removal.

use crate::{EvictionPolicy, S3FifoPolicy};
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of parts of the table, each with its lock, if the cache is large enough for them.
const SHARDS_MAX: u64 = 16;
/// Number of pages that a part has room for at least.
const SHARD_PAGES_MIN: u64 = 64;
/// Bytes of memory that are needed for each page besides its content: two tables and the order.
const PAGE_OVERHEAD: u64 = 256;

/// A page: the number of its version of a file, and its own number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PageKey {
    pub(super) file: u64,
    pub(super) page: u64,
}

/// The memory of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PageUsage {
    pub(super) bytes: u64,
    pub(super) pages: u64,
    pub(super) evicted_bytes: u64,
}

/// The pages of all files.
pub(super) struct PageTable {
    hasher: RandomState,
    shards: Vec<Mutex<PageShard>>,
    /// Maximum number of bytes of a part.
    shard_bytes: u64,
}

struct PageShard {
    pages: HashMap<PageKey, Bytes>,
    order: S3FifoPolicy<PageKey>,
    evicted_bytes: u64,
}

impl PageTable {
    /// Creates an empty table of at most this many bytes.
    pub(super) fn new(bytes: u64, page_bytes: u64) -> Self {
        let unit = page_bytes.saturating_add(PAGE_OVERHEAD);
        let count = (bytes / unit / SHARD_PAGES_MIN).clamp(1, SHARDS_MAX);
        let shard_bytes = bytes / count;
        let units = usize::try_from(shard_bytes / unit).unwrap_or(usize::MAX).max(1);
        let shard = |_| {
            let order = S3FifoPolicy::new(shard_bytes, units);
            Mutex::new(PageShard { pages: HashMap::new(), order, evicted_bytes: 0 })
        };
        Self { hasher: RandomState::new(), shards: (0..count).map(shard).collect(), shard_bytes }
    }

    fn shard(&self, key: PageKey) -> Option<MutexGuard<'_, PageShard>> {
        let number = self.hasher.hash_one(key) % self.shards.len() as u64;
        let shard = self.shards.get(usize::try_from(number).ok()?)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a page, and records the request for it.
    pub(super) fn request(&self, key: PageKey) -> Option<Bytes> {
        let mut shard = self.shard(key)?;
        shard.order.request(key);
        shard.pages.get(&key).cloned()
    }

    /// Reports whether a page is there.
    pub(super) fn contains(&self, key: PageKey) -> bool {
        self.shard(key).is_some_and(|shard| shard.pages.contains_key(&key))
    }

    /// Adds a page, and removes others until the limit is kept.
    pub(super) fn insert(&self, key: PageKey, content: Bytes) {
        let Some(mut shard) = self.shard(key) else { return };
        if shard.pages.contains_key(&key) {
            return;
        }
        shard.order.insert(key, content.len() as u64 + PAGE_OVERHEAD);
        shard.pages.insert(key, content);
        while shard.order.bytes() > self.shard_bytes {
            let Some((removed, bytes)) = shard.order.evict() else { return };
            shard.pages.remove(&removed);
            shard.evicted_bytes += bytes;
        }
    }

    /// Returns the memory of the pages.
    pub(super) fn usage(&self) -> PageUsage {
        let mut usage = PageUsage::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            usage.bytes += shard.order.bytes();
            usage.pages += shard.pages.len() as u64;
            usage.evicted_bytes += shard.evicted_bytes;
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_pages_that_are_read_again_stay() {
        let (limit, page) = (400 * 1024, 1024);
        let table = PageTable::new(limit, page);
        let hot: Vec<_> = (0..20).map(|page| PageKey { file: 1, page }).collect();
        let content = |number: u64| Bytes::from(vec![number as u8; page as usize]);
        hot.iter().for_each(|key| table.insert(*key, content(key.page)));
        for page in 0..10_000 {
            if page % 50 == 0 {
                hot.iter().for_each(|key| _ = table.request(*key));
            }
            table.insert(PageKey { file: 2, page }, content(page));
            assert!(table.usage().bytes <= limit, "{:?}", table.usage());
        }
        let usage = table.usage();
        assert!(usage.bytes > limit / 2 && usage.evicted_bytes > 9000 * page, "{usage:?}");
        assert_eq!(usage.bytes, usage.pages * (page + PAGE_OVERHEAD));
        for key in hot {
            assert_eq!(table.request(key), Some(content(key.page)), "{key:?}");
        }
    }

    #[test]
    fn a_page_that_is_larger_than_the_table_is_not_kept() {
        let table = PageTable::new(1000, 4096);
        let key = PageKey { file: 1, page: 0 };
        table.insert(key, Bytes::from(vec![0; 4096]));
        assert!(!table.contains(key) && table.usage().bytes == 0);
    }
}
