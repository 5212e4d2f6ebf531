//! Splitting of a byte stream into frames.
//!
//! The header does not always contain the length of the frame: `kXR_writev`, `kXR_chkpoint` xeq and
//! `kXR_status` have data behind the counted bytes, and the payload of a write with a path id is
//! sent on another connection. [`request_bytes`] and [`response_bytes`] compute the length.
//! [`Splitter`] buffers the bytes of an incomplete frame. It is for clients and tests; a server
//! streams file data instead, so that it never buffers such a frame.
//!
//! Source: xroot protocol 5.2.0, sections 1.2, 1.4, 1.5, 1.9, 2.6, 2.28, 3.8.

use super::codes::{ChkpointOpcode, RequestCode, Status};
use super::header::{RequestHeader, ResponseHeader};
use super::limits::{HANDSHAKE_BYTES, HANDSHAKE_REPLY_BYTES, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use super::request::SegmentList;
use crate::codec::FixedLayout;
use crate::error::WireError;

/// The length of a frame, as far as it follows from the first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameBytes {
    /// At least this number of bytes is needed to determine the length.
    AtLeast(usize),
    /// The frame has exactly this length in bytes.
    Exactly(usize),
}

impl FrameBytes {
    fn behind(self, bytes: usize) -> Self {
        match self {
            Self::AtLeast(more) => Self::AtLeast(more.saturating_add(bytes)),
            Self::Exactly(more) => Self::Exactly(more.saturating_add(bytes)),
        }
    }
}

/// Returns the length of the request frame that starts with `bytes`, including streamed data.
///
/// # Errors
/// [`WireError::BadLength`] for a negative length, after which the start of the next frame is
/// unknown.
pub fn request_bytes(bytes: &[u8]) -> Result<FrameBytes, WireError> {
    let Some((header, payload)) = bytes.split_first_chunk::<REQUEST_HEADER_BYTES>() else {
        return Ok(FrameBytes::AtLeast(REQUEST_HEADER_BYTES));
    };
    let header = RequestHeader::from_bytes(header);
    let counted = header.payload_bytes()?;
    // An embedded header must not embed another one, so one level is enough.
    let embeds = header.code == RequestCode::CHKPOINT && header.u8::<19>() == ChkpointOpcode::XEQ.0;
    if !embeds || counted != REQUEST_HEADER_BYTES {
        return flat_request_bytes(&header, payload);
    }
    let Some((embedded, payload)) = payload.split_first_chunk::<REQUEST_HEADER_BYTES>() else {
        return Ok(FrameBytes::AtLeast(2 * REQUEST_HEADER_BYTES));
    };
    Ok(flat_request_bytes(&RequestHeader::from_bytes(embedded), payload)?.behind(REQUEST_HEADER_BYTES))
}

/// Returns the length of a request without an embedded request.
fn flat_request_bytes(header: &RequestHeader, payload: &[u8]) -> Result<FrameBytes, WireError> {
    let counted = header.payload_bytes()?;
    let payload_bytes = match header.code {
        // The payload is sent on the connection with that path id.
        RequestCode::WRITE | RequestCode::PGWRITE if header.u8::<16>() != 0 => 0,
        RequestCode::WRITEV => match payload.get(..counted) {
            None => return Ok(FrameBytes::AtLeast(REQUEST_HEADER_BYTES.saturating_add(counted))),
            Some(list) => {
                let data = SegmentList::new(list).total_bytes().and_then(|total| usize::try_from(total).ok());
                counted.saturating_add(data.ok_or(WireError::BadLength { field: "wlen", bytes: -1 })?)
            }
        },
        _ => counted,
    };
    Ok(FrameBytes::Exactly(REQUEST_HEADER_BYTES.saturating_add(payload_bytes)))
}

/// Returns the length of the response frame that starts with `bytes`, including the data behind a
/// `kXR_status`.
///
/// # Errors
/// [`WireError::BadLength`] for a negative length, after which the start of the next frame is
/// unknown.
pub fn response_bytes(bytes: &[u8]) -> Result<FrameBytes, WireError> {
    let Some((header, body)) = bytes.split_first_chunk::<RESPONSE_HEADER_BYTES>() else {
        return Ok(FrameBytes::AtLeast(RESPONSE_HEADER_BYTES));
    };
    let header = ResponseHeader::from_bytes(header);
    let counted = RESPONSE_HEADER_BYTES.saturating_add(header.body_bytes()?);
    const DATA_LENGTH_AT: usize = 12;
    if header.status != Status::STATUS || header.body_bytes()? < DATA_LENGTH_AT + 4 {
        return Ok(FrameBytes::Exactly(counted));
    }
    let Some(data) = body.get(DATA_LENGTH_AT..).and_then(<[u8]>::first_chunk) else {
        return Ok(FrameBytes::AtLeast(RESPONSE_HEADER_BYTES + DATA_LENGTH_AT + 4));
    };
    let data = i32::from_be_bytes(*data);
    let data =
        usize::try_from(data).map_err(|_| WireError::BadLength { field: "dlen", bytes: data.into() })?;
    Ok(FrameBytes::Exactly(counted.saturating_add(data)))
}

