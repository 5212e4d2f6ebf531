//! Reads that take several steps: large ones, cold ones, and those with page checksums.
//!
//! A transfer makes one frame at a time while the output has room. Data in memory is sent without a
//! copy where possible. Cold data is read by the pool, a block at a time, while other requests of
//! the connection continue. Vector reads are in `vectors`.

use crate::block::{DataBlock, SMALL_PIECE_BYTES_MAX};
use crate::connections::SessionConnections;
use crate::costs::CALL_BYTES;
use crate::driver::{JobWork, SessionDriver};
use crate::vectors::VectorRead;
use crate::{FRAME_BYTES_MAX, OUTPUT_LOW_BYTES, SENDFILE_BYTES_MIN, SPOT_BYTES_MAX};
use base::{Charge, Error, MemoryPurpose};
use digest::pages::CHECKSUM_BYTES;
use net::BLOCK_BYTES;
use session::{DriverTask, PathId, ReadReply, ReadTask};
use std::io::IoSliceMut;
use std::sync::Arc;
use vfs::{Answer, FileOperation, Now, OpenFile, Piece, Value};
use wire::xroot::limits::RESPONSE_HEADER_BYTES;
use wire::xroot::reply::status::STATUS_FRAME_BYTES as STATUS_BYTES;

/// Pages in one frame. With their checksums and the header they fit a block.
const FRAME_PAGES: usize = 62;

const PAGE: usize = digest::pages::PAGE_BYTES;

/// Offset of the data of a plain piece in its block; the header precedes it directly. It is not
/// near 0 because blocks start at nearly the same offset in a memory page, and files are read from
/// the start of a page. Processors copy eight times slower to an address 1 to 31 bytes after its
/// source, modulo a page.
const PLAIN_AT: usize = 64;

const _: () = assert!(RESPONSE_HEADER_BYTES <= PLAIN_AT && PLAIN_AT < PAGE);

/// Pages that `sendfile` moves at a time: the capacity of its internal pipe.
const SENDFILE_WINDOW_PAGES: usize = 16;

const _: () = assert!(STATUS_BYTES + FRAME_PAGES * (PAGE + digest::pages::CHECKSUM_BYTES) <= BLOCK_BYTES);

/// A read in progress.
pub(crate) struct Transfer {
    pub(crate) link: PathId,
    /// Bytes produced in this turn.
    turn: usize,
    /// Set while the pool reads a piece.
    pub(crate) waiting: bool,
    /// `None` while one of its frames is being made.
    work: Option<TransferWork>,
    /// Memory held in addition to the buffers of its pieces.
    _charge: Charge,
}

pub(crate) enum TransferWork {
    Range(RangeRead),
    Vector(VectorRead),
}

impl TransferWork {
    fn into_reply(self) -> ReadReply {
        match self {
            Self::Range(range) => range.reply,
            Self::Vector(vector) => vector.reply,
        }
    }
}

/// A read of one range of one file.
pub(crate) struct RangeRead {
    reply: ReadReply,
    file: Arc<dyn OpenFile>,
    offset: u64,
    paged: bool,
    /// Set if the next piece was just found not to be in memory.
    cold: bool,
    /// Set if the pages of the current piece were read to their final positions.
    apart: bool,
}

/// Result of an attempt to read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAttempt {
    /// The reply is complete.
    Answered,
    /// The read does not qualify.
    NotMade,
    /// The data is not in memory.
    Cold,
}

/// Result of making a frame.
pub(crate) enum FrameProgress {
    /// A frame of this many bytes; more follow.
    Frame(usize),
    /// The pool is reading a piece.
    Waits,
    /// Memory for the next piece is short now.
    Short,
    /// The last frame.
    Last,
}

