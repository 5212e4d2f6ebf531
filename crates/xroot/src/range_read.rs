//! A read of one range of a file: the pieces that it is cut into, and their frames.

use crate::block::{DataBlock, SMALL_PIECE_BYTES_MAX, put};
use crate::driver::FrameContext;
use crate::failures::unexpected_answer;
use crate::transfer::FrameProgress;
use crate::{FRAME_BYTES_MAX, SENDFILE_BYTES_MIN};
use base::{Charge, Error, Extent, ReadPiece};
use digest::pages::CHECKSUM_BYTES;
use net::BLOCK_BYTES;
use session::{ReadReply, ReadTask};
use std::io::IoSliceMut;
use std::sync::Arc;
use vfs::{Answer, Now, OpenFile, Value};
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

/// A read of one range of one file.
pub(crate) struct RangeRead {
    pub(crate) reply: ReadReply,
    file: Arc<dyn OpenFile>,
    offset: u64,
    paged: bool,
    /// Set if the next piece was just found not to be in memory.
    cold: bool,
    /// Set if the pages of the current piece were read to their final positions.
    apart: bool,
}

impl RangeRead {
    /// Returns a read that has sent nothing. `cold` is set if its first bytes are not in memory.
    pub(crate) fn new(reply: ReadReply, file: Arc<dyn OpenFile>, task: &ReadTask, cold: bool) -> Self {
        Self { reply, file, offset: task.offset, paged: task.paged, cold, apart: false }
    }

    /// Makes the next frame, or lets the pool read its data.
    pub(crate) fn make_frame(&mut self, context: &mut FrameContext<'_>) -> Result<FrameProgress, Error> {
        if !self.paged
            && context.may_send_file()
            && let Some(made) = self.send_file(context)
        {
            return Ok(made);
        }
        let piece = self.piece();
        let bytes = self.bytes_for(piece);
        let Some(charge) = context.reserve(bytes) else { return Ok(FrameProgress::Short) };
        let mut block = if bytes < BLOCK_BYTES {
            DataBlock::exact(bytes, charge)
        } else {
            DataBlock::with_room(bytes, charge)
        };
        self.apart = self.paged && !self.cold && self.read_pages_in_place(&mut block, piece);
        if self.apart {
            return Ok(self.push_piece(context, block, piece, piece.extent.length));
        }
        let Some(room) = piece.place().and_then(|place| block.get_mut(place)) else {
            return Ok(FrameProgress::Last);
        };
        let read = if std::mem::take(&mut self.cold) {
            Now::WouldBlock
        } else {
            self.file.read_now(self.offset, room)
        };
        match read {
            Now::Done(Ok(read)) => Ok(self.push_piece(context, block, piece, read)),
            Now::Done(Err(error)) => Err(error),
            Now::WouldBlock => {
                // The kernel can fetch the following data while this piece is read.
                let next = piece.extent.length as u64;
                self.file.prefetch(
                    self.offset + next,
                    (self.reply.left() as u64 - next).min(FRAME_BYTES_MAX as u64),
                );
                match context.start_read(&self.file, block.into_parts(), vec![piece]) {
                    Some((answer, charge)) => self.take_piece(context, answer, charge),
                    None => Ok(FrameProgress::Waits),
                }
            }
        }
    }

