//! `kXR_chkpoint` (3012): begins, commits, rolls back or queries a checkpoint, or writes under it.
//!
//! | bytes  | field     | type   | meaning                                             |
//! |--------|-----------|--------|-----------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                               |
//! | 2..4   | requestid | u16    | 3012                                                |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open`                        |
//! | 8..19  | reserved  |        |                                                     |
//! | 19     | opcode    | u8     | [`ChkpointOpcode`]                                  |
//! | 20..24 | dlen      | i32    | 0; 24 for xeq                                       |
//! | 24..48 | embedded  | header | xeq: header of a write, pgwrite, truncate or writev |
//! |        | data      | opaque | behind that, **not counted in dlen**: its payload   |
//!
//! Replies: `kXR_ok`, for query with two u32 (maximum and used bytes); for xeq the reply of the
//! embedded request. Errors: 3018, 3032, 3013, 3011, 3021. The payload of the embedded request is
//! file data, so it is streamed and not part of the message.
//!
//! Source: xroot protocol 5.2.0, section 2.6. Recorded: `raw_write`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::codec::{Encode, FixedLayout};
use crate::xroot::codes::ChkpointOpcode;
use crate::xroot::header::FileHandle;
use crate::xroot::limits::REQUEST_HEADER_BYTES;

/// Operates on the checkpoint of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chkpoint {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// The operation.
    pub opcode: ChkpointOpcode,
    /// Header of the request to execute; present only with [`ChkpointOpcode::XEQ`]. Its payload
    /// follows.
    pub embedded: Option<RequestHeader>,
}

impl RequestBody<'_> for Chkpoint {
    fn decode(header: &RequestHeader, payload: &[u8]) -> Result<Self, WireError> {
        let opcode = ChkpointOpcode(header.u8::<19>());
        let embedded = if opcode == ChkpointOpcode::XEQ {
            let bytes = <&[u8; REQUEST_HEADER_BYTES]>::try_from(payload).map_err(|_| {
                WireError::BadLength { field: "embedded request header", bytes: header.dlen.into() }
            })?;
            Some(RequestHeader::from_bytes(bytes))
        } else {
            None
        };
        Ok(Self { fhandle: header.fhandle::<4>(), opcode, embedded })
    }

    /// Encodes the header and the embedded header; the caller must send the payload of the latter.
    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        let header = header.with::<4, 4>(self.fhandle.0).with::<19, 1>([self.opcode.0]);
        header.finish_with(out, |out| {
            if let Some(embedded) = &self.embedded {
                embedded.encode(out);
            }
        });
    }
}
