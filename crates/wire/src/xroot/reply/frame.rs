//! The frame around the body of a reply.
//!
//! | bytes | field    | type   | meaning                       |
//! |-------|----------|--------|-------------------------------|
//! | 0..2  | streamid | opaque | that of the request           |
//! | 2..4  | status   | u16    | [`Status`]                    |
//! | 4..8  | dlen     | i32    | length of the body in bytes   |
//! | 8..   | body     |        | depends on status and request |
//!
//! [`frame_with`] appends the body behind a reserved header and then fills in its length. Each
//! reply is therefore built in place without a copy, and no frame can be left without its header.
//!
//! Source: xroot protocol 5.2.0, sections 1.5, 3.1.

use crate::codec::{Encode, FixedLayout, with_head};
use crate::xroot::codes::Status;
use crate::xroot::header::{ResponseHeader, StreamId, wire_length};

/// Appends a frame whose body `fill` appends. `fill` must not change the bytes before the body.
pub fn frame_with(out: &mut Vec<u8>, streamid: StreamId, status: Status, fill: impl FnOnce(&mut Vec<u8>)) {
    with_head(out, fill, |length| ResponseHeader { streamid, status, dlen: wire_length(length) }.to_bytes());
}

/// Appends a frame.
pub fn frame<T: Encode + ?Sized>(out: &mut Vec<u8>, streamid: StreamId, status: Status, body: &T) {
    frame_with(out, streamid, status, |out| body.encode(out));
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
    frame_with(out, streamid, Status::OK, |out| {
        out.extend_from_slice(text);
        out.push(0);
    });
}

/// Appends a `kXR_authmore` frame with the next challenge, which must not be empty.
pub fn authmore(out: &mut Vec<u8>, streamid: StreamId, challenge: &[u8]) {
    frame(out, streamid, Status::AUTHMORE, challenge);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_receives_the_length_of_its_body_even_within_another_frame() {
        let mut out = b"before".to_vec();
        frame_with(&mut out, StreamId([1, 2]), Status::OKSOFAR, |out| {
            out.extend_from_slice(b"body");
            ok(out, StreamId([3, 4]), b"x");
        });
        assert_eq!(out, b"before\x01\x02\x0f\xa0\0\0\0\x0dbody\x03\x04\0\0\0\0\0\x01x");
    }
}
