//! The input of a connection: received bytes that have not been consumed, and their memory.

use crate::block::DataBlock;
use base::{Account, Charge, MemoryPurpose, Shortage, Ticket};
use net::{SMALL_BYTES, give_small, take_small};
use std::rc::Rc;

/// Received bytes that have not been consumed.
#[derive(Default)]
pub(crate) struct Input {
    pub(crate) buffer: Vec<u8>,
    at: u32,
    /// Expected payload in bytes of the next request, as long as that of the last one; 0 if
    /// unknown.
    pub(crate) likely: u32,
    /// Charge for the buffer, if bytes remain in it at the end of a turn or it has grown.
    charge: Charge,
    /// Position of the arriving argument in the queue for memory.
    pub(crate) ticket: Option<Ticket>,
}

impl Input {
    pub(crate) fn of(buffer: Vec<u8>) -> Self {
        Self { buffer, ..Self::default() }
    }

    pub(crate) fn at(&self) -> usize {
        self.at as usize
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.at()..).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at() >= self.buffer.len()
    }

    /// Sets the expected payload in bytes of the next request.
    pub(crate) fn expect_payload(&mut self, bytes: usize) {
        self.likely = u32::try_from(bytes).unwrap_or(0);
    }

    /// Returns the memory in bytes that it is charged for.
    pub(crate) fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Appends bytes after the present ones.
    pub(crate) fn append(&mut self, bytes: &[u8], account: &Rc<Account>) {
        if self.buffer.capacity() == 0 && !bytes.is_empty() {
            self.buffer = take_small();
        }
        self.buffer.extend_from_slice(bytes);
        self.charge_growth(account);
    }

    /// Charges a buffer that has grown. A small one is not charged within a turn, because the next
    /// connection of the loop reuses it.
    pub(crate) fn charge_growth(&mut self, account: &Rc<Account>) {
        if self.charge.bytes() > 0 || self.buffer.capacity() > 2 * SMALL_BYTES {
            self.charge.measure(account, self.buffer.capacity());
        }
    }

    /// Charges the buffer at the end of a turn that leaves bytes in it.
    pub(crate) fn keep(&mut self, account: &Rc<Account>) {
        if self.buffer.capacity() > 0 {
            self.charge.measure(account, self.buffer.capacity());
        }
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        // The buffer is shorter than 4 GiB, because the length of an argument has 31 bits.
        self.at = self.at.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.ticket = None;
        if self.is_empty() {
            self.clear();
        }
    }

    /// Drops the remaining bytes and returns the buffer.
    pub(crate) fn clear(&mut self) {
        give_small(std::mem::take(&mut self.buffer));
        self.at = 0;
        (self.charge, self.ticket) = (Charge::NONE, None);
    }

    /// Makes room for input, up to `bytes` in total with the present ones. The buffer grows with
    /// the bytes that have arrived, not with the announced length. The error contains the number of
    /// bytes that could not be reserved.
    pub(crate) fn make_room(&mut self, bytes: usize, account: &Rc<Account>) -> Result<(), (Shortage, usize)> {
        if self.at > 0 {
            self.buffer.drain(..self.at().min(self.buffer.len()));
            self.at = 0;
        }
        if self.buffer.capacity() == 0 {
            self.buffer = take_small();
        }
        // The smallest buffer is available even if memory is short.
        self.charge_growth(account);
        if self.buffer.len() == self.buffer.capacity() {
            self.keep(account);
            let length = self.buffer.len();
            let announced = length.min(bytes.saturating_sub(length));
            let more = announced.max(SMALL_BYTES.saturating_sub(length)).max(1);
            self.charge
                .grow_to(MemoryPurpose::Argument, length + more, 0)
                .map_err(|shortage| (shortage, more))?;
            self.buffer.reserve_exact(more);
            self.charge.measure(account, self.buffer.capacity());
        }
        Ok(())
    }
}

/// Bytes received after the input, in a block from which payload can be written.
pub(crate) struct PayloadAhead {
    pub(crate) block: DataBlock,
    pub(crate) filled: usize,
}

impl PayloadAhead {
    /// Appends the bytes to the input because they are not such payload.
    pub(crate) fn join(self, input: &mut Input, account: &Rc<Account>) {
        input.append(self.block.get(..self.filled).unwrap_or_default(), account);
    }
}
