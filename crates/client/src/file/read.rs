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

use super::File;
use crate::buffer_pool::PooledBuffer;
use crate::channel::{PagesAt, ReplyContent, ReplySink};
use crate::failure::{Cause, Error};

/// Maximum size of one read.
pub const READ_BYTES_MAX: usize = 1 << 30;
/// Number of retries for a page with a wrong checksum.
const PAGE_RETRIES: u32 = 3;

impl File {
    /// Reads `length` bytes from `offset`, or fewer at the end of the file. The maximum is
    /// [`READ_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        let (from, rlen) = self.range("read", offset, length)?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let request = |fhandle| {
            let argument = Some(ReadArgument { pathid: 0, preread: SegmentList::default() });
            Encoded::new(&Request::Read(Read { fhandle, offset: from, rlen, argument }))
        };
        let sink = || ReplySink::Block(self.0.client.blocks().take(length), length);
        let received = self.ask_into("read", true, Bytes::new(), request, sink).await?;
        Ok(received.block.map(PooledBuffer::into_bytes).unwrap_or_default())
    }

    /// Reads like [`File::read`] into the front of `into` and returns the number of bytes.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let data = self.read(offset, into.len()).await?;
        if let Some(place) = into.get_mut(..data.len()) {
            place.copy_from_slice(&data);
        }
        Ok(data.len())
    }

    /// Reads like [`File::read`] and verifies a checksum for each page. The fallback for servers
    /// without page checksums is a plain read; see
    /// [`Channel::has_page_io`](crate::Channel::has_page_io).
    ///
    /// # Errors
    /// [`Error`]; with [`Cause::Corrupt`] if a page is still wrong after all retries.
    pub async fn read_pages(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        if !self.channel().has_page_io() {
            return self.read(offset, length).await;
        }
        self.range("pgread", offset, length)?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let received = self.pgread(offset, length, PageFlags::NONE).await?;
        let (mut block, bad) = self.separated(received, offset, length)?;
        for page in &bad {
            Box::pin(self.read_again(&mut block, offset, page, bad.len())).await?;
        }
        Ok(block.into_bytes())
    }

    /// Reads a range with or without page checksums. A reply that is shorter than its request is
    /// not the end of the file, so this function reads on until the range is complete or the server
    /// sends no byte.
    ///
    /// # Errors
    /// Those of [`File::read_pages`].
    pub(crate) async fn read_range(&self, pages: bool, offset: u64, length: usize) -> Result<Bytes, Error> {
        let first = self.read_once(pages, offset, length).await?;
        if first.len() >= length || first.is_empty() {
            return Ok(first);
        }
        let mut range = self.0.client.blocks().take(length);
        range.data().extend_from_slice(&first);
        drop(first);
        while range.len() < length {
            let (at, rest) = (offset.saturating_add(range.len() as u64), length - range.len());
            let next = self.read_once(pages, at, rest).await?;
            if next.is_empty() {
                break;
            }
            range.data().extend_from_slice(&next);
        }
        Ok(range.into_bytes())
    }

    async fn read_once(&self, pages: bool, offset: u64, length: usize) -> Result<Bytes, Error> {
        if pages { self.read_pages(offset, length).await } else { self.read(offset, length).await }
    }

    fn range(&self, name: &'static str, offset: u64, length: usize) -> Result<(i64, i32), Error> {
        let bad = || {
            let text = format!("{length} bytes from {offset} on cannot be read at once");
            self.error(name, Cause::BadArgument(text))
        };
        let from = i64::try_from(offset).map_err(|_| bad())?;
        let rlen = i32::try_from(length).ok().filter(|_| length <= READ_BYTES_MAX).ok_or_else(bad)?;
        Ok((from, rlen))
    }

    async fn pgread(&self, offset: u64, length: usize, reqflags: PageFlags) -> Result<ReplyContent, Error> {
        let (from, rlen) = self.range("pgread", offset, length)?;
        let most = pages::interleaved_length(offset, length);
        let request = |fhandle: FileHandle| {
            let (pathid, reqflags) = (Some(0), Some(reqflags));
            Encoded::new(&Request::Pgread(Pgread { fhandle, offset: from, rlen, pathid, reqflags }))
        };
        let sink = || ReplySink::Block(self.0.client.blocks().take(most), most);
        self.ask_into("pgread", true, Bytes::new(), request, sink).await
    }

    /// Removes the checksums from a reply and returns the pages with wrong ones.
    fn separated(
        &self,
        received: ReplyContent,
        offset: u64,
        length: usize,
    ) -> Result<(PooledBuffer, Vec<Page>), Error> {
        let ReplyContent { block, pages, .. } = received;
        let mut block = block.unwrap_or_else(|| self.0.client.blocks().take(0));
        let mut bad = Vec::new();
        let joined = if is_in_order(&pages, offset) {
            close_up(block.data(), offset, &mut bad)
        } else {
            let taken = self.0.client.blocks().take(length);
            let other = sort(block.as_ref(), &pages, offset, length, taken, &mut bad);
            other.map(|other| block = other)
        };
        joined.ok_or_else(|| {
            let text = "pages are missing, stand twice, or lie outside of what was asked for";
            self.error("pgread", Cause::BadAnswer(text.to_owned()))
        })?;
        Ok((block, bad))
    }

    /// Reads a page again until it is correct.
    async fn read_again(
        &self,
        block: &mut PooledBuffer,
        offset: u64,
        page: &Page,
        count: usize,
    ) -> Result<(), Error> {
        for _ in 0..PAGE_RETRIES {
            let received = self.pgread(page.offset, page.length, PageFlags::RETRY).await?;
            let (again, bad) = self.separated(received, page.offset, page.length)?;
            if bad.is_empty() && again.len() == page.length {
                let at = usize::try_from(page.offset - offset).unwrap_or(usize::MAX);
                if let Some(place) = block.data().get_mut(at..at + page.length) {
                    place.copy_from_slice(again.as_ref());
                }
                return Ok(());
            }
        }
        Err(self.error("pgread", Cause::Corrupt { offset: page.offset, pages: count }))
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
