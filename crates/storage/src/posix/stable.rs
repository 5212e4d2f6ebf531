//! The identity of a file, and syncs that bring its name to stable storage.
//!
//! Both exist for records that must still be valid after a restart or a power failure.

use super::tree::ConfinedTree;
use crate::FileIdentity;
use base::LogicalPath;
use digest::{Algorithm, RunningChecksum};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// Maximum length of a file handle (`MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// Returns the identity of an open file or `O_PATH` descriptor.
pub(super) fn identity(fd: impl AsFd) -> io::Result<FileIdentity> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let status = match rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, wanted) {
        // Some containers forbid the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let status = rustix::fs::fstat(&fd)?;
            let (device, inode, handle) = (status.st_dev, status.st_ino, nfs_handle(fd.as_fd()));
            return Ok(FileIdentity { device, inode, born: None, handle });
        }
        other => other?,
    };
    let has_birth = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    Ok(FileIdentity {
        device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        born: has_birth.then_some((status.stx_btime.tv_sec, status.stx_btime.tv_nsec)),
        handle: if has_birth { None } else { nfs_handle(fd.as_fd()) },
    })
}

/// Returns a digest of the handle of a file on NFS. Handles of other file systems prove less: those
/// of FUSE, for example, are numbers that each mount assigns anew.
fn nfs_handle(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let is_nfs = rustix::fs::fstatfs(fd).ok()?.f_type == libc::NFS_SUPER_MAGIC;
    if is_nfs { handle(fd) } else { None }
}

/// Returns a digest of the handle of a file; `None` where the kernel does not provide one.
fn handle(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        content: [u8; HANDLE_BYTES_MAX],
    }
    let mut handle = Handle { bytes: HANDLE_BYTES_MAX as u32, kind: 0, content: [0; HANDLE_BYTES_MAX] };
    let mut mount = 0;
    // SAFETY: `Handle` starts like a `file_handle`, and `bytes` is the number of bytes that follow
    // for its content. The descriptor, the name and both results live as long as the call.
    let result = unsafe {
        libc::name_to_handle_at(
            fd.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return None;
    }
    let content = handle.content.get(..handle.bytes as usize)?;
    let sum = RunningChecksum::of(Algorithm::Sha256, &[&handle.kind.to_le_bytes()[..], content].concat());
    let (one, rest) = sum.bytes().split_first_chunk()?;
    Some((u64::from_le_bytes(*one), u64::from_le_bytes(*rest.first_chunk()?)))
}

/// Reports whether the last component of a path exists, without following it.
pub(super) fn has_name(tree: &ConfinedTree, path: &LogicalPath) -> io::Result<bool> {
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
        // File systems that cannot sync a directory write names through. A directory with write but
        // without read permission can be synced only by its owner.
        Err(Errno::INVAL | Errno::NOTSUP | Errno::ACCESS) => Ok(()),
        other => Ok(other?),
    }
}

/// Waits until the name of a local file has reached stable storage.
pub(super) fn sync_local_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    sync_directory(rustix::fs::openat(CWD, directory, place, Mode::empty())?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_handle_names_one_file_under_all_its_names() {
        let path = std::env::temp_dir().join(format!("storage-handle-{}", std::process::id()));
        let (one, two) = (File::create(&path).unwrap(), File::create(path.with_extension("2")).unwrap());
        let of = |file: &File| handle(file.as_fd());
        let before = of(&one);
        fs::rename(&path, path.with_extension("moved")).unwrap();
        assert_eq!(of(&File::open(path.with_extension("moved")).unwrap()), before);
        // Some file systems do not have handles.
        assert!(before.is_none() || of(&two) != before);
        assert!(is_known_by_birth_or_inode(&one));
        fs::remove_file(path.with_extension("moved")).unwrap();
        fs::remove_file(path.with_extension("2")).unwrap();
    }

    fn is_known_by_birth_or_inode(file: &File) -> bool {
        let is_nfs = rustix::fs::fstatfs(file).unwrap().f_type == libc::NFS_SUPER_MAGIC;
        is_nfs || identity(file).unwrap().handle.is_none()
    }
}
