//! `kXR_close` (3003): closes an open file.
//!
//! | bytes  | field     | type   | meaning                      |
//! |--------|-----------|--------|------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply        |
//! | 2..4   | requestid | u16    | 3003                         |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open` |
//! | 8..20  | reserved  |        |                              |
//! | 20..24 | dlen      | i32    | 0                            |
//!
//! Reply: `kXR_ok` (dlen 0). Errors: 3004, 3007, 3009, and 3019 for uncorrected pages. The file is
//! closed after 3019 as well.
//!
//! Source: xroot protocol 5.2.0, section 2.3.

use crate::xroot::codes::RequestCode;
use crate::xroot::header::{FileHandle, RequestHeader, StreamId};

/// Closes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
}

impl Close {
    pub(super) fn decode(header: &RequestHeader) -> Self {
        Self { fhandle: header.fhandle::<4>() }
    }

    pub(super) fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        RequestHeader::new(streamid, RequestCode::CLOSE).with::<4, 4>(self.fhandle.0).finish(&[], out);
    }
}
