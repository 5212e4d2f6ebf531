//! The states of a file that persists on close, as types: marked, synced, whole (decision 013).
//!
//! Only a [`SyncedFile`] file can become whole, and only [`MarkedFile::sync`] returns one.
//! Therefore no file can lose its mark before its data has reached stable storage, and after a
//! power failure the file is complete, marked or missing.
//!
//! A mark is the sticky bit in the mode together with a number in an attribute. The number is set
//! first and removed last. So an unfinished file with the bit always has the number too, where the
//! file system supports attributes.

use crate::config::Durability;
use crate::describe;
use crate::errno;
use crate::proof;
use base::LogicalPath;
use std::io;
use storage::{Backend, Metadata, StoredFile};

/// A file with the mark. Clients cannot read its content.
pub(crate) struct MarkedFile<'a> {
    file: &'a dyn StoredFile,
    durability: Durability,
}

/// A marked file whose data, size and name have reached stable storage.
pub(crate) struct SyncedFile<'a>(MarkedFile<'a>);

/// A file without the mark, even after a power failure.
#[derive(Debug)]
pub(crate) struct WholeFile;

/// Stores a new number with a file; `None` where the file system does not support attributes.
pub(super) fn set_number(file: &dyn StoredFile) -> io::Result<Option<String>> {
    let number = proof::nonce();
    match file.set_attribute(proof::NONCE, number.as_bytes(), false) {
        Ok(()) => Ok(Some(number)),
        Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => Ok(None),
        // A mark without a number would prove nothing.
        Err(error) => Err(error),
    }
}

impl<'a> MarkedFile<'a> {
    /// Wraps a file that was marked when it was opened.
    pub(super) fn assume(file: &'a dyn StoredFile, durability: Durability) -> Self {
        Self { file, durability }
    }

    /// Marks an existing file, and returns its other permission bits. The mark is synced if the
    /// file looked complete or has content, because it may be written next.
    pub(super) fn set(
        file: &'a dyn StoredFile,
        before: &Metadata,
        durability: Durability,
    ) -> io::Result<(Self, u32)> {
        let mode = before.mode & describe::MODE_BITS & !describe::MODE_PENDING;
        let has_bit = describe::has_mark_bit(before);
        if !has_bit {
            file.set_mode(mode | describe::MODE_PENDING)?;
        }
        if (before.size > 0 || !has_bit) && durability == Durability::Synced {
            file.sync_all()?;
        }
        Ok((Self { file, durability }, mode))
    }

    /// Marks a file that was created with [`describe::MODE_CREATING`] and recorded in the journal.
    pub(super) fn set_created(
        file: &'a dyn StoredFile,
        mode: u32,
        durability: Durability,
    ) -> io::Result<Self> {
        file.set_mode(mode | describe::MODE_PENDING)?;
        Ok(Self { file, durability })
    }

    /// Waits until data, size and name have reached stable storage.
    pub(super) fn sync(self, backend: &dyn Backend, path: &LogicalPath) -> io::Result<SyncedFile<'a>> {
        if self.durability == Durability::Synced {
            self.file.sync()?;
            if !backend.sync_above(path)? {
                return Err(io::Error::from_raw_os_error(errno::NOT_FOUND));
            }
        }
        Ok(SyncedFile(self))
    }
}

impl SyncedFile<'_> {
    /// Removes the mark and waits until that is durable.
    pub(super) fn make_whole(self, mode: u32) -> io::Result<WholeFile> {
        let file = self.0.file;
        let whole = self.unmark(mode)?;
        remove_number(file);
        Ok(whole)
    }

    /// Removes the mark of a replacement, and gives it its name by `rename`. The number stays until then,
    /// because it identifies the file.
    pub(super) fn replace(self, mode: u32, rename: impl FnOnce() -> io::Result<()>) -> io::Result<WholeFile> {
        let file = self.0.file;
        let whole = self.unmark(mode)?;
        rename()?;
        remove_number(file);
        Ok(whole)
    }

    fn unmark(self, mode: u32) -> io::Result<WholeFile> {
        let Self(MarkedFile { file, durability }) = self;
        file.set_mode(mode & !describe::MODE_PENDING)?;
        if durability == Durability::Synced
            && let Err(error) = file.sync_all()
        {
            // The client receives an error, so the file must not look complete.
            file.set_mode(mode | describe::MODE_PENDING)?;
            return Err(error);
        }
        Ok(WholeFile)
    }
}

/// Removes the number. A failure does not matter, because the number has no meaning without the
/// bit.
fn remove_number(file: &dyn StoredFile) {
    if let Err(error) = file.remove_attribute(proof::NONCE)
        && !matches!(error.raw_os_error(), Some(errno::NO_DATA | errno::UNSUPPORTED))
    {
        tracing::debug!(%error, "cannot remove the attribute of an unfinished file");
    }
}

/// Removes the mark from a file whose content was not changed since it was complete.
pub(crate) fn withdraw(file: &dyn StoredFile, before: &Metadata, durability: Durability) -> io::Result<()> {
    let mode = before.mode & describe::MODE_BITS;
    if file.stat()?.mode & describe::MODE_BITS != mode {
        file.set_mode(mode)?;
        if durability == Durability::Synced {
            file.sync_all()?;
        }
    }
    remove_number(file);
    Ok(())
}

/// Declares a file complete for an administrator. The mode is changed only if the file has the bit,
/// because another user may own it.
pub(super) fn clear(file: &dyn StoredFile, found: &Metadata) -> io::Result<()> {
    let mode = found.mode & describe::MODE_BITS;
    if mode & describe::MODE_PENDING != 0 {
        file.set_mode(mode & !describe::MODE_PENDING)?;
        file.sync_all()?;
    }
    remove_number(file);
    Ok(())
}
