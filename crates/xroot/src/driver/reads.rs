//! Reads that take several steps: large ones, cold ones, and those with page checksums.
//!
//! A transfer makes one frame at a time while the output has room. Data in memory is sent without a
//! copy where possible. Cold data is read by the pool, a block at a time, while other requests of
//! the connection continue. Vector reads are in `vectors`.

use super::SessionDriver;
use super::jobs::JobWork;
use crate::block::{DataBlock, put};
use crate::connections::SessionConnections;
use crate::failures::unexpected_answer;
use crate::range_read::{RangeRead, ragged_end};
use crate::transfer::{FrameProgress, Transfer, TransferWork};
use crate::{FRAME_BYTES_MAX, OUTPUT_LOW_BYTES, SENDFILE_BYTES_MIN, SPOT_BYTES_MAX};
use base::{Charge, Error, MemoryPurpose, ReadPiece};
use net::BLOCK_BYTES;
use session::{DriverTask, PathId, ReadReply, ReadTask};
use std::sync::Arc;
use vfs::{Answer, FileOperation, Now, OpenFile, Value};
use wire::xroot::limits::RESPONSE_HEADER_BYTES;

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

impl SessionDriver {
    /// Executes a read: in place if it is small and its data is in memory, otherwise as a transfer.
    pub(crate) fn read(&mut self, task: ReadTask) {
        self.context.hub.stats.reads.add(1);
        let Some(file) = self.context.session.file(task.file) else { return };
        let caller = self.context.session.caller();
        if caller.accepts_read_redirect
            && let Some(to) = self.context.hub.shared.files.read_redirect(caller, &**file)
        {
            // The client opens the file at the other server and continues there.
            return self.context.session.read_redirected(&task, &to, &mut self.context.links);
        }
        let lends = self.context.hub.shared.config.sendfile;
        let attempt = read_on_the_spot(&mut self.context.links, lends, &**file, &task);
        if attempt == ReadAttempt::Answered {
            return self.context.session.read_answered(&task);
        }
        let file = file.clone();
        let range = RangeRead {
            reply: self.context.session.read_began(&task),
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
        self.context.hub.stats.pre_reads.add(hints.len() as u64);
        hints.iter().for_each(|(file, offset, length)| file.prefetch(*offset, *length));
    }

    pub(crate) fn begin_transfer(&mut self, link: PathId, work: TransferWork) {
        self.context.hub.stats.transfers.add(1);
        // The request was taken only because its memory was reserved.
        let charge = self.context.links.account().charge(work.bytes());
        let key = self.transfers.insert(Transfer::new(link, work, charge));
        match self.context.links.get(link) {
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
            let Some(state) = self.context.links.get(link) else { return };
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
                self.context.links.get(link).into_iter().for_each(|state| state.short = true);
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
                    if let Some(state) = self.context.links.get(link)
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
            self.context.session.read_ended(work.into_reply());
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
            && self.context.hub.shared.config.sendfile
            && let Some(made) = self.send_range(link, range)
        {
            return Ok(made);
        }
        let piece = range.piece();
        let bytes = range.bytes_for(piece);
        let Some(charge) = self.context.reserve(MemoryPurpose::Data, bytes, 0) else {
            return Ok(FrameProgress::Short);
        };
        let mut block = if bytes < BLOCK_BYTES {
            DataBlock::exact(bytes, charge)
        } else {
            DataBlock::with_room(bytes, charge)
        };
        range.apart = range.paged && !range.cold && range.read_pages_in_place(&mut block, piece);
        if range.apart {
            return Ok(self.push_piece(link, range, block, piece, piece.extent.length));
        }
        let Some(room) = piece.place().and_then(|place| block.get_mut(place)) else {
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
                let next = piece.extent.length as u64;
                range.file.prefetch(
                    range.offset + next,
                    (range.reply.left() as u64 - next).min(FRAME_BYTES_MAX as u64),
                );
                let (buffer, charge) = block.into_parts();
                let operation = FileOperation::Read { buffer, pieces: vec![piece] };
                let file = range.file.clone();
                match self.context.start_job(JobWork::Read(key), charge, &file, operation) {
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
        let (state, account) = self.context.links.get_with_account(link)?;
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
        piece: ReadPiece,
        read: usize,
    ) -> FrameProgress {
        let read = read.min(piece.extent.length);
        let (bytes, end, is_last) = if range.paged {
            let (length, is_last) = range.frame_pages(&mut block, piece, read);
            (0..length, None, is_last)
        } else {
            let frame = range.reply.frame(piece.extent.length, read);
            let header = piece.at - RESPONSE_HEADER_BYTES;
            put(&mut block, header, &frame.header);
            (header..piece.at + read, frame.end, frame.is_last)
        };
        range.offset += read as u64;
        if let Some((state, account)) = self.context.links.get_with_account(link) {
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
            other => Err(unexpected_answer(other)),
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
        self.context.note_failure(error);
        if let Some(reply) = self.remove_transfer(key) {
            self.context.session.read_failed(reply, error, &mut self.context.links);
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
            self.context.session.read_ended(reply);
        }
    }

    /// Removes a transfer from the tables. The result of a piece that the pool still reads is
    /// dropped; its buffer lives until then.
    fn remove_transfer(&mut self, key: usize) -> Option<ReadReply> {
        self.context.jobs.orphan_reads_of(key);
        let transfer = self.transfers.try_remove(key)?;
        if let Some(state) = self.context.links.get(transfer.link) {
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

/// Reports whether parts of this file may be sent from the page cache if the kernel reports them as
/// resident. A file that the client may write is excluded, because a later write would change the
/// reply of an earlier read.
fn may_be_lent(file: &dyn OpenFile) -> bool {
    !file.is_writable() && file.lend().is_some() && file.is_resident(0, 0)
}
