//! [`PlainTree`]: regular files below a directory, reached without following any link.
//!
//! The tree of a disk cache can be changed by other programs of the machine. A link there, or a second name of
//! a file, would let them choose which file this process overwrites. So no component of a path may be a
//! link, and a file with several names is refused, except for one second name that this tree has given it. All calls
//! block.

use crate::incoming;
use base::{LogicalPath, stable_hash};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// The file with the identifier of the start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// `STATX_MNT_ID_UNIQUE` (since Linux 6.8).
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Mode of new directories and files.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);

/// The attribute of files that have got a second name by [`PlainTree::add_name`]. It stays after the removal of the name.
pub const SECOND_NAME_ATTRIBUTE: &str = "user.scalla.second-name";
/// Maximum number of bytes of a second name.
const ATTRIBUTE_BYTES_MAX: usize = 255;

/// Opening must not block, acquire a controlling terminal, or leak into a child process.
const QUIET: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Number of attempts to create a file while its directories are being removed.
const CREATE_TRIES: usize = 100;

/// Number of attempts to open a file that has a lease, and the time between them. [`PlainFile::is_open_elsewhere`] has one
/// for a moment.
const LEASE_TRIES: usize = 20;
const LEASE_TIME: Duration = Duration::from_millis(1);

/// Number of times that the names of a file are looked at, because they may change meanwhile.
const NAME_TRIES: usize = 20;

/// A tree of files.
#[derive(Debug)]
pub struct PlainTree {
    root: OwnedFd,
}

/// An open file of a [`PlainTree`].
#[derive(Debug)]
pub struct PlainFile(File);

/// The status of a [`PlainFile`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainStatus {
    /// Size in bytes.
    pub size: u64,
    /// Space on disk in bytes.
    pub allocated: u64,
    /// Time of the last modification, in seconds since the epoch.
    pub modified: i64,
    /// Number of the file in its file system.
    pub number: u64,
    /// Number of its names.
    pub names: u64,
}

/// The kind of an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else, such as a link.
    Other,
}

/// An open directory.
pub struct PlainDirectory {
    entries: Dir,
}

/// Splits a path into its directories and its last component.
fn split(path: &LogicalPath) -> io::Result<(impl Iterator<Item = &[u8]>, &[u8])> {
    let bytes = path.as_bytes();
    let at = bytes.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    let (directories, name) = bytes.split_at(at);
    let name = name.strip_prefix(b"/").filter(|name| !name.is_empty()).ok_or(Errno::ISDIR)?;
    Ok((components(directories), name))
}

fn components(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'/').filter(|component| !component.is_empty())
}

/// A directory that is open, or the root.
enum Step<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Step<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => *fd,
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

