//! Files that come from elsewhere: a temporary file beside a name, which gets the name when it is
//! complete.
//!
//! A name that belongs to a temporary file begins with [`INCOMING_PREFIX`]. Clients cannot use such
//! names. Whether a file is a temporary one is decided by its attribute all the same, so a file
//! that somebody else put there is never removed.

use crate::Metadata;
use base::LogicalPath;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The begin of the names of temporary files, which clients cannot use.
pub const INCOMING_PREFIX: &[u8] = b".scalla-incoming-";

/// The modification time, in seconds since the epoch, of a temporary file that nobody has written.
pub const INCOMING_MODIFIED: i64 = 0;

/// Reports whether a path is reserved for a temporary file.
pub(crate) fn is_reserved(path: &LogicalPath) -> bool {
    path.file_name().is_some_and(|name| name.starts_with(INCOMING_PREFIX))
}

/// A temporary file beside the name that it will get.
///
/// It is locked, and the lock belongs to the open file description. So it lasts until this file and
/// all programs that inherited its descriptor are gone, even if the server is killed meanwhile.
pub trait IncomingFile: Send {
    /// Returns the local path of the temporary file, for a program that writes it.
    fn local_path(&self) -> io::Result<PathBuf>;
    /// Returns a local path beside the temporary file at which there is nothing, for a program that creates the file
    /// itself. [`Self::adopt`] follows.
    fn vacant_path(&self) -> io::Result<PathBuf>;
    /// Replaces the temporary file by what is at the vacant path, if there is something.
    fn adopt(&mut self) -> io::Result<()>;
    /// Returns the local path that the file will have.
    fn local_target(&self) -> io::Result<PathBuf>;
    /// Returns a descriptor that holds the lock, for [`inherit`].
    fn lock(&self) -> io::Result<OwnedFd>;
    /// Returns the status of the temporary file. If a program has replaced the file, the new one
    /// takes its place. `EBUSY` if a program is left that inherited the lock.
    fn stat(&mut self) -> io::Result<Metadata>;
    /// Reads content at an offset, and returns the number of bytes; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Sets the modification time, in seconds since the epoch.
    fn set_modified(&self, seconds: i64) -> io::Result<()>;
    /// Sets an extended attribute by its full local name.
    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()>;
    /// Syncs the file, gives it its name, and syncs the directory. `EEXIST` if the name exists, `ESTALE` if the file was
    /// written or replaced since the last [`Self::stat`], and `EBUSY` if a program is left that inherited the lock. An
    /// error means that it has no name. Later failures are logged.
    fn publish(&mut self) -> io::Result<()>;
    /// Removes the temporary file, unless it has got its name. `EBUSY` if a program is left that inherited the lock.
    fn discard(self: Box<Self>) -> io::Result<()>;
}

/// The result of [`crate::TransferStorage::receive`].
pub type IncomingResult = io::Result<Box<dyn IncomingFile>>;

/// Makes the program of a command inherit a descriptor.
pub fn inherit(command: &mut Command, descriptor: OwnedFd) {
    let keep = move || {
        // SAFETY: the call changes a flag of a descriptor that the closure owns. It is safe between
        // `fork` and `exec`, because it neither allocates nor takes a lock.
        match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure is safe between `fork` and `exec`, see there.
    unsafe { command.pre_exec(keep) };
}

/// Locks a file for writing, without waiting. Reports whether that succeeded.
///
/// The lock belongs to the open file description, and not to the process. So it is not dropped when
/// the process closes another descriptor of the file.
pub fn lock_file(file: BorrowedFd<'_>) -> io::Result<bool> {
    lock_whole(file, libc::F_WRLCK)
}

/// Locks a file for reading, without waiting. Reports whether that succeeded. A lock for writing that
/// this open file description has becomes one for reading, without a moment between the two.
pub(crate) fn lock_file_shared(file: BorrowedFd<'_>) -> io::Result<bool> {
    lock_whole(file, libc::F_RDLCK)
}

/// Reports whether another process, or another descriptor of this one, has a lock on a file.
pub(crate) fn is_file_locked(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut whole = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor and the structure live as long as the call, which writes only the latter.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut whole) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(libc::c_int::from(whole.l_type) != libc::F_UNLCK),
    }
}

/// `fcntl`: sets the signal for an open by others. The crate `libc` lacks the constant.
pub(crate) const F_SETSIG: libc::c_int = 10;

/// Reports whether a file that is open for writing here is also open elsewhere. The lease of a file for writing is only
/// given if it is not.
pub(crate) fn is_open_elsewhere(file: BorrowedFd<'_>) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // Another process can open the file while there is the lease. The signal of that would end this process by default, and
    // SIGURG is ignored.
    // SAFETY: the descriptor lives as long as the calls, which take numbers only.
    let (given, error) = unsafe {
        if libc::fcntl(fd, F_SETSIG, libc::SIGURG) == -1 {
            return Err(io::Error::last_os_error());
        }
        let given = libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK);
        let error = io::Error::last_os_error();
        if given != -1 {
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
        }
        (given, error)
    };
    match given {
        -1 if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        -1 => Err(error),
        _ => Ok(false),
    }
}

/// Returns the description of a lock of this type on a whole file.
fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Sets a lock of this type on a whole file, unless another one is in the way.
fn lock_whole(file: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<bool> {
    let whole = whole_file(kind);
    // SAFETY: the descriptor and the structure live as long as the call, which only reads both.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) } {
        -1 => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        },
        _ => Ok(true),
    }
}
