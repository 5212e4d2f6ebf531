//! `occupancy` (225): the free slots of a supervisor and below it, one of our own messages.
//!
//! | argument | type | meaning                                                                            |
//! |----------|------|------------------------------------------------------------------------------------|
//! | level    | u16  | 0: the sender itself; 1: a supervisor that is its child; and so on                 |
//! | children | u16  | nodes logged in at that supervisor, 0 to 64                                        |
//! | free     | u16  | slots it can still give away                                                       |
//! | below    | u32  | free slots in its whole subtree, its own included                                  |
//! | nodes    | u32  | nodes in its whole subtree, itself not included                                    |
//! | cell     | text | optional: `host:port` where it takes logins; absent at level 0, where it is known  |
//!
//! Sent after login and when a number changes, at most as often as the sender's limit says. A supervisor relays the
//! reports of its children with the level increased and the cell filled in, so the root knows every cell and sends a
//! newcomer to its final place. Direction: node to parent. A real parent never gets it (see
//! [`Extensions::OCCUPANCY`]), and would skip it.
//!
//! [`Extensions::OCCUPANCY`]: crate::cms::Extensions::OCCUPANCY

use crate::cms::error::EncodeError;
use crate::cms::pup::{Packer, Unpacker};
use crate::error::WireError;

/// The free slots of a supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy<'a> {
    /// How far below the sender that supervisor is; 0: it is the sender.
    pub level: u16,
    /// Nodes logged in there.
    pub children: u16,
    /// Slots it can still give away.
    pub free: u16,
    /// Free slots in its subtree, its own included.
    pub free_below: u32,
    /// Nodes in its subtree.
    pub nodes_below: u32,
    /// `host:port` where it takes logins; `None` at level 0.
    pub cell: Option<&'a [u8]>,
}

impl<'a> Occupancy<'a> {
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut arguments = Unpacker::new(payload);
        Ok(Self {
            level: arguments.u16("level")?,
            children: arguments.u16("children")?,
            free: arguments.u16("free")?,
            free_below: arguments.u32("below")?,
            nodes_below: arguments.u32("nodes")?,
            cell: arguments.optional("cell")?,
        })
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.u16(self.level);
        packer.u16(self.children);
        packer.u16(self.free);
        packer.u32(self.free_below);
        packer.u32(self.nodes_below);
        packer.optional("cell", self.cell)
    }
}
