//! Buffers of file data in flight, each with the charge for its memory.
//!
//! Buffer and charge are one type so that neither can be returned without the other.

use base::Charge;
use net::{BLOCK_BYTES, give_block, take_block};
use std::ops::{Deref, DerefMut};

/// Largest piece in bytes that gets a buffer of its own size. Small reads and writes that wait for
/// a disk then do not occupy a block each.
pub(crate) const SMALL_PIECE_BYTES_MAX: usize = 16 * 1024;

/// A buffer and its charge. On drop the buffer returns to the pool of its loop and the charge to
/// the account.
#[derive(Default)]
pub(crate) struct DataBlock {
    bytes: Vec<u8>,
    charge: Charge,
}

impl DataBlock {
    /// Returns the size in bytes of a buffer for `length` bytes: at least a block, because pooled
    /// blocks are already mapped.
    pub(crate) fn size_for(length: usize) -> usize {
        length.max(BLOCK_BYTES)
    }

    /// Returns a buffer of [`DataBlock::size_for`] `length` bytes, paid by `charge`.
    pub(crate) fn with_room(length: usize, charge: Charge) -> Self {
        let bytes = if length <= BLOCK_BYTES { take_block() } else { vec![0; length] };
        Self { bytes, charge }
    }

    /// Returns a buffer of exactly `length` bytes.
    pub(crate) fn exact(length: usize, charge: Charge) -> Self {
        Self { bytes: vec![0; length], charge }
    }

    /// Returns a block from a buffer that a job has returned and the charge kept for it.
    pub(crate) fn from_parts(bytes: Vec<u8>, charge: Charge) -> Self {
        Self { bytes, charge }
    }

    /// Splits the block for a job. The buffer moves into the job; the charge stays until the job
    /// ends.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, Charge) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.charge))
    }

    /// Keeps the first `length` bytes. If they are few, they move to a buffer of their own size.
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

impl Drop for DataBlock {
    fn drop(&mut self) {
        give_block(std::mem::take(&mut self.bytes));
    }
}

impl Deref for DataBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for DataBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Copies `bytes` to their position in a buffer. Does nothing if they do not fit there.
pub(crate) fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = buffer.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}
