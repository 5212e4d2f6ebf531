//! Operations on files that are copied from and to mass storage.

use crate::ParentCreation;
use crate::UnusedFile;
use crate::held_file::HeldFile;
use crate::incoming::IncomingResult;
use base::LogicalPath;
use std::io;

/// The result of [`TransferStorage::remove_leftovers`], as numbers of files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leftovers {
    /// Temporary files that nobody wrote any more. They were removed.
    pub removed: u64,
    /// Temporary files that a process has locked. It may still write them.
    pub in_use: u64,
    /// Names of temporary files at which there is something else, or a file that cannot be read.
    pub unknown: u64,
}

/// Operations of a backend on files that are copied from and to mass storage.
pub trait TransferStorage: Send + Sync {
    /// Creates a temporary file that gets the name `path` when it is complete, with this mode. A known size decides where
    /// there is room for it. `EBUSY` if the program of an earlier try still writes it, `EEXIST` if it is not a file of this
    /// backend, and `ENOLINK` if the path is a link that leads to nothing.
    fn receive(
        &self,
        path: &LogicalPath,
        mode_and_size: (u32, Option<u64>),
        up: Option<&ParentCreation>,
    ) -> IncomingResult;
    /// Removes the temporary files in a directory that nobody has locked. A file is recognised by its
    /// name together with the attribute of temporary files. Links are never followed.
    fn remove_leftovers(&self, directory: &LogicalPath) -> io::Result<Leftovers>;
    /// Opens the regular file at a path, and holds it open. A link is followed only if it is that of a file
    /// in a space, and `ELOOP` is the error of another one.
    fn hold(&self, path: &LogicalPath) -> io::Result<Box<dyn HeldFile>>;
    /// Returns the regular file at a path, if no process has it open, and lets none open it. `EBUSY` if it
    /// is open, `ELOOP` if links lead to it from another path, `EMLINK` if it has several names, `EACCES` if it belongs to another user than the server,
    /// and `EOPNOTSUPP` if its file system cannot tell.
    fn claim_unused(&self, path: &LogicalPath) -> io::Result<Box<dyn UnusedFile>>;
}