    /// Makes a frame that is sent directly from the page cache. Returns `None` if the next data
    /// does not qualify.
    fn send_file(&mut self, context: &mut FrameContext<'_>) -> Option<FrameProgress> {
        let left = self.reply.left();
        if left < SENDFILE_BYTES_MIN {
            return None;
        }
        if !may_be_lent(self.file.as_ref()) {
            return None;
        }
        let size = self.file.size_now()?;
        let there = usize::try_from(size.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let wanted = left.min(FRAME_BYTES_MAX);
        let length = wanted.min(there);
        if length < SENDFILE_BYTES_MIN || !self.file.is_resident(self.offset, length) {
            return None;
        }
        let (state, account) = context.output()?;
        let frame = self.reply.frame(wanted, length);
        state.out.tail(account).extend_from_slice(&frame.header);
        let ragged = ragged_end(self.offset, length);
        state.out.push_file(self.file.clone(), self.offset, length - ragged, account);
        state.out.push_copy(&self.file, self.offset + (length - ragged) as u64, ragged, account);
        self.offset += length as u64;
        Some(if frame.is_last { FrameProgress::Last } else { FrameProgress::Frame(length) })
    }

    /// Appends the frame of a piece that was read. Fewer bytes than requested mean the end of the
    /// file.
    fn push_piece(
        &mut self,
        context: &mut FrameContext<'_>,
        mut block: DataBlock,
        piece: ReadPiece,
        read: usize,
    ) -> FrameProgress {
        let read = read.min(piece.extent.length);
        let (bytes, is_last) = if self.paged {
            let (length, is_last) = self.frame_pages(&mut block, piece, read);
            (0..length, is_last)
        } else {
            let frame = self.reply.frame(piece.extent.length, read);
            let header = piece.at - RESPONSE_HEADER_BYTES;
            put(&mut block, header, &frame.header);
            (header..piece.at + read, frame.is_last)
        };
        self.offset += read as u64;
        if let Some((state, account)) = context.output() {
            state.out.push_block(block, bytes, account);
        }
        if is_last { FrameProgress::Last } else { FrameProgress::Frame(read) }
    }

    /// Makes the frame of a piece that the pool has read.
    pub(crate) fn take_piece(
        &mut self,
        context: &mut FrameContext<'_>,
        answer: Answer,
        charge: Charge,
    ) -> Result<FrameProgress, Error> {
        match answer {
            Answer::Value(Value::Data { buffer, lengths }) => {
                let read = lengths.first().copied().unwrap_or(0);
                let piece = self.piece();
                Ok(self.push_piece(context, DataBlock::from_parts(buffer, charge), piece, read))
            }
            other => Err(unexpected_answer(other)),
        }
    }

    /// Returns the next piece: as much as fits a block after the header of the frame, in whole
    /// pages for a read with checksums.
    fn piece(&self) -> ReadPiece {
        let left = self.reply.left();
        if !self.paged {
            let length = left.min(BLOCK_BYTES - PLAIN_AT);
            return ReadPiece { extent: Extent { offset: self.offset, length }, at: PLAIN_AT };
        }
        let within = usize::try_from(self.offset % PAGE as u64).unwrap_or(0);
        let length = left.min(FRAME_PAGES * PAGE - within);
        let at = STATUS_BYTES + digest::pages::checksums_length(self.offset, length);
        ReadPiece { extent: Extent { offset: self.offset, length }, at }
    }

    /// Returns the buffer size for a piece: its own size if it is small, otherwise a block.
    fn bytes_for(&self, piece: ReadPiece) -> usize {
        let length = piece.extent.length;
        if self.paged || length > SMALL_PIECE_BYTES_MAX { BLOCK_BYTES } else { piece.at + length }
    }

    /// Reads a piece that is entirely in memory, each page to its final position. This costs less
    /// than moving the pages afterwards. Returns `false` if it is not possible.
    fn read_pages_in_place(&self, block: &mut [u8], piece: ReadPiece) -> bool {
        let Extent { offset, length } = piece.extent;
        let total = digest::pages::interleaved_length(offset, length);
        let Some(mut rest) = block.get_mut(STATUS_BYTES..STATUS_BYTES + total) else { return false };
        let mut places: [IoSliceMut<'_>; FRAME_PAGES] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut count = 0;
        for (page, place) in digest::pages::pages(offset, total).zip(&mut places) {
            let Some((_, behind)) = rest.split_at_mut_checked(CHECKSUM_BYTES) else { return false };
            let Some((data, behind)) = behind.split_at_mut_checked(page.length) else { return false };
            *place = IoSliceMut::new(data);
            (rest, count) = (behind, count + 1);
        }
        let places = places.get_mut(..count).unwrap_or_default();
        rest.is_empty() && self.file.read_scattered_now(offset, places).is_some()
    }

    /// Inserts the checksums between the pages, and the header of the frame. Returns the length of
    /// the frame, and whether it is the last one.
    fn frame_pages(&mut self, block: &mut [u8], piece: ReadPiece, read: usize) -> (usize, bool) {
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
        let frame = self.reply.page_frame(self.offset, (piece.extent.length, read), data);
        put(head, 0, &frame.header);
        (STATUS_BYTES + data, frame.is_last)
    }
}

/// Reports whether parts of this file may be sent from the page cache if the kernel reports them as
/// resident. A file that the client may write is excluded, because a later write would change the
/// reply of an earlier read.
pub(crate) fn may_be_lent(file: &dyn OpenFile) -> bool {
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
