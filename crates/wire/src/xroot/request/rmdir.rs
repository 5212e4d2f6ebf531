//! `kXR_rmdir` (3015): removes an empty directory.
//!
//! | bytes  | field     | type   | meaning               |
//! |--------|-----------|--------|-----------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply |
//! | 2..4   | requestid | u16    | 3015                  |
//! | 4..20  | reserved  |        |                       |
//! | 20..24 | dlen      | i32    | bytes of path         |
//! | 24..   | path      | text   | path[?cgi]            |
//!
//! Reply: `kXR_ok` (dlen 0). The path is kept as sent, because the session validates it.
//!
//! Source: xroot protocol 5.2.0, section 2.20. Recorded: `fs_namespace`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Removes an empty directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rmdir<'a> {
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Rmdir<'a> {
    fn decode(_header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.finish(self.path, out);
    }
}
