//! Files of a [`Posix`](super::Posix) backend that are held open.

use super::attribute::{self, AttributeBearer};
use super::calls::{QUIET, metadata};
use super::incoming::{is_same_file, leads_to};
use super::opening::{OngoingRemovals, look_up, open_named};
use super::space::Spaces;
use super::tree::{ConfinedTree, ParentDirectory, directory_of};
use crate::{FileVersion, HeldFile, Metadata};
use base::LogicalPath;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// `st_mode` without the type.
const MODE_BITS: u32 = 0o7777;

/// A file that is held open.
pub(super) struct PosixHeldFile {
    tree: Arc<ConfinedTree>,
    removals: Arc<OngoingRemovals>,
    spaces: Option<Arc<Spaces>>,
    /// The path of the file below the root.
    stored: LogicalPath,
    file: OwnedFd,
}

/// Opens the regular file at a path below the root. A link is followed only if it is that of a file in
/// a space; the error of others is `ELOOP`.
pub(super) fn open(
    tree: &ConfinedTree,
    spaces: Option<&Spaces>,
    stored: &LogicalPath,
) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY;
    let file = match tree.open(stored, flags | OFlags::NOFOLLOW | QUIET, 0) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            let (parent, name) = tree.parent(stored)?;
            if spaces.and_then(|spaces| spaces.data_behind((&parent, name))).is_none() {
                return Err(error);
            }
            tree.open(stored, flags | QUIET, 0)?
        }
        other => other?,
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::NOTBLK.into()),
    }
}

/// Opens such a file when no removal of this process is in the way.
fn open_settled(
    tree: &ConfinedTree,
    removals: &OngoingRemovals,
    spaces: Option<&Spaces>,
    stored: &LogicalPath,
) -> io::Result<OwnedFd> {
    let find = || open(tree, spaces, stored).map(|fd| (fd, ()));
    Ok(open_named(removals, stored, || look_up(removals, stored, find))?.0)
}

impl PosixHeldFile {
    /// Opens the file at a path below the root. It waits for a removal of the file that does not take
    /// place, as opens of clients do.
    pub(super) fn new(
        tree: &Arc<ConfinedTree>,
        removals: &Arc<OngoingRemovals>,
        spaces: Option<&Arc<Spaces>>,
        stored: &LogicalPath,
    ) -> io::Result<Self> {
        let file = open_settled(tree, removals, spaces.map(Arc::as_ref), stored)?;
        let (tree, removals) = (tree.clone(), removals.clone());
        Ok(Self { tree, removals, spaces: spaces.cloned(), stored: stored.clone(), file })
    }

    fn bearer(&self) -> AttributeBearer<'_> {
        AttributeBearer::from(self.file.as_fd())
    }
}

/// Makes a change that needs write permission. The owner of a file without it has it meanwhile.
pub(super) fn with_write_permission(file: &OwnedFd, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let refused = match make() {
        Err(error) if error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => error,
        other => return other,
    };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode & MODE_BITS);
    if rustix::fs::fchmod(file, mode | Mode::WUSR).is_err() {
        return Err(refused);
    }
    let made = make();
    rustix::fs::fchmod(file, mode)?;
    made
}

impl HeldFile for PosixHeldFile {
    fn stat(&self) -> io::Result<Metadata> {
        Ok(metadata(&rustix::fs::fstat(&self.file)?))
    }

    fn version(&self) -> io::Result<FileVersion> {
        let status = rustix::fs::fstat(&self.file)?;
        Ok(FileVersion {
            file: (status.st_dev, status.st_ino),
            size: metadata(&status).size,
            modified: (status.st_mtime, status.st_mtime_nsec),
            changed: (status.st_ctime, status.st_ctime_nsec),
        })
    }

    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        attribute::get(&self.bearer(), name)
    }

    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        with_write_permission(&self.file, || attribute::set(&self.bearer(), name, value, false))
    }

    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        match with_write_permission(&self.file, || attribute::remove(&self.bearer(), name)) {
            Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => Ok(()),
            other => other,
        }
    }

    fn has_name(&self) -> io::Result<bool> {
        match open_settled(&self.tree, &self.removals, self.spaces.as_deref(), &self.stored) {
            Ok(named) => is_same_file(&named, &self.file),
            Err(error) if crate::is_missing(&error) => Ok(false),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                // Something else has the name.
                Some(Errno::LOOP | Errno::ISDIR | Errno::NOTBLK | Errno::NXIO) => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn local_path(&self) -> io::Result<PathBuf> {
        let (parent, name) = self.tree.parent(&self.stored)?;
        let parent = match parent {
            ParentDirectory::Root(fd) => fd.try_clone_to_owned()?,
            ParentDirectory::Below(fd) => fd,
        };
        Ok(directory_of(&parent)?.join(OsStr::from_bytes(name)))
    }

    fn data_path(&self) -> io::Result<PathBuf> {
        let (parent, name) = self.tree.parent(&self.stored)?;
        match self.spaces.as_ref().and_then(|spaces| spaces.data_behind((&parent, name))) {
            None => self.local_path(),
            Some(data) if leads_to(CWD, data.as_os_str().as_bytes(), &self.file)? => Ok(data),
            Some(_) => Err(Errno::STALE.into()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // It fails for a file of another user, whose access time then changes.
        rustix::fs::fcntl_setfl(&self.file, OFlags::NOATIME).ok();
        Ok(rustix::io::pread(&self.file, buffer, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.file)?)
    }
}
