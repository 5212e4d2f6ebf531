//! Buffer pools of each loop.
//!
//! Buffers are reused because a freshly mapped MiB costs more than encrypting it: they are taken
//! when bytes arrive and returned when they were sent. An idle connection owns none. Each thread
//! has its own pool. A buffer may move to another thread with a job and be returned to that
//! thread's pool.
//!
//! There are three kinds: *blocks* of one size, always filled (with earlier content), for pieces of
//! files; *small* ones, empty, for requests; and *medium* ones, empty and larger, for batched
//! replies.

#[expect(
    clippy::disallowed_types,
    reason = "nothing but vectors of bytes is touched while it is borrowed"
)]
use std::cell::RefCell;

/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Maximum number of blocks that a loop keeps; more are freed.
pub const POOLED_BLOCKS_MAX: usize = 64;

/// Capacity of a small buffer: the largest request for a vector read fits.
pub const SMALL_BYTES: usize = 20 * 1024;

/// Maximum number of small buffers that a loop keeps; more are freed.
pub const POOLED_SMALL_MAX: usize = 256;

/// Capacity of a medium buffer.
pub const MEDIUM_BYTES: usize = 64 * 1024;

/// Maximum number of medium buffers that a loop keeps; more are freed.
pub const POOLED_MEDIUM_MAX: usize = 64;

#[derive(Default)]
struct BufferPool {
    blocks: Vec<Vec<u8>>,
    small: Vec<Vec<u8>>,
    medium: Vec<Vec<u8>>,
}

thread_local! {
    #[expect(clippy::disallowed_types, reason = "nothing but vectors of bytes is touched while it is borrowed")]
    static POOL: RefCell<BufferPool> =
        const { RefCell::new(BufferPool { blocks: Vec::new(), small: Vec::new(), medium: Vec::new() }) };
}

/// Returns a buffer of exactly [`BLOCK_BYTES`] bytes with arbitrary earlier content. The caller
/// must track the bytes it has filled.
pub fn take_block() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.blocks.pop()).unwrap_or_else(|| vec![0; BLOCK_BYTES])
}

/// Returns a block to the pool. A buffer of another size is freed.
pub fn give_block(mut block: Vec<u8>) {
    if block.capacity() < BLOCK_BYTES || block.capacity() > 2 * BLOCK_BYTES {
        return;
    }
    block.resize(BLOCK_BYTES, 0);
    POOL.with_borrow_mut(|pool| {
        if pool.blocks.len() < POOLED_BLOCKS_MAX {
            pool.blocks.push(block);
        }
    });
}

/// Returns an empty buffer with capacity [`SMALL_BYTES`].
pub fn take_small() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.small.pop()).unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES))
}

/// Returns a small buffer to the pool. One that has grown is freed.
pub fn give_small(buffer: Vec<u8>) {
    POOL.with_borrow_mut(|pool| give(&mut pool.small, buffer, SMALL_BYTES, POOLED_SMALL_MAX));
}

/// Returns an empty buffer with capacity [`MEDIUM_BYTES`].
pub fn take_medium() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.medium.pop()).unwrap_or_else(|| Vec::with_capacity(MEDIUM_BYTES))
}

/// Returns a medium buffer to the pool. One that has grown is freed.
pub fn give_medium(buffer: Vec<u8>) {
    POOL.with_borrow_mut(|pool| give(&mut pool.medium, buffer, MEDIUM_BYTES, POOLED_MEDIUM_MAX));
}

fn give(kept: &mut Vec<Vec<u8>>, mut buffer: Vec<u8>, bytes: usize, most: usize) {
    if buffer.capacity() >= bytes && buffer.capacity() <= 2 * bytes && kept.len() < most {
        buffer.clear();
        kept.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_reused() {
        let mut block = take_block();
        block.truncate(7);
        let place = block.as_ptr();
        give_block(block);
        let again = take_block();
        assert_eq!((again.as_ptr(), again.len()), (place, BLOCK_BYTES));

        let mut small = take_small();
        small.extend_from_slice(b"left over");
        let place = small.as_ptr();
        give_small(small);
        let again = take_small();
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limits() {
        let many: Vec<_> = (0..=POOLED_BLOCKS_MAX).map(|_| take_block()).collect();
        many.into_iter().for_each(give_block);
        let many: Vec<_> = (0..=POOLED_SMALL_MAX).map(|_| take_small()).collect();
        many.into_iter().for_each(give_small);
        give_small(Vec::with_capacity(10 * SMALL_BYTES));
        POOL.with_borrow(|pool| {
            assert_eq!((pool.blocks.len(), pool.small.len()), (POOLED_BLOCKS_MAX, POOLED_SMALL_MAX))
        });
    }
}
