//! Temporary files of a [`Posix`](super::Posix) backend for files that come from elsewhere.

use super::attribute::{self, AttributeBearer};
use super::calls::{QUIET, exact_mode, metadata};
use super::incoming_data::{IncomingData, SpaceWish, remove_linked_leftover};
use super::space::Spaces;
use super::stable;
use super::tree::{ConfinedTree, ParentDirectory, directory_of, proc_name};
use crate::incoming::{INCOMING_MODIFIED, INCOMING_PREFIX, IncomingFile, lock_file, lock_file_shared};
use crate::{Leftovers, Metadata, ParentCreation};
use base::LogicalPath;
use digest::{Algorithm, RunningChecksum};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The attribute of temporary files. Its value is the version of their form.
const ATTRIBUTE: &str = "user.scalla.incoming";
const ATTRIBUTE_VALUE: &[u8] = b"1";

/// The access time of a file that a purge has hidden, if there was no room for the attribute. File systems
/// keep seconds at least.
pub(super) const HIDDEN_ACCESS: Timespec = Timespec { tv_sec: 0x005c_a11a, tv_nsec: 0 };

/// Mode of a file until it gets its name.
const MODE_INCOMING: u32 = 0o600;

/// Hexadecimal digits of a temporary name.
const NAME_DIGITS: usize = 32;

/// The end of the name of a file that a program creates itself. It has neither mark nor lock: those of the temporary file
/// beside it count.
const CREATED_SUFFIX: &[u8] = b".created";

/// Number of attempts to get the lock after the end of a program, and the time between them.
const ENDING_TRIES: usize = 50;
const ENDING_INTERVAL: Duration = Duration::from_millis(10);

/// Number of attempts to create or lock a temporary file that is removed concurrently.
const TRIES: usize = 16;

/// A temporary file.
pub(super) struct PosixIncoming {
    /// The data file, if it is in a space. The temporary name is that of a link to it.
    data: Option<IncomingData>,
    tree: Arc<ConfinedTree>,
    /// The path of the file below the root.
    stored: LogicalPath,
    parent: OwnedFd,
    /// The temporary name in the directory.
    name: Vec<u8>,
    /// The locked file.
    locked: OwnedFd,
    mode: u32,
    /// It has its name, so nothing of it is removed any more.
    is_published: bool,
    /// The version that was returned last.
    examined: Option<FileContent>,
}

/// Device, inode, size and modification time of a file.
type FileContent = (u64, u64, u64, i64, u32);

fn version_of(file: &Metadata) -> FileContent {
    (file.device, file.inode, file.size, file.modified, file.modified_nanoseconds)
}

/// Reports whether a name has the form of [`temporary_name`].
fn is_temporary_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(INCOMING_PREFIX);
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|digits| digits.len() == NAME_DIGITS && digits.iter().all(is_digit))
}

/// Returns the temporary name beside a name. It is always the same, so that a second try finds the
/// file and the lock of the first one.
pub(super) fn temporary_name(name: &[u8]) -> Vec<u8> {
    let hash = RunningChecksum::of(Algorithm::Sha256, name).hex();
    [INCOMING_PREFIX, hash.get(..NAME_DIGITS).unwrap_or(&hash).as_bytes()].concat()
}

