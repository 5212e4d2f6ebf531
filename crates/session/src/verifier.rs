//! State of signature verification: the last signature, and the request for which it waits.

use wire::xroot::codes::RequestCode;
use wire::xroot::header::StreamId;

/// A signature that waits for the request it signs.
pub(crate) struct Signature {
    pub(crate) streamid: StreamId,
    pub(crate) request: RequestCode,
    pub(crate) sequence: u64,
    pub(crate) without_payload: bool,
    pub(crate) hash: [u8; 32],
}

/// State of signature verification of one session.
#[derive(Default)]
pub(crate) struct Verifier {
    /// Boxed because few sessions sign.
    pub(crate) pending: Option<Box<Signature>>,
    pub(crate) last_sequence: u64,
}
