//! An open file on a POSIX file system: reads and writes with and without waiting.
//!
//! Which calls can be made without waiting depends on the file system; `volume` keeps that
//! knowledge for all its files.

use super::accounts::AccountedFile;
use super::append;
use super::attribute::{self, AttributeBearer};
use super::calls::metadata;
use super::clone::{self, CloneTarget};
use super::partition::SpaceReservation;
use super::resident::{self, Residency};
use super::tree::DisabledFeatures;
use super::volume::{ReadNow, Volume, is_unsupported};
use super::{stable, volume::VolumeKind};
use crate::backend::append_filled;
use crate::batched_reads::{self, BYTES_TOGETHER_MAX, PoolRead};
use crate::ring::{self, Completion};
use crate::{FileIdentity, Job, Metadata, Now, Pool, StoredFile};
use base::{CopyRange, Extent, Owner, ReadPiece};
use rustix::fs::{Advice, AtFlags, Gid, Mode, StatxFlags, Uid};
use rustix::io::{Errno, ReadWriteFlags};
use std::any::Any;
use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// An open regular file.
pub(super) struct PosixFile {
    /// Taken in `drop`, because closing may have to happen on the pool.
    pub(super) fd: ManuallyDrop<Arc<OwnedFd>>,
    pub(super) volume: Arc<Volume>,
    pub(super) without: DisabledFeatures,
    /// Maximum size in bytes.
    pub(super) bytes_max: u64,
    /// Number of further reads that first ask the kernel whether their pages are in memory.
    pub(super) asking: AtomicU8,
    /// The kernel refuses to report which pages of this file are in memory.
    pub(super) is_secretive: AtomicBool,
    /// Reserved space, released when the file is closed.
    pub(super) _promise: Option<SpaceReservation>,
    /// The account of the file's growth.
    pub(super) account: Option<AccountedFile>,
}

/// Number of reads that first ask the kernel whether they would wait, after one that would have
/// waited. A failed attempt costs far more than asking, because the kernel starts to read from the
/// disk, piece by piece. A ring submits concurrent reads as one batch.
const ASKING_READS: u8 = 16;

/// Largest offset that a file can have on Linux.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl Drop for PosixFile {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            account.close(|| self.last_size());
        }
        // SAFETY: the descriptor is taken only here, and nothing uses it afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if !self.volume.is_local() {
            // Closing a file on a network file system may wait for its server.
            self.volume.pool.run_surely(Owner::SERVER, Box::new(move || drop(fd)));
        }
    }
}

