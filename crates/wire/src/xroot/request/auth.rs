//! `kXR_auth` (3000): credentials of the client, in one or more rounds after the login.
//!
//! | bytes  | field     | type   | meaning                                             |
//! |--------|-----------|--------|-----------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                               |
//! | 2..4   | requestid | u16    | 3000                                                |
//! | 4..16  | reserved  |        |                                                     |
//! | 16..20 | credtype  | opaque | protocol id, NUL padded: unix, gsi, krb5, sss, …    |
//! | 20..24 | dlen      | i32    | bytes of credentials                                |
//! | 24..   | payload   | opaque | credentials, begin with the protocol's name and NUL |
//!
//! Replies: `kXR_ok` (dlen 0), `kXR_authmore` with the next challenge, or `kXR_error` (3030). The
//! credentials are opaque here, because each authentication protocol parses its own.
//!
//! Source: xroot protocol 5.2.0, section 1.7. Recorded: `auth_unix_copy`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Carries credentials of an authentication protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Auth<'a> {
    /// Id of the authentication protocol, padded with NUL.
    pub credtype: [u8; 4],
    /// Data of the protocol; opaque here.
    pub credentials: &'a [u8],
}

impl<'a> RequestBody<'a> for Auth<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { credtype: header.field::<16, 4>(), credentials: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<16, 4>(self.credtype).finish(self.credentials, out);
    }
}
