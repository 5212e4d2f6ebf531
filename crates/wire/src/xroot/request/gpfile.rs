//! `kXR_gpfile` (3005): gets or puts a whole file; no implementation of it exists.
//!
//! | bytes  | field     | type   | meaning               |
//! |--------|-----------|--------|-----------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply |
//! | 2..4   | requestid | u16    | 3005                  |
//! | 4..8   | options   | i32    | undefined             |
//! | 8..16  | reserved  |        |                       |
//! | 16..20 | buffsz    | i32    | undefined             |
//! | 20..24 | dlen      | i32    | bytes of path         |
//! | 24..   | path      | text   | path[?cgi]            |
//!
//! Reply: always error 3013. It is decoded so that it receives this error instead of the one for
//! unknown requests.
//!
//! Source: xroot protocol 5.2.0, section 2.5. Recorded: `raw_errors`.

use super::body::{RequestBody, RequestHeader, WireError};

/// Gets or puts a file; answered with "not supported".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpfile<'a> {
    /// Undefined.
    pub options: i32,
    /// Undefined.
    pub buffsz: i32,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub path: &'a [u8],
}

impl<'a> RequestBody<'a> for Gpfile<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { options: header.i32::<4>(), buffsz: header.i32::<16>(), path: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.options.to_be_bytes())
            .with::<16, 4>(self.buffsz.to_be_bytes())
            .finish(self.path, out);
    }
}
