//! A cache of fixed-size blocks with eviction of the least recently used one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::shared_read::SharedRead;

/// Maximum number of blocks of one request.
const RUN_BLOCKS_MAX: u64 = 16;

/// The cached blocks.
#[derive(Debug)]
pub(super) struct Lru {
    block_bytes: u64,
    blocks_max: usize,
    /// By block number: the request that reads it, and the time of its last use.
    blocks: HashMap<u64, (Arc<SharedRead>, u64)>,
    by_use: BTreeMap<u64, u64>,
    clock: u64,
}

/// The pieces of a read.
#[derive(Default, Debug)]
pub(super) struct BlockPlan {
    /// The pieces that contain it, in order.
    pub(super) pieces: Vec<Arc<SharedRead>>,
    /// The pieces to start now.
    pub(super) begin: Vec<Arc<SharedRead>>,
}

impl Lru {
    pub(super) fn new(block_bytes: usize, blocks_max: usize) -> Self {
        let block_bytes = (block_bytes as u64).max(1);
        Self {
            block_bytes,
            blocks_max: blocks_max.max(1),
            blocks: HashMap::new(),
            by_use: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Plans a read of the bytes `offset..end` of a file of `size` bytes.
    pub(super) fn plan(&mut self, offset: u64, end: u64, size: u64) -> BlockPlan {
        let mut plan = BlockPlan::default();
        let end = end.min(size);
        if end <= offset {
            return plan;
        }
        let (first, last) = (offset / self.block_bytes, (end - 1) / self.block_bytes);
        let mut number = first;
        while number <= last {
            let fetch = match self.look(number) {
                Some(fetch) => fetch,
                None => {
                    let fetch = self.bring(number, last, size);
                    plan.begin.push(fetch.clone());
                    fetch
                }
            };
            number = (fetch.end().div_ceil(self.block_bytes)).max(number + 1);
            // Some blocks of a run may have been evicted, but its data is complete.
            plan.pieces.push(fetch);
        }
        plan
    }

    fn look(&mut self, number: u64) -> Option<Arc<SharedRead>> {
        let (fetch, used) = self.blocks.get(&number)?;
        if fetch.has_failed() {
            self.by_use.remove(used);
            self.blocks.remove(&number);
            return None;
        }
        let fetch = fetch.clone();
        let in_run = fetch.offset / self.block_bytes..fetch.end().div_ceil(self.block_bytes);
        for number in in_run {
            self.touch(number, &fetch);
        }
        Some(fetch)
    }

    fn touch(&mut self, number: u64, fetch: &Arc<SharedRead>) {
        let Some((held, used)) = self.blocks.get_mut(&number) else { return };
        if Arc::ptr_eq(held, fetch) {
            self.clock += 1;
            self.by_use.remove(used);
            *used = self.clock;
            self.by_use.insert(self.clock, number);
        }
    }

    /// Creates one request for the missing blocks from `number` on.
    fn bring(&mut self, number: u64, last: u64, size: u64) -> Arc<SharedRead> {
        let mut until = number + 1;
        while until <= last && until - number < RUN_BLOCKS_MAX && !self.blocks.contains_key(&until) {
            until += 1;
        }
        let offset = number * self.block_bytes;
        let length = (until * self.block_bytes).min(size) - offset;
        let fetch = SharedRead::new(offset, usize::try_from(length).unwrap_or(usize::MAX));
        for number in number..until {
            self.clock += 1;
            self.blocks.insert(number, (fetch.clone(), self.clock));
            self.by_use.insert(self.clock, number);
        }
        while self.blocks.len() > self.blocks_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.blocks.remove(&oldest);
        }
        fetch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(fetches: &[Arc<SharedRead>]) -> Vec<(u64, usize)> {
        fetches.iter().map(|fetch| (fetch.offset, fetch.length)).collect()
    }

    #[test]
    fn adjacent_missing_blocks_share_one_request() {
        let mut lru = Lru::new(100, 8);
        assert_eq!(ranges(&lru.plan(250, 420, 1000).begin), [(200, 300)]);
        assert_eq!(ranges(&lru.plan(300, 301, 1000).begin), []);
        let plan = lru.plan(150, 650, 1000);
        assert_eq!(ranges(&plan.begin), [(100, 100), (500, 200)]);
        assert_eq!(ranges(&plan.pieces), [(100, 100), (200, 300), (500, 200)]);
        assert_eq!(ranges(&lru.plan(990, 2000, 1000).pieces), [(900, 100)]);
        assert!(lru.plan(1000, 2000, 1000).pieces.is_empty());
    }

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut lru = Lru::new(100, 2);
        for offset in [0, 100, 0, 200] {
            lru.plan(offset, offset + 1, 1000);
        }
        assert_eq!(ranges(&lru.plan(0, 1, 1000).begin), []);
        assert_eq!(ranges(&lru.plan(100, 101, 1000).begin), [(100, 100)]);
        assert_eq!(lru.blocks.len(), 2);
        assert_eq!(lru.by_use.len(), 2);
    }

    #[test]
    fn a_read_larger_than_the_cache_is_served() {
        let mut lru = Lru::new(10, 3);
        let plan = lru.plan(0, 1000, 1000);
        let mut next = 0;
        for piece in &plan.pieces {
            assert_eq!(piece.offset, next);
            next = piece.end();
        }
        assert_eq!((next, lru.blocks.len()), (1000, 3));
    }
}
