//! An open file of the fault-injecting backend: each call first applies the rules, then calls the
//! wrapped file.

use super::rules::{FaultRules, FaultVerdict, FaultyCall};
use crate::{FileIdentity, Metadata, Now, Pool, StoredFile};
use base::{CopyRange, LogicalPath};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(super) struct FaultyFile {
    pub(super) inner: Arc<dyn StoredFile>,
    pub(super) rules: Arc<FaultRules>,
    pub(super) path: LogicalPath,
    pub(super) pool: Arc<Pool>,
}

impl FaultyFile {
    fn meet(&self, call: FaultyCall) -> io::Result<FaultVerdict> {
        self.rules.meet(call, &self.path)
    }

    fn no_room() -> io::Error {
        io::Error::from_raw_os_error(libc::ENOSPC)
    }

    /// Writes as many bytes as there is room for, as a file system does, and then fails with
    /// ENOSPC.
    fn write_with_room(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let room = self.rules.take_room(from.len());
        self.inner.write(offset, from.get(..room).unwrap_or(from))?;
        if room < from.len() { Err(Self::no_room()) } else { Ok(()) }
    }
}

fn shortened(verdict: &FaultVerdict, into: &mut [u8]) -> usize {
    match verdict {
        FaultVerdict::Short(bytes) => into.len().min(*bytes),
        _ => into.len(),
    }
}

impl StoredFile for FaultyFile {
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        match self.rules.meet_now(FaultyCall::Read, &self.path) {
            Err(error) => Now::Done(Err(error)),
            Ok(FaultVerdict::WouldBlock) => Now::WouldBlock,
            Ok(verdict) => {
                let most = shortened(&verdict, into);
                self.inner.read_now(offset, into.get_mut(..most).unwrap_or_default())
            }
        }
    }

    /// Returns `None` while rules apply to reads, because the rules are applied to each piece.
    fn read_scattered_now(&self, offset: u64, into: &mut [io::IoSliceMut<'_>]) -> Option<()> {
        (!self.rules.concern(FaultyCall::Read, &self.path))
            .then(|| self.inner.read_scattered_now(offset, into))?
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let most = shortened(&self.meet(FaultyCall::Read)?, into);
        let got = self.inner.read(offset, into.get_mut(..most).unwrap_or_default())?;
        self.rules.pace(got);
        Ok(got)
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        match self.rules.meet_now(FaultyCall::Write, &self.path) {
            Err(error) => Now::Done(Err(error)),
            Ok(FaultVerdict::WouldBlock) => Now::WouldBlock,
            // Room is counted when bytes are written. A write that would block must not have taken
            // any.
            Ok(_) if self.rules.room().is_some() => Now::Done(self.write_with_room(offset, from)),
            Ok(_) => self.inner.write_now(offset, from),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.meet(FaultyCall::Write)?;
        self.write_with_room(offset, from)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.meet(FaultyCall::Truncate)?;
        self.inner.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.meet(FaultyCall::Sync)?;
        self.inner.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.meet(FaultyCall::Sync)?;
        self.inner.sync_all()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.meet(FaultyCall::Stat)?;
        self.inner.identity()
    }

    fn stat(&self) -> io::Result<Metadata> {
        self.meet(FaultyCall::Stat)?;
        self.inner.stat()
    }

    fn stat_now(&self) -> Now<Metadata> {
        match self.rules.meet_now(FaultyCall::Stat, &self.path) {
            Err(error) => Now::Done(Err(error)),
            Ok(FaultVerdict::WouldBlock) => Now::WouldBlock,
            Ok(_) => self.inner.stat_now(),
        }
    }

    fn size_now(&self) -> Option<u64> {
        self.inner.size_now()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.meet(FaultyCall::SetMode)?;
        self.inner.set_mode(mode)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.meet(FaultyCall::SetMode)?;
        self.inner.set_owner(uid, gid)
    }

    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.meet(FaultyCall::Attribute)?;
        self.inner.attribute(name)
    }

    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.meet(FaultyCall::Attribute)?;
        self.inner.set_attribute(name, value, new)
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.meet(FaultyCall::Attribute)?;
        self.inner.remove_attribute(name)
    }

    fn attributes(&self) -> io::Result<Vec<String>> {
        self.meet(FaultyCall::Attribute)?;
        self.inner.attributes()
    }

    fn clone_range(&self, source: &dyn StoredFile, range: CopyRange) -> io::Result<()> {
        self.meet(FaultyCall::Clone)?;
        let source = source.as_any().downcast_ref::<Self>().map_or(source, |faulty| &*faulty.inner);
        if self.rules.room().is_some() {
            let bytes = usize::try_from(range.length).unwrap_or(usize::MAX);
            if self.rules.take_room(bytes) < bytes {
                return Err(Self::no_room());
            }
        }
        self.inner.clone_range(source, range)
    }

    /// Returns `None` while rules apply to reads, because the kernel would send data to a socket
    /// without applying them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.rules.concern(FaultyCall::Read, &self.path) { None } else { self.inner.descriptor() }
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        !self.rules.concern(FaultyCall::Read, &self.path) && self.inner.is_resident(offset, length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.inner.prefetch(offset, length);
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
