//! `kXR_pgread` (3030): reads pages, each with its checksum.
//!
//! | bytes  | field     | type   | meaning                                       |
//! |--------|-----------|--------|-----------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                         |
//! | 2..4   | requestid | u16    | 3030                                          |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open`                  |
//! | 8..16  | offset    | i64    | bytes from the start of the file, never < 0   |
//! | 16..20 | rlen      | i32    | bytes wanted, > 0                             |
//! | 20..24 | dlen      | i32    | 0, 1 or 2                                     |
//! | 24     | pathid    | u8     | connection that carries the data; 0: this one |
//! | 25     | reqflags  | u8     | [`PageFlags`]                                 |
//!
//! Replies: `kXR_status` frames, all but the last partial; or `kXR_error` (3004, 3000, 3007). See
//! [`reply::status`](crate::xroot::reply::status). The checksums exist so that a client can detect
//! corruption in transit and read the page again.
//!
//! Source: xroot protocol 5.2.0, section 2.13. Recorded: `api_pgread`, `cp_download_pgread`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::PageFlags;
use crate::xroot::header::FileHandle;

/// Reads a range of an open file with checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pgread {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// Offset as sent; may be negative.
    pub offset: i64,
    /// Number of bytes to read as sent; may be negative.
    pub rlen: i32,
    /// Connection for the data, if sent.
    pub pathid: Option<u8>,
    /// Marks the retry of a bad page, if sent; never without `pathid`.
    pub reqflags: Option<PageFlags>,
}

impl RequestBody<'_> for Pgread {
    fn decode(header: &RequestHeader, payload: &[u8]) -> Result<Self, WireError> {
        // A later protocol version may append fields, so only the known ones at the front are
        // decoded.
        Ok(Self {
            fhandle: header.fhandle::<4>(),
            offset: header.i64::<8>(),
            rlen: header.i32::<16>(),
            pathid: payload.first().copied(),
            reqflags: payload.get(1).copied().map(PageFlags),
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        let argument = [self.pathid(), self.reqflags().0];
        let sent = match (self.pathid, self.reqflags) {
            (_, Some(_)) => 2,
            (Some(_), None) => 1,
            (None, None) => 0,
        };
        header
            .with::<4, 4>(self.fhandle.0)
            .with::<8, 8>(self.offset.to_be_bytes())
            .with::<16, 4>(self.rlen.to_be_bytes())
            .finish(argument.get(..sent).unwrap_or_default(), out);
    }
}

impl Pgread {
    /// Returns the connection for the data; 0 is the control connection.
    #[must_use]
    pub fn pathid(&self) -> u8 {
        self.pathid.unwrap_or(0)
    }

    /// Returns the flags, which mark the retry of a bad page.
    #[must_use]
    pub fn reqflags(&self) -> PageFlags {
        self.reqflags.unwrap_or_default()
    }
}
