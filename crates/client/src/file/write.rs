//! Writes: plain, with page checksums, and in vectors.
//!
//! An unanswered write is repeated after the file was reopened, which is safe because a write at
//! the same offset is idempotent. The server stores pages even if their checksum is wrong, so each
//! is sent again until it is correct or the write has failed. Source: xroot protocol 5.2.0,
//! sections 2.14, 2.27, 2.28.

use base::CopyRange;
use bytes::Bytes;
use digest::pages::{self, CHECKSUM_BYTES};
use rawclient::Encoded;
use std::sync::Arc;
use wire::xroot::FileHandle;
use wire::xroot::flags::{PageFlags, WritevOptions};
use wire::xroot::limits::{
    CLONE_ITEM_BYTES, CLONE_ITEMS_MAX, PAGE_BYTES, SEGMENT_BYTES, WRITEV_SEGMENTS_MAX,
};
use wire::xroot::reply::BadPages;
use wire::xroot::request::clone::{CloneItem, CloneList};
use wire::xroot::request::{CloneRanges, Pgwrite, Request, Segment, SegmentList, Sync, Write, Writev};
use wire::{Decode, Encode};

use super::handle::RecoverableHandle;
use crate::failure::{Cause, Error};

/// Maximum size of one write.
pub const WRITE_BYTES_MAX: usize = 1 << 30;
/// Number of retries for a page that arrived damaged.
const PAGE_RETRIES: u32 = 3;

/// Writes to an open file.
pub(super) struct FileWriter<'a> {
    handle: &'a RecoverableHandle,
}

impl<'a> FileWriter<'a> {
    pub(super) fn of(handle: &'a RecoverableHandle) -> Self {
        Self { handle }
    }

    /// Implements [`File::write`](super::File::write).
    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (from, dlen) = self.check("write", offset, data.len())?;
        let request =
            |fhandle| Encoded::new(&Request::Write(Write { fhandle, offset: from, pathid: 0, dlen }));
        let length = data.len();
        self.handle.ask("write", true, data, request).await?;
        self.acknowledged(offset, length);
        Ok(())
    }

    /// Implements [`File::write_pages`](super::File::write_pages).
    pub(super) async fn write_pages(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        if !self.handle.channel().has_page_io() || data.is_empty() {
            return self.write(offset, data).await;
        }
        self.check("pgwrite", offset, pages::interleaved_length(offset, data.len()))?;
        let write = PageWrite { handle: self.handle, offset, data: &data };
        let bad = write.send(PageFlags::NONE).await?;
        for (at, length) in &bad {
            write.send_again((*at, *length), bad.len()).await?;
        }
        self.acknowledged(offset, data.len());
        Ok(())
    }

    /// Implements [`File::write_vector`](super::File::write_vector).
    pub(super) async fn write_vector(&self, pieces: &[(u64, Bytes)], sync: bool) -> Result<(), Error> {
        let options = if sync { WritevOptions::DO_SYNC } else { WritevOptions::NONE };
        let total: usize = pieces.iter().map(|(_, data)| data.len()).sum();
        self.check("writev", 0, total)?;
        for (offset, data) in pieces {
            self.check("writev", *offset, data.len())?;
        }
        if self.handle.channel().server().signs_data {
            // The signature of a vector write cannot cover the data.
            for (offset, data) in pieces {
                self.write(*offset, data.clone()).await?;
            }
            if sync {
                let request = |fhandle| Encoded::new(&Request::Sync(Sync { fhandle }));
                self.handle.ask("sync", true, Bytes::new(), request).await?;
            }
            return Ok(());
        }
        for some in pieces.chunks(WRITEV_SEGMENTS_MAX) {
            let bytes = some.iter().map(|(_, data)| data.len()).sum();
            let mut payload = self.handle.blocks().take(bytes);
            some.iter().for_each(|(_, data)| payload.data().extend_from_slice(data));
            let request = |fhandle: FileHandle| {
                let mut list = Vec::with_capacity(some.len() * SEGMENT_BYTES);
                for (offset, data) in some {
                    let length = i32::try_from(data.len()).unwrap_or(i32::MAX);
                    let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                    Segment { fhandle, length, offset }.encode(&mut list);
                }
                let segments = SegmentList::new(&list);
                Encoded::new(&Request::Writev(Writev { options, segments }))
            };
            self.handle.ask("writev", true, payload.into_bytes(), request).await?;
            some.iter().for_each(|(offset, data)| self.acknowledged(*offset, data.len()));
        }
        Ok(())
    }

    /// Implements [`File::clone_ranges`](super::File::clone_ranges).
    pub(super) async fn clone_ranges(
        &self,
        from: &RecoverableHandle,
        ranges: &[CopyRange],
    ) -> Result<(), Error> {
        self.check("clone", 0, 0)?;
        for some in ranges.chunks(CLONE_ITEMS_MAX) {
            let source = from.current().map_err(|cause| from.error("clone", cause))?;
            if !Arc::ptr_eq(&source.channel, &self.handle.channel()) {
                let text = "the files are not open on the same connection".to_owned();
                return Err(self.handle.error("clone", Cause::BadArgument(text)));
            }
            let mut list = Vec::with_capacity(some.len() * CLONE_ITEM_BYTES);
            for range in some {
                let src_fhandle = source.fhandle;
                let (src_offset, src_length, dst_offset) = (range.from, range.length, range.to);
                CloneItem { src_fhandle, src_offset, src_length, dst_offset }.encode(&mut list);
            }
            let request = |fhandle| {
                Encoded::new(&Request::Clone(CloneRanges { fhandle, items: CloneList::new(&list) }))
            };
            // A recovery would change the connection, on which the handle of the source is not
            // valid.
            self.handle.ask_once("clone", request).await?;
            for range in some {
                self.handle.acknowledge_write(range.to.saturating_add(range.length));
            }
        }
        Ok(())
    }

    /// Checks a write of `length` bytes at `offset`. Returns both as requests have them.
    pub(super) fn check(&self, name: &'static str, offset: u64, length: usize) -> Result<(i64, i32), Error> {
        let bad = |text: &str| self.handle.error(name, Cause::BadArgument(text.to_owned()));
        if !self.handle.is_writable() {
            return Err(bad("the file is open for reading only"));
        }
        let end = offset.checked_add(length as u64).and_then(|end| i64::try_from(end).ok());
        let dlen = i32::try_from(length).ok().filter(|_| length <= WRITE_BYTES_MAX);
        match (end, i64::try_from(offset), dlen) {
            (Some(_), Ok(from), Some(dlen)) => Ok((from, dlen)),
            _ => Err(bad("so many bytes cannot be written there at once")),
        }
    }

    fn acknowledged(&self, offset: u64, length: usize) {
        self.handle.acknowledge_write(offset + length as u64);
    }
}

