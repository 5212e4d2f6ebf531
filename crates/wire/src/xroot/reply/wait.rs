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

use crate::cursor::{FieldReader, FieldWriter};
use crate::xroot::codes::Status;
use crate::xroot::header::StreamId;

/// Appends a `kXR_wait` frame: the client repeats the request after `seconds`.
pub fn wait(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    Wait { seconds, text: text.as_bytes() }.encode(out, streamid, Status::WAIT);
}

/// Appends a `kXR_waitresp` frame: the answer follows as `kXR_attn` within `seconds`.
pub fn waitresp(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    Wait { seconds, text: text.as_bytes() }.encode(out, streamid, Status::WAITRESP);
}

/// The contents of a delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<'a> {
    /// Seconds as sent; may be negative.
    pub seconds: i32,
    /// Human-readable text.
    pub text: &'a [u8],
}

impl<'a> Wait<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>, streamid: StreamId, status: Status) {
        super::frame::frame_with(out, streamid, status, |out| {
            FieldWriter::new(out).i32(self.seconds).bytes(self.text);
        });
    }

    /// Decodes the body; an incomplete number means 0 seconds.
    #[must_use]
    pub fn decode(body: &'a [u8]) -> Self {
        let mut reader = FieldReader::new(body);
        match reader.i32("seconds") {
            Ok(seconds) => Self { seconds, text: reader.take_rest() },
            Err(_) => Self { seconds: 0, text: &[] },
        }
    }
}
