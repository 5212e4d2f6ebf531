//! `nothere` (224): a definite "not here", one of our own messages.
//!
//! The answer to a `state` with the bit [`DEFINITE`]: same streamid, raw bit set, the path with its NUL, exactly as a
//! `have` but for its code. A supervisor sends it once all its children have said so. Direction: node to parent.
//!
//! Real nodes never see the difference: they pass on bits of a `state` that they do not know, and stay silent when
//! they do not have the path; so a parent with real children still has to wait for those. A real parent never gets
//! this message (see [`Extensions::NOT_HERE`]), and would skip it.
//!
//! [`DEFINITE`]: crate::cms::flags::StateModifier::DEFINITE
//! [`Extensions::NOT_HERE`]: crate::cms::Extensions::NOT_HERE

use super::decode_path;
use crate::error::WireError;

/// Tells that a path is not at the sender, in answer to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHere<'a> {
    /// The path.
    pub path: &'a [u8],
}

impl<'a> NotHere<'a> {
    pub(super) fn decode(raw: bool, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { path: decode_path(raw, payload)? })
    }
}
