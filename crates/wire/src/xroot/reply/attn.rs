//! `kXR_attn` (4001): the deferred answer to a request, or a message of an operator.
//!
//! | bytes | field    | type | meaning                                                    |
//! |-------|----------|------|------------------------------------------------------------|
//! | 0..4  | actnum   | u32  | [`AttnCode`]; only asynresp is in use today                |
//! | 4..8  | reserved |      |                                                            |
//! | 8..16 | header   |      | asynresp: response header of the answer, with its streamid |
//! | 16..  | body     |      | asynresp: the body of the answer                           |
//!
//! The streamid of the frame itself is zero, because the embedded header carries that of the
//! request. The answer is `kXR_ok`, `kXR_error`, `kXR_redirect` or `kXR_wait`, never a partial one.
//!
//! Source: xroot protocol 5.2.0, section 3.7. Recorded: `fs_query_checksum`, `tpc_copy`.

use super::frame::{frame, frame_with};
use crate::codec::{Decode, Encode, FixedLayout};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::{AttnCode, Status};
use crate::xroot::header::{ResponseHeader, StreamId};
use crate::xroot::limits::RESPONSE_HEADER_BYTES;

/// Appends a deferred answer around the one complete response that `fill` appends.
pub fn deferred(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    frame_with(out, StreamId::default(), Status::ATTN, |out| {
        FieldWriter::new(out).u32(AttnCode::ASYNRESP.0).u32(0);
        fill(out);
    });
}

/// The contents of a `kXR_attn` frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attn<'a> {
    /// The deferred answer to the request with the streamid of `header`.
    Response {
        /// Header of the answer.
        header: ResponseHeader,
        /// Body of the answer, with the length of the header.
        body: &'a [u8],
    },
    /// Any other action. It is ignored, or logged if it is [`AttnCode::ASYNCMS`].
    Other {
        /// Code of the action.
        actnum: AttnCode,
        /// The bytes behind the code.
        rest: &'a [u8],
    },
}

impl Encode for Attn<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Response { header, body } => {
                FieldWriter::new(out).u32(AttnCode::ASYNRESP.0).u32(0);
                frame(out, header.streamid, header.status, body);
            }
            Self::Other { actnum, rest } => {
                FieldWriter::new(out).u32(actnum.0).bytes(rest);
            }
        }
    }
}

impl<'a> Decode<'a> for Attn<'a> {
    /// # Errors
    /// [`WireError::Short`] if the body is truncated, [`WireError::BadLength`] if the length of the
    /// embedded body differs from its header.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let actnum = AttnCode(reader.u32("actnum")?);
        if actnum != AttnCode::ASYNRESP {
            return Ok(Self::Other { actnum, rest: reader.take_rest() });
        }
        reader.array::<4>("reserved")?;
        let header = ResponseHeader::from_bytes(&reader.array::<RESPONSE_HEADER_BYTES>("embedded header")?);
        let body = reader.take_rest();
        if header.body_bytes()? != body.len() {
            return Err(WireError::BadLength { field: "embedded response", bytes: header.dlen.into() });
        }
        Ok(Self::Response { header, body })
    }
}
