//! [`TransferStorage`] of a [`Posix`] backend.

use super::backend::Posix;
use super::held_file::PosixHeldFile;
use super::incoming::{PosixIncoming, remove_leftovers};
use super::unused_file::PosixUnusedFile;
use crate::incoming::IncomingResult;
use crate::{HeldFile, Leftovers, ParentCreation, TransferStorage, UnusedFile};
use base::LogicalPath;
use rustix::fs::OFlags;
use std::io;

impl TransferStorage for Posix {
    fn receive(&self, path: &LogicalPath, mode: u32, up: Option<&ParentCreation>) -> IncomingResult {
        if self.spaces.as_ref().is_some_and(|spaces| spaces.take(path)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (stored, up) = (self.names.stored_new(path)?, self.names.parents(path, up));
        Ok(Box::new(PosixIncoming::new(&self.tree, &stored, mode, up.as_deref())?))
    }

    fn remove_leftovers(&self, directory: &LogicalPath) -> io::Result<Leftovers> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        remove_leftovers(&self.tree.open(&*self.names.stored(directory)?, flags, 0)?)
    }

    fn hold(&self, path: &LogicalPath) -> io::Result<Box<dyn HeldFile>> {
        let stored = self.names.stored(path)?;
        Ok(Box::new(PosixHeldFile::new(&self.tree, &self.removals, self.spaces.as_ref(), &stored)?))
    }

    fn claim_unused(&self, path: &LogicalPath) -> io::Result<Box<dyn UnusedFile>> {
        Ok(Box::new(PosixUnusedFile::new(&self.tree, &self.removals, &*self.names.stored(path)?)?))
    }
}
