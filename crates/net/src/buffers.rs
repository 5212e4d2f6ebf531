//! Warm buffers of each loop.
//!
//! A freshly mapped MiB costs more than encrypting it, so buffers go round: taken when bytes arrive, given back when they
//! have left. An idle connection owns none. The pool is a thread's own; a buffer may travel with a job to another thread and
//! be given back wherever it ends.
//!
//! Three kinds: *blocks* of one size, always filled (with whatever they held before), for pieces of files; *small* ones,
//! empty with some room, for requests; and *medium* ones, empty with more room, for replies that leave together.

#[expect(
    clippy::disallowed_types,
    reason = "nothing but vectors of bytes is touched while it is borrowed"
)]
use std::cell::RefCell;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Blocks that a loop keeps for later; more are freed.
pub const POOLED_BLOCKS_MAX: usize = 64;

/// Room of a small buffer: the largest request for a vector read fits it.
pub const SMALL_BYTES: usize = 20 * 1024;

/// Small buffers that a loop keeps for later; more are freed.
pub const POOLED_SMALL_MAX: usize = 256;

/// Room of a medium buffer.
pub const MEDIUM_BYTES: usize = 64 * 1024;

/// Medium buffers that a loop keeps for later; more are freed.
pub const POOLED_MEDIUM_MAX: usize = 64;

#[derive(Default)]
struct Pool {
    blocks: Vec<Vec<u8>>,
    small: Vec<Vec<u8>>,
    medium: Vec<Vec<u8>>,
}

thread_local! {
    #[expect(clippy::disallowed_types, reason = "nothing but vectors of bytes is touched while it is borrowed")]
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { blocks: Vec::new(), small: Vec::new(), medium: Vec::new() }) };
}

/// A buffer of exactly [`BLOCK_BYTES`] bytes. What they are is left over from earlier use: whoever takes it keeps account of
/// what it filled.
pub fn take_block() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.blocks.pop()).unwrap_or_else(|| vec![0; BLOCK_BYTES])
}

/// Gives a block back; a buffer of another size is freed.
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

/// An empty buffer with room for [`SMALL_BYTES`].
pub fn take_small() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.small.pop()).unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES))
}

/// Gives a small buffer back; one that has grown is freed.
pub fn give_small(buffer: Vec<u8>) {
    POOL.with_borrow_mut(|pool| give(&mut pool.small, buffer, SMALL_BYTES, POOLED_SMALL_MAX));
}

/// An empty buffer with room for [`MEDIUM_BYTES`].
pub fn take_medium() -> Vec<u8> {
    POOL.with_borrow_mut(|pool| pool.medium.pop()).unwrap_or_else(|| Vec::with_capacity(MEDIUM_BYTES))
}

/// Gives a medium buffer back; one that has grown is freed.
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
    fn what_was_given_is_taken_again() {
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
