//! Headers of requests and responses, the handshake, and opaque identifiers.
//!
//! Request header:
//!
//! | bytes  | field     | type   | meaning                                             |
//! |--------|-----------|--------|-----------------------------------------------------|
//! | 0..2   | streamid  | opaque | chosen by the client, echoed in every reply         |
//! | 2..4   | requestid | u16    | [`RequestCode`]                                     |
//! | 4..20  | body      | opaque | the request's parameters                            |
//! | 20..24 | dlen      | i32    | bytes of payload that follow, never < 0             |
//!
//! Response header: `streamid` 0..2, `status` u16 2..4, `dlen` i32 4..8.
//!
//! Handshake of the client: five i32, `0 0 0 4 2012`. The answer is a response header (streamid 0, status 0, dlen 8)
//! with `protover` i32 and `type` i32. Source: xroot protocol 5.2.0, sections 1.2, 1.4, 1.5.

use std::fmt;

use super::codes::{RequestCode, Status};
use super::limits::{HANDSHAKE_BYTES, HANDSHAKE_REPLY_BYTES, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use crate::error::WireError;

/// Opaque identifiers share their shape: bytes, shown in hexadecimal.
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
    /// Chosen by the client for a request, echoed unchanged in every reply to it.
    StreamId([u8; 2])
}
opaque! {
    /// An open file of a session. Opaque to clients.
    FileHandle([u8; 4])
}
opaque! {
    /// A login session. Opaque to clients; must not be guessable.
    SessionId([u8; 16])
}

/// The 24 bytes every request starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Echoed in every reply.
    pub streamid: StreamId,
    /// Which request.
    pub code: RequestCode,
    /// Parameters of the request.
    pub body: [u8; 16],
    /// Bytes of payload that follow as sent; a negative value is a protocol violation that the session answers.
    pub dlen: i32,
}

impl RequestHeader {
    /// A header without parameters and payload.
    #[must_use]
    pub const fn new(streamid: StreamId, code: RequestCode) -> Self {
        Self { streamid, code, body: [0; 16], dlen: 0 }
    }

    /// Every 24 bytes are a header.
    #[must_use]
    pub const fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Self {
        let [s0, s1, c0, c1, body @ .., d0, d1, d2, d3] = bytes;
        Self {
            streamid: StreamId([*s0, *s1]),
            code: RequestCode(u16::from_be_bytes([*c0, *c1])),
            body: *body,
            dlen: i32::from_be_bytes([*d0, *d1, *d2, *d3]),
        }
    }

    /// The 24 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        let [s0, s1, c0, c1, body @ .., d0, d1, d2, d3] = &mut bytes;
        [*s0, *s1] = self.streamid.0;
        [*c0, *c1] = self.code.0.to_be_bytes();
        *body = self.body;
        [*d0, *d1, *d2, *d3] = self.dlen.to_be_bytes();
        bytes
    }

    /// Bytes of payload that follow.
    ///
    /// # Errors
    /// [`WireError::BadLength`] when `dlen` is negative.
    pub fn payload_bytes(&self) -> Result<usize, WireError> {
        usize::try_from(self.dlen)
            .map_err(|_| WireError::BadLength { field: "dlen", bytes: self.dlen.into() })
    }

    /// The `N` parameter bytes from byte `AT` of the header on; `AT` counts as the layout tables do, from the start
    /// of the header, and is checked at compile time.
    pub(crate) fn field<const AT: usize, const N: usize>(&self) -> [u8; N] {
        const { assert!(AT >= 4 && AT + N <= 20, "not within the parameters") };
        // The compiler proves the `None` side away: the bounds are constants.
        self.body.get(AT - 4..).and_then(<[u8]>::first_chunk::<N>).copied().unwrap_or([0; N])
    }

    /// Sets the parameter bytes from byte `AT` of the header on.
    pub(crate) fn with<const AT: usize, const N: usize>(mut self, value: [u8; N]) -> Self {
        const { assert!(AT >= 4 && AT + N <= 20, "not within the parameters") };
        if let Some(place) = self.body.get_mut(AT - 4..).and_then(<[u8]>::first_chunk_mut::<N>) {
            *place = value;
        }
        self
    }

    /// The parameter byte at `AT` of the header.
    pub(crate) fn u8<const AT: usize>(&self) -> u8 {
        u8::from_be_bytes(self.field::<AT, 1>())
    }

    /// The two parameter bytes at `AT` of the header.
    pub(crate) fn u16<const AT: usize>(&self) -> u16 {
        u16::from_be_bytes(self.field::<AT, 2>())
    }

    /// The four parameter bytes at `AT` of the header, signed.
    pub(crate) fn i32<const AT: usize>(&self) -> i32 {
        i32::from_be_bytes(self.field::<AT, 4>())
    }

    /// The eight parameter bytes at `AT` of the header, signed.
    pub(crate) fn i64<const AT: usize>(&self) -> i64 {
        i64::from_be_bytes(self.field::<AT, 8>())
    }

    /// The file handle at `AT` of the header.
    pub(crate) fn fhandle<const AT: usize>(&self) -> FileHandle {
        FileHandle(self.field::<AT, 4>())
    }

    /// Appends the header with the length of `payload` as dlen, and `payload`.
    pub(crate) fn finish(mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.dlen = wire_length(payload.len());
        out.extend_from_slice(&self.encode());
        out.extend_from_slice(payload);
    }

    /// Appends the header with `dlen` as given; the payload is sent by someone else.
    pub(crate) fn finish_streamed(mut self, dlen: i32, out: &mut Vec<u8>) {
        self.dlen = dlen;
        out.extend_from_slice(&self.encode());
    }
}

