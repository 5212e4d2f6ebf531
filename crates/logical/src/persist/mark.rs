//! The states of a file that persists on close: marked, synced, whole.
//!
//! Only a [`Synced`] file becomes whole, and only [`Marked::sync`] makes one. So no file can lose its mark before its data
//! has reached stable storage, and a loss of power leaves it whole, marked or gone.
//!
//! A mark is the bit in the mode together with a number in an attribute. The number is set first and taken off last, so whoever
//! finds the bit of an unfinished file finds the number too, where the file system has attributes.

use crate::config::Durability;
use crate::describe;
use crate::errno;
use crate::names;
use crate::proof;
use base::LogicalPath;
use std::io;
use storage::{Backend, Metadata, StoredFile};

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

/// Gives a file a new number; `None` where the file system has no attributes.
pub(super) fn set_number(file: &dyn StoredFile) -> io::Result<Option<String>> {
    let number = proof::nonce();
    match file.set_attribute(proof::NONCE, number.as_bytes(), false) {
        Ok(()) => Ok(Some(number)),
        Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => Ok(None),
        // A mark without a number would prove nothing.
        Err(error) => Err(error),
    }
}

impl<'a> Marked<'a> {
    /// Takes over a file that was marked when it was opened.
    pub(super) fn assume(file: &'a dyn StoredFile, durability: Durability) -> Self {
        Self { file, durability }
    }

    /// Marks a file that was there before, and returns the permission bits that it has beside the mark. The mark of a file that
    /// looked whole, or has content, reaches stable storage, because it may be written next.
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

    /// Marks a file that was created with [`describe::MODE_CREATING`], and which the journal knows by now.
    pub(super) fn set_created(
        file: &'a dyn StoredFile,
        mode: u32,
        durability: Durability,
    ) -> io::Result<Self> {
        file.set_mode(mode | describe::MODE_PENDING)?;
        Ok(Self { file, durability })
    }

    /// Waits until data, size and name have reached stable storage.
    pub(super) fn sync(self, backend: &dyn Backend, path: &LogicalPath) -> io::Result<Synced<'a>> {
        if self.durability == Durability::Synced {
            self.file.sync()?;
            if !names::sync_above(backend, path)? {
                return Err(io::Error::from_raw_os_error(errno::NOT_FOUND));
            }
        }
        Ok(Synced(self))
    }
}

impl Synced<'_> {
    /// Takes the mark off for good.
    pub(super) fn make_whole(self, mode: u32) -> io::Result<Whole> {
        let Self(Marked { file, durability }) = self;
        file.set_mode(mode & !describe::MODE_PENDING)?;
        if durability == Durability::Synced
            && let Err(error) = file.sync_all()
        {
            // The client is told that the file is not whole, so it must not look whole.
            file.set_mode(mode | describe::MODE_PENDING)?;
            return Err(error);
        }
        remove_number(file);
        Ok(Whole)
    }
}

/// Without the bit the number means nothing, so it does not matter if it stays.
fn remove_number(file: &dyn StoredFile) {
    if let Err(error) = file.remove_attribute(proof::NONCE)
        && !matches!(error.raw_os_error(), Some(errno::NO_DATA | errno::UNSUPPORTED))
    {
        tracing::debug!(%error, "the number of an unfinished file stays with it");
    }
}

/// Takes the mark off a file whose content was not touched since it was so.
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

/// Declares a file whole by order of an administrator. One without the bit may belong to another user, who alone may change
/// its mode.
pub(super) fn clear(file: &dyn StoredFile, found: &Metadata) -> io::Result<()> {
    let mode = found.mode & describe::MODE_BITS;
    if mode & describe::MODE_PENDING != 0 {
        file.set_mode(mode & !describe::MODE_PENDING)?;
        file.sync_all()?;
    }
    remove_number(file);
    Ok(())
}