/// The direction of a stream, which determines its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From client to server: a handshake, then requests.
    Requests,
    /// From server to client: the answer to the handshake, then responses.
    Responses,
}

/// A buffer that collects bytes and returns complete frames.
#[derive(Debug)]
pub struct Splitter {
    direction: Direction,
    greeted: bool,
    frame_bytes_max: usize,
    bytes: Vec<u8>,
    start: usize,
}

/// A complete frame of a [`Splitter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// The handshake of a client (20 bytes) or the answer of a server (16 bytes).
    Greeting(&'a [u8]),
    /// A request, including header and streamed data.
    Request(&'a [u8]),
    /// A response, including header and the data behind a `kXR_status`.
    Response(&'a [u8]),
}

impl<'a> Frame<'a> {
    /// Returns the bytes of the frame.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Greeting(bytes) | Self::Request(bytes) | Self::Response(bytes) => bytes,
        }
    }
}

impl Splitter {
    /// Creates a splitter for the start of a connection. A frame of more than `frame_bytes_max`
    /// bytes is refused before memory is allocated for it.
    #[must_use]
    pub const fn new(direction: Direction, frame_bytes_max: usize) -> Self {
        Self { direction, greeted: false, frame_bytes_max, bytes: Vec::new(), start: 0 }
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
    /// [`WireError::BadLength`] and [`WireError::TooLong`]: the stream cannot be decoded further.
    /// The invalid bytes stay at the front, so that later calls return the same error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        let needed = match (self.direction, self.greeted) {
            (Direction::Requests, false) => FrameBytes::Exactly(HANDSHAKE_BYTES),
            (Direction::Responses, false) => FrameBytes::Exactly(HANDSHAKE_REPLY_BYTES),
            (Direction::Requests, true) => request_bytes(rest)?,
            (Direction::Responses, true) => response_bytes(rest)?,
        };
        let (FrameBytes::AtLeast(bytes) | FrameBytes::Exactly(bytes)) = needed;
        if bytes > self.frame_bytes_max {
            return Err(WireError::TooLong { field: "frame", limit: self.frame_bytes_max, bytes });
        }
        let FrameBytes::Exactly(bytes) = needed else { return Ok(None) };
        let Some(frame) = rest.get(..bytes) else { return Ok(None) };
        self.start += bytes;
        Ok(Some(match (std::mem::replace(&mut self.greeted, true), self.direction) {
            (false, _) => Frame::Greeting(frame),
            (true, Direction::Requests) => Frame::Request(frame),
            (true, Direction::Responses) => Frame::Response(frame),
        }))
    }

    /// Returns the received bytes that do not form a complete frame yet, for example the first
    /// bytes of a TLS handshake.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xroot::header::{FileHandle, Handshake, StreamId};
    use crate::xroot::request::{Request, Write};

    #[test]
    fn a_frame_over_the_limit_is_refused_after_its_header() {
        let mut splitter = Splitter::new(Direction::Requests, 100);
        splitter.push(&Handshake::BYTES);
        assert!(matches!(splitter.next_frame(), Ok(Some(Frame::Greeting(_)))));
        let mut bytes = Vec::new();
        let write = |dlen| Write { fhandle: FileHandle::default(), offset: 0, pathid: 0, dlen };
        Request::Write(write(76)).encode(StreamId::default(), &mut bytes);
        assert_eq!(request_bytes(&bytes), Ok(FrameBytes::Exactly(100)));
        bytes.clear();
        Request::Write(write(77)).encode(StreamId::default(), &mut bytes);
        splitter.push(&bytes);
        let too_long = Err(WireError::TooLong { field: "frame", limit: 100, bytes: 101 });
        assert_eq!(splitter.next_frame(), too_long);
        assert_eq!(splitter.next_frame(), too_long);
    }

    #[test]
    fn a_write_with_a_path_id_has_no_payload_in_its_frame() {
        let mut bytes = Vec::new();
        let write = Write { fhandle: FileHandle::default(), offset: 0, pathid: 1, dlen: 5 };
        Request::Write(write).encode(StreamId::default(), &mut bytes);
        assert_eq!(request_bytes(&bytes), Ok(FrameBytes::Exactly(24)));
    }

    #[test]
    fn negative_lengths_end_the_stream() {
        let mut bytes = [0xff; 24];
        assert_eq!(request_bytes(&bytes), Err(WireError::BadLength { field: "dlen", bytes: -1 }));
        bytes[..8].copy_from_slice(&[0, 0, 0x0f, 0xa7, 0, 0, 0, 16]);
        assert_eq!(response_bytes(&bytes), Err(WireError::BadLength { field: "dlen", bytes: -1 }));
    }
}
