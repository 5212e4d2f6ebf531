//! `kXR_pgwrite` (3026): writes pages, each with its checksum.
//!
//! | bytes  | field     | type   | meaning                                     |
//! |--------|-----------|--------|---------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                       |
//! | 2..4   | requestid | u16    | 3026                                        |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open`                |
//! | 8..16  | offset    | i64    | bytes from the start of the file, never < 0 |
//! | 16     | pathid    | u8     | connection of the payload; 0: this one      |
//! | 17     | reqflags  | u8     | [`PageFlags`]                               |
//! | 18..20 | reserved  |        |                                             |
//! | 20..24 | dlen      | i32    | bytes of payload                            |
//!
//! The payload is `crc32c` u32 and the bytes of the page, for each page touched; pages are aligned
//! to the file offset. It is streamed and never decoded with the message. The checksums exist so
//! that the server can detect corruption in transit and request the page again. Reply:
//! `kXR_status`, see [`reply::status`](crate::xroot::reply::status).
//!
//! Source: xroot protocol 5.2.0, section 2.14. Recorded: `raw_write`, `api_pgwrite`,
//! `api_pgwrite_bad`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::PageFlags;
use crate::xroot::header::FileHandle;

/// Writes pages, each with its checksum; the payload is not part of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pgwrite {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// Offset as sent; may be negative.
    pub offset: i64,
    /// Connection of the payload and of the reply; 0 is the control connection.
    pub pathid: u8,
    /// Flags, which mark the retry of a bad page.
    pub reqflags: PageFlags,
    /// Length of the payload as sent; may be negative.
    pub dlen: i32,
}

impl RequestBody<'_> for Pgwrite {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            fhandle: header.fhandle::<4>(),
            offset: header.i64::<8>(),
            pathid: header.u8::<16>(),
            reqflags: PageFlags(header.u8::<17>()),
            dlen: header.dlen,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.fhandle.0)
            .with::<8, 8>(self.offset.to_be_bytes())
            .with::<16, 1>([self.pathid])
            .with::<17, 1>([self.reqflags.0])
            .finish_streamed(self.dlen, out);
    }
}
