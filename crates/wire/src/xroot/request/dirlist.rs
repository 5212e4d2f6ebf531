//! `kXR_dirlist` (3004): lists a directory.
//!
//! | bytes  | field     | type   | meaning                                |
//! |--------|-----------|--------|----------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                  |
//! | 2..4   | requestid | u16    | 3004                                   |
//! | 4..19  | reserved  |        |                                        |
//! | 19     | options   | u8     | [`DirlistOptions`]                     |
//! | 20..24 | dlen      | i32    | bytes of path                          |
//! | 24..   | path      | text   | path[?cgi]; cgi `cks.type=` with dcksm |
//!
//! Replies: any number of `kXR_oksofar`, then `kXR_ok`, because a listing may exceed one frame; see
//! [`reply::dirlist`](crate::xroot::reply::dirlist).
//!
//! Source: xroot protocol 5.2.0, section 2.7. Recorded: `raw_dirlist`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::DirlistOptions;

/// Lists a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirlist<'a> {
    /// Information to append to the names.
    pub options: DirlistOptions,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Dirlist<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: DirlistOptions(header.u8::<19>()), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<19, 1>([self.options.0]).finish(self.path, out);
    }
}
