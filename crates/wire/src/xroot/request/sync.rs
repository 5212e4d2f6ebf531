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

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::FileHandle;

/// Flushes a file to stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
}

impl RequestBody<'_> for Sync {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self { fhandle: header.fhandle::<4>() })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 4>(self.fhandle.0).finish(&[], out);
    }
}
