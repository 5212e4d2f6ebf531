//! [`DirectData`]: the data of a file as clients read it directly.

use super::{BlockStore, StoreContext};
use base::LogicalPath;
use rustix::io::Errno;
use std::io;

/// The data of a file as clients read it directly, at its second name.
pub(crate) struct DirectData<'a>(pub(crate) &'a BlockStore);

impl DirectData<'_> {
    /// Compares a stored block with its checksum. A damaged one is no longer stored.
    pub(crate) fn compare(&self, block: u64) -> bool {
        // With a part of the block, all of it is read in pieces.
        self.0.read(self.0.bytes_of(block).start, &mut [0]).is_empty()
    }

    /// Gives the data of a file that is stored completely a second name, at which clients can read it. The data of another
    /// version never gets this name.
    ///
    /// # Errors
    /// `ESTALE` if the file is not stored completely, or another file is at its name, and errors of the disk, also of one
    /// that cannot tell whether this file is open elsewhere.
    pub(crate) fn add_name(&self, name: &LogicalPath) -> io::Result<()> {
        // While this is held, no part of the file is released, and only another program can replace the file at the name
        // of the data.
        let store = self.0;
        let claiming = store.claiming();
        let (data, disk) = (store.data()?, &store.context.disk);
        let own = data.status()?;
        let has_all = {
            let state = store.state();
            let blocks = &state.stored.cinfo.blocks;
            let unclaimed = state.unclaimed.keys().filter(|block| !blocks.contains(**block)).count() as u64;
            state.unfreed.is_empty() && blocks.present() + unclaimed == blocks.len()
        };
        if claiming.is_removed || own.size != store.version.size || !has_all {
            return Err(Errno::STALE.into());
        }
        data.is_open_elsewhere()?;
        disk.add_name(store.key.data(), name)?;
        match disk.open(name).and_then(|named| named.status()) {
            Ok(status) if status.number == own.number => Ok(()),
            found => disk.remove(name).and(found.and(Err(Errno::STALE.into()))),
        }
    }

    /// Removes the mark of a second name that has gone, unless programs have the data open.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn unmark(&self) -> io::Result<bool> {
        StoreContext::unmark(self.0.data()?)
    }

    /// Reports whether a program beside this process has the data open.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn is_open_elsewhere(&self) -> io::Result<bool> {
        self.0.data()?.is_open_elsewhere()
    }
}
