//! Cuts a byte stream into frames.
//!
//! Peers write several frames in one segment or one frame in several; [`Splitter`] keeps the bytes of a frame until
//! it is whole. How long a payload may be depends on what the link is for and how far it is: [`Phase`].
//! Source: cms protocol version 3, section 1.1.

use super::codes::{Code, ResponseCode};
use super::header::Header;
use super::limits::{
    DATA_PAYLOAD_BYTES_MAX, HEADER_BYTES, LOGIN_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX,
    RESPONSE_PAYLOAD_BYTES_MAX,
};
use crate::error::WireError;

/// How far a link is, which decides how long a payload may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Before the login has been answered: 4096 bytes. Both ends.
    Login,
    /// After it: 16384 bytes. Both ends of a link of nodes, and a manager towards its redirectors.
    Established,
    /// A redirector, after its login has been answered: 2048 bytes, 65535 in `data`.
    Redirector,
}

impl Phase {
    /// Most payload bytes of a frame with this code.
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

/// A whole frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its header; `datalen` is the length of `payload`.
    pub header: Header,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Appends the frame with another header: how a message travels on unchanged but for its streamid and modifier.
    pub fn relay(&self, header: Header, out: &mut Vec<u8>) {
        let header = Header { datalen: self.header.datalen, ..header };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(self.payload);
    }
}

/// Collects bytes and gives back whole frames.
#[derive(Debug)]
pub struct Splitter {
    phase: Phase,
    bytes: Vec<u8>,
    start: usize,
}

impl Splitter {
    /// A splitter at the start of a stream.
    #[must_use]
    pub const fn new(phase: Phase) -> Self {
        Self { phase, bytes: Vec::new(), start: 0 }
    }

    /// The link has got further: another limit holds from the next frame on, those that have arrived included.
    pub const fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`WireError::TooLong`]: the link is to be closed. No memory is taken for such a frame; it stays at the front, so
    /// asking again gives the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(header);
        let (bytes, limit) = (header.payload_bytes(), self.phase.payload_bytes_max(header.code));
        if bytes > limit {
            return Err(WireError::TooLong { field: "payload", limit, bytes });
        }
        let Some(payload) = behind.get(..bytes) else { return Ok(None) };
        self.start = self.start.saturating_add(HEADER_BYTES).saturating_add(bytes);
        Ok(Some(Frame { header, payload }))
    }

    /// What has arrived and belongs to no whole frame yet.
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
        let mut frame =
            Header { streamid: StreamId::NONE, code, modifier: 0, datalen: bytes }.encode().to_vec();
        frame.resize(HEADER_BYTES + usize::from(bytes), 0);
        frame
    }

    #[test]
    fn a_longer_payload_is_refused_before_it_arrives() {
        let cases = [
            (Phase::Login, Code::LOGIN, 4096),
            (Phase::Established, Code::HAVE, 16_384),
            (Phase::Redirector, Code(ResponseCode::REDIRECT.0), 2048),
            (Phase::Redirector, Code::STATUS, 2048),
        ];
        for (phase, code, limit) in cases {
            let mut splitter = Splitter::new(phase);
            splitter.push(&frame_of(code, limit));
            let frame = splitter.next_frame().unwrap().unwrap();
            assert_eq!(frame.payload.len(), usize::from(limit));
            splitter.push(&frame_of(code, limit + 1)[..HEADER_BYTES]);
            let limit = usize::from(limit);
            let too_long = Err(WireError::TooLong { field: "payload", limit, bytes: limit + 1 });
            assert_eq!(splitter.next_frame(), too_long);
            assert_eq!(splitter.next_frame(), too_long);
        }
        let mut splitter = Splitter::new(Phase::Redirector);
        splitter.push(&frame_of(Code(ResponseCode::DATA.0), u16::MAX));
        assert_eq!(splitter.next_frame().unwrap().unwrap().payload.len(), 65_535);
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let stream = [frame_of(Code::PING, 0), frame_of(Code::HAVE, 3), frame_of(Code::PONG, 0)].concat();
        for piece in 1..stream.len() {
            let mut splitter = Splitter::new(Phase::Login);
            let mut codes = Vec::new();
            for bytes in stream.chunks(piece) {
                splitter.push(bytes);
                while let Some(frame) = splitter.next_frame().unwrap() {
                    assert_eq!(frame.header.payload_bytes(), frame.payload.len());
                    codes.push(frame.header.code);
                    splitter.enter(Phase::Established);
                }
            }
            assert_eq!(codes, [Code::PING, Code::HAVE, Code::PONG]);
            assert!(splitter.unread().is_empty());
        }
    }

    #[test]
    fn a_relayed_frame_keeps_its_payload() {
        let frame = Frame { header: Header::decode(&[1, 2, 3, 4, 8, 0, 0, 2]), payload: b"ab" };
        let mut out = Vec::new();
        frame.relay(
            Header { streamid: StreamId::NONE, modifier: 0x40, datalen: 99, ..frame.header },
            &mut out,
        );
        assert_eq!(out, [0, 0, 0, 0, 8, 0x40, 0, 2, b'a', b'b']);
    }
}
