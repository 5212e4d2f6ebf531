//! `lease` (227): a client is on its way to create a path, one of our own messages.
//!
//! Arguments: milliseconds (u32), path. Direction: parent to node, before the client is redirected. Within that time the node
//! reports the path as [`LEASED`], so that no other client creates it elsewhere. When the time is over and the path was not
//! created, the node sends `gone`, and from then on it redirects the client that comes too late.
//!
//! [`LEASED`]: crate::cms::flags::HaveModifier::LEASED

use crate::cms::error::EncodeError;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Reserves a path for a client that is on its way to create it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease<'a> {
    /// For how long, counted from the arrival.
    pub milliseconds: u32,
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Lease<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut unpacker = Unpacker::new(payload);
        Ok(Self { milliseconds: unpacker.u32("milliseconds")?, path: unpacker.text("path")? })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.u32(self.milliseconds);
        packer.filled("path", self.path)
    }
}
