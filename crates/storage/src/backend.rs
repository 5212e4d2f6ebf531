//! The traits that every storage backend implements: [`Backend`] for names, [`StoredFile`] for
//! data.
//!
//! They exist so that the `logical` crate never calls the operating system itself. Therefore tests
//! can replace the disk by another backend, such as [`crate::Faulty`].
//!
//! Calls may block and are made on a [`crate::Pool`] thread. Calls whose names end in `_now` never
//! wait for a disk; they return [`Now::WouldBlock`] instead. Errors are those of the operating
//! system; the `logical` crate turns them into messages for clients.

use crate::directory_stream::DirectoryStream;
use crate::existing_name::ExistingName;
use crate::pool::{Job, Pool};
use crate::ring::Completion;
use crate::transfer::TransferStorage;
use crate::user::StorageUser;
use base::{CopyRange, Extent, LogicalPath, Owner, ReadPiece};
use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The result of a call that must not block, with an error of the operating system. On
/// [`base::Now::WouldBlock`] the caller makes the blocking call on the pool instead.
pub type Now<T> = base::Now<T, io::Error>;

/// The options for creating a file that does not exist.
#[derive(Clone)]
pub struct CreateMode {
    /// Fail if the file exists (`O_EXCL`).
    pub exclusive: bool,
    /// Permission bits. The sticky bit marks a file that is not complete yet.
    pub mode: u32,
    /// The creation of missing parent directories. `None`: do not create them.
    pub parents: Option<ParentCreation>,
    /// The final size in bytes, if the client announced it; a hint for choosing a partition.
    pub size_hint: Option<u64>,
    /// The space (`oss.cgroup`) in which to create the file.
    pub space: Option<String>,
    /// Create the file on the file system of this one.
    pub beside: Option<Arc<dyn StoredFile>>,
    /// The partition that [`Backend::placement`] chose for the file.
    pub at: Option<WorkPlacement>,
}

/// The missing parent directories that a call may create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentCreation {
    /// Their permission bits.
    pub mode: u32,
    /// A directory above the path that must exist, so that parents are created only below it. If it
    /// does not exist when the call looks for it, the call fails with `EACCES` and creates nothing.
    /// `None`: create all missing parents.
    pub below: Option<LogicalPath>,
}

impl ParentCreation {
    /// Creates all missing parents with this mode.
    #[must_use]
    pub const fn everywhere(mode: u32) -> Self {
        Self { mode, below: None }
    }

    /// Reports whether a missing directory may be created.
    #[must_use]
    pub fn allows(&self, directory: &LogicalPath) -> bool {
        self.below.as_ref().is_none_or(|below| directory.is_within(below) && !below.is_within(directory))
    }
}

/// The destination of work that cannot be done in the pool of its path: a pool, and for a new file
/// a partition.
#[derive(Clone)]
pub struct WorkPlacement {
    /// The pool of the file system that the work is for.
    pub pool: Arc<Pool>,
    /// The partition of a new file.
    pub(crate) partition: Option<usize>,
}

impl WorkPlacement {
    /// Returns a destination without a partition.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, partition: None }
    }
}

/// The options for opening a file. An open file is always readable.
#[derive(Clone, Default)]
pub struct OpenMode {
    /// Open for writing as well.
    pub write: bool,
    /// Truncate to zero bytes at open.
    pub truncate: bool,
    /// Create the file if it is missing.
    pub create: Option<CreateMode>,
}

/// The status of a file or directory, as `stat` returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// `st_mode`: type and permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// User number of the owner.
    pub uid: u32,
    /// Group number of the owner.
    pub gid: u32,
    /// Time of the last modification, in seconds since the epoch.
    pub modified: i64,
    /// The nanoseconds of the modification time. Stored checksums are compared with the seconds
    /// only, our own caches with both.
    pub modified_nanoseconds: u32,
    /// Time of the last status change (`st_ctime`), in seconds since the epoch.
    pub changed: i64,
    /// Time of the last access, in seconds since the epoch.
    pub accessed: i64,
    /// The data of the file is not on disk and needs staging.
    pub offline: bool,
}

