//! `rm` (8) and `rmdir` (9): remove a path.
//!
//! Arguments: ident, path; optional: opaque. With the bit `noforward` a manager only removes the
//! path from its location cache. A redirector sends that form to all managers except the one that
//! relays the request, because otherwise their caches would be stale. Direction: redirector to
//! manager, relayed down.
//!
//! Source: cms protocol version 3, sections 1.3, 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Removes a file or a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removal<'a> {
    /// Number of relays, and whether relaying is allowed.
    pub modifier: RelayModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for Removal<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}
