//! `kXR_truncate` (3028): sets the size of a path or an open file.
//!
//! | bytes  | field     | type   | meaning                          |
//! |--------|-----------|--------|----------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply            |
//! | 2..4   | requestid | u16    | 3028                             |
//! | 4..8   | fhandle   | opaque | open file when dlen is 0         |
//! | 8..16  | offset    | i64    | the new size, never < 0          |
//! | 16..20 | reserved  |        |                                  |
//! | 20..24 | dlen      | i32    | bytes of path; 0 means by handle |
//! | 24..   | path      | text   | path[?cgi]                       |
//!
//! Reply: `kXR_ok` (dlen 0). The path is kept as sent, because the session validates it.
//!
//! Source: xroot protocol 5.2.0, section 2.24. Recorded: `fs_namespace`, `raw_write`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::FileHandle;

/// Sets a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncate<'a> {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// The new size as sent; may be negative.
    pub offset: i64,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Truncate<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { fhandle: header.fhandle::<4>(), offset: header.i64::<8>(), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 4>(self.fhandle.0).with::<8, 8>(self.offset.to_be_bytes()).finish(self.path, out);
    }
}