impl PlainTree {
    /// Opens the tree below a directory, which may be a link of the operator.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: fs::openat(fs::CWD, root, flags, Mode::empty())? })
    }

    /// Opens a directory of the tree. With `create`, missing directories are created.
    fn walk<'p>(&self, directories: impl Iterator<Item = &'p [u8]>, create: bool) -> io::Result<Step<'_>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = Step::Root(self.root.as_fd());
        for name in directories {
            let next = match fs::openat(&at, name, flags, Mode::empty()) {
                Err(Errno::NOENT) if create => {
                    match fs::mkdirat(&at, name, DIRECTORY_MODE) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    fs::openat(&at, name, flags, Mode::empty())
                }
                other => other,
            };
            at = Step::Below(next?);
        }
        Ok(at)
    }

    fn open_with(&self, path: &LogicalPath, how: OFlags, create: bool) -> io::Result<PlainFile> {
        let (directories, name) = split(path)?;
        let parent = self.walk(directories, create)?;
        let mut tries = LEASE_TRIES;
        let fd = loop {
            match fs::openat(&parent, name, how | OFlags::NOFOLLOW | QUIET, FILE_MODE) {
                Err(Errno::AGAIN) if tries > 0 => std::thread::sleep(LEASE_TIME),
                opened => break opened?,
            }
            tries -= 1;
        };
        let status = fs::fstat(&fd)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(Errno::NOTBLK.into());
        }
        let file = PlainFile(File::from(fd));
        if self.has_own_names(&file, status)? { Ok(file) } else { Err(Errno::MLINK.into()) }
    }

    /// Reports whether a file has no names but one and a second one that this tree has given it.
    fn has_own_names(&self, file: &PlainFile, mut status: fs::Stat) -> io::Result<bool> {
        for _ in 0..NAME_TRIES {
            // The name may have been removed since.
            if status.st_nlink <= 1 || status.st_nlink == 2 && self.is_second_name_of(file, &status)? {
                return Ok(true);
            }
            // So may the second one.
            status = fs::fstat(&file.0)?;
        }
        Ok(false)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `ENOENT` if there is no such file, `ELOOP` or `ENOTDIR` for a link, `EMLINK` for a file with
    /// several names, and other errors of the operating system.
    pub fn open_file(&self, path: &LogicalPath) -> io::Result<PlainFile> {
        self.open_with(path, OFlags::RDWR, false)
    }

    /// Creates a file, and the missing directories above it.
    ///
    /// # Errors
    /// `EEXIST` if the name exists, and other errors of the operating system.
    pub fn create_file(&self, path: &LogicalPath) -> io::Result<PlainFile> {
        let mut tries = CREATE_TRIES;
        loop {
            let created = self.open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, true);
            tries -= 1;
            match created {
                // A directory that was empty has been removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {}
                other => return other,
            }
        }
    }

    /// Renames a file. An existing file at the new name is replaced.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn rename(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        let ((from, old), (to, new)) = (split(from)?, split(to)?);
        let (from, to) = (self.walk(from, false)?, self.walk(to, true)?);
        Ok(fs::renameat(&from, old, &to, new)?)
    }

    /// Gives a file a second name, and creates the missing directories above it. Another program can have replaced the
    /// file at the first name before, so the caller compares the file at the second one.
    ///
    /// # Errors
    /// `EEXIST` if the second name exists, or the file has one, and other errors of the operating system, also for file systems without
    /// extended attributes or second names.
    pub fn add_name(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<()> {
        let file = self.open_file(from)?;
        if file.status()?.names > 1 {
            // Its mark can have only one name.
            return Err(Errno::EXIST.into());
        }
        file.set_attribute(SECOND_NAME_ATTRIBUTE, to.as_bytes())?;
        let ((from, old), (to, new)) = (split(from)?, split(to)?);
        let (from, to) = (self.walk(from, false)?, self.walk(to, true)?);
        Ok(fs::linkat(&from, old, &to, new, AtFlags::empty())?)
    }

    /// Reports whether the second name that this tree has given a file is still one of its names.
    fn is_second_name_of(&self, file: &PlainFile, status: &fs::Stat) -> io::Result<bool> {
        let Some(name) = file.attribute(SECOND_NAME_ATTRIBUTE)? else { return Ok(false) };
        let Ok(name) = LogicalPath::parse(&name) else { return Ok(false) };
        let (directories, last) = split(&name)?;
        let found = self
            .walk(directories, false)
            .and_then(|parent| Ok(fs::statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW)?));
        Ok(found.is_ok_and(|found| (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        let (directories, name) = split(path)?;
        Ok(fs::unlinkat(self.walk(directories, false)?, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        let (directories, name) = split(path)?;
        Ok(fs::unlinkat(self.walk(directories, false)?, name, AtFlags::REMOVEDIR)?)
    }

    fn directory(&self, path: &LogicalPath) -> io::Result<OwnedFd> {
        let place = self.walk(components(path.as_bytes()), false)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(&place, ".", flags, Mode::empty())?)
    }

    /// Waits until the names in a directory have reached stable storage.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync_directory(&self, path: &LogicalPath) -> io::Result<()> {
        match fs::fsync(self.directory(path)?) {
            // The file system cannot sync directories.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Waits until everything on the file system of the tree is durable.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.root)?)
    }

    /// Opens a directory for reading its entries.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn list(&self, path: &LogicalPath) -> io::Result<PlainDirectory> {
        Ok(PlainDirectory { entries: Dir::new(self.directory(path)?)? })
    }

    /// Returns a number that another tree has not: one with another root, or with another file at this path. A copy of a
    /// tree is another one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn identity(&self, path: &LogicalPath) -> io::Result<u64> {
        let (directories, name) = split(path)?;
        let file = fs::statat(self.walk(directories, false)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let root = fs::fstat(&self.root)?;
        let words = [root.st_ino, file.st_ino, file.st_ctime as u64, file.st_ctime_nsec as u64];
        Ok(stable_hash(words.map(u64::to_le_bytes).as_flattened()))
    }

    /// Returns a number that the root has until the machine starts again, or its file system is mounted again; `None`
    /// if that is not known. It is another one for a process with its own mounts.
    #[must_use]
    pub fn mounted(&self) -> Option<u64> {
        let mut words = std::fs::read(BOOT_ID).ok().filter(|id| !id.is_empty())?;
        // Other numbers of mounts are used again.
        let status = fs::statx(&self.root, "", AtFlags::EMPTY_PATH, MOUNT_ID_UNIQUE).ok()?;
        if status.stx_mask & MOUNT_ID_UNIQUE.bits() == 0 {
            return None;
        }
        words.extend(status.stx_mnt_id.to_le_bytes());
        Some(stable_hash(&words))
    }

    /// Returns the total and the used space of the file system of the root, in bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn usage(&self) -> io::Result<(u64, u64)> {
        let figures = fs::fstatvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(figures.f_frsize);
        let total = bytes(figures.f_blocks);
        Ok((total, total.saturating_sub(bytes(figures.f_bavail))))
    }
}

impl PlainFile {
    /// Reads. Fewer bytes than requested mean the end of the file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads a range that is in memory into several buffers, in order, without waiting. Returns whether all of them were
    /// filled. Some file systems cannot.
    #[must_use]
    pub fn read_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> bool {
        let length: usize = into.iter().map(|part| part.len()).sum();
        // The kernel would take -1 as the position of the descriptor.
        if i64::try_from(offset).is_err() {
            return false;
        }
        let read = preadv2(&self.0, into, offset, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|count| count == length)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.0.write_all_at(from, offset)
    }

    /// Frees the disk space of a range, which reads as zeros afterwards. The size of the file stays.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system cannot free a part of a file, and other errors of the operating system.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fs::fallocate(&self.0, how, offset, length) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Waits until data and size have reached stable storage.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Returns the status.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn status(&self) -> io::Result<PlainStatus> {
        let status = fs::fstat(&self.0)?;
        Ok(PlainStatus {
            size: u64::try_from(status.st_size).unwrap_or(0),
            // Always in units of 512 bytes.
            allocated: u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(512),
            modified: status.st_mtime,
            number: status.st_ino,
            // The type depends on the machine.
            #[allow(clippy::useless_conversion)]
            names: u64::from(status.st_nlink),
        })
    }

    /// Sets an extended attribute by its full name (`user.…`).
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        Ok(fs::fsetxattr(&self.0, name, value, fs::XattrFlags::empty())?)
    }

    /// Removes an extended attribute, if there is one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_attribute(&self, name: &str) -> io::Result<()> {
        match fs::fremovexattr(&self.0, name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the value of a short extended attribute, if there is one.
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
        match fs::fgetxattr(&self.0, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(value))
            }
            Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports whether the file is open elsewhere: by another process, or again by this one.
    ///
    /// # Errors
    /// Errors of the operating system, also for a file system that cannot tell.
    pub fn is_open_elsewhere(&self) -> io::Result<bool> {
        incoming::is_open_elsewhere(self.0.as_fd())
    }

    /// Reports whether the file has an extended attribute.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn has_attribute(&self, name: &str) -> io::Result<bool> {
        let mut none: [u8; 0] = [];
        match fs::fgetxattr(&self.0, name, &mut none) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks the file for this process until it is closed. Returns whether no other process has it.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn try_lock(&self) -> io::Result<bool> {
        match fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Iterator for PlainDirectory {
    type Item = io::Result<(Vec<u8>, PlainKind)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.entries.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => PlainKind::File,
                FileType::Directory => PlainKind::Directory,
                FileType::Unknown => match self.kind(entry.file_name()) {
                    Ok(kind) => kind,
                    Err(error) => return Some(Err(error)),
                },
                _ => PlainKind::Other,
            };
            return Some(Ok((name.to_vec(), kind)));
        }
    }
}

impl PlainDirectory {
    /// Returns the kind of an entry on a file system that does not name it in listings.
    fn kind(&self, name: &std::ffi::CStr) -> io::Result<PlainKind> {
        let status = fs::statat(self.entries.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => PlainKind::File,
            FileType::Directory => PlainKind::Directory,
            _ => PlainKind::Other,
        })
    }
}

#[cfg(test)]
mod tests;
