//! Files of a [`Posix`](super::Posix) backend that no process has open.
//!
//! The lease of the system for writing (`F_SETLEASE`) proves that a file is open nowhere on this
//! machine, whoever opened it. Until its end, the system makes each further open wait, or refuses it
//! with `EAGAIN` if it must not wait, as those of this backend. So the status and the attributes that
//! are read under the lease are those of the file that is removed.
//!
//! A name cannot be removed together with a proof of where it leads. Therefore the file is first renamed
//! to a hidden name, to which nobody else renames, and its identity is checked there. A crash in between
//! leaves a temporary file, which the next start of the server removes. It recognises the file by its
//! attribute, or by its access time: a full XFS sets no attribute, but a purge must work there most of all.
//! The time has no meaning for a file that nobody may open, and little for one that stays after a crash.
//!
//! Two opens could still get a removed file. One has found the name before the rename and calls for the
//! file after the end of the lease: those of this backend check the number of names of their file, and
//! begin again. The other one waits during the removal: it is noticed, and the file gets its name back.

use super::attribute::{self, AttributeBearer};
use super::calls::{QUIET, metadata};
use super::held_file::with_write_permission;
use super::incoming::{
    HIDDEN_ACCESS, accessed, has_hidden_access, is_same_file, leads_to, mark, remove_leftover,
    temporary_name, unmark,
};
use super::incoming_data::remove_link;
use super::local_file_system::check_local;
use super::opening::{OngoingRemovals, RemovalTicket};
use super::space::Spaces;
use super::tree::{ConfinedTree, ParentDirectory};
use crate::incoming::F_SETSIG;
use crate::{FileRemoval, Metadata, UnusedFile};
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a block of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// The sign by which a hidden file is recognised after a crash.
enum HiddenMark {
    Attribute,
    /// The access time, which was this one before.
    AccessTime(Timespec),
}

/// Marks a file that gets a hidden name.
fn set_mark(file: &OwnedFd) -> io::Result<HiddenMark> {
    let full = match with_write_permission(file, || mark(file)) {
        Ok(()) => return Ok(HiddenMark::Attribute),
        Err(error) => error,
    };
    match full.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {}
        _ => return Err(full),
    }
    let before = rustix::fs::fstat(file)?;
    set_access_time(file, HIDDEN_ACCESS)?;
    if has_hidden_access(&rustix::fs::fstat(file)?) {
        Ok(HiddenMark::AccessTime(accessed(&before)))
    } else {
        Err(full)
    }
}

/// Ends the mark of a file that stays.
fn clear_mark(file: &OwnedFd, mark: HiddenMark) -> io::Result<()> {
    match mark {
        HiddenMark::Attribute => with_write_permission(file, || unmark(file)),
        HiddenMark::AccessTime(before) => set_access_time(file, before),
    }
}

fn set_access_time(file: &OwnedFd, time: Timespec) -> io::Result<()> {
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: unchanged })?)
}

/// A file under a lease. The lease ends with the descriptor.
pub(super) struct PosixUnusedFile {
    tree: Arc<ConfinedTree>,
    /// The path of the file below the root.
    stored: LogicalPath,
    parent: OwnedFd,
    name: Vec<u8>,
    /// The data file to which the name leads, if it is in a space.
    data: Option<(Arc<Spaces>, PathBuf)>,
    file: OwnedFd,
    /// Dropped after the file, whose lease has ended then.
    _ticket: RemovalTicket,
}

impl PosixUnusedFile {
    /// Opens the regular file at a path below the root. The errors are those of
    /// [`crate::TransferStorage::claim_unused`].
    pub(super) fn new(
        tree: &Arc<ConfinedTree>,
        removals: &Arc<OngoingRemovals>,
        spaces: Option<&Arc<Spaces>>,
        stored: &LogicalPath,
    ) -> io::Result<Self> {
        let (parent, name) = tree.parent(stored)?;
        let above = stored.parent().ok_or(Errno::BUSY)?;
        if !tree.is_at(&above, &parent)? {
            return Err(Errno::LOOP.into());
        }
        // The open of a device or a pipe can have effects.
        let kind = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
        let data = match FileType::from_raw_mode(kind) {
            FileType::RegularFile => None,
            FileType::Symlink => {
                let data = spaces.and_then(|spaces| Some((spaces.clone(), spaces.data_at(&parent, name)?)));
                Some(data.ok_or(Errno::LOOP)?)
            }
            _ => return Err(Errno::NOTBLK.into()),
        };
        let ticket = OngoingRemovals::begin(removals, stored);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
        let opened = match &data {
            None => rustix::fs::openat(&parent, name, flags, Mode::empty()),
            Some((_, data)) => rustix::fs::open(data, flags, Mode::empty()),
        };
        let file = match opened {
            // Somebody else has a lease.
            Err(Errno::AGAIN) => return Err(Errno::BUSY.into()),
            other => other?,
        };
        let status = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(Errno::NOTBLK.into());
        }
        // The data file of another name.
        if data.as_ref().is_some_and(|(spaces, _)| !spaces.is_data_of(&file, stored)) {
            return Err(Errno::LOOP.into());
        }
        check_local(&file)?;
        take_lease(file.as_fd())?;
        // Only now, because a link could have been added before.
        if rustix::fs::fstat(&file)?.st_nlink != 1 {
            return Err(Errno::MLINK.into());
        }
        let name = name.to_vec();
        let parent = match parent {
            ParentDirectory::Root(fd) => fd.try_clone_to_owned()?,
            ParentDirectory::Below(fd) => fd,
        };
        Ok(Self { tree: tree.clone(), stored: stored.clone(), parent, name, data, file, _ticket: ticket })
    }

    /// Reports whether a name in the directory of the file leads to it.
    fn is_at(&self, name: &[u8]) -> io::Result<bool> {
        let Some((spaces, data)) = &self.data else { return leads_to(&self.parent, name, &self.file) };
        Ok(spaces.data_at(&self.parent, name).as_ref() == Some(data)
            && leads_to(CWD, data.as_os_str().as_bytes(), &self.file)?)
    }

    /// Removes the file at the hidden name. Its data goes first: a link without data is recognised after a crash. So an
    /// error means that the file is still there.
    fn unlink(&self, hidden: &[u8]) -> io::Result<()> {
        let Some((spaces, data)) = &self.data else {
            return Ok(rustix::fs::unlinkat(&self.parent, hidden, AtFlags::empty())?);
        };
        match Spaces::unlink_data(data, spaces.account_of(data)) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if let Err(error) = remove_link(spaces, data, &self.parent, hidden) {
            let path = self.stored.shown();
            tracing::warn!(%path, %error, "cannot remove the link to data that is gone: the next start does it");
        }
        Ok(())
    }

    /// Gives the file at the hidden name its name back.
    fn restore(&self, hidden: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat_with(&self.parent, hidden, &self.parent, &*self.name, RenameFlags::NOREPLACE)
    }

    /// Renames the file to its hidden name.
    fn hide(&self, hidden: &[u8]) -> io::Result<()> {
        let rename = || {
            rustix::fs::renameat_with(&self.parent, &*self.name, &self.parent, hidden, RenameFlags::NOREPLACE)
        };
        match rename() {
            Err(Errno::EXIST) => {
                remove_leftover(&self.parent, hidden, self.data.as_ref().map(|(spaces, _)| &**spaces))?;
                Ok(rename()?)
            }
            other => Ok(other?),
        }
    }
}

