//! [`TransferStorage`] of a [`Posix`] backend.

use super::backend::Posix;
use super::held_file::PosixHeldFile;
use super::incoming::{PosixIncoming, remove_leftovers};
use super::incoming_data::SpaceWish;
use super::unused_file::PosixUnusedFile;
use crate::incoming::IncomingResult;
use crate::{HeldFile, Leftovers, ParentCreation, TransferStorage, UnusedFile};
use base::LogicalPath;
use rustix::fs::OFlags;
use std::io;

impl TransferStorage for Posix {
    fn receive(
        &self,
        path: &LogicalPath,
        (mode, size): (u32, Option<u64>),
        up: Option<&ParentCreation>,
    ) -> IncomingResult {
        let spaces = self.spaces.as_ref();
        let wish = spaces.filter(|spaces| spaces.take(path)).map(|spaces| SpaceWish { spaces, path, size });
        let place = (spaces.map(AsRef::as_ref), wish);
        let (stored, up) = (self.names.stored_new(path)?, self.names.parents(path, up));
        Ok(Box::new(PosixIncoming::new(&self.tree, place, &stored, mode, up.as_deref())?))
    }

    fn remove_leftovers(&self, directory: &LogicalPath) -> io::Result<Leftovers> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let opened = self.tree.open(&*self.names.stored(directory)?, flags, 0)?;
        remove_leftovers(&opened, self.spaces.as_deref())
    }

    fn hold(&self, path: &LogicalPath) -> io::Result<Box<dyn HeldFile>> {
        let stored = self.names.stored(path)?;
        Ok(Box::new(PosixHeldFile::new(&self.tree, &self.removals, self.spaces.as_ref(), &stored)?))
    }

    fn claim_unused(&self, path: &LogicalPath) -> io::Result<Box<dyn UnusedFile>> {
        let stored = self.names.stored(path)?;
        Ok(Box::new(PosixUnusedFile::new(&self.tree, &self.removals, self.spaces.as_ref(), &stored)?))
    }
}
