//! Files that are replaced as a whole: [`FileLock`], [`replace_file`], and the rules by which root
//! changes files of other users.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use base::Rng;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, statat};

use crate::trusted_file::{STICKY, TrustedOwner, is_of_root_alone};

/// A lock on a file against other changes. It is a file beside that one, which itself is replaced.
/// Dropping it removes the file.
pub(crate) struct FileLock {
    path: PathBuf,
    _file: File,
}

impl FileLock {
    /// Waits for the lock.
    pub(crate) fn acquire(locked: &Path) -> io::Result<Self> {
        let mut name = locked.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(".lock");
        let path = locked.with_file_name(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?);
            let found = file.metadata()?;
            let owners = [0, rustix::process::geteuid().as_raw()];
            if !found.is_file() || !owners.contains(&found.uid()) {
                // Another user could keep the lock for ever.
                let text = format!("the lock {} is not a file of this user; remove it", path.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            flock(&file, FlockOperation::LockExclusive)?;
            // The previous holder may have removed the file between open and lock. Then the next
            // change would lock a new file.
            let is_current = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|named| named.st_ino == found.ino() && named.st_dev == found.dev());
            if is_current {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A file that stays behind is locked by the next change.
        fs::remove_file(&self.path).ok();
    }
}

/// Returns the directory of a file.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

/// Reports whether only root can exchange the file at a path. The owner of a directory above could
/// exchange the file, or the next directory, for a link while root works on it, and so could the owner
/// of a file in a sticky directory. A path through links counts as replaceable, because the
/// directories that contain the links are not examined.
#[must_use]
pub fn only_root_replaces(path: &Path) -> bool {
    let Ok(directory) = std::path::absolute(directory_of(path)) else { return false };
    fs::canonicalize(&directory).is_ok_and(|real| real == directory)
        && fs::metadata(&directory).is_ok_and(|found| is_of_root_alone(&found))
        && directory.ancestors().skip(1).all(only_root_replaces_directories)
}

/// Reports whether only root can exchange the directories of root in a directory.
fn only_root_replaces_directories(directory: &Path) -> bool {
    let is_sticky = |found: &fs::Metadata| found.uid() == 0 && found.mode() & STICKY != 0;
    fs::metadata(directory).is_ok_and(|found| is_of_root_alone(&found) || is_sticky(&found))
}

/// Reports whether this process is one of root and may change the file of any user at a path.
fn edits_any(path: &Path) -> bool {
    rustix::process::geteuid().is_root() && only_root_replaces(path)
}

/// Returns the users that may own the file at a path for somebody who changes it.
pub(crate) fn editor_trust(path: &Path) -> TrustedOwner {
    if edits_any(path) { TrustedOwner::AnyInDirectoryOfRoot } else { TrustedOwner::Own }
}

/// Returns the user and group that own the file at a path, if root may change it for them.
pub(crate) fn owner_for_root(path: &Path) -> Option<(u32, u32)> {
    let found = path.symlink_metadata().ok().filter(|found| edits_any(path) && found.is_file())?;
    Some((found.uid(), found.gid()))
}

/// Checks that the file at a path would not get another owner. Its present one could not read it.
pub(crate) fn check_owner(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    let own = rustix::process::geteuid();
    let next = owner.filter(|_| own.is_root()).map_or(own.as_raw(), |(user, _)| user);
    match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.uid() != next => {
            let text = "it belongs to another user and cannot be read; change it as that user, or remove it";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        }
        _ => Ok(()),
    }
}

/// Replaces a file, which is there as a whole or not at all. `owner` is the user and group that it is
/// for, if root writes it. It is durable after [`sync_directory_of`].
///
/// # Errors
/// The error of the file system. The previous file is unchanged.
pub(crate) fn replace_file(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
    rng: &mut dyn Rng,
) -> io::Result<()> {
    let beside = beside(path, rng)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(&beside, flags, Mode::from_raw_mode(mode))?);
    // From here on the file is one of this call, which removes it.
    let replaced = write_to(file, content, mode, owner).and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&beside);
    }
    replaced
}

fn write_to(mut file: File, content: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((user, group)) = owner.filter(|_| rustix::process::geteuid().is_root()) {
        fchown(&file, Some(user), Some(group))?;
    }
    // The mask of the process may have removed permissions.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the names in the directory of a file durable.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Returns a new name in the directory of `path`.
fn beside(path: &Path, rng: &mut dyn Rng) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let mut random = [0; 8];
    rng.fill(&mut random);
    name.push(format!(".{:016x}.new", u64::from_be_bytes(random)));
    Ok(path.with_file_name(name))
}
