//! The second name of a file of the cache, at which clients read it directly.

use super::BlockStore;
use base::LogicalPath;
use rustix::io::Errno;
use std::io;

impl BlockStore {
    /// Compares a stored block with its checksum. A damaged one is no longer stored.
    pub(crate) fn compare(&self, block: u64) -> bool {
        // With a part of the block, all of it is read in pieces.
        self.read(self.bytes_of(block).start, &mut [0]).is_empty()
    }

    /// Gives the data of a file that is stored completely a second name, at which others can read it with these
    /// permissions. The data of another version never gets this name.
    ///
    /// # Errors
    /// `ESTALE` if the file is not stored completely, or another file is at its name, and errors of the disk.
    pub(crate) fn add_name(&self, name: &LogicalPath, mode: u32) -> io::Result<()> {
        // While this is held, only another program can replace the file at the name of the data.
        let claiming = self.claiming();
        let (data, disk) = (self.data()?, &self.context.disk);
        let own = data.status()?;
        if claiming.is_removed || own.size != self.version.size {
            return Err(Errno::STALE.into());
        }
        disk.add_name(self.key.data(), name)?;
        let is_own = || Ok(disk.open(name)?.status()?.number == own.number);
        match is_own().and_then(|is_own| if is_own { data.set_mode(mode) } else { Err(Errno::STALE.into()) })
        {
            Err(error) => disk.remove_name(name).and(Err(error)),
            named => named,
        }
    }

    /// Reports whether a program beside this process has the data open.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn is_open_elsewhere(&self) -> io::Result<bool> {
        self.data()?.is_open_elsewhere()
    }
}
