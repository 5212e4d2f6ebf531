//! The identity of a file, and syncs that bring its name to stable storage.

use super::tree::Tree;
use crate::FileIdentity;
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Returns the identity of an open file or place.
pub(super) fn identity(fd: impl AsFd) -> io::Result<FileIdentity> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let status = match rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, wanted) {
        // Some containers forbid the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let status = rustix::fs::fstat(fd)?;
            return Ok(FileIdentity { device: status.st_dev, inode: status.st_ino, born: None });
        }
        other => other?,
    };
    let has_birth = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    Ok(FileIdentity {
        device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        born: has_birth.then_some((status.stx_btime.tv_sec, status.stx_btime.tv_nsec)),
    })
}

/// Reports whether the last name of a path exists, without following it.
pub(super) fn has_name(tree: &Tree, path: &LogicalPath) -> io::Result<bool> {
    if path.is_root() {
        return Ok(true);
    }
    let (parent, name) = match tree.parent(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
        other => other?,
    };
    let name = name.strip_suffix(b"/").unwrap_or(name);
    match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the names in a directory have reached stable storage.
pub(super) fn sync_directory(place: impl AsFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = rustix::fs::openat(place, ".", flags, Mode::empty()).and_then(rustix::fs::fsync);
    match synced {
        // File systems that cannot sync a directory write names through, and a directory that may be written but not read
        // cannot be synced by anybody but its owner.
        Err(Errno::INVAL | Errno::NOTSUP | Errno::ACCESS) => Ok(()),
        other => Ok(other?),
    }
}

/// Waits until the name of a local file has reached stable storage.
pub(super) fn sync_local_name(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    sync_directory(rustix::fs::openat(CWD, folder, place, Mode::empty())?)
}
