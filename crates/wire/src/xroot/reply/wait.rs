//! `kXR_wait` (4005) and `kXR_waitresp` (4006): delays of an answer.
//!
//! | bytes | field   | type | meaning                                                            |
//! |-------|---------|------|--------------------------------------------------------------------|
//! | 0..4  | seconds | i32  | wait: time before a retry; waitresp: maximum time until `kXR_attn` |
//! | 4..   | text    | text | human-readable, optional, no NUL                                   |
//!
//! After `kXR_wait` the client repeats the request; after `kXR_waitresp` it must not, because the
//! answer follows as `kXR_attn`.
//!
//! Source: xroot protocol 5.2.0, sections 3.5, 3.6. Recorded: `manager_upload`,
//! `fs_query_checksum`.

use super::frame::frame;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::Status;
use crate::xroot::header::StreamId;

/// Appends a `kXR_wait` frame: the client repeats the request after `seconds`.
pub fn wait(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    frame(out, streamid, Status::WAIT, &Wait { seconds, text: text.as_bytes() });
}

/// Appends a `kXR_waitresp` frame: the answer follows as `kXR_attn` within `seconds`.
pub fn waitresp(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    frame(out, streamid, Status::WAITRESP, &Wait { seconds, text: text.as_bytes() });
}

/// The contents of a delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<'a> {
    /// Seconds as sent; may be negative.
    pub seconds: i32,
    /// Human-readable text.
    pub text: &'a [u8],
}

impl Encode for Wait<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        FieldWriter::new(out).i32(self.seconds).bytes(self.text);
    }
}

impl<'a> Decode<'a> for Wait<'a> {
    /// Decodes the body; an incomplete number means 0 seconds.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        Ok(match reader.i32("seconds") {
            Ok(seconds) => Self { seconds, text: reader.take_rest() },
            Err(_) => Self { seconds: 0, text: &[] },
        })
    }
}