impl PosixIncoming {
    /// Creates the temporary file for a path below the root. The errors are those of
    /// [`crate::TransferStorage::receive`].
    pub(super) fn new(
        tree: &Arc<ConfinedTree>,
        (spaces, wish): (Option<&Spaces>, Option<SpaceWish<'_>>),
        stored: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<Self> {
        let (parent, name) = tree.parent_made(stored, parents)?;
        let parent = match parent {
            ParentDirectory::Root(fd) => fd.try_clone_to_owned()?,
            ParentDirectory::Below(fd) => fd,
        };
        let temporary = temporary_name(name);
        if is_dangling(&parent, name)? {
            return Err(Errno::NOLINK.into());
        }
        for _ in 0..TRIES {
            remove_earlier_try(&parent, &temporary, spaces)?;
            let created = match &wish {
                None => create_locked(&parent, &temporary)?.map(|locked| (locked, None)),
                Some(wish) => IncomingData::create(wish, (&parent, &temporary))?
                    .map(|(locked, data)| (locked, Some(data))),
            };
            let Some((locked, data)) = created else { continue };
            stable::sync_directory(&parent)?;
            let (tree, stored) = (tree.clone(), stored.clone());
            return Ok(Self {
                data,
                tree,
                stored,
                parent,
                name: temporary,
                locked,
                mode,
                is_published: false,
                examined: None,
            });
        }
        Err(Errno::AGAIN.into())
    }

    /// Fails if the directory was moved, because the file would appear at another path.
    fn check_directory(&self) -> io::Result<&[u8]> {
        let (parent, name) = self.tree.parent(&self.stored)?;
        if is_same_file(&parent, &self.parent)? { Ok(name) } else { Err(Errno::STALE.into()) }
    }

    /// Takes the lock with a new open file description. `EBUSY` if a process is left that inherited
    /// the old one: it could still write the file.
    fn prove_alone(&mut self) -> io::Result<()> {
        // The old and the new description share the lock for a moment. Without any lock in between,
        // the search for leftovers would remove the file.
        lock_file_shared(self.locked.as_fd())?;
        let alone = reopened(&self.locked)?;
        lock_file_shared(alone.as_fd())?;
        self.locked = alone;
        for _ in 0..ENDING_TRIES {
            if lock_file(self.locked.as_fd())? {
                return Ok(());
            }
            // Processes that were killed need a moment to end.
            std::thread::sleep(ENDING_INTERVAL);
        }
        Err(Errno::BUSY.into())
    }

    /// Returns the directory and the name of the file that a program writes.
    fn place(&self) -> (&OwnedFd, &[u8]) {
        self.data.as_ref().map_or((&self.parent, &self.name), IncomingData::place)
    }

    /// Gives the file its name where the file system cannot rename without replacing.
    fn link(&self, name: &[u8]) -> io::Result<()> {
        match &self.data {
            None => rustix::fs::linkat(&self.parent, &*self.name, &self.parent, name, AtFlags::empty())?,
            Some(data) => {
                // After a crash the temporary name must not lead to the removal of the data.
                unmark(&self.locked)?;
                rustix::fs::symlinkat(data.path(), &self.parent, name)?;
            }
        }
        // The file has its name, so this is no failure of it.
        if let Err(error) = rustix::fs::unlinkat(&self.parent, &*self.name, AtFlags::empty()) {
            let path = self.stored.shown();
            tracing::warn!(%path, %error, "cannot remove the temporary name of a file that is complete");
        }
        Ok(())
    }

    /// Completes a file that has its name by now. Clients may have written it, so a failure is logged and undoes nothing:
    /// the worst that a power failure can take is the name, and the file is staged again.
    fn complete(&self) {
        let path = self.stored.shown();
        if let Some(Err(error)) = self.data.as_ref().map(|data| data.account(&self.locked)) {
            tracing::warn!(%path, %error, "cannot account for a file that has come: frm_admin audit usage mends it");
        }
        if let Err(error) = stable::sync_directory(&self.parent) {
            tracing::warn!(%path, %error, "cannot sync the name of a file that has come");
            return;
        }
        // Only now, so that after a crash a file at the temporary name is recognised. At its final
        // name the attribute has no meaning.
        match unmark(&self.locked) {
            Err(error) if error.raw_os_error() != Some(Errno::NODATA.raw_os_error()) => {
                tracing::warn!(%path, %error, "cannot remove the attribute of a temporary file from one that has come");
            }
            _ => {}
        }
    }

    /// Removes the temporary name, and the data behind it. Data to which the name of the file leads stays, because
    /// somebody else has given it the name.
    fn remove(&self) -> io::Result<()> {
        let Some(data) = &self.data else {
            remove_created(&self.parent, &self.name)?;
            return Ok(rustix::fs::unlinkat(&self.parent, &*self.name, AtFlags::empty())?);
        };
        let (directory, name) = data.place();
        remove_created(directory, name)?;
        if self.stored.file_name().is_some_and(|name| data.is_behind(&self.parent, name)) {
            unmark(&self.locked)?;
        } else if data.is_behind(&self.parent, &self.name) {
            data.remove()?;
        } else {
            // It has another name, or a start has removed both.
            return Err(Errno::STALE.into());
        }
        data.remove_link(&self.parent, &self.name)
    }
}

/// Reports whether a name is a link that leads to nothing.
fn is_dangling(parent: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Symlink => return Ok(false),
        other => other?,
    };
    let behind = rustix::fs::statat(parent, name, AtFlags::empty());
    Ok(matches!(behind, Err(Errno::NOENT | Errno::NOTDIR)))
}

/// Opens a file again for reading and writing, whatever mode a program has given it.
fn reopened(file: &OwnedFd) -> io::Result<OwnedFd> {
    exact_mode(file, MODE_INCOMING)?;
    let flags = OFlags::RDWR | QUIET;
    Ok(rustix::fs::openat(CWD, proc_name(file.as_fd()), flags, Mode::empty())?)
}

pub(super) fn is_same_file(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Reports whether a name leads to an open file.
pub(super) fn leads_to(parent: impl AsFd, name: &[u8], file: &OwnedFd) -> io::Result<bool> {
    let (open, named) = (
        rustix::fs::fstat(file)?,
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            other => other?,
        },
    );
    Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino))
}