/// A write with page checksums.
struct PageWrite<'a> {
    handle: &'a RecoverableHandle,
    offset: u64,
    data: &'a Bytes,
}

impl PageWrite<'_> {
    /// Sends pages and returns offset and length of those that arrived damaged.
    async fn send(&self, reqflags: PageFlags) -> Result<Vec<(u64, usize)>, Error> {
        let Self { handle, offset, data } = *self;
        let total = pages::interleaved_length(offset, data.len());
        let mut payload = handle.blocks().take(total);
        let mut from = 0;
        for page in pages::pages(offset, total) {
            let piece = data.get(from..from + page.length).unwrap_or_default();
            payload.data().extend_from_slice(&digest::crc32c(piece).to_be_bytes());
            payload.data().extend_from_slice(piece);
            from += page.length;
        }
        debug_assert_eq!(payload.len(), from + pages::page_count(offset, from) * CHECKSUM_BYTES);
        let (at, dlen) = FileWriter::of(handle).check("pgwrite", offset, total)?;
        let request = |fhandle| {
            Encoded::new(&Request::Pgwrite(Pgwrite { fhandle, offset: at, pathid: 0, reqflags, dlen }))
        };
        let received = handle.ask("pgwrite", true, payload.into_bytes(), request).await?;
        if received.body.is_empty() {
            return Ok(Vec::new());
        }
        let bad = BadPages::decode(&received.body).map_err(|error| handle.error("pgwrite", error))?;
        let count = bad.offsets().len();
        let length = |index: usize| match index {
            0 => usize::try_from(bad.first_bytes).ok(),
            _ if index + 1 == count => usize::try_from(bad.last_bytes).ok(),
            _ => Some(PAGE_BYTES),
        };
        let end = offset + data.len() as u64;
        let page = |(index, at): (usize, i64)| {
            let (at, length) = (u64::try_from(at).ok()?, length(index)?);
            (at >= offset && at + length as u64 <= end && (1..=PAGE_BYTES).contains(&length))
                .then_some((at, length))
        };
        let pages: Option<Vec<_>> = bad.offsets().enumerate().map(page).collect();
        pages.ok_or_else(|| {
            let text = "pages are bad that were not sent".to_owned();
            handle.error("pgwrite", Cause::BadAnswer(text))
        })
    }

    /// Sends a page again until it arrives correctly. `count` is the number of damaged pages.
    async fn send_again(&self, (at, length): (u64, usize), count: usize) -> Result<(), Error> {
        let from = usize::try_from(at - self.offset).unwrap_or(usize::MAX);
        let data = self.data.slice(from..from + length);
        let page = PageWrite { handle: self.handle, offset: at, data: &data };
        for _ in 0..PAGE_RETRIES {
            if page.send(PageFlags::RETRY).await?.is_empty() {
                return Ok(());
            }
        }
        Err(self.handle.error("pgwrite", Cause::Corrupt { offset: at, pages: count }))
    }
}
