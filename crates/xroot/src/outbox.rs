//! Replies and file ranges waiting for the socket, in order.
//!
//! Short replies gather in one buffer and leave in one call. A file range leaves by `sendfile`, its header just before it.

use net::{MEDIUM_BYTES, Socket, give_block, give_medium, take_medium};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use vfs::OpenFile;

/// Pieces in one vectored write.
const PIECES_MAX: usize = 16;

/// Room for segments up to which an empty outbox is kept.
const KEPT_SEGMENTS_MAX: usize = 256;

enum Segment {
    /// Replies.
    Small(Vec<u8>),
    /// A part of a block, to be given back.
    Block(Vec<u8>, Range<usize>),
    /// A range of a file.
    File { file: Arc<dyn OpenFile>, offset: u64, left: usize },
}

impl Segment {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Small(buffer) => Some(buffer),
            Self::Block(block, range) => block.get(range.clone()),
            Self::File { .. } => None,
        }
    }

    fn recycle(self) {
        match self {
            Self::Small(buffer) => give_medium(buffer),
            Self::Block(block, _) => give_block(block),
            Self::File { .. } => {}
        }
    }
}

/// What waits to be sent on one link.
#[derive(Default)]
pub(crate) struct Outbox {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that have left.
    sent: usize,
    /// Where replies gather, behind the segments.
    tail: Vec<u8>,
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
        Self { segments: VecDeque::new(), sent: 0, tail: Vec::new(), queued: 0, lent: 0 };

    /// Where to append replies.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        if self.tail.capacity() == 0 {
            self.tail = take_medium();
        }
        &mut self.tail
    }

    /// Where to append a reply of so many bytes: a buffer that would have to grow is left as it is, and another one begun.
    pub(crate) fn tail_for(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.tail.capacity() - self.tail.len() < bytes {
            self.seal();
        }
        self.tail()
    }

    /// Bytes that wait.
    pub(crate) fn pending(&self) -> usize {
        self.queued + self.tail.len() - self.sent
    }

    /// Bytes of memory that wait: ranges of files are only named.
    pub(crate) fn held(&self) -> usize {
        self.pending() - self.lent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.tail.is_empty()
    }

    /// Appends a part of a block, which is given back when it has left.
    pub(crate) fn push_block(&mut self, block: Vec<u8>, range: Range<usize>) {
        self.seal();
        self.queued += range.len();
        self.segments.push_back(Segment::Block(block, range));
    }

    /// Appends a range of a file; its header must have been appended before.
    pub(crate) fn push_file(&mut self, file: Arc<dyn OpenFile>, offset: u64, length: usize) {
        self.seal();
        self.queued += length;
        self.lent += length;
        self.segments.push_back(Segment::File { file, offset, left: length });
    }

    /// Appends a short range of a file that is in memory, copied if that can be done on the spot.
    pub(crate) fn push_copy(&mut self, file: &Arc<dyn OpenFile>, offset: u64, length: usize) {
        if length == 0 {
            return;
        }
        let out = self.tail_for(length);
        let at = out.len();
        out.resize(at + length, 0);
        let room = out.get_mut(at..).unwrap_or_default();
        if !matches!(file.read_now(offset, room), vfs::Spot::Done(read) if read == length) {
            // The header has promised these bytes: as a range they are sent, or the connection is closed.
            out.truncate(at);
            self.push_file(file.clone(), offset, length);
        }
    }

    /// Is an empty one, with the buffer that it may hold, of use for another link?
    pub(crate) fn is_worth_keeping(&self) -> bool {
        self.tail.capacity() <= 2 * MEDIUM_BYTES && self.segments.capacity() <= KEPT_SEGMENTS_MAX
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.queued += tail.len();
            self.segments.push_back(Segment::Small(tail));
        }
    }

    /// Forgets everything: the link is gone.
    pub(crate) fn clear(&mut self) {
        self.segments.drain(..).for_each(Segment::recycle);
        give_medium(std::mem::take(&mut self.tail));
        (self.sent, self.queued, self.lent) = (0, 0, 0);
    }

    /// Sends what the socket takes, at most about `most` bytes; replies that are all that waits may go `together` with those of
    /// other connections, and what does not leave then is sent by the next flush. An error, also a file that has become
    /// shorter than what was promised in a header, means that the connection cannot go on.
    pub(crate) fn flush(&mut self, socket: &Socket, most: usize, together: bool) -> io::Result<Flushed> {
        let mut total = 0;
        if let Some((buffer, sent)) = socket.returned() {
            self.queued += buffer.len();
            self.sent = sent;
            self.segments.push_front(Segment::Small(buffer));
        }
        if together && self.segments.is_empty() && self.sent == 0 && !self.tail.is_empty() {
            match socket.send_together(std::mem::take(&mut self.tail)) {
                Ok(()) => return Ok(Flushed::All),
                Err(tail) => self.tail = tail,
            }
        }
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
            return socket.write(&[IoSlice::new(self.tail.get(self.sent..).unwrap_or_default())], false);
        }
        let mut pieces: [IoSlice<'_>; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let mut count = 0;
        let mut file_follows = false;
        let mut skip = self.sent;
        let tail = (!self.tail.is_empty()).then_some(self.tail.as_slice());
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
                if self.sent >= self.tail.len() {
                    self.tail.clear();
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
            if left == 0
                && let Some(done) = self.segments.pop_front()
            {
                done.recycle();
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
