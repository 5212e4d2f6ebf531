//! `inventory` (226): the paths of the sender, many in one frame.
//!
//! An extension of Scalla.
//!
//! It exists so that a restarted manager knows file locations as soon as its nodes reconnect.
//! Otherwise it would query every node for every file.
//!
//! The payload is a sequence of paths, each with its NUL, of at most 16384 bytes in total. A node
//! sends its paths after its login is answered, in as many frames as needed. The first frame has
//! the bit `first` and the last one `last`; a single frame has both. Frames with paths that are
//! being staged or written have the bit `pending`.
//!
//! * The parent treats each path as if it came in an unsolicited `have`, and also stores paths that
//!   were never queried.
//! * Between `first` and `last` the node sends its other messages as usual. A `gone` overrides an
//!   earlier frame of the inventory.
//! * A parent that accepts an unknown inner node sends it a frame with the bit `wanted` and no
//!   path. The inner node relays it to its children, and servers send their inventory again,
//!   because the new parent has not received it yet.
//! * The last frame has the bit `complete` if the inventory lists everything below the exports of a
//!   server, including directories and unfinished files. The server must also report every later
//!   path. The parent then need not query it for unknown names. A later `status` with `reset` ends
//!   this.
//!
//! Direction: node to parent (`wanted`: parent to node); supervisors send the paths below them.
//! Sent only to peers with [`Extensions::INVENTORY`].
//!
//! [`Extensions::INVENTORY`]: crate::cms::Extensions::INVENTORY

use crate::cms::error::EncodeError;
use crate::cms::flags::InventoryModifier;
use crate::cms::limits::{PATH_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// A frame with paths of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inventory<'a> {
    /// Position in the inventory and state of the paths.
    pub modifier: InventoryModifier,
    /// Paths, each with its NUL: see [`Inventory::paths`] and [`PathBatch`].
    pub paths: &'a [u8],
}

impl<'a> Arguments<'a> for Inventory<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { modifier: InventoryModifier(modifier), paths: arguments.take_rest() })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        if self.paths.last().is_some_and(|&byte| byte != 0) {
            return Err(EncodeError::Malformed { field: "paths" });
        }
        packer.bytes(self.paths);
        Ok(())
    }
}

impl<'a> Inventory<'a> {
    /// Returns the paths; empty ones are skipped.
    pub fn paths(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.paths.split(|&byte| byte == 0).filter(|path| !path.is_empty())
    }
}

/// A builder that collects paths until a frame is full.
#[derive(Debug, Default)]
pub struct PathBatch {
    bytes: Vec<u8>,
}

impl PathBatch {
    /// Adds a path. Returns `false` if the frame has no space for it; the caller then sends this
    /// batch, [clears](Self::clear) it and adds the path again.
    ///
    /// # Errors
    /// [`EncodeError::Missing`], [`EncodeError::TooLong`] and [`EncodeError::Malformed`] for a path
    /// that cannot be encoded.
    pub fn push(&mut self, path: &[u8]) -> Result<bool, EncodeError> {
        if path.is_empty() {
            return Err(EncodeError::Missing { field: "path" });
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(EncodeError::TooLong { field: "path", limit: PATH_BYTES_MAX, bytes: path.len() });
        }
        if path.contains(&0) {
            return Err(EncodeError::Malformed { field: "path" });
        }
        if self.bytes.len().saturating_add(path.len()).saturating_add(1) > PAYLOAD_BYTES_MAX {
            return Ok(false);
        }
        self.bytes.extend_from_slice(path);
        self.bytes.push(0);
        Ok(true)
    }

    /// Reports whether the batch contains no path.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes all paths but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the message with these paths.
    #[must_use]
    pub fn message(&self, modifier: InventoryModifier) -> Inventory<'_> {
        Inventory { modifier, paths: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_accepts_paths_up_to_one_frame() {
        let mut batch = PathBatch::default();
        assert!(batch.is_empty());
        let path = [b'p'; 1023];
        let fitted = (0..100).take_while(|_| batch.push(&path).unwrap()).count();
        assert_eq!(fitted, 16);
        assert_eq!(batch.message(InventoryModifier::FIRST).paths.len(), PAYLOAD_BYTES_MAX);
        assert_eq!(batch.message(InventoryModifier::FIRST).paths().count(), 16);
        batch.clear();
        assert!(batch.push(&path).unwrap());
        assert_eq!(batch.message(InventoryModifier::LAST).paths().collect::<Vec<_>>(), [&path[..]]);
    }

    #[test]
    fn a_batch_refuses_invalid_paths() {
        let mut batch = PathBatch::default();
        assert_eq!(batch.push(b""), Err(EncodeError::Missing { field: "path" }));
        assert_eq!(batch.push(b"/a\0b"), Err(EncodeError::Malformed { field: "path" }));
        assert!(matches!(batch.push(&[b'a'; 2047]), Err(EncodeError::TooLong { .. })));
        assert!(batch.is_empty());
    }
}
