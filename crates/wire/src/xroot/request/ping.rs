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

use crate::xroot::codes::RequestCode;
use crate::xroot::header::{RequestHeader, StreamId};

/// Checks that the server is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping;

impl Ping {
    pub(super) fn encode(streamid: StreamId, out: &mut Vec<u8>) {
        RequestHeader::new(streamid, RequestCode::PING).finish(&[], out);
    }
}
