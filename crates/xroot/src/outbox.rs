//! The output queue of a connection: replies and file ranges in order.
//!
//! Short replies are batched in one buffer and leave in one system call. A file range is sent by
//! `sendfile`, directly after its header.

use crate::block::DataBlock;
use crate::reply_ends::ReplyEnds;
use base::{Account, Charge};
use net::{ENCRYPTED_PIECES_MAX, MEDIUM_BYTES, Socket, give_medium, take_medium};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use vfs::OpenFile;

/// Maximum number of pieces in one vectored write.
const PIECES_MAX: usize = 16;

/// Maximum capacity in segments with which an empty outbox is kept.
const KEPT_SEGMENTS_MAX: usize = 256;

enum OutputSegment {
    /// Replies.
    Small(OutputReplies),
    /// Part of a block.
    Block(DataBlock, Range<usize>),
    /// Range of a file.
    File { file: Arc<dyn OpenFile>, offset: u64, left: usize },
}

impl OutputSegment {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Small(replies) => Some(&replies.bytes),
            Self::Block(block, range) => block.get(range.clone()),
            Self::File { .. } => None,
        }
    }
}

/// Concatenated replies, and the charge for their buffer. On drop the buffer returns to the pool of
/// its loop.
#[derive(Default)]
struct OutputReplies {
    bytes: Vec<u8>,
    charge: Charge,
}

impl OutputReplies {
    const NONE: Self = Self { bytes: Vec::new(), charge: Charge::NONE };

    /// Charges a buffer that has grown. A buffer of the usual size is charged only if a turn leaves
    /// bytes in it ([`Outbox::end_turn`]). Nearly all replies leave in the turn that made them.
    fn charge_growth(&mut self, account: &Rc<Account>) {
        if self.charge.bytes() > 0 || self.bytes.capacity() > 2 * MEDIUM_BYTES {
            self.measure(account);
        }
    }

    /// Adjusts the charge to the current capacity of the buffer.
    fn measure(&mut self, account: &Rc<Account>) {
        self.charge.measure(account, self.bytes.capacity());
    }
}

impl Drop for OutputReplies {
    fn drop(&mut self) {
        give_medium(std::mem::take(&mut self.bytes));
    }
}

/// The output queue of one connection.
#[derive(Default)]
pub(crate) struct Outbox {
    segments: VecDeque<OutputSegment>,
    /// Bytes of the first segment that have been sent.
    sent: usize,
    /// Buffer for new replies, after the segments.
    tail: OutputReplies,
    /// Bytes in the segments, including sent ones.
    queued: usize,
    /// Bytes among them that are ranges of files and occupy no memory.
    lent: usize,
    /// Position of an encrypted connection among its replies.
    ends: ReplyEnds,
}

/// Result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushOutcome {
    /// The outbox is empty.
    All,
    /// The socket accepts no more data now.
    Blocked,
    /// The turn is used up.
    Turn,
}

impl Outbox {
    /// An empty outbox without a buffer.
    pub(crate) const EMPTY: Self = Self {
        segments: VecDeque::new(),
        sent: 0,
        tail: OutputReplies::NONE,
        queued: 0,
        lent: 0,
        ends: ReplyEnds::START,
    };

    /// Returns the buffer to append replies to. The account pays for its memory.
    pub(crate) fn tail(&mut self, account: &Rc<Account>) -> &mut Vec<u8> {
        if self.tail.bytes.capacity() == 0 {
            self.tail.bytes = take_medium();
        }
        self.tail.charge_growth(account);
        &mut self.tail.bytes
    }

    /// Returns a buffer with room for a reply of `bytes` bytes. If the current one would have to
    /// grow, a new one is started.
    pub(crate) fn tail_for(&mut self, bytes: usize, account: &Rc<Account>) -> &mut Vec<u8> {
        if self.tail.bytes.capacity() - self.tail.bytes.len() < bytes {
            self.seal(account);
        }
        self.tail(account)
    }

    /// Returns the number of bytes to send.
    pub(crate) fn pending(&self) -> usize {
        self.queued + self.tail.bytes.len() - self.sent
    }

    /// Returns the number of bytes to send that occupy memory, without ranges of files.
    pub(crate) fn held(&self) -> usize {
        self.pending() - self.lent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.tail.bytes.is_empty()
    }

