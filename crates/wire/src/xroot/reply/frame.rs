//! The frame around the body of a reply.
//!
//! | bytes | field    | type   | meaning                       |
//! |-------|----------|--------|-------------------------------|
//! | 0..2  | streamid | opaque | that of the request           |
//! | 2..4  | status   | u16    | [`Status`]                    |
//! | 4..8  | dlen     | i32    | length of the body in bytes   |
//! | 8..   | body     |        | depends on status and request |
//!
//! A body of unknown length is appended behind a reserved header, which is filled in at the end
//! ([`FrameMark`]). Each reply is therefore built in place without a copy.
//!
//! Source: xroot protocol 5.2.0, sections 1.5, 3.1.

use crate::xroot::codes::Status;
use crate::xroot::header::{ResponseHeader, StreamId, wire_length};
use crate::xroot::limits::RESPONSE_HEADER_BYTES;

/// The position of a reserved response header in an output buffer.
///
/// Before the frame is finished, bytes may only be appended behind this position.
#[derive(Debug)]
#[must_use = "a frame that is not finished has no header"]
pub struct FrameMark {
    at: usize,
}

impl FrameMark {
    /// Reserves a header at the end of `out`.
    pub fn reserve(out: &mut Vec<u8>) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0; RESPONSE_HEADER_BYTES]);
        Self { at }
    }

    /// Returns the number of body bytes appended so far.
    #[must_use]
    pub const fn body_bytes(&self, out: &[u8]) -> usize {
        out.len().saturating_sub(self.at).saturating_sub(RESPONSE_HEADER_BYTES)
    }

    /// Fills in the header; all bytes in `out` behind it are the body.
    pub fn finish(self, out: &mut [u8], streamid: StreamId, status: Status) {
        let dlen = wire_length(self.body_bytes(out));
        let header = ResponseHeader { streamid, status, dlen };
        if let Some(place) = out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *place = header.encode();
        }
    }

    /// Removes the header and the bytes appended behind it.
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.at);
    }
}

/// Appends a response header; the caller must append `dlen` bytes of body.
pub fn header(out: &mut Vec<u8>, streamid: StreamId, status: Status, dlen: usize) {
    out.extend_from_slice(&ResponseHeader { streamid, status, dlen: wire_length(dlen) }.encode());
}

/// Appends a frame.
pub fn frame(out: &mut Vec<u8>, streamid: StreamId, status: Status, body: &[u8]) {
    header(out, streamid, status, body.len());
    out.extend_from_slice(body);
}

/// Appends a `kXR_ok` frame; an empty body is a success without a result.
pub fn ok(out: &mut Vec<u8>, streamid: StreamId, body: &[u8]) {
    frame(out, streamid, Status::OK, body);
}

/// Appends a `kXR_oksofar` frame, which announces further frames of the same answer.
pub fn oksofar(out: &mut Vec<u8>, streamid: StreamId, body: &[u8]) {
    frame(out, streamid, Status::OKSOFAR, body);
}

/// Appends a `kXR_ok` frame whose body is `text` and a NUL.
pub fn ok_text(out: &mut Vec<u8>, streamid: StreamId, text: &[u8]) {
    header(out, streamid, Status::OK, text.len() + 1);
    out.extend_from_slice(text);
    out.push(0);
}

/// Appends a `kXR_authmore` frame with the next challenge, which must not be empty.
pub fn authmore(out: &mut Vec<u8>, streamid: StreamId, challenge: &[u8]) {
    frame(out, streamid, Status::AUTHMORE, challenge);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_header_receives_the_length_of_the_body() {
        let mut out = b"before".to_vec();
        let mark = FrameMark::reserve(&mut out);
        out.extend_from_slice(b"body");
        assert_eq!(mark.body_bytes(&out), 4);
        mark.finish(&mut out, StreamId([1, 2]), Status::OKSOFAR);
        assert_eq!(out, b"before\x01\x02\x0f\xa0\0\0\0\x04body");
        let mark = FrameMark::reserve(&mut out);
        out.push(1);
        mark.abandon(&mut out);
        assert_eq!(out, b"before\x01\x02\x0f\xa0\0\0\0\x04body");
    }
}
