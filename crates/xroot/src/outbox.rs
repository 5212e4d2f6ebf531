//! Replies and file ranges waiting for the socket, in order.
//!
//! Short replies gather in one buffer and leave in one call. A file range leaves by `sendfile`, its header just before it.

use crate::block::Block;
use base::{Account, Charge};
use net::{MEDIUM_BYTES, Socket, give_medium, take_medium};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use vfs::OpenFile;

/// Pieces in one vectored write.
const PIECES_MAX: usize = 16;

/// Room for segments up to which an empty outbox is kept.
const KEPT_SEGMENTS_MAX: usize = 256;

enum Segment {
    /// Replies.
    Small(Replies),
    /// A part of a block.
    Block(Block, Range<usize>),
    /// A range of a file.
    File { file: Arc<dyn OpenFile>, offset: u64, left: usize },
}

impl Segment {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Small(replies) => Some(&replies.bytes),
            Self::Block(block, range) => block.get(range.clone()),
            Self::File { .. } => None,
        }
    }
}

/// Replies one behind the other, and the charge for their buffer. It goes back to the pool of its loop when it is dropped.
#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Replies {
    const NONE: Self = Self { bytes: Vec::new(), charge: Charge::NONE };

    /// Charges a buffer that has grown. One of the usual size is charged when a turn leaves bytes in it ([`Outbox::rest`]):
    /// nearly all replies leave in the turn that made them.
    fn charge_growth(&mut self, account: &Rc<Account>) {
        if self.charge.bytes() > 0 || self.bytes.capacity() > 2 * MEDIUM_BYTES {
            self.measure(account);
        }
    }

    /// Charges the buffer as large as it is now.
    fn measure(&mut self, account: &Rc<Account>) {
        self.charge.measure(account, self.bytes.capacity());
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        give_medium(std::mem::take(&mut self.bytes));
    }
}

/// What waits to be sent on one link.
#[derive(Default)]
pub(crate) struct Outbox {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that have left.
    sent: usize,
    /// Where replies gather, behind the segments.
    tail: Replies,
    /// Bytes in the segments, sent ones included.
    queued: usize,
    /// Those of them that are ranges of files: they take no memory.
    lent: usize,
}

/// How a flush ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Blocked,
    /// The turn is used up.
    Turn,
}

impl Outbox {
    /// Nothing waits, and no memory is held.
    pub(crate) const EMPTY: Self =
        Self { segments: VecDeque::new(), sent: 0, tail: Replies::NONE, queued: 0, lent: 0 };

    /// Where to append replies; the account pays for what they take.
    pub(crate) fn tail(&mut self, account: &Rc<Account>) -> &mut Vec<u8> {
        if self.tail.bytes.capacity() == 0 {
            self.tail.bytes = take_medium();
        }
        self.tail.charge_growth(account);
        &mut self.tail.bytes
    }

    /// Where to append a reply of so many bytes: a buffer that would have to grow is left as it is, and another one begun.
    pub(crate) fn tail_for(&mut self, bytes: usize, account: &Rc<Account>) -> &mut Vec<u8> {
        if self.tail.bytes.capacity() - self.tail.bytes.len() < bytes {
            self.seal(account);
        }
        self.tail(account)
    }

    /// Bytes that wait.
    pub(crate) fn pending(&self) -> usize {
        self.queued + self.tail.bytes.len() - self.sent
    }

    /// Bytes of memory that wait: ranges of files are only named.
    pub(crate) fn held(&self) -> usize {
        self.pending() - self.lent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.tail.bytes.is_empty()
    }

    /// Appends a part of a block, which lives until that has left.
    pub(crate) fn push_block(&mut self, block: Block, range: Range<usize>, account: &Rc<Account>) {
        self.seal(account);
        self.queued += range.len();
        self.segments.push_back(Segment::Block(block, range));
    }