/// Checks that what a program has created is a regular file with one name. With another name (`ln`), it would be that of
/// a file which somebody else changes.
fn check_own_file(file: &OwnedFd) -> io::Result<()> {
    let status = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Errno::NOTBLK.into());
    }
    if status.st_nlink == 1 { Ok(()) } else { Err(Errno::MLINK.into()) }
}

/// Returns the name beside that of a temporary file at which a program creates the file itself.
fn created_name(name: &[u8]) -> Vec<u8> {
    [name, CREATED_SUFFIX].concat()
}

/// Removes what a program has created beside a temporary file. Only its owner may do that: the lock of the temporary file
/// is that of both.
pub(super) fn remove_created(directory: impl AsFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, created_name(name), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes what an earlier try has left at a temporary name. `EBUSY` if its program still writes it, and `EEXIST` if it is
/// something else.
fn remove_earlier_try(parent: &OwnedFd, name: &[u8], spaces: Option<&Spaces>) -> io::Result<()> {
    match rustix::fs::openat(parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | QUIET, Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP) => match remove_linked_leftover(parent, name, spaces)? {
            Leftover::Removed | Leftover::Gone => {}
            Leftover::InUse => return Err(Errno::BUSY.into()),
            Leftover::Unknown => return Err(Errno::EXIST.into()),
        },
        Err(error) => return Err(error.into()),
        Ok(old) => {
            let bearer = AttributeBearer::from(old.as_fd());
            let is_marked = attribute::get(&bearer, ATTRIBUTE)?.is_some();
            // A process that is killed right after the creation leaves an empty file.
            if !is_marked && rustix::fs::fstat(&old)?.st_size > 0 {
                return Err(Errno::EXIST.into());
            }
            let old = reopened(&old)?;
            if !lock_file(old.as_fd())? {
                return Err(Errno::BUSY.into());
            }
            if leads_to(parent, name, &old)? {
                remove_created(parent, name)?;
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            }
        }
    }
    Ok(())
}

/// Creates the temporary file and locks it. Returns `None` if another thread was in the way.
fn create_locked(parent: &OwnedFd, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let create = OFlags::RDWR | OFlags::NOFOLLOW | QUIET | OFlags::CREATE | OFlags::EXCL;
    let new = match rustix::fs::openat(parent, name, create, Mode::from_raw_mode(MODE_INCOMING)) {
        Err(Errno::EXIST) => return Ok(None),
        other => other?,
    };
    exact_mode(&new, MODE_INCOMING)?;
    Ok((prepare(&new)? && leads_to(parent, name, &new)?).then_some(new))
}

/// Locks and marks a new temporary file. Returns `false` if another thread was in the way.
pub(super) fn prepare(new: &OwnedFd) -> io::Result<bool> {
    // Before the mark, by which a search for leftovers recognises the file.
    if !lock_file(new.as_fd())? {
        return Ok(false);
    }
    mark(new)?;
    let unwritten = Timespec { tv_sec: INCOMING_MODIFIED, tv_nsec: 0 };
    let times = Timestamps { last_access: unwritten, last_modification: unwritten };
    rustix::fs::futimens(new, &times)?;
    Ok(true)
}

