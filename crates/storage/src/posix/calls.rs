//! System calls that several files of this backend make in the same way.

use crate::backend::{Metadata, SpaceUsage};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Opening must not block the process, acquire a controlling terminal, or leak into a child
/// process.
pub(super) const QUIET: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Converts the status of the operating system to that of this crate.
pub(super) fn metadata(status: &Stat) -> Metadata {
    Metadata {
        device: status.st_dev,
        inode: status.st_ino,
        mode: status.st_mode,
        size: u64::try_from(status.st_size).unwrap_or(0),
        uid: status.st_uid,
        gid: status.st_gid,
        modified: status.st_mtime,
        modified_nanoseconds: u32::try_from(status.st_mtime_nsec).unwrap_or(0),
        changed: status.st_ctime,
        accessed: status.st_atime,
        offline: false,
    }
}

/// Sets the mode bits of a new file that the umask or a default ACL of its directory removed.
pub(super) fn exact_mode(fd: &OwnedFd, mode: u32) -> io::Result<()> {
    if rustix::fs::fstat(fd)?.st_mode & 0o7777 != mode {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Returns the status without asking the server of a network file system.
pub(super) fn stat_cached(place: &OwnedFd) -> io::Result<Metadata> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let status = rustix::fs::statx(place, "", flags, StatxFlags::BASIC_STATS)?;
    Ok(Metadata {
        device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        mode: u32::from(status.stx_mode),
        size: status.stx_size,
        uid: status.stx_uid,
        gid: status.stx_gid,
        modified: status.stx_mtime.tv_sec,
        modified_nanoseconds: status.stx_mtime.tv_nsec,
        changed: status.stx_ctime.tv_sec,
        accessed: status.stx_atime.tv_sec,
        offline: false,
    })
}

/// Returns the total and the free space of a file system.
pub(super) fn usage_of(place: impl AsFd) -> io::Result<SpaceUsage> {
    let figures = rustix::fs::fstatvfs(place)?;
    let free = figures.f_bavail.saturating_mul(figures.f_frsize);
    let total = figures.f_blocks.saturating_mul(figures.f_frsize);
    Ok(SpaceUsage { total, free, largest_free: free, ..SpaceUsage::default() })
}
