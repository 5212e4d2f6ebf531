//! `kXR_sigver` (3029): signs the next request on this connection.
//!
//! | bytes  | field     | type   | meaning                                          |
//! |--------|-----------|--------|--------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                            |
//! | 2..4   | requestid | u16    | 3029                                             |
//! | 4..6   | expectrid | u16    | requestid of the next request                    |
//! | 6      | version   | u8     | 0                                                |
//! | 7      | flags     | u8     | [`SigverFlags`]                                  |
//! | 8..16  | seqno     | u64    | strictly increasing; the 8 bytes sent are hashed |
//! | 16     | crypto    | u8     | [`SigverCrypto`]                                 |
//! | 17..20 | reserved  |        |                                                  |
//! | 20..24 | dlen      | i32    | length of the signature, 1 to 64                 |
//! | 24..   | signature | opaque | SHA-256, encrypted with the session key if any   |
//!
//! It has no reply of its own, because the reply to the signed request reports an invalid
//! signature. The sequence number prevents replay.
//!
//! Source: xroot protocol 5.2.0, section 1.11. Recorded: `auth_unix_sigver`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::codes::RequestCode;
use crate::xroot::flags::{SigverCrypto, SigverFlags};

/// Signs the next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sigver<'a> {
    /// Code of the next request.
    pub expectrid: RequestCode,
    /// Version of the scheme, 0.
    pub version: u8,
    /// Flags, which exclude the payload from the hash.
    pub flags: SigverFlags,
    /// Sequence number.
    pub seqno: u64,
    /// Hash and key.
    pub crypto: SigverCrypto,
    /// The signature.
    pub signature: &'a [u8],
}

impl<'a> RequestBody<'a> for Sigver<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            expectrid: RequestCode(header.u16::<4>()),
            version: header.u8::<6>(),
            flags: SigverFlags(header.u8::<7>()),
            seqno: u64::from_be_bytes(header.field::<8, 8>()),
            crypto: SigverCrypto(header.u8::<16>()),
            signature: payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 2>(self.expectrid.0.to_be_bytes())
            .with::<6, 1>([self.version])
            .with::<7, 1>([self.flags.0])
            .with::<8, 8>(self.seqno.to_be_bytes())
            .with::<16, 1>([self.crypto.0])
            .finish(self.signature, out);
    }
}
