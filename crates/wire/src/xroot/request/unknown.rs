//! A request with a code that this protocol version does not define.
//!
//! It is answered with error 3006 "Invalid request code" and the connection stays open, so that a
//! newer client can use a fallback.
//!
//! Source: xroot protocol 5.2.0, sections 1.6, 2.0. Recorded: `raw_errors`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::codes::RequestCode;

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

impl<'a> RequestBody<'a> for Unknown<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { code: header.code, body: header.body, payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        RequestHeader { body: self.body, ..header }.finish(self.payload, out);
    }
}
