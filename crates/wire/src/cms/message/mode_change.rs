//! `chmod` (1), `mkdir` (3), `mkpath` (4): a path and permission bits.
//!
//! Arguments: ident, mode (octal text), path; optional: opaque. The three share one type because
//! their arguments are identical. Direction: redirector to manager, relayed down to the nodes with
//! write access to the path.
//!
//! Source: cms protocol version 3, sections 1.3, 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Creates a directory or changes permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeChange<'a> {
    /// Number of relays.
    pub modifier: RelayModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// Permission bits in octal: [`ModeChange::permissions`].
    pub mode: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for ModeChange<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            mode: arguments.text("mode")?,
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("mode", self.mode)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}

impl<'a> ModeChange<'a> {
    /// Returns the permission bits.
    ///
    /// # Errors
    /// [`WireError::BadText`] if the text is not an octal number up to 7777.
    pub fn permissions(&self) -> Result<u32, WireError> {
        let text = std::str::from_utf8(self.mode).ok();
        let bits = text.and_then(|text| u32::from_str_radix(text, 8).ok());
        bits.filter(|&bits| bits <= 0o7777).ok_or(WireError::BadText { field: "mode" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal() {
        let permissions = |mode: &'static [u8]| {
            let path = b"/d";
            ModeChange { modifier: RelayModifier::NONE, ident: b"", mode, path, opaque: None }.permissions()
        };
        assert_eq!(permissions(b"755"), Ok(0o755));
        for bad in [&b""[..], b"8", b"10000", b"rw", b"\xff"] {
            assert_eq!(permissions(bad), Err(WireError::BadText { field: "mode" }));
        }
    }
}
