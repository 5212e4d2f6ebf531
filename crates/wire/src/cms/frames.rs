//! Splitting of a byte stream into frames.
//!
//! One segment may contain several frames, and one frame may span several segments.
//! [`FrameSplitter`] therefore buffers the bytes of an incomplete frame. The maximum payload
//! depends on the kind of connection and on its progress ([`FramePhase`]). It bounds the memory
//! that a peer can occupy.
//!
//! Source: cms protocol version 3, section 1.1.

use super::codes::{Code, ResponseCode};
use super::header::Header;
use super::limits::{
    DATA_PAYLOAD_BYTES_MAX, HEADER_BYTES, LOGIN_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX,
    RESPONSE_PAYLOAD_BYTES_MAX,
};
use crate::codec::{Encode, FixedLayout};
use crate::error::WireError;

/// The progress of a connection, which determines the maximum payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramePhase {
    /// Before the login is answered: 4096 bytes, at both ends.
    Login,
    /// After the login is answered: 16384 bytes. Both ends of a connection between nodes, and a
    /// manager that reads from a redirector.
    Established,
    /// A redirector after its login is answered: 2048 bytes, but 65535 bytes for `data`.
    Redirector,
}

impl FramePhase {
    /// Returns the maximum payload in bytes of a frame with this code.
    #[must_use]
    pub const fn payload_bytes_max(self, code: Code) -> usize {
        match self {
            Self::Login => LOGIN_PAYLOAD_BYTES_MAX,
            Self::Established => PAYLOAD_BYTES_MAX,
            Self::Redirector if code.0 == ResponseCode::DATA.0 => DATA_PAYLOAD_BYTES_MAX,
            Self::Redirector => RESPONSE_PAYLOAD_BYTES_MAX,
        }
    }
}

/// A complete frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmsFrame<'a> {
    /// The header; `datalen` is the length of `payload`.
    pub header: Header,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

impl CmsFrame<'_> {
    /// Appends the frame with another header, so that a message is relayed unchanged except for its
    /// streamid and modifier.
    pub fn relay(&self, header: Header, out: &mut Vec<u8>) {
        let header = Header { datalen: self.header.datalen, ..header };
        header.encode(out);
        out.extend_from_slice(self.payload);
    }
}

/// A buffer that collects bytes and returns complete frames.
#[derive(Debug)]
pub struct FrameSplitter {
    phase: FramePhase,
    bytes: Vec<u8>,
    start: usize,
}

impl FrameSplitter {
    /// Creates a splitter for the start of a stream.
    #[must_use]
    pub const fn new(phase: FramePhase) -> Self {
        Self { phase, bytes: Vec::new(), start: 0 }
    }

    /// Sets the phase, whose limit applies from the next frame on, including frames that are
    /// already buffered.
    pub const fn enter(&mut self, phase: FramePhase) {
        self.phase = phase;
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`WireError::TooLong`]: the caller must close the connection. No memory is allocated for
    /// such a frame. It stays at the front, so that later calls return the same error.
    pub fn next_frame(&mut self) -> Result<Option<CmsFrame<'_>>, WireError> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::from_bytes(header);
        let (bytes, limit) = (header.payload_bytes(), self.phase.payload_bytes_max(header.code));
        if bytes > limit {
            return Err(WireError::TooLong { field: "payload", limit, bytes });
        }
        let Some(payload) = behind.get(..bytes) else { return Ok(None) };
        self.start = self.start.saturating_add(HEADER_BYTES).saturating_add(bytes);
        Ok(Some(CmsFrame { header, payload }))
    }

    /// Returns the received bytes that do not form a complete frame yet.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cms::header::StreamId;

    fn frame_of(code: Code, bytes: u16) -> Vec<u8> {
        let mut frame = Header { streamid: StreamId::NONE, code, modifier: 0, datalen: bytes }.encoded();
        frame.resize(HEADER_BYTES + usize::from(bytes), 0);
        frame
    }

    #[test]
    fn a_payload_over_the_limit_is_refused_after_its_header() {
        let cases = [
            (FramePhase::Login, Code::LOGIN, 4096),
            (FramePhase::Established, Code::HAVE, 16_384),
            (FramePhase::Redirector, Code(ResponseCode::REDIRECT.0), 2048),
            (FramePhase::Redirector, Code::STATUS, 2048),
        ];
        for (phase, code, limit) in cases {
            let mut splitter = FrameSplitter::new(phase);
            splitter.push(&frame_of(code, limit));
            let frame = splitter.next_frame().unwrap().unwrap();
            assert_eq!(frame.payload.len(), usize::from(limit));
            splitter.push(&frame_of(code, limit + 1)[..HEADER_BYTES]);
            let limit = usize::from(limit);
            let too_long = Err(WireError::TooLong { field: "payload", limit, bytes: limit + 1 });
            assert_eq!(splitter.next_frame(), too_long);
            assert_eq!(splitter.next_frame(), too_long);
        }
        let mut splitter = FrameSplitter::new(FramePhase::Redirector);
        splitter.push(&frame_of(Code(ResponseCode::DATA.0), u16::MAX));
        assert_eq!(splitter.next_frame().unwrap().unwrap().payload.len(), 65_535);
    }

    #[test]
    fn frames_are_complete_for_every_segmentation() {
        let stream = [frame_of(Code::PING, 0), frame_of(Code::HAVE, 3), frame_of(Code::PONG, 0)].concat();
        for piece in 1..stream.len() {
            let mut splitter = FrameSplitter::new(FramePhase::Login);
            let mut codes = Vec::new();
            for bytes in stream.chunks(piece) {
                splitter.push(bytes);
                while let Some(frame) = splitter.next_frame().unwrap() {
                    assert_eq!(frame.header.payload_bytes(), frame.payload.len());
                    codes.push(frame.header.code);
                    splitter.enter(FramePhase::Established);
                }
            }
            assert_eq!(codes, [Code::PING, Code::HAVE, Code::PONG]);
            assert!(splitter.unread().is_empty());
        }
    }

    #[test]
    fn a_relayed_frame_keeps_its_payload() {
        let frame = CmsFrame { header: Header::from_bytes(&[1, 2, 3, 4, 8, 0, 0, 2]), payload: b"ab" };
        let mut out = Vec::new();
        frame.relay(
            Header { streamid: StreamId::NONE, modifier: 0x40, datalen: 99, ..frame.header },
            &mut out,
        );
        assert_eq!(out, [0, 0, 0, 0, 8, 0x40, 0, 2, b'a', b'b']);
    }
}
