//! `kXR_readv` (3025): reads several ranges of open files.
//!
//! | bytes  | field     | type   | meaning                                       |
//! |--------|-----------|--------|-----------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                         |
//! | 2..4   | requestid | u16    | 3025                                          |
//! | 4..19  | reserved  |        |                                               |
//! | 19     | pathid    | u8     | ignored: the reply is sent on this connection |
//! | 20..24 | dlen      | i32    | 16·n, n from 1 to 1024                        |
//! | 24..   | segments  | list   | [`SegmentList`]                               |
//!
//! Replies: any number of `kXR_oksofar`, then `kXR_ok`, with the 16-byte header (with the length
//! read) and the data of each element. Errors: 3000 list incomplete, empty or negative length; 3002
//! more than 1024; 3008 element or total too large; 3005 past the end; 3004. One request for many
//! small ranges exists because a round trip for each would dominate the time.
//!
//! Source: xroot protocol 5.2.0, section 2.18. Recorded: `api_readv`, `raw_large_readv`.

use super::body::{RequestBody, RequestHeader, WireError};
use super::segments::SegmentList;

/// Reads several ranges of open files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readv<'a> {
    /// Ignored by servers.
    pub pathid: u8,
    /// The ranges, in the order of the answer.
    pub segments: SegmentList<'a>,
}

impl<'a> RequestBody<'a> for Readv<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { pathid: header.u8::<19>(), segments: SegmentList::new(payload) })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<19, 1>([self.pathid]).finish(self.segments.bytes(), out);
    }
}
