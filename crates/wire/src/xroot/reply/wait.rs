//! `kXR_wait` (4005) and `kXR_waitresp` (4006): later.
//!
//! | bytes | field   | type | meaning                                                             |
//! |-------|---------|------|---------------------------------------------------------------------|
//! | 0..4  | seconds | i32  | wait: repeat the request after so long; waitresp: the answer comes as `kXR_attn` within |
//! | 4..   | text    | text | for people, optional, no NUL                                        |
//!
//! Source: xroot protocol 5.2.0, sections 3.5, 3.6. Recorded: `manager_upload`, `fs_query_checksum`.

use crate::cursor::Reader;
use crate::xroot::codes::Status;
use crate::xroot::header::StreamId;

/// Appends a `kXR_wait` frame: the client is to repeat the request after `seconds`.
pub fn wait(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    Wait { seconds, text: text.as_bytes() }.encode(out, streamid, Status::WAIT);
}

/// Appends a `kXR_waitresp` frame: the answer will come as `kXR_attn` within `seconds`.
pub fn waitresp(out: &mut Vec<u8>, streamid: StreamId, seconds: i32, text: &str) {
    Wait { seconds, text: text.as_bytes() }.encode(out, streamid, Status::WAITRESP);
}

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<'a> {
    /// Seconds as sent; may be negative.
    pub seconds: i32,
    /// Text for people.
    pub text: &'a [u8],
}

impl<'a> Wait<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>, streamid: StreamId, status: Status) {
        super::frame::header(out, streamid, status, self.text.len() + 4);
        out.extend_from_slice(&self.seconds.to_be_bytes());
        out.extend_from_slice(self.text);
    }

    /// Decodes the body; one without a whole number means 0 seconds.
    #[must_use]
    pub fn decode(body: &'a [u8]) -> Self {
        let mut reader = Reader::new(body);
        match reader.i32("seconds") {
            Ok(seconds) => Self { seconds, text: reader.take_rest() },
            Err(_) => Self { seconds: 0, text: &[] },
        }
    }
}
