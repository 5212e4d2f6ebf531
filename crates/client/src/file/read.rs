//! Reads of one range, plain or with verified page checksums.
//!
//! The data is received into one block that the caller gets; page checksums are verified and
//! removed in place. A page with a wrong checksum is read again by itself. Source: xroot protocol
//! 5.2.0, sections 2.13, 2.17.

use bytes::Bytes;
use digest::pages::{self, CHECKSUM_BYTES, Page};
use rawclient::Encoded;
use wire::xroot::FileHandle;
use wire::xroot::flags::PageFlags;
use wire::xroot::request::read::ReadArgument;
use wire::xroot::request::{Pgread, Read, Request, SegmentList};

use super::handle::RecoverableHandle;
use crate::buffer_pool::PooledBuffer;
use crate::channel::{PagesAt, ReplyContent, ReplySink};
use crate::failure::{Cause, Error};

/// Maximum size of one read.
pub const READ_BYTES_MAX: usize = 1 << 30;
/// Number of retries for a page with a wrong checksum.
const PAGE_RETRIES: u32 = 3;

/// The read of one range.
pub(super) struct FileRead<'a> {
    handle: &'a RecoverableHandle,
    offset: u64,
    length: usize,
}

impl<'a> FileRead<'a> {
    pub(super) fn new(handle: &'a RecoverableHandle, offset: u64, length: usize) -> Self {
        Self { handle, offset, length }
    }

    /// Implements [`File::read`](super::File::read).
    pub(super) async fn plain(&self) -> Result<Bytes, Error> {
        let Self { handle, length, .. } = *self;
        let (from, rlen) = self.check("read")?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let request = |fhandle| {
            let argument = Some(ReadArgument { pathid: 0, preread: SegmentList::default() });
            Encoded::new(&Request::Read(Read { fhandle, offset: from, rlen, argument }))
        };
        let sink = || ReplySink::Block(handle.blocks().take(length), length);
        let received = handle.ask_into("read", true, Bytes::new(), request, sink).await?;
        Ok(received.block.map(PooledBuffer::into_bytes).unwrap_or_default())
    }

    /// Implements [`File::read_pages`](super::File::read_pages).
    pub(super) async fn pages(&self) -> Result<Bytes, Error> {
        if !self.handle.channel().has_page_io() {
            return self.plain().await;
        }
        self.check("pgread")?;
        if self.length == 0 {
            return Ok(Bytes::new());
        }
        let received = self.pgread(PageFlags::NONE).await?;
        let (mut block, bad) = self.separated(received)?;
        for page in &bad {
            Box::pin(self.read_again(&mut block, page, bad.len())).await?;
        }
        Ok(block.into_bytes())
    }

    /// Implements [`File::read_range`](super::File::read_range).
    pub(super) async fn complete(&self, pages: bool) -> Result<Bytes, Error> {
        let Self { handle, offset, length } = *self;
        let first = self.once(pages).await?;
        if first.len() >= length || first.is_empty() {
            return Ok(first);
        }
        let mut range = handle.blocks().take(length);
        range.data().extend_from_slice(&first);
        drop(first);
        while range.len() < length {
            let (at, rest) = (offset.saturating_add(range.len() as u64), length - range.len());
            let next = Self::new(handle, at, rest).once(pages).await?;
            if next.is_empty() {
                break;
            }
            range.data().extend_from_slice(&next);
        }
        Ok(range.into_bytes())
    }

    async fn once(&self, pages: bool) -> Result<Bytes, Error> {
        if pages { self.pages().await } else { self.plain().await }
    }

    /// Checks the range. Returns offset and length as requests have them.
    fn check(&self, name: &'static str) -> Result<(i64, i32), Error> {
        let Self { handle, offset, length } = *self;
        let bad = || {
            let text = format!("{length} bytes from {offset} on cannot be read at once");
            handle.error(name, Cause::BadArgument(text))
        };
        let from = i64::try_from(offset).map_err(|_| bad())?;
        let rlen = i32::try_from(length).ok().filter(|_| length <= READ_BYTES_MAX).ok_or_else(bad)?;
        Ok((from, rlen))
    }

