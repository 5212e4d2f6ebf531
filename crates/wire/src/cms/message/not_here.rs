//! `nothere` (224): reports explicitly that a path does not exist.
//!
//! An extension of Scalla.
//!
//! It exists because in the cms protocol a node without the file sends no answer. A parent can then
//! only conclude from a timeout that a file is missing.
//!
//! It answers a `state` with the bit [`DEFINITE`] and has the form of a `have` with another code:
//! same streamid, raw bit, path with its NUL. A supervisor sends it after all its children have
//! sent it. Direction: node to parent. Sent only to peers with [`Extensions::NOT_HERE`]. A parent
//! with XRootD children, which relay the bit but do not send `nothere`, still has to wait for their
//! timeout.
//!
//! [`DEFINITE`]: crate::cms::flags::StateModifier::DEFINITE
//! [`Extensions::NOT_HERE`]: crate::cms::Extensions::NOT_HERE

use crate::cms::error::EncodeError;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Reports that a queried path does not exist at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHere<'a> {
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Arguments<'a> for NotHere<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { path: arguments.path()? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.raw_path(self.path)
    }
}
