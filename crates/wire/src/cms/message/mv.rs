//! `mv` (5): renames.
//!
//! Arguments: ident, old path, new path; optional: opaque of the old, opaque of the new. Direction: redirector to
//! manager, relayed down to the nodes that may write the old path. Source: cms protocol version 3, sections 1.3,
//! 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Renames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mv<'a> {
    /// How often it was relayed, and whether it may be.
    pub modifier: RelayModifier,
    /// Who asks, for logs; may be empty.
    pub ident: &'a [u8],
    /// The old path.
    pub old: &'a [u8],
    /// The new path.
    pub new: &'a [u8],
    /// The cgi behind the old path.
    pub old_opaque: Option<&'a [u8]>,
    /// The cgi behind the new path.
    pub new_opaque: Option<&'a [u8]>,
}

impl<'a> Mv<'a> {
    pub(super) fn decode(modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut arguments = Unpacker::new(payload);
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            old: arguments.text("old path")?,
            new: arguments.text("new path")?,
            old_opaque: arguments.optional("opaque")?,
            new_opaque: arguments.optional("opaque")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("old path", self.old)?;
        packer.filled("new path", self.new)?;
        packer.optional("opaque", self.old_opaque)?;
        packer.optional("opaque", self.new_opaque)
    }
}
