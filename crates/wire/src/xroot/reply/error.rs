//! `kXR_error` (4003): the failure of a request.
//!
//! | bytes | field  | type | meaning                                                       |
//! |-------|--------|------|---------------------------------------------------------------|
//! | 0..4  | errnum | u32  | [`ErrorCode`]                                                 |
//! | 4..   | text   | text | human-readable, ends with NUL; more lines may follow after LF |
//!
//! Clients act only on the code. They drop the last byte of the frame, so the NUL is required and a
//! frame has at least 5 bytes.
//!
//! Source: xroot protocol 5.2.0, section 3.2. Recorded: `raw_errors`.

use super::frame::frame;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::{ErrorCode, Status};
use crate::xroot::header::StreamId;

/// Appends a `kXR_error` frame. The text ends at its first NUL, if it has one.
pub fn encode(out: &mut Vec<u8>, streamid: StreamId, code: ErrorCode, text: &str) {
    frame(out, streamid, Status::ERROR, &ErrorReply { code, text: text.as_bytes() });
}

/// The reason why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorReply<'a> {
    /// The code that a client can act on.
    pub code: ErrorCode,
    /// Human-readable text, without its final NUL; need not be UTF-8.
    pub text: &'a [u8],
}

impl Encode for ErrorReply<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let text = self.text.split(|&byte| byte == 0).next().unwrap_or_default();
        FieldWriter::new(out).u32(self.code.0).bytes(text).u8(0);
    }
}

impl<'a> Decode<'a> for ErrorReply<'a> {
    /// Decodes the body; the final NUL is optional.
    ///
    /// # Errors
    /// [`WireError::Short`] if the body has fewer than four bytes.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let code = ErrorCode(reader.u32("errnum")?);
        let text = reader.take_rest().split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Self { code, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_always_ends_with_one_nul() {
        let mut out = Vec::new();
        encode(&mut out, StreamId([3, 0]), ErrorCode::NOT_FOUND, "no\0such");
        assert_eq!(out, b"\x03\0\x0f\xa3\0\0\0\x07\0\0\x0b\xc3no\0");
        let decoded = ErrorReply::decode(b"\0\0\x0b\xc3no");
        assert_eq!(decoded, Ok(ErrorReply { code: ErrorCode::NOT_FOUND, text: b"no" }));
        assert!(ErrorReply::decode(b"\0\0\x0b").is_err());
    }
}