/// A length as the signed 32-bit field of a header. No frame built in memory comes near the limit of 2 GiB - 1.
pub(crate) fn wire_length(bytes: usize) -> i32 {
    debug_assert!(i32::try_from(bytes).is_ok(), "a frame of {bytes} bytes does not fit its length field");
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// The 8 bytes every response starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHeader {
    /// That of the request; zero for `kXR_attn`.
    pub streamid: StreamId,
    /// Kind of the response.
    pub status: Status,
    /// Bytes of body that follow, never < 0. `kXR_status` has more bytes behind these.
    pub dlen: i32,
}

impl ResponseHeader {
    /// Every 8 bytes are a header.
    #[must_use]
    pub const fn decode(bytes: &[u8; RESPONSE_HEADER_BYTES]) -> Self {
        let [s0, s1, c0, c1, d0, d1, d2, d3] = *bytes;
        Self {
            streamid: StreamId([s0, s1]),
            status: Status(u16::from_be_bytes([c0, c1])),
            dlen: i32::from_be_bytes([d0, d1, d2, d3]),
        }
    }

    /// The 8 bytes.
    #[must_use]
    pub const fn encode(&self) -> [u8; RESPONSE_HEADER_BYTES] {
        let StreamId([s0, s1]) = self.streamid;
        let [c0, c1] = self.status.0.to_be_bytes();
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        [s0, s1, c0, c1, d0, d1, d2, d3]
    }

    /// Bytes of body that follow.
    ///
    /// # Errors
    /// [`WireError::BadLength`] when `dlen` is negative.
    pub fn body_bytes(&self) -> Result<usize, WireError> {
        usize::try_from(self.dlen)
            .map_err(|_| WireError::BadLength { field: "dlen", bytes: self.dlen.into() })
    }
}

/// The first 20 bytes of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake;

impl Handshake {
    /// The one and only handshake: `0 0 0 4 2012`.
    pub const BYTES: [u8; HANDSHAKE_BYTES] =
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x07, 0xdc];

    /// Whether `prefix`, the first bytes of a connection, may still become a handshake: it is a prefix of one.
    #[must_use]
    pub fn may_become(prefix: &[u8]) -> bool {
        prefix.len() <= HANDSHAKE_BYTES && Self::BYTES.starts_with(prefix)
    }

    /// Whether these 20 bytes are a handshake.
    #[must_use]
    pub fn is(bytes: &[u8; HANDSHAKE_BYTES]) -> bool {
        *bytes == Self::BYTES
    }
}

/// The server's answer to the handshake.
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

    /// The 16 bytes, response header included.
    #[must_use]
    pub fn encode(&self) -> [u8; HANDSHAKE_REPLY_BYTES] {
        let mut bytes = [0; HANDSHAKE_REPLY_BYTES];
        let [_, _, _, _, _, _, _, dlen, p0, p1, p2, p3, r0, r1, r2, r3] = &mut bytes;
        *dlen = 8;
        [*p0, *p1, *p2, *p3] = self.protover.to_be_bytes();
        [*r0, *r1, *r2, *r3] = self.role.to_be_bytes();
        bytes
    }

    /// Reads the 16 bytes.
    ///
    /// # Errors
    /// [`WireError::BadValue`] when streamid or status is not 0, [`WireError::BadLength`] when dlen is not 8.
    pub fn decode(bytes: &[u8; HANDSHAKE_REPLY_BYTES]) -> Result<Self, WireError> {
        let [h0, h1, h2, h3, h4, h5, h6, h7, p0, p1, p2, p3, r0, r1, r2, r3] = *bytes;
        let header = ResponseHeader::decode(&[h0, h1, h2, h3, h4, h5, h6, h7]);
        if header.status != Status::OK {
            return Err(WireError::BadValue { field: "handshake status", value: header.status.0.into() });
        }
        if header.dlen != 8 {
            return Err(WireError::BadLength { field: "handshake reply", bytes: header.dlen.into() });
        }
        Ok(Self {
            protover: i32::from_be_bytes([p0, p1, p2, p3]),
            role: i32::from_be_bytes([r0, r1, r2, r3]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_handshake_and_its_answer() {
        assert!(Handshake::may_become(&[]));
        assert!(Handshake::may_become(&[0; 15]));
        assert!(!Handshake::may_become(&[0; 16]));
        assert!(Handshake::is(&Handshake::BYTES));
        let reply = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER };
        let bytes = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1];
        assert_eq!(reply.encode(), bytes);
        assert_eq!(HandshakeReply::decode(&bytes), Ok(reply));
    }

    #[test]
    fn parameters_are_addressed_as_in_the_tables() {
        let header = RequestHeader::new(StreamId([1, 0]), RequestCode::READ)
            .with::<4, 4>([1, 2, 3, 4])
            .with::<8, 8>((-2i64).to_be_bytes())
            .with::<16, 4>(7i32.to_be_bytes());
        assert_eq!(header.fhandle::<4>(), FileHandle([1, 2, 3, 4]));
        assert_eq!(header.i64::<8>(), -2);
        assert_eq!(header.i32::<16>(), 7);
        assert_eq!(RequestHeader::decode(&header.encode()), header);
    }

    #[test]
    fn a_negative_length_is_kept_and_refused_when_asked_for() {
        let mut bytes = [0; 24];
        bytes[20..].copy_from_slice(&(-1i32).to_be_bytes());
        let header = RequestHeader::decode(&bytes);
        assert_eq!(header.dlen, -1);
        assert_eq!(header.payload_bytes(), Err(WireError::BadLength { field: "dlen", bytes: -1 }));
    }
}
