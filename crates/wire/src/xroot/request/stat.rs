//! `kXR_stat` (3017): requests the status of a path, an open file or a file system.
//!
//! | bytes  | field     | type   | meaning                          |
//! |--------|-----------|--------|----------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply            |
//! | 2..4   | requestid | u16    | 3017                             |
//! | 4      | options   | u8     | [`StatOptions`]                  |
//! | 5..12  | reserved  |        |                                  |
//! | 12..16 | wants     | u32    | [`StatWants`]                    |
//! | 16..20 | fhandle   | opaque | open file when dlen is 0         |
//! | 20..24 | dlen      | i32    | bytes of path; 0 means by handle |
//! | 24..   | path      | text   | path[?cgi]                       |
//!
//! Reply: `kXR_ok` with a text, see [`reply::stat_text`](crate::xroot::reply::stat_text), which
//! other replies share.
//!
//! Source: xroot protocol 5.2.0, sections 2.21, 2.26. Recorded: `fs_stat`, `raw_errors`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::{StatOptions, StatWants};
use crate::xroot::header::FileHandle;

/// Requests the status of a path or an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat<'a> {
    /// Selects the object or its file system.
    pub options: StatOptions,
    /// Optional values to return.
    pub wants: StatWants,
    /// The open file, if `path` is empty.
    pub fhandle: FileHandle,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Stat<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            options: StatOptions(header.u8::<4>()),
            wants: StatWants(u32::from_be_bytes(header.field::<12, 4>())),
            fhandle: header.fhandle::<16>(),
            path: payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 1>([self.options.0])
            .with::<12, 4>(self.wants.0.to_be_bytes())
            .with::<16, 4>(self.fhandle.0)
            .finish(self.path, out);
    }
}
