//! The blocks of a file that are in the cache.

/// One bit for each block of a file, as in a `cinfo` file: block `i` is bit `i mod 8` of byte `i / 8`,
/// from the least significant one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockMap {
    bytes: Vec<u8>,
    blocks: u64,
}

impl BlockMap {
    /// Returns the number of bytes of the map of a file with this number of blocks.
    #[must_use]
    pub const fn byte_count(blocks: u64) -> u64 {
        blocks.div_ceil(8)
    }

    /// Returns the map with these bytes; `None` if their number is wrong.
    #[must_use]
    pub fn new(bytes: Vec<u8>, blocks: u64) -> Option<Self> {
        (bytes.len() as u64 == Self::byte_count(blocks)).then_some(Self { bytes, blocks })
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of blocks of the file.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.blocks
    }

    /// Reports whether the file has no blocks.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns for each block whether it is in the cache.
    pub fn iter(&self) -> impl Iterator<Item = bool> {
        (0..self.blocks).map(|block| self.contains(block))
    }

    /// Reports whether a block is in the cache.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        block < self.blocks && self.byte_of(block).is_some_and(|byte| byte >> (block % 8) & 1 == 1)
    }

    /// Adds a block.
    pub fn insert(&mut self, block: u64) {
        self.set(block, true);
    }

    /// Removes a block.
    pub fn remove(&mut self, block: u64) {
        self.set(block, false);
    }

    fn set(&mut self, block: u64, is_present: bool) {
        let bit = 1 << (block % 8);
        let byte = usize::try_from(block / 8).ok().and_then(|at| self.bytes.get_mut(at));
        if let Some(byte) = byte.filter(|_| block < self.blocks) {
            *byte = if is_present { *byte | bit } else { *byte & !bit };
        }
    }

    fn byte_of(&self, block: u64) -> Option<u8> {
        usize::try_from(block / 8).ok().and_then(|at| self.bytes.get(at)).copied()
    }

    /// Returns the number of blocks in the cache.
    #[must_use]
    pub fn present(&self) -> u64 {
        let Some((last, whole)) = self.bytes.split_last() else { return 0 };
        // Bits behind the last block have no meaning.
        let used = (self.blocks - 1) % 8 + 1;
        let last = last & (u8::MAX >> (8 - used));
        whole.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>() + u64::from(last.count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_added_and_removed() {
        let mut map = BlockMap::new(vec![0, 0], 10).expect("its size is right");
        [0, 7, 9, 10, 15, u64::MAX].into_iter().for_each(|block| map.insert(block));
        assert_eq!(map.as_bytes(), [0x81, 0x02], "blocks behind the end are ignored");
        map.remove(7);
        map.remove(10);
        assert_eq!(
            (map.contains(0), map.contains(7), map.contains(9), map.contains(10)),
            (true, false, true, false)
        );
        assert_eq!(map.iter().filter(|is_present| *is_present).count(), 2);
    }

    #[test]
    fn bits_behind_the_last_block_do_not_count() {
        for (bytes, blocks, present) in
            [(vec![], 0, 0), (vec![0xff], 1, 1), (vec![0xff], 8, 8), (vec![0x0f, 0xff], 9, 5)]
        {
            let map = BlockMap::new(bytes, blocks).expect("its size is right");
            assert_eq!(map.present(), present, "{map:?}");
            assert_eq!(map.iter().filter(|is_present| *is_present).count() as u64, present, "{map:?}");
        }
        assert_eq!(BlockMap::new(vec![0], 9), None);
        assert_eq!(BlockMap::new(vec![0, 0], 8), None);
    }
}
