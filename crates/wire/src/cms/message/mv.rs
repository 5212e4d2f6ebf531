//! `mv` (5): renames a path.
//!
//! Arguments: ident, old path, new path; optional: opaque of the old, opaque of the new. Direction:
//! redirector to manager, relayed down to the nodes with write access to the old path.
//!
//! Source: cms protocol version 3, sections 1.3, 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Renames a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mv<'a> {
    /// Number of relays, and whether relaying is allowed.
    pub modifier: RelayModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// The old path.
    pub old: &'a [u8],
    /// The new path.
    pub new: &'a [u8],
    /// The CGI of the old path.
    pub old_opaque: Option<&'a [u8]>,
    /// The CGI of the new path.
    pub new_opaque: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for Mv<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            old: arguments.text("old path")?,
            new: arguments.text("new path")?,
            old_opaque: arguments.optional("opaque")?,
            new_opaque: arguments.optional("opaque")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("old path", self.old)?;
        packer.filled("new path", self.new)?;
        packer.optional("opaque", self.old_opaque)?;
        packer.optional("opaque", self.new_opaque)
    }
}
