//! `rm` (8), `rmdir` (9): a path that goes.
//!
//! Arguments: ident, path; optional: opaque. With the bit `noforward` a manager only forgets the path: that is what a
//! redirector sends to the managers that do not relay it. Direction: redirector to manager, relayed down.
//! Source: cms protocol version 3, sections 1.3, 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Removes a file or a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal<'a> {
    /// How often it was relayed, and whether it may be.
    pub modifier: RelayModifier,
    /// Who asks, for logs; may be empty.
    pub ident: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The cgi behind the path.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Removal<'a> {
    pub(super) fn decode(modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut arguments = Unpacker::new(payload);
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}
