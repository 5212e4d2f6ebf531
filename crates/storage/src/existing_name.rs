//! [`ExistingName`]: the treatment of an object at the new name of a rename.

use rustix::fd::AsFd;
use rustix::fs::RenameFlags;
use std::io;

/// The treatment of an object that exists at the new name of a rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExistingName {
    /// A file or an empty directory is replaced.
    Replace,
    /// The object stays, and the rename fails with `EEXIST`. The kernel looks for it in the same
    /// step as it renames.
    Keep,
}

impl ExistingName {
    /// Renames an entry of a directory.
    ///
    /// # Errors
    /// Those of the kernel; `EINVAL` also if the file system cannot rename without replacing.
    pub(crate) fn rename(self, old: (impl AsFd, &[u8]), new: (impl AsFd, &[u8])) -> io::Result<()> {
        match self {
            Self::Replace => rustix::fs::renameat(old.0, old.1, new.0, new.1)?,
            Self::Keep => rustix::fs::renameat_with(old.0, old.1, new.0, new.1, RenameFlags::NOREPLACE)?,
        }
        Ok(())
    }
}