/// The identity of a file or directory, which also holds after a reboot of the machine.
///
/// Device numbers can change when a file system is mounted again, and inode numbers are reused for
/// new files. The time of birth is therefore part of the identity where the file system records it.
/// NFS does not record it. There the file handle of the NFS server is used instead, because it
/// identifies one file for ever, independent of the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileIdentity {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of birth in seconds and nanoseconds; `None` where the file system does not record it.
    pub born: Option<(i64, u32)>,
    /// Digest of the NFS file handle; `None` on other file systems.
    pub handle: Option<(u64, u64)>,
}

impl FileIdentity {
    /// Reports whether both identities name the same file.
    ///
    /// Without times of birth and handles the device numbers must be equal too, because inode
    /// numbers are reused and different file systems use the same ones. Device numbers may change
    /// at a reboot. Such a file may then be taken for a different one, but a different file is
    /// never taken for it.
    pub fn is_same(&self, other: &Self) -> bool {
        self.inode == other.inode
            && match ((self.born, other.born), (self.handle, other.handle)) {
                ((Some(one), Some(two)), _) => one == two,
                (_, (Some(one), Some(two))) => one == two,
                _ => self.device == other.device,
            }
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.device, inode: metadata.inode, born: None, handle: None }
    }
}

/// A directory above the place where a path is stored.
#[derive(Debug)]
pub struct DirectoryAbove {
    /// Its path below the root, which with name rules is not the one that clients use.
    pub path: LogicalPath,
    /// Its identity, or the reason for having none.
    pub state: DirectoryState,
}

/// The state of a directory above a path.
#[derive(Debug)]
pub enum DirectoryState {
    /// It exists.
    Found(FileIdentity),
    /// It is not in the directory above it.
    Absent,
    /// It is not there, which does not mean that it was removed: a dangling link leads to it, or it is
    /// missing like the mount point of a file system that is not mounted.
    Detached,
    /// It cannot be read now.
    Unreadable(io::Error),
}

impl DirectoryState {
    pub(crate) fn new(
        identity: io::Result<FileIdentity>,
        has_name: impl FnOnce() -> io::Result<bool>,
    ) -> Self {
        match identity {
            Ok(found) => Self::Found(found),
            Err(error) if is_missing(&error) => match has_name() {
                Ok(false) => Self::Absent,
                _ => Self::Detached,
            },
            Err(error) => Self::Unreadable(error),
        }
    }
}

/// Reports whether an error means that there is no such file. Other errors leave that open.
#[must_use]
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

/// Returns the directories above a path, the root first.
pub(crate) fn directories_above(path: &LogicalPath) -> Vec<LogicalPath> {
    let mut all: Vec<_> = std::iter::successors(path.parent(), LogicalPath::parent).collect();
    all.reverse();
    all
}

/// Returns the directories above a logical path of a backend that stores it there.
pub(crate) fn logical_directories_above<B: Backend + ?Sized>(
    backend: &B,
    path: &LogicalPath,
) -> Vec<DirectoryAbove> {
    let state = |path: &LogicalPath| DirectoryState::new(backend.identity(path), || backend.has_name(path));
    let all = directories_above(path).into_iter();
    all.map(|path| DirectoryAbove { state: state(&path), path }).collect()
}

/// Syncs the name at a path, and those of the directories above it in the same pool; see
/// [`Backend::sync_above`].
pub(crate) fn sync_names<'p>(
    path: &LogicalPath,
    pool: impl Fn(&LogicalPath) -> &'p Arc<Pool>,
    sync: impl Fn(&LogicalPath) -> io::Result<()>,
) -> io::Result<bool> {
    let mut is_there = true;
    let home = pool(path);
    for name in std::iter::successors(Some(path.clone()), LogicalPath::parent) {
        if !name.parent().is_some_and(|directory| Arc::ptr_eq(pool(&directory), home)) {
            break;
        }
        match sync(&name) {
            Err(error) if is_missing(&error) => is_there &= name != *path,
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {}
            other => other?,
        }
    }
    Ok(is_there)
}

/// The space of one or more file systems, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SpaceUsage {
    /// Total size.
    pub total: u64,
    /// Free for this server.
    pub free: u64,
    /// Free on the file system with the most free space.
    pub largest_free: u64,
    /// Used by files of the space, if that is accounted for.
    pub used: Option<u64>,
    /// The quota of the space, if it has one. It is reported and not enforced.
    pub quota: Option<u64>,
}

/// The space of one file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystemUsage {
    /// Device number, which identifies the file system.
    pub number: u64,
    /// Total size.
    pub total: u64,
    /// Free for this server.
    pub free: u64,
}

