//! Warm buffers of each loop.
//!
//! A freshly mapped MiB costs more than encrypting it, so buffers go round: taken when bytes arrive, given back when they
//! have left. An idle connection owns none. The pool is a thread's own; a buffer may travel with a job to another thread and
//! be given back wherever it ends.

use std::cell::RefCell;

/// Bytes of a pooled buffer.
pub const BUFFER_BYTES: usize = 256 * 1024;

/// Buffers that a loop keeps for later; more are freed.
pub const POOLED_BUFFERS_MAX: usize = 64;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for at least `bytes`: a warm one if that suffices.
pub fn take_buffer(bytes: usize) -> Vec<u8> {
    if bytes > BUFFER_BYTES {
        return Vec::with_capacity(bytes);
    }
    if bytes < BUFFER_BYTES / 16 {
        return Vec::with_capacity(bytes);
    }
    POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
}

/// Gives a buffer back; one of another size is freed.
pub fn give_buffer(mut buffer: Vec<u8>) {
    if buffer.capacity() < BUFFER_BYTES || buffer.capacity() > 2 * BUFFER_BYTES {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        if pool.len() < POOLED_BUFFERS_MAX {
            buffer.clear();
            pool.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_buffer_is_taken_again_empty() {
        let mut first = take_buffer(BUFFER_BYTES);
        first.extend_from_slice(b"left over");
        let place = first.as_ptr();
        give_buffer(first);
        let again = take_buffer(BUFFER_BYTES);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let many: Vec<_> = (0..=POOLED_BUFFERS_MAX).map(|_| take_buffer(BUFFER_BYTES)).collect();
        many.into_iter().for_each(give_buffer);
        assert_eq!(POOL.with_borrow(Vec::len), POOLED_BUFFERS_MAX);
    }
}
