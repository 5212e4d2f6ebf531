//! `kXR_ping` (3011): checks that the server is alive.
//!
//! | bytes  | field     | type   | meaning               |
//! |--------|-----------|--------|-----------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply |
//! | 2..4   | requestid | u16    | 3011                  |
//! | 4..20  | reserved  |        |                       |
//! | 20..24 | dlen      | i32    | 0                     |
//!
//! Reply: `kXR_ok` (dlen 0). It is allowed before authentication.
//!
//! Source: xroot protocol 5.2.0, section 1.10.

use super::body::{RequestBody, RequestHeader, WireError};

/// Checks that the server is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping;

impl RequestBody<'_> for Ping {
    fn decode(_header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self)
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.finish(&[], out);
    }
}