    async fn pgread(&self, reqflags: PageFlags) -> Result<ReplyContent, Error> {
        let Self { handle, offset, length } = *self;
        let (from, rlen) = self.check("pgread")?;
        let most = pages::interleaved_length(offset, length);
        let request = |fhandle: FileHandle| {
            let (pathid, reqflags) = (Some(0), Some(reqflags));
            Encoded::new(&Request::Pgread(Pgread { fhandle, offset: from, rlen, pathid, reqflags }))
        };
        let sink = || ReplySink::Block(handle.blocks().take(most), most);
        handle.ask_into("pgread", true, Bytes::new(), request, sink).await
    }

    /// Removes the checksums from a reply and returns the pages with wrong ones.
    fn separated(&self, received: ReplyContent) -> Result<(PooledBuffer, Vec<Page>), Error> {
        let Self { handle, offset, length } = *self;
        let ReplyContent { block, pages, .. } = received;
        let mut block = block.unwrap_or_else(|| handle.blocks().take(0));
        let mut bad = Vec::new();
        let joined = if is_in_order(&pages, offset) {
            close_up(block.data(), offset, &mut bad)
        } else {
            let taken = handle.blocks().take(length);
            let other = sort(block.as_ref(), &pages, offset, length, taken, &mut bad);
            other.map(|other| block = other)
        };
        joined.ok_or_else(|| {
            let text = "pages are missing, stand twice, or lie outside of what was asked for";
            handle.error("pgread", Cause::BadAnswer(text.to_owned()))
        })?;
        Ok((block, bad))
    }

    /// Reads a page again until it is correct.
    async fn read_again(&self, block: &mut PooledBuffer, page: &Page, count: usize) -> Result<(), Error> {
        let part = Self::new(self.handle, page.offset, page.length);
        for _ in 0..PAGE_RETRIES {
            let received = part.pgread(PageFlags::RETRY).await?;
            let (again, bad) = part.separated(received)?;
            if bad.is_empty() && again.len() == page.length {
                let at = usize::try_from(page.offset - self.offset).unwrap_or(usize::MAX);
                if let Some(place) = block.data().get_mut(at..at + page.length) {
                    place.copy_from_slice(again.as_ref());
                }
                return Ok(());
            }
        }
        Err(self.handle.error("pgread", Cause::Corrupt { offset: page.offset, pages: count }))
    }
}

/// Reports whether the data of all frames is contiguous from `offset` on.
fn is_in_order(frames: &[PagesAt], offset: u64) -> bool {
    let mut next = offset;
    frames.iter().all(|PagesAt { frame, .. }| {
        let bytes = usize::try_from(frame.dlen).unwrap_or(0);
        if bytes == 0 {
            return true;
        }
        // Only the first frame may begin within a page, because it has a checksum for the rest of
        // that page.
        let aligned = next == offset || next.is_multiple_of(pages::PAGE_BYTES as u64);
        let here = u64::try_from(frame.offset) == Ok(next);
        let Some(length) = pages::data_length(next, bytes) else { return false };
        next += length as u64;
        here && aligned
    })
}

/// Removes the checksums from frames in order, like from a single frame.
fn close_up(data: &mut Vec<u8>, offset: u64, bad: &mut Vec<Page>) -> Option<()> {
    pages::data_length(offset, data.len())?;
    let length = pages::separate(offset, data, |page| bad.push(page));
    data.truncate(length);
    Some(())
}

