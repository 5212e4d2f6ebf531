//! The end of a store: the file is closed or removed.

use super::{BlockStore, Claiming};
use crate::store::StoreError;
use crate::store::store_context::found;
use std::io;

impl BlockStore {
    /// Ends all changes of the files, because the file is closed and another store can be opened. Blocks that a release has
    /// kept since the last flush are claimed before.
    pub(crate) fn detach(&self, now: i64) {
        let mut claiming = self.claiming();
        let has_new_claims = self.state().has_new_claims;
        if has_new_claims {
            // Without that, they are stored when they are fetched again.
            self.flush_claims(&mut claiming, now).ok();
        }
        self.end(&mut claiming);
    }

    /// Removes the files of this store. Readers that have it open can still read the stored blocks. Reports whether there
    /// were files.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn remove(&self) -> io::Result<bool> {
        let mut claiming = self.claiming();
        if claiming.is_removed {
            return Ok(false);
        }
        self.end(&mut claiming);
        if self.data.get().is_none() {
            // What is there now is not of this store.
            return Ok(false);
        }
        let exists = |path| match found(self.context.disk.open(path)) {
            Ok(file) => Ok(file.is_some()),
            Err(StoreError::Foreign) => Ok(false),
            // It may be there, and claim blocks.
            Err(StoreError::Disk(error)) => Err(error),
        };
        let (has_data, has_state) = (exists(self.key.data())?, exists(&self.key.state())?);
        self.context.unlink(&self.key, has_data, has_state)?;
        Ok(has_data || has_state)
    }

    fn end(&self, claiming: &mut Claiming) {
        claiming.is_removed = true;
        self.state().is_ended = true;
    }
}
