//! `lease` (227): a client is on its way to create a path, one of our own messages.
//!
//! Arguments: number (u64), milliseconds (u32), path.
//!
//! | direction | milliseconds | meaning |
//! |---|---|---|
//! | parent to node | more than 0 | a lease with this number, before the client is redirected |
//! | parent to node | 0 | a lease with a lower number ends |
//! | node to parent | 0 | the path is not there yet: a client is to create it by the lease with this number |
//!
//! A node that has a lease sends this instead of `have`, so that no other client creates the path elsewhere. When the time is over and
//! the path was not created, the node sends `gone`, and from then on it redirects the client that comes too late. A parent that learns
//! of two leases has the one with the lower number ended.

use crate::cms::error::EncodeError;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// Reserves a path for a client that is on its way to create it, or reports that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease<'a> {
    /// Orders the leases of one path; the latest has the highest.
    pub number: u64,
    /// For how long, counted from the arrival.
    pub milliseconds: u32,
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Lease<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut unpacker = Unpacker::new(payload);
        Ok(Self {
            number: unpacker.u64("number")?,
            milliseconds: unpacker.u32("milliseconds")?,
            path: unpacker.text("path")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.u64(self.number);
        packer.u32(self.milliseconds);
        packer.filled("path", self.path)
    }
}