impl SessionDriver {
    /// Executes a read: in place if it is small and its data is in memory, otherwise as a transfer.
    pub(crate) fn read(&mut self, task: ReadTask) {
        self.hub.stats.reads.add(1);
        let Some(file) = self.session.file(task.file) else { return };
        let caller = self.session.caller();
        if caller.accepts_read_redirect
            && let Some(to) = self.hub.shared.files.read_redirect(caller, &**file)
        {
            // The client opens the file at the other server and continues there.
            return self.session.read_redirected(&task, &to, &mut self.links);
        }
        let lends = self.hub.shared.config.sendfile;
        let attempt = read_on_the_spot(&mut self.links, lends, &**file, &task);
        if attempt == ReadAttempt::Answered {
            return self.session.read_answered(&task);
        }
        let file = file.clone();
        let range = RangeRead {
            reply: self.session.read_began(&task),
            file,
            offset: task.offset,
            paged: task.paged,
            cold: attempt == ReadAttempt::Cold,
            apart: false,
        };
        self.begin_transfer(task.link, TransferWork::Range(range));
    }

    /// Executes a read and prefetches ranges.
    pub(crate) fn read_with_hints(&mut self, task: ReadTask, hints: &[(Arc<dyn OpenFile>, u64, u64)]) {
        self.read(task);
        self.hub.stats.pre_reads.add(hints.len() as u64);
        hints.iter().for_each(|(file, offset, length)| file.prefetch(*offset, *length));
    }

    pub(crate) fn begin_transfer(&mut self, link: PathId, work: TransferWork) {
        self.hub.stats.transfers.add(1);
        let bytes = match &work {
            TransferWork::Range(_) => CALL_BYTES,
            TransferWork::Vector(vector) => CALL_BYTES + vector.bytes(),
        };
        // The request was taken only because its memory was reserved.
        let charge = self.links.account().charge(bytes);
        let key = self.transfers.insert(Transfer {
            link,
            turn: 0,
            waiting: false,
            work: Some(work),
            _charge: charge,
        });
        match self.links.get(link) {
            Some(state) => {
                state.transfers.push_back(key);
                state.news = true;
            }
            None => self.drop_transfer(key),
        }
        self.advance(link);
    }

    /// Makes frames while the connection's output has room, in turn for all transfers that do not
    /// wait.
    pub(crate) fn advance(&mut self, link: PathId) {
        loop {
            let Some(state) = self.links.get(link) else { return };
            if state.out.pending() >= OUTPUT_LOW_BYTES {
                return;
            }
            let queue = state.transfers.iter().copied();
            let Some(key) =
                queue.into_iter().find(|&key| self.transfers.get(key).is_some_and(|t| !t.waiting))
            else {
                return;
            };
            if !self.make(key) {
                // The memory may be held by the output of another connection.
                self.links.get(link).into_iter().for_each(|state| state.short = true);
                return;
            }
        }
    }

    /// Makes the next frame of a transfer. Returns `false` if memory is short.
    fn make(&mut self, key: usize) -> bool {
        let Some(transfer) = self.transfers.get_mut(key) else { return true };
        let link = transfer.link;
        let Some(mut work) = transfer.work.take() else { return true };
        let made = match &mut work {
            TransferWork::Range(range) => self.make_range(key, link, range),
            TransferWork::Vector(vector) => self.make_vector(key, link, vector),
        };
        let Some(transfer) = self.put_back(key, work) else { return true };
        match made {
            Ok(FrameProgress::Short) => return false,
            Ok(FrameProgress::Frame(bytes)) => {
                transfer.turn += bytes;
                if transfer.turn >= FRAME_BYTES_MAX {
                    transfer.turn = 0;
                    if let Some(state) = self.links.get(link)
                        && let Some(at) = state.transfers.iter().position(|&k| k == key)
                        && let Some(key) = state.transfers.remove(at)
                    {
                        state.transfers.push_back(key);
                    }
                }
            }
            Ok(FrameProgress::Waits) => transfer.waiting = true,
            Ok(FrameProgress::Last) => self.finish_transfer(key),
            Err(error) => self.fail_transfer(key, &error),
        }
        true
    }

    /// Returns the remaining work to its transfer after a frame. If the transfer was removed, ends
    /// the read.
    fn put_back(&mut self, key: usize, work: TransferWork) -> Option<&mut Transfer> {
        let Some(transfer) = self.transfers.get_mut(key) else {
            self.session.read_ended(work.into_reply());
            return None;
        };
        transfer.work = Some(work);
        Some(transfer)
    }

