//! `kXR_writev` (3031): writes ranges of open files.
//!
//! | bytes  | field     | type   | meaning                                              |
//! |--------|-----------|--------|------------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                                |
//! | 2..4   | requestid | u16    | 3031                                                 |
//! | 4      | options   | u8     | [`WritevOptions`]                                    |
//! | 5..20  | reserved  |        |                                                      |
//! | 20..24 | dlen      | i32    | 16·n, n from 1 to 1024                               |
//! | 24..   | segments  | list   | [`SegmentList`]                                      |
//! |        | data      | opaque | behind the list, **not counted in dlen**: the data of all elements |
//!
//! The data is streamed, never decoded with the message; [`SegmentList::total_bytes`] says how much follows.
//! Reply: `kXR_ok` (dlen 0). A list that cannot be understood ends the connection, because the data behind it cannot be
//! skipped. Source: xroot protocol 5.2.0, section 2.28. Recorded: `api_writev`, `raw_write`.

use super::segments::SegmentList;
use crate::xroot::codes::RequestCode;
use crate::xroot::flags::WritevOptions;
use crate::xroot::header::{RequestHeader, StreamId};

/// Writes ranges of open files; the data is not part of this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writev<'a> {
    /// Whether to sync afterwards.
    pub options: WritevOptions,
    /// The ranges, in the order in which their data follows.
    pub segments: SegmentList<'a>,
}

impl<'a> Writev<'a> {
    pub(super) fn decode(header: &RequestHeader, payload: &'a [u8]) -> Self {
        Self { options: WritevOptions(header.u8::<4>()), segments: SegmentList::new(payload) }
    }

    /// Encodes header and list; the data of all elements has to follow.
    pub(super) fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        RequestHeader::new(streamid, RequestCode::WRITEV)
            .with::<4, 1>([self.options.0])
            .finish(self.segments.bytes(), out);
    }
}
