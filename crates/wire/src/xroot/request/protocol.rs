//! `kXR_protocol` (3006): exchanges version and abilities of client and server.
//!
//! | bytes  | field     | type   | meaning                           |
//! |--------|-----------|--------|-----------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply             |
//! | 2..4   | requestid | u16    | 3006                              |
//! | 4..8   | clientpv  | i32    | protocol version of the client    |
//! | 8      | flags     | u8     | [`ProtocolFlags`]                 |
//! | 9      | expect    | u8     | low nibble: next step, [`Expect`] |
//! | 10..20 | reserved  |        |                                   |
//! | 20..24 | dlen      | i32    | 0                                 |
//!
//! Reply: `kXR_ok`, see [`reply::protocol`](crate::xroot::reply::protocol). It precedes the login,
//! so that both sides can switch to TLS first.
//!
//! Source: xroot protocol 5.2.0, section 1.7.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::codes::Expect;
use crate::xroot::flags::ProtocolFlags;

/// Exchanges versions and abilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// Protocol version of the client in nibbles: 0x520 is 5.2.0.
    pub clientpv: i32,
    /// Abilities of the client and requested information.
    pub flags: ProtocolFlags,
    /// The next step; see [`Protocol::next_step`].
    pub expect: u8,
}

impl RequestBody<'_> for Protocol {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            clientpv: header.i32::<4>(),
            flags: ProtocolFlags(header.u8::<8>()),
            expect: header.u8::<9>(),
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.clientpv.to_be_bytes())
            .with::<8, 1>([self.flags.0])
            .with::<9, 1>([self.expect])
            .finish(&[], out);
    }
}

impl Protocol {
    /// Returns the next step that the client intends: the low nibble of `expect`.
    #[must_use]
    pub const fn next_step(&self) -> Expect {
        Expect(self.expect & 0x0f)
    }
}
