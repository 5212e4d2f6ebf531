//! `inventory` (226): paths the sender has, many in a frame, one of our own messages.
//!
//! The payload is paths one after the other, each with its NUL, at most 16384 bytes. A node sends as many frames as
//! its paths need right after its login was answered: the first has the bit `first`, the last the bit `last` (a
//! single one both), those of files that are staged or written the bit `pending`. The parent takes them as if each
//! path had come in an unsolicited `have`, with the difference that it also remembers those nobody asked for. Between
//! `first` and `last` the node sends its other messages as usual; a `gone` in between wins over what was told before
//! it.
//!
//! A parent that takes in an inner node it did not know sends one frame with the bit `wanted` and no path: the inner node hands
//! it on to its children, and servers send what they have once more. (Their inner node has seen it, its new parent has not.)
//!
//! The last frame has the bit `complete` if nothing exists below the exports of a server but what it lists, directories and
//! unfinished files included, and if nothing comes to exist that the server does not report. Its parent need not ask it then
//! for names that it has never heard of. A later `status` with reset ends that.
//!
//! So a manager that restarts knows where files are as soon as its nodes are back. Direction: node to parent (`wanted`: parent to node), also of
//! supervisors for what is below them. A real parent never gets it (see [`Extensions::INVENTORY`]), and would skip it.
//!
//! [`Extensions::INVENTORY`]: crate::cms::Extensions::INVENTORY

use crate::cms::error::EncodeError;
use crate::cms::flags::InventoryModifier;
use crate::cms::limits::{PATH_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::cms::pup::Packer;

/// Paths that the sender has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inventory<'a> {
    /// First and last of several; pending.
    pub modifier: InventoryModifier,
    /// Paths, each with its NUL: see [`Inventory::paths`] and [`PathBatch`].
    pub paths: &'a [u8],
}

impl<'a> Inventory<'a> {
    pub(super) const fn decode(modifier: u8, payload: &'a [u8]) -> Self {
        Self { modifier: InventoryModifier(modifier), paths: payload }
    }

    pub(super) fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        if self.paths.last().is_some_and(|&byte| byte != 0) {
            return Err(EncodeError::Malformed { field: "paths" });
        }
        packer.bytes(self.paths);
        Ok(())
    }

    /// The paths; empty ones are skipped.
    pub fn paths(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.paths.split(|&byte| byte == 0).filter(|path| !path.is_empty())
    }
}

/// Collects paths until a frame is full.
#[derive(Debug, Default)]
pub struct PathBatch {
    bytes: Vec<u8>,
}

impl PathBatch {
    /// Adds a path; `false` when it does not fit any more: send this batch, [`clear`](Self::clear) it, add the path
    /// again.
    ///
    /// # Errors
    /// [`EncodeError::Missing`], [`EncodeError::TooLong`] and [`EncodeError::Malformed`] for a path that no message
    /// can hold.
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

    /// Whether it holds no path.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Empties it; its memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The message with these paths.
    #[must_use]
    pub fn message(&self, modifier: InventoryModifier) -> Inventory<'_> {
        Inventory { modifier, paths: &self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_what_fits_a_frame() {
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
    fn a_batch_refuses_what_no_message_can_hold() {
        let mut batch = PathBatch::default();
        assert_eq!(batch.push(b""), Err(EncodeError::Missing { field: "path" }));
        assert_eq!(batch.push(b"/a\0b"), Err(EncodeError::Malformed { field: "path" }));
        assert!(matches!(batch.push(&[b'a'; 2047]), Err(EncodeError::TooLong { .. })));
        assert!(batch.is_empty());
    }
}