    /// Appends part of a block, which is kept until the part has been sent.
    pub(crate) fn push_block(&mut self, block: DataBlock, range: Range<usize>, account: &Rc<Account>) {
        self.seal(account);
        self.queued += range.len();
        self.segments.push_back(OutputSegment::Block(block, range));
    }

    /// Appends a range of a file. Its header must have been appended before.
    pub(crate) fn push_file(
        &mut self,
        file: Arc<dyn OpenFile>,
        offset: u64,
        length: usize,
        account: &Rc<Account>,
    ) {
        self.seal(account);
        self.queued += length;
        self.lent += length;
        self.segments.push_back(OutputSegment::File { file, offset, left: length });
    }

    /// Appends a short range of a resident file, copied if possible without waiting.
    pub(crate) fn push_copy(
        &mut self,
        file: &Arc<dyn OpenFile>,
        offset: u64,
        length: usize,
        account: &Rc<Account>,
    ) {
        if length == 0 {
            return;
        }
        let out = self.tail_for(length, account);
        let start = out.len();
        if !matches!(file.append_now(offset, length, out), vfs::Now::Done(Ok(read)) if read == length) {
            // The header has announced these bytes, so they are sent as a range, or the connection
            // is closed.
            out.truncate(start);
            self.push_file(file.clone(), offset, length, account);
        }
    }

    /// Returns the charge of an empty outbox. Reports whether another connection can reuse it, with
    /// the buffer that it may hold.
    pub(crate) fn release_charge(&mut self) -> bool {
        self.tail.charge = Charge::NONE;
        self.tail.bytes.capacity() <= 2 * MEDIUM_BYTES && self.segments.capacity() <= KEPT_SEGMENTS_MAX
    }

    fn seal(&mut self, account: &Rc<Account>) {
        if !self.tail.bytes.is_empty() {
            self.tail.measure(account);
            let tail = std::mem::take(&mut self.tail);
            self.queued += tail.bytes.len();
            self.segments.push_back(OutputSegment::Small(tail));
        }
    }