impl PosixFile {
    fn bearer(&self) -> AttributeBearer<'_> {
        AttributeBearer::from(self.fd.as_fd())
    }

    /// Returns the last size known to the kernel. Does not wait.
    fn last_size(&self) -> Option<u64> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(&*self.fd, "", flags, StatxFlags::SIZE).ok().map(|status| status.stx_size)
    }

    /// Reports whether `offset` is at or beyond the end of the file. Does not wait.
    fn is_end(&self, offset: u64) -> bool {
        self.last_size().is_some_and(|size| offset >= size)
    }

    /// Reports whether a read is known to wait, without attempting it.
    fn would_wait(&self, offset: u64, length: usize) -> bool {
        let asking = self.asking.load(Ordering::Relaxed);
        // On a pool thread the attempt is useful, because the kernel starts to read from the disk.
        if asking == 0 || self.without.ring || !ring::is_here() {
            return false;
        }
        // Another thread may decrement the same value; nothing depends on the exact number.
        self.asking.store(asking - 1, Ordering::Relaxed);
        self.look(offset, length) == Residency::NotThere
    }

    /// Asks the kernel whether all pages of this range are in memory.
    fn look(&self, offset: u64, length: usize) -> Residency {
        if self.is_secretive.load(Ordering::Relaxed) {
            return Residency::Forbidden;
        }
        let look = resident::look(self.fd.as_fd(), offset, length);
        if look == Residency::Forbidden {
            self.is_secretive.store(true, Ordering::Relaxed);
        }
        look
    }

    /// Reads as much as is possible without waiting, in as many calls as necessary. `read` reads
    /// after the given number of bytes already read, with the given flags.
    fn read_no_wait(
        &self,
        (offset, length): (u64, usize),
        mut flags: ReadWriteFlags,
        mut read: impl FnMut(usize, ReadWriteFlags) -> Result<usize, Errno>,
    ) -> Now<usize> {
        if flags == ReadWriteFlags::NOWAIT && self.would_wait(offset, length) {
            return Now::WouldBlock;
        }
        let mut done = 0;
        while done < length {
            match read(done, flags) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                // Some file systems return EAGAIN before they check the size.
                Err(Errno::AGAIN) if self.is_end(offset + done as u64) => break,
                Err(Errno::AGAIN) => {
                    self.asking.store(ASKING_READS, Ordering::Relaxed);
                    return Now::WouldBlock;
                }
                Err(error) if flags == ReadWriteFlags::NOWAIT && is_unsupported(error) => {
                    match self.volume.refused_nowait(error) {
                        ReadNow::Plain => flags = ReadWriteFlags::empty(),
                        _ => return Now::WouldBlock,
                    }
                }
                Err(error) => return Now::Done(Err(error.into())),
            }
        }
        Now::Done(Ok(done))
    }

    /// Returns the flags of a call that reads without waiting; `None` if the file system has no
    /// such call.
    fn flags_now(&self) -> Option<ReadWriteFlags> {
        match self.volume.read_now() {
            ReadNow::NoWait => Some(ReadWriteFlags::NOWAIT),
            ReadNow::Plain => Some(ReadWriteFlags::empty()),
            ReadNow::Never => None,
        }
    }

    fn write_all(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        if offset.checked_add(from.len() as u64).is_none_or(|end| end > self.bytes_max) {
            return Err(Errno::FBIG.into());
        }
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(&*self.fd, rest, offset + done as u64) {
                // This does not happen for regular files; EIO is the nearest error.
                Ok(0) => return Err(Errno::IO.into()),
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl StoredFile for PosixFile {
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        if offset.saturating_add(into.len() as u64) > OFFSET_MAX {
            return Now::Done(self.read(offset, into));
        }
        let Some(flags) = self.flags_now() else {
            return if self.is_end(offset) { Now::Done(Ok(0)) } else { Now::WouldBlock };
        };
        self.read_no_wait((offset, into.len()), flags, |done, flags| {
            let rest = into.get_mut(done..).unwrap_or_default();
            let at = offset + done as u64;
            // `pread` also works where `preadv2` is unknown or forbidden.
            if flags.is_empty() {
                rustix::io::pread(&*self.fd, rest, at)
            } else {
                rustix::io::preadv2(&*self.fd, &mut [IoSliceMut::new(rest)], at, flags)
            }
        })
    }

    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        let flags = self.flags_now().filter(|_| offset.saturating_add(length as u64) <= OFFSET_MAX);
        let Some(flags) = flags else { return append_filled(self, offset, length, out) };
        let start = out.len();
        let read = self.read_no_wait((offset, length), flags, |done, flags| {
            append::read(self.fd.as_fd(), (offset + done as u64, length - done), out, flags)
        });
        if !matches!(read, Now::Done(Ok(_))) {
            out.truncate(start);
        }
        read
    }

    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        let wanted: usize = into.iter().map(|place| place.len()).sum();
        let flags = self.flags_now()?;
        // Other reads have just found that they would wait, so the caller asks the kernel for each
        // range first.
        if self.asking.load(Ordering::Relaxed) > 0 && !self.without.ring && ring::is_here() {
            return None;
        }
        // Errors are found again, and reported, when the caller reads piece by piece.
        match rustix::io::preadv2(&*self.fd, into, offset, flags) {
            Ok(read) => (read == wanted).then_some(()),
            Err(error) => {
                if error == Errno::AGAIN {
                    self.asking.store(ASKING_READS, Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        // A file has no bytes beyond the largest offset.
        let room = usize::try_from(OFFSET_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = into.len().min(room);
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..wanted).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&*self.fd, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn start_read(
        &self,
        buffer: Vec<u8>,
        pieces: &[ReadPiece],
        done: &mut dyn FnMut() -> Completion,
    ) -> Result<(), Vec<u8>> {
        let within = |piece: &ReadPiece| piece.extent.end().is_some_and(|end| end <= OFFSET_MAX);
        // On a network file system or FUSE the kernel may wait when a read is submitted, which
        // would block an event loop.
        if self.without.ring || !self.volume.is_local() || !pieces.iter().all(within) {
            return Err(buffer);
        }
        ring::read(&self.fd, &self.volume.reading, buffer, pieces, done)
    }

    fn read_in_pool(&self, owner: Owner, range: Option<Extent>, job: Job) -> Result<(), Job> {
        let pool = &self.volume.pool;
        match range {
            // On other file systems a hanging read does not imply that the others hang, so they
            // must not share a thread.
            Some(extent)
                if extent.length <= BYTES_TOGETHER_MAX && self.volume.kind() == VolumeKind::Local =>
            {
                batched_reads::begin(PoolRead {
                    pool: pool.clone(),
                    owner,
                    fd: Arc::clone(&self.fd),
                    extent,
                    job,
                })
            }
            _ => pool.run(owner, job),
        }
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        if !self.volume.writes_fast() {
            return Now::WouldBlock;
        }
        Now::Done(self.volume.timed(from.len(), || self.write_all(offset, from)))
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.volume.timed_in_pool(from.len(), || self.write_all(offset, from))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        if size > self.bytes_max {
            return Err(Errno::FBIG.into());
        }
        Ok(rustix::fs::ftruncate(&*self.fd, size)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&*self.fd)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&*self.fd)?)
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        stable::identity(&*self.fd)
    }

    fn stat(&self) -> io::Result<Metadata> {
        Ok(metadata(&rustix::fs::fstat(&*self.fd)?))
    }

    fn size_now(&self) -> Option<u64> {
        if self.volume.is_local() {
            return self.stat().ok().map(|metadata| metadata.size);
        }
        self.last_size()
    }

    fn stat_now(&self) -> Now<Metadata> {
        if self.volume.is_local() { Now::Done(self.stat()) } else { Now::WouldBlock }
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&*self.fd, Mode::from_raw_mode(mode & 0o7777))?)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::fchown(&*self.fd, Some(uid), Some(gid))?)
    }

    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        attribute::get(&self.bearer(), name)
    }

    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        attribute::set(&self.bearer(), name, value, new)
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        attribute::remove(&self.bearer(), name)
    }

    fn attributes(&self) -> io::Result<Vec<String>> {
        attribute::list(&self.bearer())
    }

    fn clone_range(&self, source: &dyn StoredFile, range: CopyRange) -> io::Result<()> {
        if range.target_end().is_none_or(|end| end > self.bytes_max) {
            return Err(Errno::FBIG.into());
        }
        let target = CloneTarget { file: self, fd: &self.fd, without: self.without };
        let descriptor = source.as_any().downcast_ref::<Self>().map(|source| &**source.fd);
        clone::range(&target, source, descriptor, range)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.volume.refuses_sendfile()).then(|| self.fd.as_fd())
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        let is_there = self.look(offset, length) == Residency::There;
        is_there && (length == 0 || self.volume.takes_sendfile(&*self.fd, offset))
    }

    fn prefetch(&self, offset: u64, length: u64) {
        if self.volume.kind() != VolumeKind::Memory
            && let Some(length) = NonZeroU64::new(length)
        {
            // This is only a hint, so its result does not matter.
            let _ = rustix::fs::fadvise(&*self.fd, offset, Some(length), Advice::WillNeed);
        }
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.volume.pool
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
