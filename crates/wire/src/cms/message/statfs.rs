//! `statfs` (21): requests the space in the cluster.
//!
//! Argument: path. The answer is `data` with a text of its own grammar, see
//! [`space_text`](crate::cms::response::space_text). Direction: redirector to manager.
//!
//! Source: cms protocol version 3, sections 1.3, 4.15. Recorded: 09, 10, 15.

use crate::cms::error::EncodeError;
use crate::cms::flags::StatfsModifier;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Requests the space for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statfs<'a> {
    /// Selects one of the two texts.
    pub modifier: StatfsModifier,
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Arguments<'a> for Statfs<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { modifier: StatfsModifier(modifier), path: arguments.path()? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.filled("path", self.path)
    }
}