    fn make_range(
        &mut self,
        key: usize,
        link: PathId,
        range: &mut RangeRead,
    ) -> Result<FrameProgress, Error> {
        if !range.paged
            && self.hub.shared.config.sendfile
            && let Some(made) = self.send_range(link, range)
        {
            return Ok(made);
        }
        let piece = range.piece();
        let bytes = range.bytes_for(piece);
        let Some(charge) = self.reserve(MemoryPurpose::Data, bytes, 0) else {
            return Ok(FrameProgress::Short);
        };
        let mut block = if bytes < BLOCK_BYTES {
            DataBlock::exact(bytes, charge)
        } else {
            DataBlock::with_room(bytes, charge)
        };
        range.apart = range.paged && !range.cold && range.read_pages_in_place(&mut block, piece);
        if range.apart {
            return Ok(self.push_piece(link, range, block, piece, piece.length));
        }
        let Some(room) = block.get_mut(piece.at..piece.at + piece.length) else {
            return Ok(FrameProgress::Last);
        };
        let read = if std::mem::take(&mut range.cold) {
            Now::WouldBlock
        } else {
            range.file.read_now(range.offset, room)
        };
        match read {
            Now::Done(Ok(read)) => Ok(self.push_piece(link, range, block, piece, read)),
            Now::Done(Err(error)) => Err(error),
            Now::WouldBlock => {
                // The kernel can fetch the following data while this piece is read.
                let next = piece.length as u64;
                range.file.prefetch(
                    range.offset + next,
                    (range.reply.left() as u64 - next).min(FRAME_BYTES_MAX as u64),
                );
                let (buffer, charge) = block.into_parts();
                let operation = FileOperation::Read { buffer, pieces: vec![piece] };
                let file = range.file.clone();
                match self.start_job(JobWork::Read(key), charge, &file, operation) {
                    Some((answer, charge)) => self.take_piece(link, range, answer, charge),
                    None => Ok(FrameProgress::Waits),
                }
            }
        }
    }

    /// Makes a frame that is sent directly from the page cache. Returns `None` if the next data
    /// does not qualify.
    fn send_range(&mut self, link: PathId, range: &mut RangeRead) -> Option<FrameProgress> {
        let left = range.reply.left();
        if left < SENDFILE_BYTES_MIN {
            return None;
        }
        if !may_be_lent(range.file.as_ref()) {
            return None;
        }
        let size = range.file.size_now()?;
        let there = usize::try_from(size.saturating_sub(range.offset)).unwrap_or(usize::MAX);
        let length = left.min(FRAME_BYTES_MAX).min(there);
        if length < SENDFILE_BYTES_MIN || !range.file.is_resident(range.offset, length) {
            return None;
        }
        let (state, account) = self.links.get_with_account(link)?;
        let frame = range.reply.frame(length, length);
        state.out.tail(account).extend_from_slice(&frame.header);
        let ragged = ragged_end(range.offset, length);
        state.out.push_file(range.file.clone(), range.offset, length - ragged, account);
        state.out.push_copy(&range.file, range.offset + (length - ragged) as u64, ragged, account);
        range.offset += length as u64;
        Some(if frame.is_last { FrameProgress::Last } else { FrameProgress::Frame(length) })
    }

    /// Appends the frame of a piece that was read. Fewer bytes than requested mean the end of the
    /// file.
    fn push_piece(
        &mut self,
        link: PathId,
        range: &mut RangeRead,
        mut block: DataBlock,
        piece: Piece,
        read: usize,
    ) -> FrameProgress {
        let read = read.min(piece.length);
        let (bytes, end, is_last) = if range.paged {
            let (length, is_last) = range.frame_pages(&mut block, piece, read);
            (0..length, None, is_last)
        } else {
            let frame = range.reply.frame(piece.length, read);
            let header = piece.at - RESPONSE_HEADER_BYTES;
            put(&mut block, header, &frame.header);
            (header..piece.at + read, frame.end, frame.is_last)
        };
        range.offset += read as u64;
        if let Some((state, account)) = self.links.get_with_account(link) {
            state.out.push_block(block, bytes, account);
            if let Some(end) = end {
                state.out.tail(account).extend_from_slice(&end);
            }
        }
        if is_last { FrameProgress::Last } else { FrameProgress::Frame(read) }
    }