impl UnusedFile for PosixUnusedFile {
    fn stat(&self) -> io::Result<Metadata> {
        Ok(metadata(&rustix::fs::fstat(&self.file)?))
    }

    fn allocated(&self) -> io::Result<u64> {
        let blocks = u64::try_from(rustix::fs::fstat(&self.file)?.st_blocks).unwrap_or(0);
        Ok(blocks.saturating_mul(BLOCK_BYTES))
    }

    fn attributes(&self) -> io::Result<Vec<String>> {
        attribute::list(&AttributeBearer::from(self.file.as_fd()))
    }

    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        attribute::get(&AttributeBearer::from(self.file.as_fd()), name)
    }

    fn remove(self: Box<Self>) -> io::Result<FileRemoval> {
        // A directory that was moved has given the file another path.
        if !is_same_file(self.tree.parent(&self.stored)?.0, &self.parent)? || !self.is_at(&self.name)? {
            return Err(Errno::STALE.into());
        }
        // No name of a client contains a slash, so this is the temporary name of no other one.
        let hidden = temporary_name(&[b"purge/", &*self.name].concat());
        let mark = set_mark(&self.file)?;
        if let Err(error) = self.hide(&hidden) {
            clear_mark(&self.file, mark)?;
            return Err(error);
        }
        let is_same = self.is_at(&hidden)?;
        if is_same && has_lease(self.file.as_fd())? {
            let Err(error) = self.unlink(&hidden) else { return Ok(FileRemoval::Removed) };
            // With a new file at its name, it stays a leftover.
            if self.restore(&hidden).is_ok() {
                clear_mark(&self.file, mark)?;
            }
            return Err(error);
        }
        let restored = self.restore(&hidden);
        match restored {
            // A new file has the name, so this one is replaced.
            Err(Errno::EXIST) if is_same => {
                self.unlink(&hidden)?;
                return Ok(FileRemoval::Replaced);
            }
            Err(error) => {
                let path = self.stored.shown();
                tracing::error!(
                    %path, %error,
                    "a file was replaced twice while another one was removed: the first one is beside it, with a \
                     name that begins with .scalla-incoming-"
                );
                return Err(error.into());
            }
            Ok(()) => clear_mark(&self.file, mark)?,
        }
        Err(if is_same { Errno::BUSY } else { Errno::STALE }.into())
    }
}

/// Reports whether a file of the user of the server is open nowhere else on this machine, and no other one uses its file
/// system. Blocks.
///
/// # Errors
/// `EOPNOTSUPP` if that cannot be known there, `EACCES` if the file belongs to another user, and other errors of the
/// operating system.
pub fn is_open_only_here(file: BorrowedFd<'_>) -> io::Result<bool> {
    check_local(file)?;
    match take_lease(file) {
        Ok(()) => {
            // SAFETY: the call has no pointer, and the descriptor is open.
            match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(true),
            }
        }
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes a lease for writing. `EBUSY` if the file is open elsewhere, `EACCES` if it does not belong to the
/// user of the server, and `EOPNOTSUPP` if the file system has no leases.
pub(super) fn take_lease(file: BorrowedFd<'_>) -> io::Result<()> {
    // The signal for an open by others. It is ignored by default, while the usual one ends the process.
    //
    // SAFETY: the call has no pointer, and the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has no pointer, and the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } != -1 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Errno::BUSY.into(),
        Some(Errno::INVAL | Errno::NOLCK | Errno::NOSYS) => Errno::OPNOTSUPP.into(),
        _ => error,
    })
}

/// Reports whether the lease is whole: nobody has asked to open the file.
pub(super) fn has_lease(file: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: the call has no pointer, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } {
        -1 => Err(io::Error::last_os_error()),
        kind => Ok(kind == libc::F_WRLCK),
    }
}
