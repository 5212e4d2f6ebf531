//! [`PartLayout`]: the parts of a file that a cache removes one by one.

use crate::BlockMap;
use std::ops::Range;

/// Maximum number of parts of a file. Larger files have larger parts.
const PARTS_MAX: u64 = 4096;

/// The parts of a file that has more than one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartLayout {
    size: u64,
    block_bytes: u64,
    /// The size of each part except the last one, which is shorter. It has whole blocks.
    part_bytes: u64,
}

impl PartLayout {
    /// Returns the parts of a file of this size, with at least `part_bytes` in whole blocks. `None` if the file is removed
    /// as a whole, because it has no more than one part, or files have no parts.
    pub(crate) fn new(size: u64, part_bytes: Option<u64>, block_bytes: u64) -> Option<Self> {
        let least = part_bytes?.max(size.div_ceil(PARTS_MAX)).max(1);
        let part_bytes = least.checked_next_multiple_of(block_bytes)?;
        (part_bytes < size).then_some(Self { size, block_bytes, part_bytes })
    }

    /// Returns the number of parts.
    pub(crate) fn count(&self) -> u32 {
        // At most `PARTS_MAX`.
        self.size.div_ceil(self.part_bytes) as u32
    }

    /// Returns the number of blocks of the file.
    fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block_bytes)
    }

    /// Returns the part of a byte.
    pub(crate) fn of(&self, offset: u64) -> u32 {
        u32::try_from(offset / self.part_bytes).unwrap_or(u32::MAX)
    }

    /// Returns the part of a block.
    pub(crate) fn of_block(&self, block: u64) -> u32 {
        self.of(block.saturating_mul(self.block_bytes))
    }

    /// Returns the blocks of a part. A part behind the file has none.
    pub(crate) fn blocks_of(&self, part: u32) -> Range<u64> {
        let part_blocks = self.part_bytes / self.block_bytes;
        let begin = u64::from(part).saturating_mul(part_blocks).min(self.blocks());
        begin..begin.saturating_add(part_blocks).min(self.blocks())
    }

    /// Returns the stored bytes of each part that has some, in order.
    pub(crate) fn sizes(&self, stored: &BlockMap) -> Vec<(u32, u64)> {
        let of_part = |part| {
            let blocks = self.blocks_of(part).filter(|block| stored.contains(*block));
            (part, blocks.map(|block| self.bytes_of_block(block)).sum())
        };
        (0..self.count()).map(of_part).filter(|(_, bytes)| *bytes > 0).collect()
    }

    fn bytes_of_block(&self, block: u64) -> u64 {
        self.block_bytes.min(self.size.saturating_sub(block.saturating_mul(self.block_bytes)))
    }

    /// Returns the last parts that have at least this number of stored bytes together. The first part of a file often has
    /// the header that each reader needs.
    pub(crate) fn last_parts(&self, stored: &BlockMap, bytes: u64) -> Vec<u32> {
        let (mut parts, mut sum) = (Vec::new(), 0_u64);
        for (part, size) in self.sizes(stored).into_iter().rev() {
            if sum >= bytes {
                break;
            }
            sum = sum.saturating_add(size);
            parts.push(part);
        }
        parts
    }

    /// Returns the blocks of parts of which nothing is stored. Neighbours are one range.
    pub(crate) fn empty_parts(&self, stored: &BlockMap) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for part in 0..self.count() {
            let blocks = self.blocks_of(part);
            if blocks.clone().any(|block| stored.contains(block)) {
                continue;
            }
            match ranges.last_mut().filter(|last| last.end == blocks.start) {
                Some(last) => last.end = blocks.end,
                None => ranges.push(blocks),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: u64, part_bytes: u64, block_bytes: u64) -> Option<(u64, u32)> {
        let layout = PartLayout::new(size, Some(part_bytes), block_bytes)?;
        Some((layout.part_bytes, layout.count()))
    }

    #[test]
    fn a_file_has_parts_of_whole_blocks_if_it_is_larger_than_one() {
        assert_eq!(layout(100, 40, 10), Some((40, 3)));
        assert_eq!(layout(100, 35, 10), Some((40, 3)));
        assert_eq!(layout(81, 40, 10), Some((40, 3)));
        // Blocks that are larger than a part.
        assert_eq!(layout(71, 40, 70), Some((70, 2)));
        for whole in [layout(40, 40, 10), layout(0, 40, 10), layout(70, 40, 70), layout(13, 10, 7)] {
            assert_eq!(whole, None);
        }
        assert_eq!(PartLayout::new(100, None, 10), None);
        // As many as a file can have, and one byte more.
        assert_eq!(layout(40 * PARTS_MAX, 40, 10), Some((40, 4096)));
        assert_eq!(layout(40 * PARTS_MAX + 1, 40, 10), Some((50, 3277)));
        let (bytes, count) = layout(u64::MAX - 1, 1, 4096).unwrap();
        assert!(u64::from(count) <= PARTS_MAX && bytes >= u64::MAX / PARTS_MAX, "{bytes} {count}");
        assert_eq!(layout(u64::MAX, u64::MAX, 4096), None);
        assert_eq!(layout(100, 40, 0), None);
    }

    fn empty_parts(layout: &PartLayout, stored: &BlockMap) -> Vec<(u64, u64)> {
        layout.empty_parts(stored).into_iter().map(|blocks| (blocks.start, blocks.end)).collect()
    }

    #[test]
    fn parts_are_chosen_by_their_stored_blocks() {
        let layout = PartLayout::new(115, Some(40), 10).unwrap();
        let mut blocks = BlockMap::new(vec![0, 0], 12).unwrap();
        assert_eq!(empty_parts(&layout, &blocks), [(0, 12)]);
        [0, 3, 8, 11].into_iter().for_each(|block| blocks.insert(block));
        assert_eq!(layout.sizes(&blocks), [(0, 20), (2, 15)]);
        assert_eq!(empty_parts(&layout, &blocks), [(4, 8)]);
        assert_eq!([0, 2, 3, 9].map(|part| layout.blocks_of(part)), [0..4, 8..12, 12..12, 12..12]);
        assert_eq!([(0, 0), (39, 0), (40, 1), (114, 2)].map(|(byte, _)| layout.of(byte)), [0, 0, 1, 2]);
        for (bytes, parts) in [(0, vec![]), (1, vec![2]), (15, vec![2]), (16, vec![2, 0]), (99, vec![2, 0])] {
            assert_eq!(layout.last_parts(&blocks, bytes), parts, "{bytes}");
        }
    }
}
