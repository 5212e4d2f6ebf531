//! `lease` (227): the right of one client to create a path.
//!
//! An extension of Scalla.
//!
//! It prevents a duplicate file: without it, two clients that create the same path at the same time
//! could be redirected to different servers.
//!
//! Arguments: number (u64), milliseconds (u32), path.
//!
//! | direction      | milliseconds | meaning                                                     |
//! |----------------|--------------|-------------------------------------------------------------|
//! | parent to node | more than 0  | a lease, sent before the client is redirected               |
//! | parent to node | 0            | ends a lease with a lower number                            |
//! | node to parent | more than 0  | the path is leased for this time and does not exist yet     |
//! | node to parent | 0            | the same; the time that is left is unknown                  |
//!
//! A node returns each lease that it receives to the parent, so that the parent knows which messages
//! of the node are older. A node with a lease sends this message instead of `have`, so that no other
//! client creates the path elsewhere. If the lease expires before the path is created, the node
//! sends `gone` and redirects a client that arrives later. By the time left every parent can
//! distinguish a lease that expired from one that ended earlier because the creation failed. A
//! parent that learns of two leases ends the one with the lower number.

use crate::cms::error::EncodeError;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Reserves a path for a client that is about to create it, or reports such a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease<'a> {
    /// Orders the leases of one path; the latest has the highest number.
    pub number: u64,
    /// Duration, or the rest of it, counted from the receipt.
    pub milliseconds: u32,
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Arguments<'a> for Lease<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self {
            number: arguments.u64("number")?,
            milliseconds: arguments.u32("milliseconds")?,
            path: arguments.text("path")?,
        })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.u64(self.number);
        packer.u32(self.milliseconds);
        packer.filled("path", self.path)
    }
}