    /// Appends a range of a file; its header must have been appended before.
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
        self.segments.push_back(Segment::File { file, offset, left: length });
    }

    /// Appends a short range of a file that is in memory, copied if that can be done on the spot.
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
        if !matches!(file.append_now(offset, length, out), vfs::Spot::Done(read) if read == length) {
            // The header has promised these bytes: as a range they are sent, or the connection is closed.
            out.truncate(start);
            self.push_file(file.clone(), offset, length, account);
        }
    }

    /// Returns the charge of an empty outbox. `true` if it is of use for another link, with the buffer that it may hold.
    pub(crate) fn settle(&mut self) -> bool {
        self.tail.charge = Charge::NONE;
        self.tail.bytes.capacity() <= 2 * MEDIUM_BYTES && self.segments.capacity() <= KEPT_SEGMENTS_MAX
    }

    fn seal(&mut self, account: &Rc<Account>) {
        if !self.tail.bytes.is_empty() {
            self.tail.measure(account);
            let tail = std::mem::take(&mut self.tail);
            self.queued += tail.bytes.len();
            self.segments.push_back(Segment::Small(tail));
        }
    }

    /// Forgets everything: the link is gone.
    pub(crate) fn clear(&mut self) {
        self.segments.clear();
        self.tail = Replies::NONE;
        (self.sent, self.queued, self.lent) = (0, 0, 0);
    }

    /// Sends what the socket takes, at most about `most` bytes; replies that are all that waits may go `together` with those of
    /// other connections, and what does not leave then is sent by the next flush. An error, also a file that has become
    /// shorter than what was promised in a header, means that the connection cannot go on.
    pub(crate) fn flush(
        &mut self,
        socket: &Socket,
        most: usize,
        together: bool,
        account: &Rc<Account>,
    ) -> io::Result<Flushed> {
        if let Some((bytes, sent)) = socket.returned() {
            self.queued += bytes.len();
            self.sent = sent;
            let charge = account.charge(bytes.capacity());
            self.segments.push_front(Segment::Small(Replies { bytes, charge }));
        }
        if together && self.segments.is_empty() && self.sent == 0 && !self.tail.bytes.is_empty() {
            match socket.send_together(std::mem::take(&mut self.tail.bytes)) {
                // It leaves within this round; what does not leave comes back and is charged again.
                Ok(()) => {
                    self.tail.charge = Charge::NONE;
                    return Ok(Flushed::All);
                }
                Err(tail) => self.tail.bytes = tail,
            }
        }
        self.send(socket, most)
    }

    /// Ends a turn: a buffer that is kept is charged, an empty one goes back to the pool.
    pub(crate) fn rest(&mut self, account: &Rc<Account>) {
        if self.tail.bytes.is_empty() {
            self.tail = Replies::NONE;
        } else {
            self.tail.measure(account);
        }
    }

    /// Sends at most about `most` bytes by itself.
    fn send(&mut self, socket: &Socket, most: usize) -> io::Result<Flushed> {
        let mut total = 0;
        loop {
            if self.is_empty() {
                return Ok(Flushed::All);
            }
            if total >= most {
                return Ok(Flushed::Turn);
            }
            let step = match self.segments.front_mut() {
                Some(Segment::File { file, offset, left }) => send_range(socket, &**file, offset, left),
                _ => self.write(socket),
            };
            match step {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => {
                    total += sent;
                    self.advance(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One vectored write of everything up to the next file range.
    fn write(&self, socket: &Socket) -> io::Result<usize> {
        if self.segments.is_empty() {
            return socket
                .write(&[IoSlice::new(self.tail.bytes.get(self.sent..).unwrap_or_default())], false);
        }
        let mut pieces: [IoSlice<'_>; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let mut count = 0;
        let mut file_follows = false;
        let mut skip = self.sent;
        let tail = (!self.tail.bytes.is_empty()).then_some(self.tail.bytes.as_slice());
        let all = self.segments.iter().map(Segment::bytes).chain(tail.map(Some));
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

    /// Accounts for bytes that have left.
    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(front) = self.segments.front_mut() else {
                self.sent += sent;
                if self.sent >= self.tail.bytes.len() {
                    // Only a buffer of the usual size is kept for the next replies.
                    if self.tail.bytes.capacity() > 2 * MEDIUM_BYTES {
                        self.tail = Replies::NONE;
                    }
                    self.tail.bytes.clear();
                    self.sent = 0;
                }
                return;
            };
            let left = match front {
                Segment::File { left, offset, .. } => {
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

fn send_range(socket: &Socket, file: &dyn OpenFile, offset: &u64, left: &usize) -> io::Result<usize> {
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
    fn what_outlives_a_turn_is_charged() {
        let ceilings = Ceilings::shares_of(1 << 30);
        let account = Account::new(&MemoryBudget::new(ceilings, ceilings, 0));
        let mut out = Outbox::default();
        out.tail(&account).extend_from_slice(b"reply");
        out.rest(&account);
        assert_eq!(account.used(), out.tail.bytes.capacity());
        assert!(account.used() >= MEDIUM_BYTES);
        // All of it has left; the connection has something else on its way.
        out.advance(5);
        out.rest(&account);
        assert_eq!((out.tail.bytes.capacity(), account.used()), (0, 0));
        out.tail(&account);
        out.rest(&account);
        assert_eq!((out.tail.bytes.capacity(), account.used()), (0, 0));
    }
}
