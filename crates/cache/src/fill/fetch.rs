//! [`Fetch`]: bytes that are requested at the origin.

use super::{FetchId, ReadId, ReaderId};
use std::ops::Range;

/// Bytes that are requested at the origin, and kept in memory until they are on disk.
pub(super) struct Fetch {
    pub(super) id: FetchId,
    /// The reader whose connection to the origin is used.
    pub(super) reader: ReaderId,
    pub(super) blocks: Range<u64>,
    pub(super) bytes: Range<u64>,
    /// The size of its memory, which stays the same if only a part arrives.
    pub(super) memory: u64,
    /// The end of the bytes that have arrived.
    pub(super) arrived: u64,
    /// Blocks that are not on disk yet.
    pub(super) unstored: u64,
    pub(super) waiters: Vec<Waiter>,
}

/// A part of a read that waits for a fetch.
pub(super) struct Waiter {
    pub(super) read: ReadId,
    pub(super) bytes: Range<u64>,
}

impl Fetch {
    pub(super) fn new(id: FetchId, reader: ReaderId, blocks: Range<u64>, bytes: Range<u64>) -> Self {
        let (arrived, unstored) = (bytes.start, blocks.end - blocks.start);
        let memory = bytes.end - bytes.start;
        Self { id, reader, blocks, bytes, memory, arrived, unstored, waiters: Vec::new() }
    }

    /// Returns the bytes that reads wait for and that have arrived. They no longer wait for them.
    pub(super) fn take_arrived(&mut self) -> Vec<(ReadId, Range<u64>)> {
        let mut taken = Vec::new();
        for Waiter { read, bytes } in &mut self.waiters {
            let end = self.arrived.min(bytes.end);
            if bytes.start < end {
                taken.push((*read, bytes.start..end));
                bytes.start = end;
            }
        }
        self.waiters.retain(|waiter| waiter.bytes.start < waiter.bytes.end);
        taken
    }
}
