//! `kXR_write` (3019): writes bytes to an open file.
//!
//! | bytes  | field     | type   | meaning                                     |
//! |--------|-----------|--------|---------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                       |
//! | 2..4   | requestid | u16    | 3019                                        |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open`                |
//! | 8..16  | offset    | i64    | bytes from the start of the file, never < 0 |
//! | 16     | pathid    | u8     | connection of the payload; 0: this one      |
//! | 17..20 | reserved  |        |                                             |
//! | 20..24 | dlen      | i32    | bytes of payload                            |
//!
//! Reply: `kXR_ok` (dlen 0), on the connection `pathid`. After an error the payload is read and
//! discarded before the reply. The payload may have any length, so it is streamed and never decoded
//! with the message.
//!
//! Source: xroot protocol 5.2.0, section 2.27. Recorded: `cp_upload_write`, `raw_write`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::FileHandle;

/// Writes bytes to an open file; the payload is not part of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// Offset as sent; may be negative.
    pub offset: i64,
    /// Connection of the payload and of the reply; 0 is the control connection.
    pub pathid: u8,
    /// Length of the payload as sent; may be negative.
    pub dlen: i32,
}

impl RequestBody<'_> for Write {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            fhandle: header.fhandle::<4>(),
            offset: header.i64::<8>(),
            pathid: header.u8::<16>(),
            dlen: header.dlen,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.fhandle.0)
            .with::<8, 8>(self.offset.to_be_bytes())
            .with::<16, 1>([self.pathid])
            .finish_streamed(self.dlen, out);
    }
}
