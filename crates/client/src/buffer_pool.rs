//! A pool of memory blocks for file data.
//!
//! Blocks are reused because a freshly mapped MiB costs more than encrypting it. A [`PooledBuffer`]
//! is taken when a request is made and filled by the connection that receives the reply. The caller
//! gets it as [`Bytes`]; it returns to the pool when the last of these is dropped.

use bytes::Bytes;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of unused bytes in the pool.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of unused blocks in the pool.
const KEPT_BLOCKS_MAX: usize = 256;
/// Minimum size of pooled blocks. Smaller ones are left to the allocator, which is as fast.
const KEPT_BLOCK_BYTES_MIN: usize = 32 * 1024;
/// Sizes are rounded up to a multiple of this, so that requests of similar size share blocks.
const GRAIN_BYTES: usize = 64 * 1024;

/// The free blocks. Clones share them.
#[derive(Clone, Default)]
pub struct DataBufferPool(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl fmt::Debug for DataBufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocks")
    }
}

impl DataBufferPool {
    /// Returns an empty block with a capacity of at least `bytes`.
    #[must_use]
    pub fn take(&self, bytes: usize) -> PooledBuffer {
        if bytes < KEPT_BLOCK_BYTES_MIN {
            return PooledBuffer { data: Vec::with_capacity(bytes), home: self.clone() };
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits =
            |block: &Vec<u8>| block.capacity() >= bytes && block.capacity() / 2 <= bytes.max(GRAIN_BYTES);
        let data = match free.blocks.iter().rposition(fits) {
            Some(place) => {
                let data = free.blocks.swap_remove(place);
                free.bytes -= data.capacity();
                data
            }
            None => {
                drop(free);
                Vec::with_capacity(bytes.next_multiple_of(GRAIN_BYTES))
            }
        };
        PooledBuffer { data, home: self.clone() }
    }

    fn give_back(&self, mut data: Vec<u8>) {
        let bytes = data.capacity();
        if bytes < KEPT_BLOCK_BYTES_MIN {
            return;
        }
        data.clear();
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.blocks.len() < KEPT_BLOCKS_MAX && free.bytes + bytes <= KEPT_BYTES_MAX {
            free.bytes += bytes;
            free.blocks.push(data);
        }
    }
}

/// Memory for one reply. It returns to the pool when it is dropped.
pub struct PooledBuffer {
    data: Vec<u8>,
    home: DataBufferPool,
}

impl PooledBuffer {
    /// Returns the buffer, to be filled.
    pub fn data(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// Returns the number of bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Reports whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Converts it to bytes that can be shared and split without copying.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.data.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.data));
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} of {} bytes)", self.data.len(), self.data.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(blocks: &DataBufferPool) -> (usize, usize) {
        let free = blocks.0.lock().unwrap();
        (free.blocks.len(), free.bytes)
    }

    #[test]
    fn a_block_returns_when_its_last_bytes_are_dropped() {
        let blocks = DataBufferPool::default();
        let mut block = blocks.take(100_000);
        block.data().resize(100_000, 7);
        let memory = block.data.as_ptr();
        let bytes = block.into_bytes();
        let half = bytes.slice(..50_000);
        drop(bytes);
        assert_eq!(kept(&blocks).0, 0);
        drop(half);
        assert_eq!(kept(&blocks), (1, 131_072));
        let mut again = blocks.take(90_000);
        assert_eq!((again.data().as_ptr(), again.len(), kept(&blocks)), (memory, 0, (0, 0)));
    }

    #[test]
    fn unused_blocks_are_bounded() {
        let blocks = DataBufferPool::default();
        let taken: Vec<PooledBuffer> = (0..10).map(|_| blocks.take(KEPT_BYTES_MAX / 8)).collect();
        drop(taken);
        assert_eq!(kept(&blocks), (8, KEPT_BYTES_MAX));
        drop(blocks.take(10));
        assert_eq!(kept(&blocks).0, 8);
        // A small request does not take a large block.
        assert!(blocks.take(40_000).data.capacity() < 1024 * 1024);
    }
}
