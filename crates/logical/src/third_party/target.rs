//! [`CopyTarget`]: the file that a third-party copy writes, on a disk of this server or behind a proxy.

use super::fetcher::{Bytes, Written};
use crate::errno::{self, unable};
use crate::in_flight::InFlight;
use crate::open_file::OpenFileState;
use base::{Error, ErrorKind, LogicalPath};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The file that a copy writes.
pub(crate) trait CopyTarget: Send + Sync {
    /// Returns the path under which it was opened.
    fn path(&self) -> &LogicalPath;

    /// Keeps the file open until the result is dropped; `None` if it is being closed.
    fn hold(self: Arc<Self>) -> Option<HeldTarget>;

    /// Returns its size. Blocks.
    fn size(&self) -> Result<u64, Error>;

    /// Reads into `buffer`; fewer bytes mean the end of the file. Blocks.
    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error>;

    /// Writes all data to stable storage, and fails if others have written the file. Blocks.
    fn settle(&self) -> Result<(), Error>;

    /// Writes all of `bytes` at `offset`, and then calls `then`. Never blocks.
    fn receive(self: Arc<Self>, offset: u64, bytes: Bytes, then: Written);

    /// Returns the descriptor of a file on a disk of this server.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Ends the requests of the copy that are in progress, and refuses more, because the file will be discarded.
    /// Those for a disk are not ended.
    fn give_up(&self) {}
}

/// The file of a copy in progress, which is released only after this is dropped.
pub(crate) struct HeldTarget {
    target: Arc<dyn CopyTarget>,
    _hold: Box<dyn Send>,
}

impl HeldTarget {
    /// Creates the holder of a file that stays open as long as `hold` lives.
    pub(super) fn new(target: Arc<dyn CopyTarget>, hold: impl Send + 'static) -> Self {
        Self { target, _hold: Box::new(hold) }
    }

    pub(super) fn target(&self) -> &Arc<dyn CopyTarget> {
        &self.target
    }
}

impl CopyTarget for OpenFileState {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn hold(self: Arc<Self>) -> Option<HeldTarget> {
        InFlight::new(&self).map(|flying| HeldTarget::new(self, flying))
    }

    fn size(&self) -> Result<u64, Error> {
        Ok(self.file.stat().map_err(|error| Error::unable("check", &self.path, error))?.size)
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.file.read(offset, buffer).map_err(|error| Error::unable("read", &self.path, error))
    }

    fn settle(&self) -> Result<(), Error> {
        self.sync()?;
        if self.was_disturbed() {
            return Err(Error::new(ErrorKind::FsError, "another client wrote the file during the copy"));
        }
        Ok(())
    }

    fn receive(self: Arc<Self>, offset: u64, bytes: Bytes, then: Written) {
        let Some(flying) = InFlight::new(&self) else {
            return then(Err(unable("write", &self.path, errno::BAD_DESCRIPTOR)));
        };
        self.about_to_write(offset, (*bytes).as_ref());
        let slot = Arc::new(Mutex::new(Some(then)));
        let inside = slot.clone();
        let write = move || {
            let then = inside.lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = flying.open().write_pulled(offset, (*bytes).as_ref());
            drop(flying);
            if let Some(then) = then {
                then(result);
            }
        };
        if self.file.pool().run(self.owner, Box::new(write)).is_err()
            && let Some(then) = slot.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            then(Err(Error::new(
                ErrorKind::Overloaded,
                "the destination is overloaded; too many operations wait for its disk",
            )));
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}
