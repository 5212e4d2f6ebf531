//! `kXR_endsess` (3023): ends a session, usually the previous one of a client that reconnects.
//!
//! | bytes  | field     | type   | meaning                                        |
//! |--------|-----------|--------|------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                          |
//! | 2..4   | requestid | u16    | 3023                                           |
//! | 4..20  | sessid    | opaque | session id; all zero: the sender's own session |
//! | 20..24 | dlen      | i32    | 0                                              |
//!
//! Replies: `kXR_ok` (also for an unknown id), `kXR_wait` while the session is still ending, or
//! 3010 for a session of another client. The end of the sender's own session is not answered. A
//! client sends it after a reconnect so that the files of the lost connection are released before
//! it reopens them.
//!
//! Source: xroot protocol 5.2.0, section 1.10. Recorded: `raw_endsess`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::SessionId;

/// Ends a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endsess {
    /// The session to end; all zero is the sender's own session.
    pub sessid: SessionId,
}

impl RequestBody<'_> for Endsess {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self { sessid: SessionId(header.field::<4, 16>()) })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 16>(self.sessid.0).finish(&[], out);
    }
}