/// A tree of logical names stored somewhere.
///
/// A backend confines every access to its tree. It does not know the export rules; the caller
/// applies them.
pub trait Backend: Send + Sync {
    /// Returns this storage with the rights of a user; `None` if it only has those of the server.
    fn as_user(&self, user: &Arc<StorageUser>) -> Option<Arc<dyn Backend>> {
        let _ = user;
        None
    }
    /// Opens a file, and creates it if `how` allows that.
    fn open(&self, path: &LogicalPath, how: &OpenMode) -> io::Result<Arc<dyn StoredFile>>;
    /// Returns the operations on files that are copied from and to mass storage, with the rights of the
    /// server; `None` if the backend has none.
    fn transfers(&self) -> Option<&dyn TransferStorage> {
        None
    }
    /// Opens an existing file if its name is in memory.
    fn open_now(&self, path: &LogicalPath, how: &OpenMode) -> Now<Arc<dyn StoredFile>>;
    /// Returns the status of a file or directory, following links inside the tree.
    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata>;
    /// Returns the status if it is in memory, following links inside the tree.
    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata>;
    /// Returns the identity of the file or directory at a path, following links inside the tree. The
    /// error is `EINVAL` for a path that no file can have, so its absence proves nothing.
    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        Ok(FileIdentity::from(&self.stat(path)?))
    }
    /// Returns the path below the root at which a path is stored, which without name rules is the same.
    /// `EINVAL` as for [`Backend::identity`].
    fn stored_path<'p>(&self, path: &'p LogicalPath) -> io::Result<Cow<'p, LogicalPath>> {
        Ok(Cow::Borrowed(path))
    }
    /// Returns the directories above the place where a path is stored, the root first. `EINVAL` as for
    /// [`Backend::identity`].
    fn identities_above(&self, path: &LogicalPath) -> io::Result<Vec<DirectoryAbove>> {
        Ok(logical_directories_above(self, path))
    }
    /// Reports whether the last component of a path exists. A dangling link exists. `EINVAL` as for
    /// [`Backend::identity`].
    fn has_name(&self, path: &LogicalPath) -> io::Result<bool> {
        match self.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|_| true),
        }
    }
    /// Waits until the existence, or the removal, of the name at a path has reached stable storage.
    fn sync_name(&self, _path: &LogicalPath) -> io::Result<()> {
        Ok(())
    }
    /// Makes the name at a path durable, and those of the directories above it on the same file system.
    /// A mount point exists already, and the disk that it is on may hang.
    ///
    /// Reports whether the directory of the file exists. A directory that this process may not search
    /// is left to the file system.
    fn sync_above(&self, path: &LogicalPath) -> io::Result<bool> {
        sync_names(path, |path| self.pool(path), |path| self.sync_name(path))
    }
    /// Reports whether the creation of `path` creates this directory above it, if it is missing and
    /// parents may be created.
    fn creates_parent(&self, directory: &LogicalPath, path: &LogicalPath) -> bool {
        let _ = (directory, path);
        true
    }
    /// Reports whether names at this path are on a disk of this machine. There, many lookups take
    /// no longer than waking another thread.
    fn has_local_names(&self, _path: &LogicalPath) -> bool {
        true
    }
    /// Reports whether listings of directories lead to all names, under the paths that clients use.
    fn lists_all_names(&self) -> bool {
        true
    }
    /// Opens a directory for reading.
    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>>;
    /// Creates a directory with exactly this mode; with `parents` also missing parents.
    fn make_directory(
        &self,
        path: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()>;
    /// Removes a file and the data that the backend keeps about it.
    fn remove_file(&self, path: &LogicalPath) -> io::Result<()>;
    /// Renames a file or directory. With `parents` missing parents are created.
    fn rename(
        &self,
        from: &LogicalPath,
        to: &LogicalPath,
        existing: ExistingName,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()>;
    /// Sets permission bits (07777).
    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()>;
    /// Sets the access time to now. A backend without access times ignores the call.
    fn renew_access(&self, _path: &LogicalPath) -> io::Result<()> {
        Ok(())
    }
    /// Sets the size of a file.
    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()>;
    /// Reads an extended attribute by its full local name (`user.…`).
    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Sets an extended attribute; with `new` it must not exist (EEXIST).
    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()>;
    /// Removes an extended attribute (ENODATA if it is missing).
    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()>;
    /// Returns the full local names of all extended attributes.
    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>>;
    /// Returns the usage of the space with this name (zeros if there is no such space), or of the
    /// file system where `path` would be stored.
    fn usage(&self, path: &LogicalPath, space: Option<&str>) -> io::Result<SpaceUsage>;
    /// Returns the usage of each file system on which new files at or below `path` may be created.
    /// It may wait for a disk and must not be called on an event loop.
    fn file_systems(&self, path: &LogicalPath) -> io::Result<Vec<FileSystemUsage>> {
        let usage = self.usage(path, None)?;
        let mut at = path.clone();
        let number = loop {
            // A path that does not exist would be stored where its nearest existing ancestor is.
            match (self.stat(&at), at.parent()) {
                (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => at = above,
                (metadata, _) => break metadata?.device,
            }
        };
        Ok(vec![FileSystemUsage { number, total: usage.total, free: usage.free }])
    }
    /// Returns the file systems with files of a path, and the spaces that have a part on them. One may have parts of several
    /// spaces. Files outside of spaces are in the default one.
    fn space_file_systems(&self, path: &LogicalPath) -> io::Result<Vec<(String, FileSystemUsage)>> {
        let space = || crate::posix::SPACE_DEFAULT.to_owned();
        Ok(self.file_systems(path)?.into_iter().map(|usage| (space(), usage)).collect())
    }
    /// Returns the file system with this number of them, and queries no other one if possible; `None` if it is not there.
    fn file_system(&self, path: &LogicalPath, number: u64) -> io::Result<Option<FileSystemUsage>> {
        let all = self.space_file_systems(path)?;
        Ok(all.into_iter().map(|(_, usage)| usage).find(|usage| usage.number == number))
    }
    /// Returns the space in which a file lies, or in which a new file would be created by default
    /// (`public` if no spaces are configured). It may wait for a disk.
    fn space_of(&self, path: &LogicalPath) -> String;
    /// Returns the names of all spaces if no space has the name `wish`, so that a new file cannot
    /// be created in it.
    fn spaces_beside(&self, path: &LogicalPath, wish: &str) -> Option<Vec<String>> {
        let _ = (path, wish);
        None
    }
    /// Returns the pool in which work on this path begins. Each file system has its own pool, so
    /// that a hung one does not delay work on others.
    fn pool(&self, path: &LogicalPath) -> &Arc<Pool>;
    /// Returns where work on this path has to continue ([`crate::Pool::take_over`]), if a link
    /// leads to another file system or a new file will be created there. A caller that is going to
    /// create a file passes its options as `create`.
    ///
    /// To be called in [`Backend::pool`]. The target of the link is not accessed.
    fn placement(&self, path: &LogicalPath, create: Option<&CreateMode>) -> Option<WorkPlacement> {
        let _ = (path, create);
        None
    }
}

/// Appends by [`StoredFile::read_now`] into memory that is zeroed first.
pub(crate) fn append_filled<F: StoredFile + ?Sized>(
    file: &F,
    offset: u64,
    length: usize,
    out: &mut Vec<u8>,
) -> Now<usize> {
    let start = out.len();
    out.resize(start + length, 0);
    let read = file.read_now(offset, out.get_mut(start..).unwrap_or_default());
    let kept = if let Now::Done(Ok(read)) = &read { (*read).min(length) } else { 0 };
    out.truncate(start + kept);
    read
}

/// An open physical file. Reads and writes carry their offset; any number may run concurrently.
pub trait StoredFile: Send + Sync {
    /// Reads if the data is in memory. Fewer bytes than requested mean end of file. Never returns
    /// [`Now::WouldBlock`] at end of file.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize>;
    /// Appends up to `length` bytes to `out`, under the conditions of [`StoredFile::read_now`].
    /// `out` is unchanged if nothing was read.
    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        append_filled(self, offset, length, out)
    }
    /// Reads one range into several consecutive buffers; `None` unless the whole range is in
    /// memory.
    fn read_scattered_now(&self, offset: u64, into: &mut [io::IoSliceMut<'_>]) -> Option<()> {
        let _ = (offset, into);
        None
    }
    /// Reads. Fewer bytes than requested mean end of file.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes if the storage has been fast. After a slow write it returns
    /// [`Now::WouldBlock`] for a while.
    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()>;
    /// Writes all bytes.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;
    /// Starts reading pieces into `buffer` without a thread, if the current event loop can
    /// ([`crate::ring`]). The completion that `done` creates is called on this thread later.
    /// Otherwise the buffer is returned, and the caller has to read on the pool.
    fn start_read(
        &self,
        buffer: Vec<u8>,
        pieces: &[ReadPiece],
        done: &mut dyn FnMut() -> Completion,
    ) -> Result<(), Vec<u8>> {
        let _ = (pieces, done);
        Err(buffer)
    }
    /// Queues a job of this owner that reads on the pool. If it reads one range only, `range` names
    /// it, and the job may share its thread with other reads. It is returned when the pool is full.
    fn read_in_pool(&self, owner: Owner, range: Option<Extent>, job: Job) -> Result<(), Job> {
        let _ = range;
        self.pool().run(owner, job)
    }
    /// Sets the size of the file.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Waits until data and size have reached stable storage.
    fn sync(&self) -> io::Result<()>;
    /// Waits until data, size, permission bits and extended attributes have reached stable storage.
    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
    /// Returns the identity of the file.
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::from(&self.stat()?))
    }
    /// Returns the status of the file. It may wait on a file system that is not on a disk of this
    /// machine.
    fn stat(&self) -> io::Result<Metadata>;
    /// Returns the status without waiting.
    fn stat_now(&self) -> Now<Metadata> {
        Now::Done(self.stat())
    }
    /// Returns the size without waiting. On a network file system this is the size last received.
    fn size_now(&self) -> Option<u64> {
        self.stat().ok().map(|metadata| metadata.size)
    }
    /// Sets permission bits (07777).
    fn set_mode(&self, mode: u32) -> io::Result<()>;
    /// Sets the owner and the group, by their numbers. It may clear set-id bits.
    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<()> {
        let _ = (uid, gid);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
    /// Reads an extended attribute by its full local name (`user.…`).
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Sets an extended attribute; with `new` it must not exist (EEXIST).
    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()>;
    /// Removes an extended attribute (ENODATA if it is missing).
    fn remove_attribute(&self, name: &str) -> io::Result<()>;
    /// Returns the full local names of all extended attributes.
    fn attributes(&self) -> io::Result<Vec<String>>;
    /// Copies a range from another file of this backend. It shares blocks where the file system
    /// supports that and otherwise copies in the kernel.
    fn clone_range(&self, source: &dyn StoredFile, range: CopyRange) -> io::Result<()>;
    /// Returns the file descriptor, if there is one from which `sendfile` can send.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Reports whether all these bytes are in memory, so that they can be sent from the descriptor.
    /// Returns `false` where that cannot be determined or sending is impossible. With `length` 0
    /// the kernel is not asked; the result is `false` if no range of this file can ever be sent.
    fn is_resident(&self, offset: u64, length: usize) -> bool;
    /// Advises the kernel that this range will be read soon.
    fn prefetch(&self, offset: u64, length: u64);
    /// Returns the pool for blocking work on this file.
    fn pool(&self) -> &Arc<Pool>;
    /// Allows a backend to downcast to its own file type.
    fn as_any(&self) -> &dyn std::any::Any;
}

#[cfg(test)]
mod tests {
    use super::FileIdentity;

    #[test]
    fn files_are_compared_by_birth_or_handle_else_by_device() {
        let plain = FileIdentity { device: 1, inode: 2, born: None, handle: None };
        let born = |second| FileIdentity { born: Some((second, 0)), ..plain };
        let handle = |number| FileIdentity { handle: Some((number, 0)), ..plain };
        let elsewhere = |identity| FileIdentity { device: 9, ..identity };
        for (one, other, is_same) in [
            (plain, plain, true),
            (plain, elsewhere(plain), false),
            (plain, FileIdentity { inode: 3, ..plain }, false),
            (born(1), elsewhere(born(1)), true),
            (born(1), born(2), false),
            (handle(1), elsewhere(handle(1)), true),
            // The inode number was reused for another file.
            (handle(1), handle(2), false),
            // A record written by a version that did not store handles.
            (plain, handle(1), true),
            (plain, elsewhere(handle(1)), false),
            (handle(1), FileIdentity { inode: 3, ..handle(1) }, false),
        ] {
            assert_eq!(one.is_same(&other), is_same, "{one:?} {other:?}");
            assert_eq!(other.is_same(&one), is_same, "{other:?} {one:?}");
        }
    }
}