/// Moves the data of frames in arbitrary order to its position. Returns `None` if they are
/// incomplete.
fn sort(
    data: &[u8],
    frames: &[PagesAt],
    offset: u64,
    length: usize,
    mut sorted: PooledBuffer,
    bad: &mut Vec<Page>,
) -> Option<PooledBuffer> {
    let mut frames = frames.to_vec();
    frames.retain(|frame| frame.frame.dlen > 0);
    frames.sort_by_key(|frame| frame.frame.offset);
    let mut next = offset;
    for PagesAt { frame, at } in frames {
        let interleaved = data.get(at..at + usize::try_from(frame.dlen).ok()?)?;
        if u64::try_from(frame.offset).ok()? != next {
            return None;
        }
        for page in pages::pages(next, interleaved.len()) {
            if !pages::is_good(&page, interleaved) {
                bad.push(page);
            }
            let from = page.at + CHECKSUM_BYTES;
            sorted.data().extend_from_slice(interleaved.get(from..from + page.length)?);
        }
        next += pages::data_length(next, interleaved.len())? as u64;
        if sorted.len() > length {
            return None;
        }
    }
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer_pool::DataBufferPool;
    use wire::xroot::codes::ResponseType;
    use wire::xroot::reply::StatusFrame;
    use wire::xroot::{RequestCode, StreamId};

    /// Returns consecutive frames of `cuts` (offset and length of data) with the data `offset %
    /// 251`.
    fn frames(cuts: &[(u64, usize)]) -> (Vec<u8>, Vec<PagesAt>) {
        let (mut data, mut frames) = (Vec::new(), Vec::new());
        for &(offset, length) in cuts {
            let at = data.len();
            let bytes: Vec<u8> = (0..length as u64).map(|byte| ((offset + byte) % 251) as u8).collect();
            let room = pages::checksums_length(offset, length);
            let mut buffer = vec![0; room];
            buffer.extend(bytes);
            let total = pages::interleave(offset, &mut buffer, room, length).unwrap();
            data.extend_from_slice(&buffer[..total]);
            let frame = StatusFrame {
                streamid: StreamId::default(),
                request: RequestCode::PGREAD,
                resptype: ResponseType::PARTIAL,
                dlen: i32::try_from(total).unwrap(),
                offset: i64::try_from(offset).unwrap(),
            };
            frames.push(PagesAt { frame, at });
        }
        (data, frames)
    }

    fn expected(offset: u64, length: usize) -> Vec<u8> {
        (0..length as u64).map(|byte| ((offset + byte) % 251) as u8).collect()
    }

    #[test]
    fn frames_in_order_are_compacted_in_place() {
        let (mut data, frames) = frames(&[(100, 8092), (8192, 4096), (12288, 10)]);
        assert!(is_in_order(&frames, 100));
        let mut bad = Vec::new();
        close_up(&mut data, 100, &mut bad).unwrap();
        assert_eq!((data, bad.len()), (expected(100, 12198), 0));
    }

    #[test]
    fn frames_in_any_order_are_sorted() {
        let (mut data, frames) = frames(&[(8192, 4096), (100, 8092), (12288, 10)]);
        assert!(!is_in_order(&frames, 100));
        data[4096 + 4 + 4] ^= 1;
        let mut bad = Vec::new();
        let sorted = sort(&data, &frames, 100, 12198, DataBufferPool::default().take(0), &mut bad).unwrap();
        assert_eq!((bad.len(), bad[0].offset, bad[0].length), (1, 100, 3996));
        assert_eq!(sorted.as_ref()[1..], expected(100, 12198)[1..]);
    }

    #[test]
    fn holes_overlaps_and_surplus_are_refused() {
        for cuts in [&[(0, 4096), (8192, 4096)][..], &[(4096, 4096)], &[(0, 4096), (0, 4096)]] {
            let (data, frames) = frames(cuts);
            assert!(!is_in_order(&frames, 0));
            let block = DataBufferPool::default().take(0);
            assert!(sort(&data, &frames, 0, 8192, block, &mut Vec::new()).is_none(), "{cuts:?}");
        }
    }
}
