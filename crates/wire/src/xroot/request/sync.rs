//! `kXR_sync` (3016): flushes written data to stable storage, or starts a third-party copy.
//!
//! | bytes  | field     | type   | meaning                      |
//! |--------|-----------|--------|------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply        |
//! | 2..4   | requestid | u16    | 3016                         |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open` |
//! | 8..20  | reserved  |        |                              |
//! | 20..24 | dlen      | i32    | 0                            |
//!
//! Replies: `kXR_ok` (dlen 0); `kXR_waitresp` for a third-party copy, because it may take long.
//!
//! Source: xroot protocol 5.2.0, section 2.23.

use crate::xroot::codes::RequestCode;
use crate::xroot::header::{FileHandle, RequestHeader, StreamId};

/// Flushes a file to stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
}

impl Sync {
    pub(super) fn decode(header: &RequestHeader) -> Self {
        Self { fhandle: header.fhandle::<4>() }
    }

    pub(super) fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        RequestHeader::new(streamid, RequestCode::SYNC).with::<4, 4>(self.fhandle.0).finish(&[], out);
    }
}