    /// Drops all output of a lost connection.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.tail = OutputReplies::NONE;
        (self.sent, self.queued, self.lent, self.ends) = (0, 0, 0, ReplyEnds::START);
    }

    /// Sends output until the socket blocks or about `most` bytes were sent. If replies are the
    /// only output and `together` is set, they may join the batch of other connections; the next
    /// flush sends the rest. An error ends the connection, also a file that has become shorter than
    /// a header announced.
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        most: usize,
        together: bool,
        account: &Rc<Account>,
    ) -> io::Result<FlushOutcome> {
        if let Some((bytes, sent)) = socket.returned() {
            self.queued += bytes.len();
            self.sent = sent;
            let charge = account.charge(bytes.capacity());
            self.segments.push_front(OutputSegment::Small(OutputReplies { bytes, charge }));
        }
        if together && self.segments.is_empty() && self.sent == 0 && !self.tail.bytes.is_empty() {
            match socket.send_together(std::mem::take(&mut self.tail.bytes)) {
                // Sent within this round. Unsent bytes return and are charged again.
                Ok(()) => {
                    self.tail.charge = Charge::NONE;
                    return Ok(FlushOutcome::All);
                }
                Err(tail) => self.tail.bytes = tail,
            }
        }
        self.send(socket, most)
    }

    /// Ends a turn. A buffer with bytes is charged, an empty one returns to the pool.
    pub(crate) fn end_turn(&mut self, account: &Rc<Account>) {
        if self.tail.bytes.is_empty() {
            self.tail = OutputReplies::NONE;
        } else {
            self.tail.measure(account);
        }
    }

    /// Sends at most about `most` bytes with system calls of this connection alone.
    fn send(&mut self, socket: &mut Socket, most: usize) -> io::Result<FlushOutcome> {
        let mut total = 0;
        loop {
            if self.is_empty() {
                return match socket.flush() {
                    Ok(()) => Ok(FlushOutcome::All),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(FlushOutcome::Blocked),
                    Err(error) => Err(error),
                };
            }
            if total >= most {
                return Ok(FlushOutcome::Turn);
            }
            let step = match self.segments.front_mut() {
                Some(OutputSegment::File { file, offset, left }) => {
                    let sent = send_range(socket, &**file, offset, left);
                    self.ends.skip(*sent.as_ref().unwrap_or(&0));
                    sent
                }
                _ if socket.is_encrypted() => self.write_encrypted(socket),
                _ => self.write(socket),
            };
            match step {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => {
                    total += sent;
                    self.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(FlushOutcome::Blocked),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes everything up to the next file range in one vectored write.
    fn write(&self, socket: &mut Socket) -> io::Result<usize> {
        if self.segments.is_empty() {
            return socket
                .write(&[IoSlice::new(self.tail.bytes.get(self.sent..).unwrap_or_default())], false);
        }
        let mut pieces: [IoSlice<'_>; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let mut count = 0;
        let mut file_follows = false;
        let mut skip = self.sent;
        let tail = (!self.tail.bytes.is_empty()).then_some(self.tail.bytes.as_slice());
        let all = self.segments.iter().map(OutputSegment::bytes).chain(tail.map(Some));
        for (piece, slot) in all.zip(pieces.iter_mut()) {
            let Some(bytes) = piece else {
                file_follows = true;
                break;
            };
            *slot = IoSlice::new(bytes.get(skip..).unwrap_or_default());
            skip = 0;
            count += 1;
        }
        socket.write(pieces.get(..count).unwrap_or_default(), file_follows)
    }

    /// Writes replies up to the next file range. Each ends with a record: not every client takes the
    /// second of two replies from one record before it receives more.
    fn write_encrypted(&mut self, socket: &mut Socket) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); ENCRYPTED_PIECES_MAX];
        let mut slots = pieces.iter_mut();
        let (mut ends, mut count, mut skip) = (self.ends, 0, self.sent);
        let tail = std::iter::once(Some(self.tail.bytes.as_slice()));
        let all = self.segments.iter().map(OutputSegment::bytes).chain(tail);
        'full: for bytes in all.map_while(|bytes| bytes) {
            let mut rest = bytes.get(std::mem::take(&mut skip)..).unwrap_or_default();
            while !rest.is_empty() {
                let Some(slot) = slots.next() else { break 'full };
                let (piece, behind) = rest.split_at(ends.next(rest, usize::MAX));
                (*slot, rest, count) = (IoSlice::new(piece), behind, count + 1);
            }
        }
        let pieces = pieces.get(..count).unwrap_or_default();
        let written = socket.write_each(pieces)?;
        let mut left = written;
        for piece in pieces {
            left -= self.ends.next(piece, left);
        }
        Ok(written)
    }

    /// Removes bytes that were sent.
    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(front) = self.segments.front_mut() else {
                self.sent += sent;
                if self.sent >= self.tail.bytes.len() {
                    // Only a buffer of the usual size is kept for the next replies.
                    if self.tail.bytes.capacity() > 2 * MEDIUM_BYTES {
                        self.tail = OutputReplies::NONE;
                    }
                    self.tail.bytes.clear();
                    self.sent = 0;
                }
                return;
            };
            let left = match front {
                OutputSegment::File { left, offset, .. } => {
                    let taken = sent.min(*left);
                    *left -= taken;
                    *offset += taken as u64;
                    self.queued -= taken;
                    self.lent -= taken;
                    sent -= taken;
                    *left
                }
                other => {
                    let length = other.bytes().map_or(0, <[u8]>::len);
                    let taken = sent.min(length - self.sent);
                    self.sent += taken;
                    sent -= taken;
                    if self.sent == length {
                        self.queued -= length;
                        self.sent = 0;
                        0
                    } else {
                        1
                    }
                }
            };
            if left == 0 {
                self.segments.pop_front();
            }
        }
    }
}

fn send_range(socket: &mut Socket, file: &dyn OpenFile, offset: &u64, left: &usize) -> io::Result<usize> {
    match file.lend() {
        Some(descriptor) => socket.send_file(descriptor, *offset, *left),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Ceilings, MemoryBudget};

    #[test]
    fn a_buffer_kept_after_a_turn_is_charged() {
        let ceilings = Ceilings::shares_of(1 << 30);
        let account = Account::new(&MemoryBudget::new(ceilings, ceilings, 0));
        let mut out = Outbox::default();
        out.tail(&account).extend_from_slice(b"reply");
        out.end_turn(&account);
        assert_eq!(account.used(), out.tail.bytes.capacity());
        assert!(account.used() >= MEDIUM_BYTES);
        // All bytes were sent, but the connection has other work in flight.
        out.advance(5);
        out.end_turn(&account);
        assert_eq!((out.tail.bytes.capacity(), account.used()), (0, 0));
        out.tail(&account);
        out.end_turn(&account);
        assert_eq!((out.tail.bytes.capacity(), account.used()), (0, 0));
    }
}
