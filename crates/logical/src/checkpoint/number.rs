//! The number of a checkpoint in an attribute of its file, which proves that the file is the one of
//! the checkpoint.

use crate::proof;
use std::io;
use storage::StoredFile;

/// Stores a new checkpoint number in an attribute of the file and syncs it; `None` where attributes
/// are not supported.
pub(super) fn set_number(file: &dyn StoredFile) -> io::Result<Option<String>> {
    let number = proof::nonce();
    match file.set_attribute(proof::CHECKPOINT, number.as_bytes(), false) {
        // Without the sync the file could have the number of an earlier checkpoint after a power
        // failure.
        Ok(()) => file.sync_all().map(|()| Some(number)),
        Err(_) => Ok(None),
    }
}

/// Removes the checkpoint number. A failure does not matter, because the next checkpoint sets
/// another number.
pub(super) fn forget_number(file: &dyn StoredFile) {
    let _ = file.remove_attribute(proof::CHECKPOINT);
}
