//! `kXR_set` (3018): sets a property of the client or the session.
//!
//! | bytes  | field     | type   | meaning                                         |
//! |--------|-----------|--------|-------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                           |
//! | 2..4   | requestid | u16    | 3018                                            |
//! | 4..19  | reserved  |        |                                                 |
//! | 19     | modifier  | u8     | 0                                               |
//! | 20..24 | dlen      | i32    | length of the text                              |
//! | 24..   | text      | text   | `appid …`, `monitor on\|off\|info …`, `cache …` |
//!
//! Reply: `kXR_ok`, for `monitor info` with four bytes; otherwise error 3000.
//!
//! Source: xroot protocol 5.2.0, section 1.10. Recorded: `raw_query`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Sets a property of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set<'a> {
    /// The value 0. A request with another value must be signed.
    pub modifier: u8,
    /// Words separated by blanks.
    pub text: &'a [u8],
}

impl<'a> RequestBody<'a> for Set<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { modifier: header.u8::<19>(), text: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<19, 1>([self.modifier]).finish(self.text, out);
    }
}
