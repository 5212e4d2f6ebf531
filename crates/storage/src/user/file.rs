//! An open file whose metadata is read and changed as a user.
//!
//! The right to read and write data was decided when the file was opened, so data is accessed as the
//! server: on event loops, by io_uring, by `sendfile`. Modes and attributes are checked against the
//! user of each call.

use super::{StorageUser, UserSwitch};
use crate::ring::Completion;
use crate::{FileIdentity, Job, Metadata, Now, Pool, StoredFile};
use base::{CopyRange, Extent, Owner, ReadPiece};
use std::any::Any;
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A file that a user opened.
pub(super) struct UserFile {
    file: Arc<dyn StoredFile>,
    switch: Arc<UserSwitch>,
    user: Arc<StorageUser>,
}

impl UserFile {
    pub(super) fn new(file: Arc<dyn StoredFile>, switch: Arc<UserSwitch>, user: Arc<StorageUser>) -> Self {
        Self { file, switch, user }
    }

    fn call<T>(&self, call: impl FnOnce(&dyn StoredFile) -> io::Result<T>) -> io::Result<T> {
        let _acting = self.switch.act_as(&self.user)?;
        call(self.file.as_ref())
    }
}

impl StoredFile for UserFile {
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        self.file.read_now(offset, into)
    }

    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        self.file.append_now(offset, length, out)
    }

    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        self.file.read_scattered_now(offset, into)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read(offset, into)
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        self.file.write_now(offset, from)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.file.write(offset, from)
    }

    fn start_read(
        &self,
        buffer: Vec<u8>,
        pieces: &[ReadPiece],
        done: &mut dyn FnMut() -> Completion,
    ) -> Result<(), Vec<u8>> {
        self.file.start_read(buffer, pieces, done)
    }

    fn read_in_pool(&self, owner: Owner, range: Option<Extent>, job: Job) -> Result<(), Job> {
        self.file.read_in_pool(owner, range, job)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.file.identity()
    }

    fn stat(&self) -> io::Result<Metadata> {
        self.file.stat()
    }

    fn stat_now(&self) -> Now<Metadata> {
        self.file.stat_now()
    }

    fn size_now(&self) -> Option<u64> {
        self.file.size_now()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.call(|file| file.set_mode(mode))
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.call(|file| file.set_owner(uid, gid))
    }

    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(|file| file.attribute(name))
    }

    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.call(|file| file.set_attribute(name, value, new))
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.call(|file| file.remove_attribute(name))
    }

    fn attributes(&self) -> io::Result<Vec<String>> {
        self.call(|file| file.attributes())
    }

    fn clone_range(&self, source: &dyn StoredFile, range: CopyRange) -> io::Result<()> {
        self.file.clone_range(source, range)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        self.file.is_resident(offset, length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.file.prefetch(offset, length);
    }

    fn pool(&self) -> &Arc<Pool> {
        self.file.pool()
    }

    /// Returns the file behind, which the backend expects.
    fn as_any(&self) -> &dyn Any {
        self.file.as_any()
    }
}
