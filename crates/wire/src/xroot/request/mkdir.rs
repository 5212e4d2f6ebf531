//! `kXR_mkdir` (3008): creates a directory.
//!
//! | bytes  | field     | type   | meaning               |
//! |--------|-----------|--------|-----------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply |
//! | 2..4   | requestid | u16    | 3008                  |
//! | 4      | options   | u8     | [`MkdirOptions`]      |
//! | 5..18  | reserved  |        |                       |
//! | 18..20 | mode      | u16    | permission bits       |
//! | 20..24 | dlen      | i32    | bytes of path         |
//! | 24..   | path      | text   | path[?cgi]            |
//!
//! Reply: `kXR_ok` (dlen 0). The path is kept as sent, because the session validates it.
//!
//! Source: xroot protocol 5.2.0, section 2.10. Recorded: `fs_namespace`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::MkdirOptions;

/// Creates a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mkdir<'a> {
    /// Option to create missing parent directories.
    pub options: MkdirOptions,
    /// Permission bits.
    pub mode: u16,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Mkdir<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: MkdirOptions(header.u8::<4>()), mode: header.u16::<18>(), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 1>([self.options.0]).with::<18, 2>(self.mode.to_be_bytes()).finish(self.path, out);
    }
}