    fn take_piece(
        &mut self,
        link: PathId,
        range: &mut RangeRead,
        answer: Answer,
        charge: Charge,
    ) -> Result<FrameProgress, Error> {
        match answer {
            Answer::Value(Value::Data { buffer, lengths }) => {
                let read = lengths.first().copied().unwrap_or(0);
                let piece = range.piece();
                Ok(self.push_piece(link, range, DataBlock::from_parts(buffer, charge), piece, read))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Continues a transfer after the pool has read a piece.
    pub(crate) fn piece_read(&mut self, key: usize, answer: Answer, charge: Charge) {
        let Some(transfer) = self.transfers.get_mut(key) else { return };
        transfer.waiting = false;
        let link = transfer.link;
        let Some(mut work) = transfer.work.take() else { return };
        let made = match &mut work {
            TransferWork::Range(range) => self.take_piece(link, range, answer, charge),
            TransferWork::Vector(vector) => self.take_vector_piece(link, vector, answer, charge),
        };
        if self.put_back(key, work).is_none() {
            return;
        }
        match made {
            Ok(FrameProgress::Last) => self.finish_transfer(key),
            Ok(_) => {}
            Err(error) => self.fail_transfer(key, &error),
        }
        self.advance(link);
    }

    fn fail_transfer(&mut self, key: usize, error: &Error) {
        self.note_failure(error);
        if let Some(reply) = self.remove_transfer(key) {
            self.session.read_failed(reply, error, &mut self.links);
        }
        self.run(DriverTask::Nothing);
    }

    fn finish_transfer(&mut self, key: usize) {
        self.drop_transfer(key);
        self.run(DriverTask::Nothing);
    }

    /// Ends a transfer that has made its last frame or whose connection was lost.
    pub(crate) fn drop_transfer(&mut self, key: usize) {
        if let Some(reply) = self.remove_transfer(key) {
            self.session.read_ended(reply);
        }
    }

    /// Removes a transfer from the tables. The result of a piece that the pool still reads is
    /// dropped; its buffer lives until then.
    fn remove_transfer(&mut self, key: usize) -> Option<ReadReply> {
        for (_, job) in self.jobs.iter_mut() {
            if matches!(job.work, JobWork::Read(of) if of == key) {
                job.work = JobWork::Orphan;
            }
        }
        let transfer = self.transfers.try_remove(key)?;
        if let Some(state) = self.links.get(transfer.link) {
            state.transfers.retain(|&other| other != key);
        }
        transfer.work.map(TransferWork::into_reply)
    }
}

/// Answers a small read whose data is in memory (the fast path).
fn read_on_the_spot(
    links: &mut SessionConnections,
    lends: bool,
    file: &dyn OpenFile,
    task: &ReadTask,
) -> ReadAttempt {
    if task.paged || task.length > SPOT_BYTES_MAX {
        return ReadAttempt::NotMade;
    }
    if lends && task.length >= SENDFILE_BYTES_MIN && may_be_lent(file) {
        return ReadAttempt::NotMade;
    }
    let Some((link, account)) = links.get_with_account(task.link) else { return ReadAttempt::Answered };
    if !link.transfers.is_empty() {
        return ReadAttempt::NotMade;
    }
    link.news = true;
    let out = link.out.tail_for(task.answer_bytes(), account);
    match task.answer(out, |out| file.append_now(task.offset, task.length, out)) {
        true => ReadAttempt::Answered,
        false => ReadAttempt::Cold,
    }
}

impl RangeRead {
    /// Returns the next piece: as much as fits a block after the header of the frame, in whole
    /// pages for a read with checksums.
    fn piece(&self) -> Piece {
        let left = self.reply.left();
        if !self.paged {
            let length = left.min(BLOCK_BYTES - PLAIN_AT);
            return Piece { offset: self.offset, length, at: PLAIN_AT };
        }
        let within = usize::try_from(self.offset % PAGE as u64).unwrap_or(0);
        let length = left.min(FRAME_PAGES * PAGE - within);
        let at = STATUS_BYTES + digest::pages::checksums_length(self.offset, length);
        Piece { offset: self.offset, length, at }
    }

    /// Returns the buffer size for a piece: its own size if it is small, otherwise a block.
    fn bytes_for(&self, piece: Piece) -> usize {
        if self.paged || piece.length > SMALL_PIECE_BYTES_MAX { BLOCK_BYTES } else { piece.at + piece.length }
    }

    /// Reads a piece that is entirely in memory, each page to its final position. This costs less
    /// than moving the pages afterwards. Returns `false` if it is not possible.
    fn read_pages_in_place(&self, block: &mut [u8], piece: Piece) -> bool {
        let total = digest::pages::interleaved_length(piece.offset, piece.length);
        let Some(mut rest) = block.get_mut(STATUS_BYTES..STATUS_BYTES + total) else { return false };
        let mut places: [IoSliceMut<'_>; FRAME_PAGES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for (page, place) in digest::pages::pages(piece.offset, total).zip(&mut places) {
            let Some((_, behind)) = rest.split_at_mut_checked(CHECKSUM_BYTES) else { return false };
            let Some((data, behind)) = behind.split_at_mut_checked(page.length) else { return false };
            *place = IoSliceMut::new(data);
            (rest, count) = (behind, count + 1);
        }
        let places = places.get_mut(..count).unwrap_or_default();
        rest.is_empty() && self.file.read_scattered_now(piece.offset, places).is_some()
    }

    /// Inserts the checksums between the pages, and the header of the frame. Returns the length of
    /// the frame, and whether it is the last one.
    fn frame_pages(&mut self, block: &mut [u8], piece: Piece, read: usize) -> (usize, bool) {
        let Some((head, body)) = block.split_at_mut_checked(STATUS_BYTES) else { return (0, true) };
        let data = match read {
            0 => 0,
            _ if self.apart => {
                let total = digest::pages::interleaved_length(self.offset, read);
                digest::pages::fill(self.offset, body.get_mut(..total).unwrap_or_default());
                total
            }
            _ => digest::pages::interleave(self.offset, body, piece.at - STATUS_BYTES, read).unwrap_or(0),
        };
        let frame = self.reply.page_frame(self.offset, (piece.length, read), data);
        put(head, 0, &frame.header);
        (STATUS_BYTES + data, frame.is_last)
    }
}

/// Reports whether parts of this file may be sent from the page cache if the kernel reports them as
/// resident. A file that the client may write is excluded, because a later write would change the
/// reply of an earlier read.
fn may_be_lent(file: &dyn OpenFile) -> bool {
    !file.is_writable() && file.lend().is_some() && file.is_resident(0, 0)
}

/// Returns the number of bytes at the end of a range that are cheaper to copy. The kernel sends a
/// file in windows of [`SENDFILE_WINDOW_PAGES`]; a last window with part of one page costs as much
/// as a full one.
fn ragged_end(offset: u64, length: usize) -> usize {
    let within = usize::try_from(offset % PAGE as u64).unwrap_or(0);
    let ragged = (within + length) % PAGE;
    let pages = (within + length).div_ceil(PAGE);
    if pages % SENDFILE_WINDOW_PAGES == 1 && ragged < length { ragged } else { 0 }
}

/// Returns the error of an answer, or an internal error if the answer has the wrong type.
pub(crate) fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Error(error) => error,
        _ => Error::new(
            base::ErrorKind::ServerError,
            "internal error: the storage returned an answer of the wrong type",
        ),
    }
}

pub(crate) fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = buffer.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_partial_page_in_a_last_window_is_copied() {
        assert_eq!(ragged_end(0, 64 * 1024), 0);
        assert_eq!(ragged_end(100, 64 * 1024), 100);
        assert_eq!(ragged_end(4096, 64 * 1024 + 7), 7);
        assert_eq!(ragged_end(100, 32 * 1024), 0);
        assert_eq!(ragged_end(0, 65 * 4096), 0);
        assert_eq!(ragged_end(10, 1024 * 1024), 10);
        assert_eq!(ragged_end(0, 100), 0);
    }
}