/// Sets the attribute of temporary files.
pub(super) fn mark(file: &OwnedFd) -> io::Result<()> {
    attribute::set(&AttributeBearer::from(file.as_fd()), ATTRIBUTE, ATTRIBUTE_VALUE, false)
}

/// Removes the attribute of temporary files.
pub(super) fn unmark(file: &OwnedFd) -> io::Result<()> {
    attribute::remove(&AttributeBearer::from(file.as_fd()), ATTRIBUTE)
}

/// Implements [`crate::TransferStorage::remove_leftovers`] for an open directory.
pub(super) fn remove_leftovers(directory: &OwnedFd, spaces: Option<&Spaces>) -> io::Result<Leftovers> {
    let mut leftovers = Leftovers::default();
    let mut names = Dir::read_from(directory)?;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let beside = name.strip_suffix(CREATED_SUFFIX).filter(|beside| is_temporary_name(beside));
        let result = match beside {
            Some(beside) => remove_orphan(directory, name, beside),
            None if is_temporary_name(name) => remove_leftover(directory, name, spaces),
            None => continue,
        };
        let number = match result {
            Ok(Leftover::Removed) => &mut leftovers.removed,
            Ok(Leftover::InUse) => &mut leftovers.in_use,
            Ok(Leftover::Gone) => continue,
            Ok(Leftover::Unknown) | Err(_) => &mut leftovers.unknown,
        };
        *number += 1;
    }
    if leftovers.removed > 0 {
        stable::sync_directory(directory)?;
    }
    Ok(leftovers)
}

/// Removes a file that a program has created after the removal of the temporary file beside it. While that exists,
/// both stay or go together.
fn remove_orphan(directory: &OwnedFd, name: &[u8], beside: &[u8]) -> io::Result<Leftover> {
    match rustix::fs::statat(directory, beside, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        other => return other.map(|_| Leftover::Gone).map_err(Into::into),
    }
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(Leftover::Gone),
        other => Ok(other.map(|()| Leftover::Removed)?),
    }
}

/// What became of a file at a temporary name.
pub(super) enum Leftover {
    Removed,
    InUse,
    Gone,
    Unknown,
}

/// Reports whether a file has the access time that a purge sets instead of the attribute.
pub(super) fn has_hidden_access(status: &Stat) -> bool {
    accessed(status) == HIDDEN_ACCESS
}

/// Returns the access time of a file.
pub(super) fn accessed(status: &Stat) -> Timespec {
    // The types of the fields differ between architectures.
    Timespec { tv_sec: status.st_atime as _, tv_nsec: status.st_atime_nsec as _ }
}

/// Removes a file at a temporary name if it has the mark of temporary files, and if nobody has
/// locked it.
pub(super) fn remove_leftover(
    directory: &OwnedFd,
    name: &[u8],
    spaces: Option<&Spaces>,
) -> io::Result<Leftover> {
    let kind = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Leftover::Gone),
        other => FileType::from_raw_mode(other?.st_mode),
    };
    match kind {
        FileType::RegularFile => {}
        FileType::Symlink => return remove_linked_leftover(directory, name, spaces),
        _ => return Ok(Leftover::Unknown),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        // It is being purged.
        Err(Errno::AGAIN) => return Ok(Leftover::InUse),
        other => other?,
    };
    if !is_marked(&file)? {
        return Ok(Leftover::Unknown);
    }
    let Some(locked) = lock_leftover(&file)? else { return Ok(Leftover::InUse) };
    if !leads_to(directory, name, &locked)? {
        return Ok(Leftover::Gone);
    }
    remove_created(directory, name)?;
    rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    Ok(Leftover::Removed)
}

/// Reports whether a file has the mark of temporary files.
pub(super) fn is_marked(file: &OwnedFd) -> io::Result<bool> {
    let mark = attribute::get(&AttributeBearer::from(file.as_fd()), ATTRIBUTE)?;
    Ok(mark.as_deref() == Some(ATTRIBUTE_VALUE) || has_hidden_access(&rustix::fs::fstat(file)?))
}

