//! The states of a file that persists on close: marked, synced, whole.
//!
//! Only a [`Synced`] file becomes whole, and only [`Marked::sync`] makes one. So no file can lose its mark before its data
//! has reached stable storage, and a loss of power leaves it whole, marked or gone.

use crate::config::Durability;
use crate::describe;
use crate::proof;
use base::LogicalPath;
use std::io;
use storage::{Backend, StoredFile};

/// A file that bears the mark. Readers do not see its content.
pub(crate) struct Marked<'a> {
    file: &'a dyn StoredFile,
    durability: Durability,
}

/// A marked file whose data, size and name have reached stable storage.
pub(crate) struct Synced<'a>(Marked<'a>);

/// A file without the mark that a loss of power leaves so.
#[derive(Debug)]
pub(crate) struct Whole;

impl<'a> Marked<'a> {
    /// Takes over a file that was marked when it was opened.
    pub(super) fn assume(file: &'a dyn StoredFile, durability: Durability) -> Self {
        Self { file, durability }
    }

    /// Marks a file, and returns the permission bits that it has beside the mark. The mark of a file that has content
    /// reaches stable storage, because that content may be overwritten next.
    pub(super) fn set(file: &'a dyn StoredFile, durability: Durability) -> io::Result<(Self, u32)> {
        let metadata = file.stat()?;
        let mode = metadata.mode & describe::MODE_BITS & !describe::MODE_PENDING;
        if !describe::is_pending(&metadata) {
            file.set_mode(mode | describe::MODE_PENDING)?;
        }
        if metadata.size > 0 && durability == Durability::Synced {
            file.sync_all()?;
        }
        Ok((Self { file, durability }, mode))
    }

    /// Waits until data, size and name have reached stable storage.
    pub(super) fn sync(self, backend: &dyn Backend, path: &LogicalPath) -> io::Result<Synced<'a>> {
        if self.durability == Durability::Synced {
            self.file.sync()?;
            backend.sync_name(path)?;
        }
        Ok(Synced(self))
    }
}

impl Synced<'_> {
    /// Takes the mark off for good.
    pub(super) fn make_whole(self, mode: u32) -> io::Result<Whole> {
        let Self(Marked { file, durability }) = self;
        // Without it the file is recognised by its inode, and after that it matters no more.
        let _ = file.remove_attribute(proof::NONCE);
        file.set_mode(mode & !describe::MODE_PENDING)?;
        if durability == Durability::Synced
            && let Err(error) = file.sync_all()
        {
            // The client is told that the file is not whole, so it must not look whole.
            file.set_mode(mode | describe::MODE_PENDING)?;
            return Err(error);
        }
        Ok(Whole)
    }
}

/// Takes the mark off a file whose content was not touched since it was set.
pub(crate) fn withdraw(file: &dyn StoredFile, durability: Durability) -> io::Result<()> {
    let metadata = file.stat()?;
    let _ = file.remove_attribute(proof::NONCE);
    if describe::is_pending(&metadata) {
        file.set_mode(metadata.mode & describe::MODE_BITS & !describe::MODE_PENDING)?;
        if durability == Durability::Synced {
            file.sync_all()?;
        }
    }
    Ok(())
}
