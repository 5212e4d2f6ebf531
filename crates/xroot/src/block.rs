//! Buffers of file data in flight, each with the charge for its memory.

use base::Charge;
use net::{BLOCK_BYTES, give_block, take_block};
use std::ops::{Deref, DerefMut};

/// A piece up to this size gets a buffer of its own size, so that many small reads and writes that wait for a disk do not
/// hold a block each.
pub(crate) const SMALL_PIECE_BYTES_MAX: usize = 16 * 1024;

/// A buffer and the charge for it. It goes back to the pool of its loop, and its bytes to the account, when it is dropped.
#[derive(Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Block {
    /// Bytes of memory that a buffer with room for `length` takes: at least a block, which is warm.
    pub(crate) fn size_for(length: usize) -> usize {
        length.max(BLOCK_BYTES)
    }

    /// A buffer of [`Block::size_for`] what is needed, paid by `charge`.
    pub(crate) fn with_room(length: usize, charge: Charge) -> Self {
        let bytes = if length <= BLOCK_BYTES { take_block() } else { vec![0; length] };
        Self { bytes, charge }
    }

    /// A buffer of exactly this size.
    pub(crate) fn exact(length: usize, charge: Charge) -> Self {
        Self { bytes: vec![0; length], charge }
    }

    /// A buffer that comes back from a job, and the charge that waited for it.
    pub(crate) fn from_parts(bytes: Vec<u8>, charge: Charge) -> Self {
        Self { bytes, charge }
    }

    /// For a job: the buffer goes with it, the charge waits for its end.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, Charge) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.charge))
    }

    /// Keeps the first `length` bytes, in a buffer of their own if they are few.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        if length > SMALL_PIECE_BYTES_MAX || self.bytes.len() <= SMALL_PIECE_BYTES_MAX {
            self.bytes.truncate(length);
            return self;
        }
        let bytes = self.bytes.get(..length).unwrap_or_default().to_vec();
        self.charge.shrink_to(length);
        Self { bytes, charge: std::mem::take(&mut self.charge) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        give_block(std::mem::take(&mut self.bytes));
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
