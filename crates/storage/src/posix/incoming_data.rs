//! Temporary files in spaces: the data file lies on a partition, and a link has the temporary name.
//!
//! The link leads the search for leftovers to the data. It becomes the name of the file by a rename, so that the file
//! appears at once. At a removal the data goes first: a link without data is recognised, and data without a link is not.

use super::attribute::{self, AttributeBearer};
use super::calls::QUIET;
use super::incoming::{Leftover, is_marked, leads_to, lock_leftover, prepare, remove_created, unmark};
use super::space::{NAME_ATTRIBUTE, Spaces};
use super::stable;
use crate::posix::partition::SpaceReservation;
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The mode of data until it gets its name.
const MODE: u32 = 0o600;

/// The partition of a new file, as far as its name and size decide about it.
pub(super) struct SpaceWish<'a> {
    pub(super) spaces: &'a Arc<Spaces>,
    /// The logical path.
    pub(super) path: &'a LogicalPath,
    /// Its size, if it is known.
    pub(super) size: Option<u64>,
}

/// A data file to which the link with the temporary name leads.
pub(super) struct IncomingData {
    spaces: Arc<Spaces>,
    path: PathBuf,
    directory: OwnedFd,
    /// Keeps room on the partition.
    _promise: Option<SpaceReservation>,
}

impl IncomingData {
    /// Creates a locked data file, and the link to it. `None` if another thread has created the link.
    pub(super) fn create(
        wish: &SpaceWish<'_>,
        (parent, temporary): (&OwnedFd, &[u8]),
    ) -> io::Result<Option<(OwnedFd, Self)>> {
        let (file, path, promise) = wish.spaces.create_unnamed(wish.path, MODE, wish.size)?;
        let link = || {
            if !prepare(&file)? {
                return Ok(false);
            }
            match rustix::fs::symlinkat(&path, parent, temporary) {
                Err(Errno::EXIST) => Ok(false),
                other => other.map(|()| true).map_err(io::Error::from),
            }
        };
        let linked = link().and_then(|is_linked| Ok(is_linked.then_some(directory_above(&path)?)));
        match linked {
            Ok(Some(directory)) => {
                let data = Self { spaces: wish.spaces.clone(), path, directory, _promise: promise };
                Ok(Some((file, data)))
            }
            other => {
                rustix::fs::unlink(&path).ok();
                other.map(|_| None)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory and the name of the data file.
    pub(super) fn place(&self) -> (&OwnedFd, &[u8]) {
        (&self.directory, self.path.file_name().unwrap_or_default().as_bytes())
    }

    /// Removes the data file. A missing one is no error.
    pub(super) fn remove(&self) -> io::Result<()> {
        let (directory, name) = self.place();
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Reports whether a name in a directory leads to the data.
    pub(super) fn is_behind(&self, directory: &OwnedFd, name: &[u8]) -> bool {
        self.spaces.data_at(directory, name).as_ref() == Some(&self.path)
    }

    /// Removes the link with the temporary name.
    pub(super) fn remove_link(&self, directory: &OwnedFd, name: &[u8]) -> io::Result<()> {
        remove_link(&self.spaces, &self.path, directory, name)
    }

    /// Records the name that the data is about to get.
    pub(super) fn set_name(&self, file: &OwnedFd, stored: &LogicalPath) {
        self.spaces.set_name(file, stored);
    }

    /// Makes the entry of the data file durable. `ESTALE` if the link leads elsewhere by now.
    pub(super) fn sync_entry(&self, parent: &OwnedFd, temporary: &[u8]) -> io::Result<()> {
        if !self.is_behind(parent, temporary) {
            return Err(Errno::STALE.into());
        }
        stable::sync_directory(&self.directory)
    }

    /// Accounts for the bytes of a file that got its name.
    pub(super) fn account(&self, file: &OwnedFd) -> io::Result<()> {
        if let Some((accounts, space)) = self.spaces.account_of(&self.path) {
            let size = rustix::fs::fstat(file)?.st_size;
            accounts.grow(&space, u64::try_from(size).unwrap_or_default());
        }
        Ok(())
    }
}

fn directory_above(data: &Path) -> io::Result<OwnedFd> {
    let above = data.parent().unwrap_or(data);
    Ok(rustix::fs::open(above, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Removes a link at a temporary name if it leads to this data. A missing one, or another one, is no error: somebody else
/// has removed it, and the name may be that of a new file.
pub(super) fn remove_link(spaces: &Spaces, data: &Path, directory: impl AsFd, name: &[u8]) -> io::Result<()> {
    /// Between the look at a link and its removal, nobody else removes it and creates another one.
    static REMOVALS: Mutex<()> = Mutex::new(());
    let _turn = REMOVALS.lock().unwrap_or_else(PoisonError::into_inner);
    if spaces.data_at(&directory, name).as_deref() != Some(data) {
        return Ok(());
    }
    match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes the link at a temporary name and its data, if the data has the mark of temporary files and nobody has locked
/// it.
pub(super) fn remove_linked_leftover(
    directory: &OwnedFd,
    name: &[u8],
    spaces: Option<&Spaces>,
) -> io::Result<Leftover> {
    let Some((spaces, data)) = spaces.and_then(|spaces| Some((spaces, spaces.data_at(directory, name)?)))
    else {
        return Ok(Leftover::Unknown);
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
    let file = match rustix::fs::open(&data, flags, Mode::empty()) {
        // A crash came between the removals of both. On a disk that is not mounted, nothing is missing.
        Err(Errno::NOENT) if !spaces.has_directory_of(&data) => return Ok(Leftover::Unknown),
        Err(Errno::NOENT) => {
            remove_link(spaces, &data, directory, name)?;
            return Ok(Leftover::Removed);
        }
        // It is being purged.
        Err(Errno::AGAIN) => return Ok(Leftover::InUse),
        other => other?,
    };
    if !is_marked(&file)? {
        return Ok(Leftover::Unknown);
    }
    let Some(locked) = lock_leftover(&file)? else { return Ok(Leftover::InUse) };
    if spaces.data_at(directory, name).as_ref() != Some(&data)
        || !leads_to(CWD, data.as_os_str().as_bytes(), &locked)?
    {
        return Ok(Leftover::Gone);
    }
    let own_name = attribute::get(&AttributeBearer::from(locked.as_fd()), NAME_ATTRIBUTE)?;
    if own_name.as_deref().is_some_and(|own_name| is_link_to(own_name, &data)) {
        // A tool has given it its name back.
        unmark(&locked)?;
    } else {
        remove_created(CWD, data.as_os_str().as_bytes())?;
        // One with a name was about to be purged, or to be published. Only the former is part of the usage, but a crash
        // in that moment of the latter is rare.
        // As long as it stays, so does the link that leads to it.
        let account = spaces.account_of(&data).filter(|_| own_name.is_some());
        match Spaces::unlink_data(&data, account) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    remove_link(spaces, &data, directory, name)?;
    Ok(Leftover::Removed)
}

/// Reports whether a local path, with a NUL behind it, is a link to this data.
fn is_link_to(path: &[u8], data: &Path) -> bool {
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let target = rustix::fs::readlinkat(CWD, path, Vec::new());
    target.is_ok_and(|target| target.to_bytes() == data.as_os_str().as_bytes())
}
