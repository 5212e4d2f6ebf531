//! Directories and files of the server's own state, whose owner and mode are verified before their
//! content is used.
//!
//! | file | content |
//! |---|---|
//! | `walk` | opens a path component by component and refuses links of other users |
//! | `proof` | [`UntrustedFile`]: checks the owner and the writers of a file |
//!
//! A path does not show who can change the file it names: another user may have created it first,
//! or put a link there. Therefore a [`PrivateDirectory`] is opened once, and its owner and mode are
//! checked on the open descriptor. Every file is opened relative to that descriptor, without
//! following links, and checked as well. A [`SharedDirectory`] may also be used by other users,
//! such as `/tmp` or `/run`; only its files are checked.
//!
//! All calls block.

mod proof;
mod walk;

pub use proof::UntrustedFile;

use proof::{OwnershipRule, prove_directory, prove_file};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Suffix of a replacement until it is complete.
const NEW_SUFFIX: &str = ".new";

/// Mode of files in a private directory, and of the directories themselves.
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIRECTORY: Mode = Mode::RWXU;

/// Number of attempts to create or open a file that is created and removed concurrently.
const RACES_MAX: usize = 100;

/// A directory that belongs to the user of this process and that no other user can change.
#[derive(Debug)]
pub struct PrivateDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl PrivateDirectory {
    /// Opens the directory at `path`. If it is missing, creates it and its missing parents with
    /// access for this user only.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::prove(walk::directory(path, Some(PRIVATE_DIRECTORY))?, path)
    }

    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::prove(walk::directory(path, None)?, path)
    }

    fn prove(found: OwnedFd, path: &Path) -> io::Result<Self> {
        prove_directory(&found, path, OwnershipRule::Private)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: fs::openat(&found, ".", flags, Mode::empty())?, path: path.to_owned() })
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of all files, except of incomplete replacements.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !name.ends_with(NEW_SUFFIX.as_bytes()) {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDONLY)
    }

    /// Returns the content of a file.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open_file(name)?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Returns the content of a file that an earlier version may have created with the umask of the
    /// process.
    ///
    /// A mode that lets others write the file is accepted if only this user can reach it, and is
    /// then changed to that of private files.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn read_inherited(&self, name: &str) -> io::Result<Vec<u8>> {
        let (fd, how) = (self.fd.as_fd(), OFlags::RDONLY);
        let mut file =
            open_proven(fd, &self.path, OsStr::new(name), how, PRIVATE_FILE, OwnershipRule::Inherited)?;
        if proof::mode_of(&fs::fstat(&file)?) & 0o022 != 0 {
            fs::fchmod(&file, PRIVATE_FILE)?;
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Opens a file for reading and writing; creates an empty one if it is missing.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn open_or_create(&self, name: &str) -> io::Result<File> {
        self.open_with(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Creates a new, empty file and replaces an existing one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        self.unlink(name)?;
        self.open_with(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Replaces a file by one with this content and returns it, open for appending. After a crash
    /// either the old or the new file exists.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<File> {
        let new = format!("{name}{NEW_SUFFIX}");
        let mut file = self.create_file(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::renameat(&self.fd, &new, &self.fd, name)?;
        self.sync()?;
        Ok(file)
    }

    /// Replaces a file by one with this content. If the process is killed, either the old or the new
    /// file exists. After a power failure, neither may exist, or an incomplete one.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn replace_unsynced(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let new = format!("{name}{NEW_SUFFIX}");
        self.create_file(&new)?.write_all(content)?;
        Ok(fs::renameat(&self.fd, &new, &self.fd, name)?)
    }

    /// Gives a file another name that is free, and syncs the directory. Other processes of this user must not
    /// create the new name at this moment.
    ///
    /// # Errors
    /// `AlreadyExists`, or another error of the operating system.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match fs::statat(&self.fd, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(Errno::EXIST.into()),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        fs::renameat(&self.fd, from, &self.fd, to)?;
        self.sync()
    }

    /// Removes a file and syncs the directory. A missing file is not an error.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.unlink(name)?;
        self.sync()
    }

    /// Removes a file, which may exist again after a power failure. A missing file is not an error.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove_unsynced(&self, name: &str) -> io::Result<()> {
        self.unlink(name)
    }

    /// Reports whether the directory was removed after it was opened, so that nothing can be
    /// created in it.
    pub fn is_removed(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Locks the directory for this process until the value is dropped.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] when another process holds the lock.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        match fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error.into())),
        }
    }

    /// Syncs the directory, so that its names survive a power failure.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(&self.fd)?)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn open_with(&self, name: &str, how: OFlags) -> io::Result<File> {
        open_proven(self.fd.as_fd(), &self.path, OsStr::new(name), how, PRIVATE_FILE, OwnershipRule::Private)
    }
}

