//! `kXR_statx` (3022): requests the kind of each of several paths.
//!
//! | bytes  | field     | type   | meaning               |
//! |--------|-----------|--------|-----------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply |
//! | 2..4   | requestid | u16    | 3022                  |
//! | 4      | options   | u8     | [`StatOptions`]       |
//! | 5..16  | reserved  |        |                       |
//! | 16..20 | fhandle   | opaque | unused                |
//! | 20..24 | dlen      | i32    | bytes of paths        |
//! | 24..   | paths     | text   | paths separated by LF |
//!
//! Reply: `kXR_ok` with one byte per path, see [`reply::small`](crate::xroot::reply::small).
//!
//! Source: xroot protocol 5.2.0, section 2.22. Recorded: `raw_query`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::StatOptions;
use crate::xroot::header::FileHandle;

/// Requests the kinds of several paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statx<'a> {
    /// Reserved.
    pub options: StatOptions,
    /// Unused.
    pub fhandle: FileHandle,
    /// Paths separated by LF.
    pub paths: &'a [u8],
}

impl<'a> RequestBody<'a> for Statx<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: StatOptions(header.u8::<4>()), fhandle: header.fhandle::<16>(), paths: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 1>([self.options.0]).with::<16, 4>(self.fhandle.0).finish(self.paths, out);
    }
}
