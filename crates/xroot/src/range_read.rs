//! A read of one range of a file: the pieces that it is cut into, and their frames.

use crate::block::{SMALL_PIECE_BYTES_MAX, put};
use base::{Extent, ReadPiece};
use digest::pages::CHECKSUM_BYTES;
use net::BLOCK_BYTES;
use session::ReadReply;
use std::io::IoSliceMut;
use std::sync::Arc;
use vfs::OpenFile;
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
    pub(crate) file: Arc<dyn OpenFile>,
    pub(crate) offset: u64,
    pub(crate) paged: bool,
    /// Set if the next piece was just found not to be in memory.
    pub(crate) cold: bool,
    /// Set if the pages of the current piece were read to their final positions.
    pub(crate) apart: bool,
}

impl RangeRead {
    /// Returns the next piece: as much as fits a block after the header of the frame, in whole
    /// pages for a read with checksums.
    pub(crate) fn piece(&self) -> ReadPiece {
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
    pub(crate) fn bytes_for(&self, piece: ReadPiece) -> usize {
        let length = piece.extent.length;
        if self.paged || length > SMALL_PIECE_BYTES_MAX { BLOCK_BYTES } else { piece.at + length }
    }

    /// Reads a piece that is entirely in memory, each page to its final position. This costs less
    /// than moving the pages afterwards. Returns `false` if it is not possible.
    pub(crate) fn read_pages_in_place(&self, block: &mut [u8], piece: ReadPiece) -> bool {
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
    pub(crate) fn frame_pages(&mut self, block: &mut [u8], piece: ReadPiece, read: usize) -> (usize, bool) {
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

/// Returns the number of bytes at the end of a range that are cheaper to copy. The kernel sends a
/// file in windows of [`SENDFILE_WINDOW_PAGES`]; a last window with part of one page costs as much
/// as a full one.
pub(crate) fn ragged_end(offset: u64, length: usize) -> usize {
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