impl AsFd for PrivateDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A directory that may contain files of other users, such as `/tmp`, `/run` or the directory of a
/// log.
#[derive(Debug)]
pub struct SharedDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl SharedDirectory {
    /// Opens the directory at `path`. If it is missing, creates it and its missing parents with
    /// `mode`.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self { fd: walk::directory(path, Some(Mode::from_raw_mode(mode)))?, path: path.to_owned() })
    }

    /// Opens the directory of the file at `path`, as [`SharedDirectory::create`] does, and returns
    /// it with the file's name.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn of_file(path: &Path, mode: u32) -> io::Result<(Self, OsString)> {
        let Some(name) = path.file_name() else { return Err(Errno::ISDIR.into()) };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Self::create(parent.unwrap_or(Path::new(".")), mode)?, name.to_owned()))
    }

    /// Opens the log file at `path` for appending, and returns it with its directory and name.
    /// Creates missing directories and the file.
    ///
    /// A link of this user or of root is followed, because administrators redirect logs to other
    /// disks or to `/dev/stdout` in this way.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn of_log(path: &Path, mode: u32) -> io::Result<(Self, OsString, File)> {
        let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let (fd, path, last) = walk::log(path, Mode::from_raw_mode(mode))?;
        let directory = Self { fd, path };
        let file = match &last {
            walk::LastComponent::Name(name) => directory.open_with(name, how, 0o666, OwnershipRule::Log)?,
            // The target of /proc/self/fd is open in this process already, so no other user chose
            // it.
            walk::LastComponent::OpenDescriptor(name) => {
                File::from(fs::openat(&directory.fd, name, how | OFlags::CLOEXEC, Mode::empty())?)
            }
        };
        let (walk::LastComponent::Name(name) | walk::LastComponent::OpenDescriptor(name)) = last;
        Ok((directory, name, file))
    }

    /// Checks that no other user can replace files in the directory. It must belong to this user or
    /// to root, or be writable for a group of this process. If every user may write to it, the
    /// sticky bit must be set.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error.
    pub fn prove(&self) -> io::Result<()> {
        prove_directory(&self.fd, &self.path, OwnershipRule::Shared)
    }

    /// Opens the subdirectory `name`, which only this user can access; creates it if it is missing.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn private(&self, name: &str) -> io::Result<PrivateDirectory> {
        let path = self.path.join(name);
        match fs::mkdirat(&self.fd, name, PRIVATE_DIRECTORY) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        PrivateDirectory::prove(walk::step(self.fd.as_fd(), OsStr::new(name), &path)?, &path)
    }

    /// Writes `content` to a file of this user, which is created if it is missing.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        for _ in 0..RACES_MAX {
            // Creating and opening need separate calls, because in a directory like /tmp the kernel
            // refuses `O_CREAT` for an existing file.
            let new = self.open_with(
                name,
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
                0o644,
                OwnershipRule::Shared,
            );
            let mut file = match new {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match self.open_with(name, OFlags::WRONLY, 0, OwnershipRule::Shared) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        other => other?,
                    }
                }
                // An init script may have prepared the file in a directory of root.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    match self.open_with(name, OFlags::WRONLY, 0, OwnershipRule::Shared) {
                        Err(other) if other.kind() == io::ErrorKind::NotFound => return Err(error),
                        other => other?,
                    }
                }
                other => other?,
            };
            file.set_len(0)?;
            return file.write_all(content);
        }
        Err(Errno::BUSY.into())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`UntrustedFile`] within the error, or the error of the operating system.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_with(name, OFlags::RDONLY, 0, OwnershipRule::Shared)
    }

    /// Renames a file within the directory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Returns the path of the directory with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_with(&self, name: &OsStr, how: OFlags, mode: u32, rule: OwnershipRule) -> io::Result<File> {
        open_proven(self.fd.as_fd(), &self.path, name, how, Mode::from_raw_mode(mode), rule)
    }
}

/// Opens a file without following links and checks it. It is truncated or written only after the
/// check.
fn open_proven(
    directory: BorrowedFd<'_>,
    path: &Path,
    name: &OsStr,
    how: OFlags,
    mode: Mode,
    rule: OwnershipRule,
) -> io::Result<File> {
    // Opening must not block on a FIFO of another user.
    let how = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let path = path.join(name);
    match fs::openat(directory, name, how, mode) {
        Ok(file) => {
            prove_file(directory, &file, &path, rule)?;
            fs::fcntl_setfl(&file, how.difference(OFlags::NONBLOCK))?;
            Ok(File::from(file))
        }
        Err(Errno::LOOP) => Err(UntrustedFile::link(&path, walk::owner_of(directory, name)).into()),
        Err(error) => Err(error.into()),
    }
}
