//! `kXR_chmod` (3002): changes the permission bits of a path.
//!
//! | bytes  | field     | type   | meaning                      |
//! |--------|-----------|--------|------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply        |
//! | 2..4   | requestid | u16    | 3002                         |
//! | 4..18  | reserved  |        |                              |
//! | 18..20 | mode      | u16    | permission bits, as in POSIX |
//! | 20..24 | dlen      | i32    | bytes of path                |
//! | 24..   | path      | text   | path[?cgi]                   |
//!
//! Reply: `kXR_ok` (dlen 0). The path is kept as sent, because the session validates it.
//!
//! Source: xroot protocol 5.2.0, section 2.2. Recorded: `fs_namespace`, `raw_errors`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Changes permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chmod<'a> {
    /// Permission bits: 0x100 owner may read … 0x001 others may execute.
    pub mode: u16,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Chmod<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { mode: header.u16::<18>(), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<18, 2>(self.mode.to_be_bytes()).finish(self.path, out);
    }
}
