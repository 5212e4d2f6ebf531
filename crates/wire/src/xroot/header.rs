//! Headers of requests and responses, the handshake, and opaque identifiers.
//!
//! Request header:
//!
//! | bytes  | field     | type   | meaning                                      |
//! |--------|-----------|--------|----------------------------------------------|
//! | 0..2   | streamid  | opaque | chosen by the client, echoed in every reply  |
//! | 2..4   | requestid | u16    | [`RequestCode`]                              |
//! | 4..20  | body      | opaque | parameters of the request                    |
//! | 20..24 | dlen      | i32    | length of the payload in bytes, not negative |
//!
//! Response header: `streamid` 0..2, `status` u16 2..4, `dlen` i32 4..8.
//!
//! The handshake of the client is five i32, `0 0 0 4 2012`. The answer is a response header
//! (streamid 0, status 0, dlen 8) with `protover` i32 and `type` i32. The header keeps its 16
//! parameter bytes uninterpreted, because their layout depends on the request ([`super::request`]).
//!
//! Source: xroot protocol 5.2.0, sections 1.2, 1.4, 1.5.

use std::fmt;

use super::codes::{RequestCode, Status};
use super::limits::{HANDSHAKE_BYTES, HANDSHAKE_REPLY_BYTES, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use crate::codec::{Decode, Encode, FixedLayout, with_head};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;

/// Defines an opaque identifier: bytes that are displayed in hexadecimal.
macro_rules! opaque {
    ($(#[$meta:meta])* $name:ident($shape:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $shape);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

opaque! {
    /// The id that a client chooses for a request and the server echoes in every reply to it.
    StreamId([u8; 2])
}
opaque! {
    /// The handle of an open file in a session. Opaque to clients.
    FileHandle([u8; 4])
}
opaque! {
    /// The id of a login session. Opaque to clients; must not be predictable.
    SessionId([u8; 16])
}

/// The 24 bytes at the start of every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Echoed in every reply.
    pub streamid: StreamId,
    /// The kind of request.
    pub code: RequestCode,
    /// Parameters of the request.
    pub body: [u8; 16],
    /// Length of the payload as sent. A negative value is a protocol violation, which the session
    /// answers.
    pub dlen: i32,
}

impl RequestHeader {
    /// Creates a header without parameters and payload.
    #[must_use]
    pub const fn new(streamid: StreamId, code: RequestCode) -> Self {
        Self { streamid, code, body: [0; 16], dlen: 0 }
    }

    /// Returns the length of the payload in bytes.
    ///
    /// # Errors
    /// [`WireError::BadLength`] if `dlen` is negative.
    pub fn payload_bytes(&self) -> Result<usize, WireError> {
        usize::try_from(self.dlen)
            .map_err(|_| WireError::BadLength { field: "dlen", bytes: self.dlen.into() })
    }

    /// Returns the `N` parameter bytes at offset `AT` of the header. `AT` counts from the start of
    /// the header, as in the layout tables, and is checked at compile time.
    pub(crate) fn field<const AT: usize, const N: usize>(&self) -> [u8; N] {
        const { assert!(AT >= 4 && AT + N <= 20, "not within the parameters") };
        // The bounds are constants, so the compiler removes the `None` case.
        self.body.get(AT - 4..).and_then(<[u8]>::first_chunk::<N>).copied().unwrap_or([0; N])
    }

    /// Sets the parameter bytes at offset `AT` of the header.
    pub(crate) fn with<const AT: usize, const N: usize>(mut self, value: [u8; N]) -> Self {
        const { assert!(AT >= 4 && AT + N <= 20, "not within the parameters") };
        if let Some(place) = self.body.get_mut(AT - 4..).and_then(<[u8]>::first_chunk_mut::<N>) {
            *place = value;
        }
        self
    }

    /// Returns the parameter byte at offset `AT` of the header.
    pub(crate) fn u8<const AT: usize>(&self) -> u8 {
        u8::from_be_bytes(self.field::<AT, 1>())
    }

    /// Returns the two parameter bytes at offset `AT` of the header.
    pub(crate) fn u16<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes(self.field::<AT, 2>())
    }

    /// Returns the four parameter bytes at offset `AT` of the header, signed.
    pub(crate) fn i32<const AT: usize>(&self) -> i32 {
        i32::from_be_bytes(self.field::<AT, 4>())
    }

    /// Returns the eight parameter bytes at offset `AT` of the header, signed.
    pub(crate) fn i64<const AT: usize>(&self) -> i64 {
        i64::from_be_bytes(self.field::<AT, 8>())
    }

    /// Returns the file handle at offset `AT` of the header.
    pub(crate) fn fhandle<const AT: usize>(&self) -> FileHandle {
        FileHandle(self.field::<AT, 4>())
    }

    /// Appends the header, with the length of `payload` as dlen, and `payload`.
    pub(crate) fn finish(self, payload: &[u8], out: &mut Vec<u8>) {
        self.finish_with(out, |out| out.extend_from_slice(payload));
    }

    /// Appends the header and the payload that `fill` appends, with its length as dlen.
    pub(crate) fn finish_with(mut self, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
        with_head(out, fill, |length| {
            self.dlen = wire_length(length);
            self.to_bytes()
        });
    }

    /// Appends the header with the given `dlen`; the caller sends the payload separately.
    pub(crate) fn finish_streamed(mut self, dlen: i32, out: &mut Vec<u8>) {
        self.dlen = dlen;
        self.encode(out);
    }
}

impl FixedLayout for RequestHeader {
    type Bytes = [u8; REQUEST_HEADER_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        let [s0, s1, c0, c1, body @ .., d0, d1, d2, d3] = &mut bytes;
        [*s0, *s1] = self.streamid.0;
        [*c0, *c1] = self.code.0.to_be_bytes();
        *body = self.body;
        [*d0, *d1, *d2, *d3] = self.dlen.to_be_bytes();
        bytes
    }

    fn from_bytes(bytes: &Self::Bytes) -> Self {
        let [s0, s1, c0, c1, body @ .., d0, d1, d2, d3] = bytes;
        Self {
            streamid: StreamId([*s0, *s1]),
            code: RequestCode(u16::from_be_bytes([*c0, *c1])),
            body: *body,
            dlen: i32::from_be_bytes([*d0, *d1, *d2, *d3]),
        }
    }
}

/// Converts a length to the signed 32-bit field of a header. Frames built in memory are far below
/// the limit of 2 GiB - 1.
pub(crate) fn wire_length(bytes: usize) -> i32 {
    debug_assert!(i32::try_from(bytes).is_ok(), "a frame of {bytes} bytes does not fit its length field");
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// The 8 bytes at the start of every response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHeader {
    /// The streamid of the request; zero for `kXR_attn`.
    pub streamid: StreamId,
    /// The kind of response.
    pub status: Status,
    /// Length of the body in bytes, not negative. `kXR_status` has additional bytes behind the
    /// body.
    pub dlen: i32,
}

impl ResponseHeader {
    /// Returns the length of the body in bytes.
    ///
    /// # Errors
    /// [`WireError::BadLength`] if `dlen` is negative.
    pub fn body_bytes(&self) -> Result<usize, WireError> {
        usize::try_from(self.dlen)
            .map_err(|_| WireError::BadLength { field: "dlen", bytes: self.dlen.into() })
    }
}

impl FixedLayout for ResponseHeader {
    type Bytes = [u8; RESPONSE_HEADER_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let StreamId([s0, s1]) = self.streamid;
        let [c0, c1] = self.status.0.to_be_bytes();
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        [s0, s1, c0, c1, d0, d1, d2, d3]
    }

    fn from_bytes(&[s0, s1, c0, c1, d0, d1, d2, d3]: &Self::Bytes) -> Self {
        Self {
            streamid: StreamId([s0, s1]),
            status: Status(u16::from_be_bytes([c0, c1])),
            dlen: i32::from_be_bytes([d0, d1, d2, d3]),
        }
    }
}

/// The first 20 bytes of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake;

impl Handshake {
    /// The only valid handshake: `0 0 0 4 2012`.
    pub const BYTES: [u8; HANDSHAKE_BYTES] =
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

    /// Reports whether `prefix`, the first bytes of a connection, is a prefix of a handshake.
    #[must_use]
    pub fn may_become(prefix: &[u8]) -> bool {
        prefix.len() <= HANDSHAKE_BYTES && Self::BYTES.starts_with(prefix)
    }

    /// Reports whether these 20 bytes are a handshake.
    #[must_use]
    pub fn is(bytes: &[u8; HANDSHAKE_BYTES]) -> bool {
        *bytes == Self::BYTES
    }
}

/// The answer of the server to the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeReply {
    /// Protocol version of the server, see [`super::PROTOCOL_VERSION`].
    pub protover: i32,
    /// [`HandshakeReply::DATA_SERVER`] or [`HandshakeReply::LOAD_BALANCER`].
    pub role: i32,
}

impl HandshakeReply {
    /// `role` of a data server.
    pub const DATA_SERVER: i32 = 1;
    /// `role` of a manager.
    pub const LOAD_BALANCER: i32 = 0;

    const BODY_BYTES: i32 = (HANDSHAKE_REPLY_BYTES - RESPONSE_HEADER_BYTES) as i32;
}

impl Encode for HandshakeReply {
    /// Appends the 16 bytes, including the response header.
    fn encode(&self, out: &mut Vec<u8>) {
        ResponseHeader { streamid: StreamId::default(), status: Status::OK, dlen: Self::BODY_BYTES }
            .encode(out);
        FieldWriter::new(out).i32(self.protover).i32(self.role);
    }
}

impl Decode<'_> for HandshakeReply {
    /// Decodes the 16 bytes.
    ///
    /// # Errors
    /// [`WireError::BadValue`] if the status is not 0, [`WireError::BadLength`] if dlen is not 8,
    /// [`WireError::Short`] and [`WireError::Trailing`] for another number of bytes.
    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(bytes);
        let header = ResponseHeader::from_bytes(&reader.array("handshake header")?);
        if header.status != Status::OK {
            return Err(WireError::BadValue { field: "handshake status", value: header.status.0.into() });
        }
        if header.dlen != Self::BODY_BYTES {
            return Err(WireError::BadLength { field: "handshake reply", bytes: header.dlen.into() });
        }
        let reply = Self { protover: reader.i32("protover")?, role: reader.i32("role")? };
        reader.finish("handshake reply").map(|()| reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_and_its_answer_match_the_recording() {
        assert!(Handshake::may_become(&[]));
        assert!(Handshake::may_become(&[0; 15]));
        assert!(!Handshake::may_become(&[0; 16]));
        assert!(Handshake::is(&Handshake::BYTES));
        let reply = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER };
        let bytes = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1];
        assert_eq!(reply.encoded(), bytes);
        assert_eq!(HandshakeReply::decode(&bytes), Ok(reply));
    }

    #[test]
    fn parameters_have_the_offsets_of_the_tables() {
        let header = RequestHeader::new(StreamId([1, 0]), RequestCode::READ)
            .with::<4, 4>([1, 2, 3, 4])
            .with::<8, 8>((-2i64).to_be_bytes())
            .with::<16, 4>(7i32.to_be_bytes());
        assert_eq!(header.fhandle::<4>(), FileHandle([1, 2, 3, 4]));
        assert_eq!(header.i64::<8>(), -2);
        assert_eq!(header.i32::<16>(), 7);
        assert_eq!(RequestHeader::from_bytes(&header.to_bytes()), header);
    }

    #[test]
    fn a_negative_length_is_kept_but_refused_as_payload_length() {
        let mut bytes = [0; 24];
        bytes[20..].copy_from_slice(&(-1i32).to_be_bytes());
        let header = RequestHeader::from_bytes(&bytes);
        assert_eq!(header.dlen, -1);
        assert_eq!(header.payload_bytes(), Err(WireError::BadLength { field: "dlen", bytes: -1 }));
    }
}
