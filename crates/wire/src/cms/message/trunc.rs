//! `trunc` (23): sets the size of a file.
//!
//! Arguments: ident, size (decimal text), path; optional: opaque. The size stays text, so that a
//! relay does not change it. Direction: redirector to manager, relayed down to the nodes with write
//! access to the path.
//!
//! Source: cms protocol version 3, sections 1.3, 4.13. Recorded: 14, 24.

use crate::cms::error::EncodeError;
use crate::cms::flags::RelayModifier;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Sets the size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trunc<'a> {
    /// Number of relays.
    pub modifier: RelayModifier,
    /// Identity of the client, for logs; may be empty.
    pub ident: &'a [u8],
    /// The size in decimal: [`Trunc::size_bytes`].
    pub size: &'a [u8],
    /// The path.
    pub path: &'a [u8],
    /// The CGI of the path.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> for Trunc<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            modifier: RelayModifier(modifier),
            ident: arguments.text("ident")?,
            size: arguments.text("size")?,
            path: arguments.text("path")?,
            opaque: arguments.optional("opaque")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.text("ident", self.ident)?;
        packer.filled("size", self.size)?;
        packer.filled("path", self.path)?;
        packer.optional("opaque", self.opaque)
    }
}

impl<'a> Trunc<'a> {
    /// Returns the size in bytes.
    ///
    /// # Errors
    /// [`WireError::BadText`] if the text is not a valid size of a file.
    pub fn size_bytes(&self) -> Result<u64, WireError> {
        let text = std::str::from_utf8(self.size).ok();
        let bytes =
            text.and_then(|text| text.parse::<i64>().ok()).and_then(|bytes| u64::try_from(bytes).ok());
        bytes.ok_or(WireError::BadText { field: "size" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal() {
        let size_bytes = |size: &'static [u8]| {
            let path = b"/f";
            Trunc { modifier: RelayModifier::NONE, ident: b"", size, path, opaque: None }.size_bytes()
        };
        assert_eq!(size_bytes(b"9223372036854775807"), Ok(i64::MAX as u64));
        for bad in [&b""[..], b"-1", b"9223372036854775808", b"1k", b"\xff"] {
            assert_eq!(size_bytes(bad), Err(WireError::BadText { field: "size" }));
        }
    }
}
