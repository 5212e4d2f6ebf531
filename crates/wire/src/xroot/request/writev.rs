//! `kXR_writev` (3031): writes several ranges of open files.
//!
//! | bytes  | field     | type   | meaning                                       |
//! |--------|-----------|--------|-----------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                         |
//! | 2..4   | requestid | u16    | 3031                                          |
//! | 4      | options   | u8     | [`WritevOptions`]                             |
//! | 5..20  | reserved  |        |                                               |
//! | 20..24 | dlen      | i32    | 16·n, n from 1 to 1024                        |
//! | 24..   | segments  | list   | [`SegmentList`]                               |
//! |        | data      | opaque | data of all elements, **not counted in dlen** |
//!
//! The data is streamed and never decoded with the message; its length is
//! [`SegmentList::total_bytes`]. Reply: `kXR_ok` (dlen 0). An invalid list ends the connection,
//! because the length of the data behind it is unknown.
//!
//! Source: xroot protocol 5.2.0, section 2.28. Recorded: `api_writev`, `raw_write`.

use super::body::{RequestBody, RequestHeader, WireError};
use super::segments::SegmentList;
use crate::xroot::flags::WritevOptions;

/// Writes several ranges of open files; the data is not part of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writev<'a> {
    /// Option to flush afterwards.
    pub options: WritevOptions,
    /// The ranges, in the order of their data.
    pub segments: SegmentList<'a>,
}

impl<'a> RequestBody<'a> for Writev<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: WritevOptions(header.u8::<4>()), segments: SegmentList::new(payload) })
    }

    /// Encodes header and list; the caller must send the data of all elements.
    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 1>([self.options.0]).finish(self.segments.bytes(), out);
    }
}
