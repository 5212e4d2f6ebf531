//! `kXR_locate` (3027): requests the locations of a file or directory.
//!
//! | bytes  | field     | type   | meaning                                  |
//! |--------|-----------|--------|------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                    |
//! | 2..4   | requestid | u16    | 3027                                     |
//! | 4..6   | options   | u16    | [`LocateOptions`]                        |
//! | 6..20  | reserved  |        |                                          |
//! | 20..24 | dlen      | i32    | bytes of path                            |
//! | 24..   | path      | text   | path[?cgi], `*` (all servers) or `*path` |
//!
//! Reply: `kXR_ok` with a text, see [`reply::locate`](crate::xroot::reply::locate); a manager may
//! also send `kXR_wait`, because it first queries its nodes.
//!
//! Source: xroot protocol 5.2.0, section 2.9. Recorded: `fs_locate`, `manager_locate`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::LocateOptions;

/// Requests the locations of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locate<'a> {
    /// Options of the search and of the answer.
    pub options: LocateOptions,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Locate<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: LocateOptions(header.u16::<4>()), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 2>(self.options.0.to_be_bytes()).finish(self.path, out);
    }
}
