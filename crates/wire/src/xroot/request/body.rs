//! The codec that all requests have in common.
//!
//! The parameters of a request are in its header, in front of the length of its payload. A request
//! is therefore not one run of bytes, as the bodies of replies are
//! ([`Encode`](crate::codec::Encode)), and its header is decoded before its payload has arrived.

pub(super) use crate::error::WireError;
pub(super) use crate::xroot::header::RequestHeader;

/// The parameters and the counted payload of a request.
pub(super) trait RequestBody<'a>: Sized {
    /// Decodes the parameters of `header` and `payload`, the `dlen` bytes behind the header.
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError>;

    /// Adds the parameters to `header`, which has streamid and code, and appends the frame. Only
    /// [`RequestHeader::finish`] and its variants append bytes, so no frame can stay unfinished.
    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>);
}