/// Opens a temporary file for writing and locks it; `None` if somebody else has locked it.
pub(super) fn lock_leftover(file: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let writable = rustix::fs::openat(CWD, proc_name(file.as_fd()), OFlags::RDWR | QUIET, Mode::empty());
    let locked = match writable {
        // With a second name, it is the file that was about to be published, and keeps its mode.
        Err(Errno::ACCESS) if rustix::fs::fstat(file)?.st_nlink == 1 => reopened(file)?,
        other => other?,
    };
    Ok(lock_file(locked.as_fd())?.then_some(locked))
}

impl IncomingFile for PosixIncoming {
    fn local_path(&self) -> io::Result<PathBuf> {
        match &self.data {
            Some(data) => Ok(data.path().to_owned()),
            None => Ok(directory_of(&self.parent)?.join(OsStr::from_bytes(&self.name))),
        }
    }

    fn vacant_path(&self) -> io::Result<PathBuf> {
        let (directory, name) = self.place();
        remove_created(directory, name)?;
        let mut path = self.local_path()?.into_os_string();
        path.push(OsStr::from_bytes(CREATED_SUFFIX));
        Ok(path.into())
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.prove_alone()?;
        let (directory, name) = self.place();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
        let created = match rustix::fs::openat(directory, created_name(name), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        check_own_file(&created)?;
        let new = reopened(&created)?;
        if !lock_file(new.as_fd())? {
            return Err(Errno::BUSY.into());
        }
        // After a crash it has to be recognised under its new name.
        mark(&new)?;
        rustix::fs::renameat(directory, created_name(name), directory, name)?;
        self.locked = new;
        Ok(())
    }

    fn local_target(&self) -> io::Result<PathBuf> {
        let name = self.stored.file_name().unwrap_or_default();
        Ok(directory_of(&self.parent)?.join(OsStr::from_bytes(name)))
    }

    fn lock(&self) -> io::Result<OwnedFd> {
        self.locked.try_clone()
    }

    fn stat(&mut self) -> io::Result<Metadata> {
        self.prove_alone()?;
        // Its program may have taken the right to write.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
        let (directory, name) = self.place();
        let named = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        if !is_same_file(&named, &self.locked)? {
            check_own_file(&named)?;
            let new = reopened(&named)?;
            if !lock_file(new.as_fd())? {
                return Err(Errno::BUSY.into());
            }
            mark(&new)?;
            self.locked = new;
        }
        let status = rustix::fs::fstat(&self.locked)?;
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let found = metadata(&status);
                self.examined = Some(version_of(&found));
                Ok(found)
            }
            _ => Err(Errno::NOTBLK.into()),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.locked, buffer, offset)?)
    }

    fn set_modified(&self, seconds: i64) -> io::Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
        };
        Ok(rustix::fs::futimens(&self.locked, &times)?)
    }

    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        attribute::set(&AttributeBearer::from(self.locked.as_fd()), name, value, false)
    }

    fn publish(&mut self) -> io::Result<()> {
        let examined = self.examined.take();
        let found = self.stat()?;
        // What was examined is what gets the name.
        if examined.is_some_and(|examined| examined != version_of(&found)) {
            return Err(Errno::STALE.into());
        }
        exact_mode(&self.locked, self.mode)?;
        // Whoever waits for the file accesses it now.
        let accessed = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let unchanged = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        rustix::fs::futimens(
            &self.locked,
            &Timestamps { last_access: accessed, last_modification: unchanged },
        )?;
        if let Some(data) = &self.data {
            data.set_name(&self.locked, &self.stored);
        }
        rustix::fs::fsync(&self.locked)?;
        let name = self.check_directory()?;
        if let Some(data) = &self.data {
            data.sync_entry(&self.parent, &self.name)?;
        }
        let renamed =
            rustix::fs::renameat_with(&self.parent, &*self.name, &self.parent, name, RenameFlags::NOREPLACE);
        match renamed {
            // The file system cannot rename without replacing.
            Err(Errno::INVAL | Errno::NOSYS) => self.link(name)?,
            other => other?,
        }
        self.is_published = true;
        self.complete();
        Ok(())
    }

    fn discard(mut self: Box<Self>) -> io::Result<()> {
        if self.is_published {
            return Ok(());
        }
        self.prove_alone()?;
        match self.remove() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
