//! A request with a code that this protocol version does not define.
//!
//! It is answered with error 3006 "Invalid request code" and the connection stays open, so that a
//! newer client can use a fallback.
//!
//! Source: xroot protocol 5.2.0, sections 1.6, 2.0. Recorded: `raw_errors`.

use crate::xroot::codes::RequestCode;
use crate::xroot::header::{RequestHeader, StreamId};

/// An unknown request, kept completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown<'a> {
    /// Code of the request.
    pub code: RequestCode,
    /// Parameters of the request.
    pub body: [u8; 16],
    /// Payload of the request.
    pub payload: &'a [u8],
}

impl<'a> Unknown<'a> {
    pub(super) const fn decode(header: &RequestHeader, payload: &'a [u8]) -> Self {
        Self { code: header.code, body: header.body, payload }
    }

    pub(super) fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        let header = RequestHeader { streamid, code: self.code, body: self.body, dlen: 0 };
        header.finish(self.payload, out);
    }
}
