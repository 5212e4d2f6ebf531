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
use std::sync::atomic::Ordering;
use wire::xroot::codes::ChkpointOpcode;
use wire::xroot::flags::{PageFlags, WritevOptions};
use wire::xroot::limits::{
    CLONE_ITEM_BYTES, CLONE_ITEMS_MAX, PAGE_BYTES, SEGMENT_BYTES, WRITEV_SEGMENTS_MAX,
};
use wire::xroot::reply::BadPages;
use wire::xroot::request::clone::{CloneItem, CloneList};
use wire::xroot::request::{
    Chkpoint, CloneRanges, Pgwrite, Request, Segment, SegmentList, Truncate, Write, Writev,
};
use wire::xroot::{FileHandle, RequestHeader, StreamId};
use wire::{Decode, Encode, FixedLayout};

use super::File;
use crate::failure::{Cause, Error};

/// Maximum size of one write.
pub const WRITE_BYTES_MAX: usize = 1 << 30;
/// Number of retries for a page that arrived damaged.
const PAGE_RETRIES: u32 = 3;

impl File {
    /// Writes `data` at `offset`. The maximum is [`WRITE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        let (from, dlen) = self.place("write", offset, data.len())?;
        let request =
            |fhandle| Encoded::new(&Request::Write(Write { fhandle, offset: from, pathid: 0, dlen }));
        let length = data.len();
        self.ask("write", true, data, request).await?;
        self.acknowledged(offset, length);
        Ok(())
    }

    /// Writes like [`File::write`] with a checksum for each page, which the server verifies. The
    /// fallback for servers without page checksums is a plain write.
    ///
    /// # Errors
    /// [`Error`]; with [`Cause::Corrupt`] if pages still arrive damaged after all retries.
    pub async fn write_pages(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        if !self.channel().has_page_io() || data.is_empty() {
            return self.write(offset, data).await;
        }
        self.place("pgwrite", offset, pages::interleaved_length(offset, data.len()))?;
        let bad = self.pgwrite(offset, &data, PageFlags::NONE).await?;
        for (at, length) in &bad {
            self.write_again(offset, &data, (*at, *length), bad.len()).await?;
        }
        self.acknowledged(offset, data.len());
        Ok(())
    }

    /// Writes pieces, given as offset and data, in few requests. With `sync` the server writes them
    /// to stable storage.
    ///
    /// # Errors
    /// [`Error`]; some pieces may be written then.
    pub async fn write_vector(&self, pieces: &[(u64, Bytes)], sync: bool) -> Result<(), Error> {
        let options = if sync { WritevOptions::DO_SYNC } else { WritevOptions::NONE };
        let total: usize = pieces.iter().map(|(_, data)| data.len()).sum();
        self.place("writev", 0, total)?;
        for (offset, data) in pieces {
            self.place("writev", *offset, data.len())?;
        }
        for some in pieces.chunks(WRITEV_SEGMENTS_MAX) {
            let bytes = some.iter().map(|(_, data)| data.len()).sum();
            let mut payload = self.0.client.blocks().take(bytes);
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
            self.ask("writev", true, payload.into_bytes(), request).await?;
            some.iter().for_each(|(offset, data)| self.acknowledged(*offset, data.len()));
        }
        Ok(())
    }

    /// Writes `data` at `offset` under the checkpoint of [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`]; with 3021 (over quota) if the checkpoint is full.
    pub async fn write_checkpointed(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), Error> {
        let data = data.into();
        let (from, dlen) = self.place("checkpointed write", offset, data.len())?;
        let request = |fhandle: FileHandle| {
            let mut inner = Vec::new();
            let write = Request::Write(Write { fhandle, offset: from, pathid: 0, dlen });
            write.encode(StreamId::default(), &mut inner);
            let embedded = inner.first_chunk().map(RequestHeader::from_bytes);
            Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode: ChkpointOpcode::XEQ, embedded }))
        };
        self.ask("checkpointed write", false, data, request).await.map(|_| ())
    }

    /// Sets the size under the checkpoint of [`File::begin_checkpoint`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn truncate_checkpointed(&self, size: u64) -> Result<(), Error> {
        let (offset, _) = self.place("checkpointed truncate", size, 0)?;
        let request = |fhandle: FileHandle| {
            let mut inner = Vec::new();
            let truncate = Request::Truncate(Truncate { fhandle, offset, path: b"" });
            truncate.encode(StreamId::default(), &mut inner);
            let embedded = inner.first_chunk().map(RequestHeader::from_bytes);
            Encoded::new(&Request::Chkpoint(Chkpoint { fhandle, opcode: ChkpointOpcode::XEQ, embedded }))
        };
        self.ask("checkpointed truncate", false, Bytes::new(), request).await.map(|_| ())
    }

    /// Shares the blocks of ranges of `from` with this file.
    /// Both files have to be open on one connection, and the file system of the server has to
    /// support it. Otherwise the call fails, and the data has to be copied.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn clone_ranges(&self, from: &Self, ranges: &[CopyRange]) -> Result<(), Error> {
        self.place("clone", 0, 0)?;
        for some in ranges.chunks(CLONE_ITEMS_MAX) {
            let source = from.current().map_err(|cause| from.error("clone", cause))?;
            if !Arc::ptr_eq(&source.channel, &self.channel()) {
                let text = "the files are not open on the same connection".to_owned();
                return Err(self.error("clone", Cause::BadArgument(text)));
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
            self.ask_once("clone", request).await?;
            for range in some {
                self.0.written_to.fetch_max(range.to.saturating_add(range.length), Ordering::AcqRel);
            }
        }
        Ok(())
    }

    fn place(&self, name: &'static str, offset: u64, length: usize) -> Result<(i64, i32), Error> {
        let bad = |text: &str| self.error(name, Cause::BadArgument(text.to_owned()));
        if !self.is_writable() {
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
        self.0.written_to.fetch_max(offset + length as u64, Ordering::AcqRel);
    }

    /// Sends pages and returns offset and length of those that arrived damaged.
    async fn pgwrite(
        &self,
        offset: u64,
        data: &Bytes,
        reqflags: PageFlags,
    ) -> Result<Vec<(u64, usize)>, Error> {
        let total = pages::interleaved_length(offset, data.len());
        let mut payload = self.0.client.blocks().take(total);
        let mut from = 0;
        for page in pages::pages(offset, total) {
            let piece = data.get(from..from + page.length).unwrap_or_default();
            payload.data().extend_from_slice(&digest::crc32c(piece).to_be_bytes());
            payload.data().extend_from_slice(piece);
            from += page.length;
        }
        debug_assert_eq!(payload.len(), from + pages::page_count(offset, from) * CHECKSUM_BYTES);
        let (at, dlen) = self.place("pgwrite", offset, total)?;
        let request = |fhandle| {
            Encoded::new(&Request::Pgwrite(Pgwrite { fhandle, offset: at, pathid: 0, reqflags, dlen }))
        };
        let received = self.ask("pgwrite", true, payload.into_bytes(), request).await?;
        if received.body.is_empty() {
            return Ok(Vec::new());
        }
        let bad = BadPages::decode(&received.body).map_err(|error| self.error("pgwrite", error))?;
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
            self.error("pgwrite", Cause::BadAnswer(text))
        })
    }

    async fn write_again(
        &self,
        offset: u64,
        data: &Bytes,
        (at, length): (u64, usize),
        count: usize,
    ) -> Result<(), Error> {
        let from = usize::try_from(at - offset).unwrap_or(usize::MAX);
        let page = data.slice(from..from + length);
        for _ in 0..PAGE_RETRIES {
            if self.pgwrite(at, &page, PageFlags::RETRY).await?.is_empty() {
                return Ok(());
            }
        }
        Err(self.error("pgwrite", Cause::Corrupt { offset: at, pages: count }))
    }
}
