//! `kXR_bind` (3024): makes this connection a data stream of an existing session.
//!
//! | bytes  | field     | type   | meaning                                   |
//! |--------|-----------|--------|-------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                     |
//! | 2..4   | requestid | u16    | 3024                                      |
//! | 4..20  | sessid    | opaque | session id, from the reply to `kXR_login` |
//! | 20..24 | dlen      | i32    | 0                                         |
//!
//! Reply: `kXR_ok` with one byte, the path id 1 to 15. Errors: 3028, 3011, 3000, 3010, 3008. The
//! session id serves as the credential, so this request replaces login and authentication.
//!
//! Source: xroot protocol 5.2.0, section 1.9. Recorded: `raw_bind`, `cp_download_streams`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::SessionId;

/// Binds a connection to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The session to join.
    pub sessid: SessionId,
}

impl RequestBody<'_> for Bind {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self { sessid: SessionId(header.field::<4, 16>()) })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 16>(self.sessid.0).finish(&[], out);
    }
}
