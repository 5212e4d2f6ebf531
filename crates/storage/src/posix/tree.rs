//! Confinement: resolves a logical path to a descriptor without ever leaving the directories that
//! the server may access.
//!
//! The kernel does it in one call (`openat2` with `RESOLVE_BENEATH`). It refuses links that are
//! absolute or lead upwards, and some containers forbid the call. As a fallback, the
//! [`walk`] resolves the path name by name.
//!
//! **Links.** A symbolic link is followed if its target lies within the local root or within one of
//! the configured directories, which include the `oss.space` partitions. All other links end in
//! `EACCES`. XRootD follows every link. With `/` as root, every link is followed as in XRootD,
//! except for the magic links of `/proc`, which lead into other processes.

use super::bases::{Bases, PLACE};
use super::walk;
use crate::ParentCreation;
use crate::refused_features::KernelFeature;
use base::LogicalPath;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Kernel features that the storage does not use although the kernel has them, so that tests cover
/// the fallbacks for kernels without them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DisabledFeatures {
    /// `openat2`, which some containers forbid.
    pub openat2: bool,
    /// Reading without waiting (`RWF_NOWAIT`).
    pub nowait: bool,
    /// Reading without a thread (io_uring).
    pub ring: bool,
    /// `/proc`.
    pub proc: bool,
    /// Sharing blocks between files.
    pub reflink: bool,
    /// Copying in the kernel.
    pub copy_file_range: bool,
}

/// Number of attempts to resolve a path that is being renamed concurrently.
const RACE_TRIES: usize = 8;

/// The local root, and the other directories that links may lead into.
pub(super) struct ConfinedTree {
    bases: Bases,
    resolve: ResolveFlags,
    has_openat2: bool,
    has_cached: bool,
    has_proc: bool,
}

/// The directory that contains a name.
pub(super) enum ParentDirectory<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for ParentDirectory<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => fd.as_fd(),
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

/// A file whose metadata is accessed but not its data; determines the form of the system calls.
pub(super) enum MetadataHandle {
    /// Opened for reading.
    Open(OwnedFd),
    /// Opened with `O_PATH`, which needs no permission on the file and does not disturb a device;
    /// accessed through `/proc`.
    Place(OwnedFd),
}

impl AsFd for MetadataHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(fd) | Self::Place(fd) => fd.as_fd(),
        }
    }
}

/// Returns the name of an open descriptor of this process in `/proc`.
pub(super) fn proc_name(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Reports whether the kernel supports the call: it succeeded, or it would only have to wait.
fn is_granted(asked: rustix::io::Result<OwnedFd>, facility: KernelFeature) -> bool {
    match asked {
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(error) => {
            facility.refused(error);
            false
        }
    }
}

impl ConfinedTree {
    pub(super) fn new(root: &Path, links_to: &[PathBuf], without: DisabledFeatures) -> io::Result<Self> {
        let bases = Bases::new(root, links_to)?;
        let beneath = if bases.everything { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        let resolve = beneath | ResolveFlags::NO_MAGICLINKS;
        let probe =
            |flags| rustix::fs::openat2(bases.root(), ".", PLACE | OFlags::DIRECTORY, Mode::empty(), flags);
        let has_openat2 = !without.openat2 && is_granted(probe(resolve), KernelFeature::Openat2);
        let has_cached =
            has_openat2 && is_granted(probe(resolve | ResolveFlags::CACHED), KernelFeature::ResolveCached);
        let has_proc = !without.proc && is_same(bases.root(), proc_name(bases.root()).as_bytes());
        Ok(Self { bases, resolve, has_openat2, has_cached, has_proc })
    }

    /// Reports whether descriptors can be accessed through `/proc`.
    pub(super) fn has_proc(&self) -> bool {
        self.has_proc
    }

    /// Returns the directories that links may lead into.
    pub(super) fn bases(&self) -> &Bases {
        &self.bases
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.bases.root()
    }

    /// Opens a path with the flags of `open`. Devices and pipes do not make the call wait.
    pub(super) fn open(&self, path: &LogicalPath, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        self.open_below(relative(path), flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
    }

    fn open_below(&self, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        if self.has_openat2 {
            for _ in 0..RACE_TRIES {
                match rustix::fs::openat2(self.bases.root(), name, flags, mode, self.resolve) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(Errno::XDEV) => {
                        if let Some(opened) = self.open_by_link(name, flags, mode) {
                            return opened;
                        }
                        break;
                    }
                    done => return Ok(done?),
                }
            }
        }
        walk::open(&self.bases, name, flags, mode)
    }

    /// Opens the most frequent path that the kernel refuses: the last name is a link to a
    /// partition, and no name before it is. `None` for all other paths.
    fn open_by_link(&self, name: &[u8], flags: OFlags, mode: Mode) -> Option<io::Result<OwnedFd>> {
        let (directory, last) = split(name);
        if flags.contains(OFlags::NOFOLLOW) || last.ends_with(b"/") {
            return None;
        }
        let directory = if directory.is_empty() { b"." } else { directory };
        let place = PLACE | OFlags::DIRECTORY;
        let directory =
            rustix::fs::openat2(self.bases.root(), directory, place, Mode::empty(), self.resolve).ok()?;
        self.open_target(directory, last, flags, mode)
    }

    /// Opens the target of a link in this directory; `None` unless it is an absolute link whose
    /// target needs no further resolution.
    fn open_target(
        &self,
        directory: impl AsFd,
        link: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<OwnedFd>> {
        let target = rustix::fs::readlinkat(directory, link, Vec::new()).ok()?.into_bytes();
        if !target.starts_with(b"/") {
            return None;
        }
        let (base, rest) = match self.bases.base_of(&target) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        match rustix::fs::openat2(base, rest, flags, mode, self.resolve) {
            Err(Errno::AGAIN | Errno::INTR | Errno::XDEV) => None,
            opened => Some(opened.map_err(io::Error::from)),
        }
    }

    /// Reports whether links may lead out of the root.
    pub(super) fn leads_out(&self) -> bool {
        self.bases.everything || self.bases.has_others()
    }

    /// Returns the target of the link at a path; `EINVAL` if the path is not a link. `None` for a
    /// path that leads through other links or mounts.
    pub(super) fn link_at(&self, path: &LogicalPath) -> Option<rustix::io::Result<Vec<u8>>> {
        if !self.has_openat2 || path.is_root() {
            return None;
        }
        let (directory, last) = split(relative(path));
        let last = last.strip_suffix(b"/").unwrap_or(last);
        let read = |directory: BorrowedFd<'_>| {
            rustix::fs::readlinkat(directory, last, Vec::new()).map(std::ffi::CString::into_bytes)
        };
        if directory.is_empty() {
            return Some(read(self.bases.root()));
        }
        let resolve = self.resolve | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(
            self.bases.root(),
            directory,
            PLACE | OFlags::DIRECTORY,
            Mode::empty(),
            resolve,
        ) {
            Ok(directory) => Some(read(directory.as_fd())),
            Err(Errno::NOENT) => Some(Err(Errno::NOENT)),
            Err(_) => None,
        }
    }

    /// Opens an existing file if its name is in memory. `None` if that cannot be decided without
    /// waiting, or if `follow` is not set and the path contains a link.
    pub(super) fn open_now(
        &self,
        path: &LogicalPath,
        flags: OFlags,
        follow: bool,
    ) -> Option<io::Result<OwnedFd>> {
        if !self.has_cached {
            return None;
        }
        let links = if follow { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        let (flags, resolve) = (flags | OFlags::CLOEXEC, self.resolve | ResolveFlags::CACHED | links);
        match rustix::fs::openat2(self.bases.root(), relative(path), flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR | Errno::XDEV) => None,
            Err(Errno::LOOP) if !follow => None,
            done => Some(done.map_err(io::Error::from)),
        }
    }

    /// Returns the directory that contains the last name of `path`, and that name with its trailing
    /// slash if it has one.
    pub(super) fn parent<'p>(&self, path: &'p LogicalPath) -> io::Result<(ParentDirectory<'_>, &'p [u8])> {
        if path.is_root() {
            return Err(Errno::BUSY.into());
        }
        let (directory, name) = split(relative(path));
        if directory.is_empty() {
            return Ok((ParentDirectory::Root(self.bases.root()), name));
        }
        Ok((
            ParentDirectory::Below(self.open_below(directory, PLACE | OFlags::DIRECTORY, Mode::empty())?),
            name,
        ))
    }

    /// Reports whether a directory that was opened at this path is also there without links. It may lie
    /// outside of the root, where a link can lead.
    pub(super) fn is_at(&self, path: &LogicalPath, directory: impl AsFd) -> io::Result<bool> {
        if !self.has_proc {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (root, real) = (directory_of(self.root())?, directory_of(directory)?);
        let wanted = if path.is_root() { b"" } else { relative(path) };
        Ok(real.strip_prefix(&root).map_or(true, |below| below.as_os_str().as_bytes() == wanted))
    }

    /// Returns the same as [`ConfinedTree::parent`] after creating missing directories.
    pub(super) fn parent_made<'p>(
        &self,
        path: &'p LogicalPath,
        parents: Option<&ParentCreation>,
    ) -> io::Result<(ParentDirectory<'_>, &'p [u8])> {
        match (self.parent(path), parents) {
            (Err(error), Some(parents)) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.make_directories(path.parent().ok_or(Errno::BUSY)?, parents)?;
                self.parent(path)
            }
            (found, _) => found,
        }
    }

    /// Creates a missing directory and its missing ancestors. Existing ones stay unchanged.
    ///
    /// Each is created in the present directory above it, so the removal of a directory meanwhile
    /// fails the call. It never causes the creation of a directory that may not be created.
    fn make_directories(&self, path: LogicalPath, parents: &ParentCreation) -> io::Result<()> {
        let allowed = |missing: LogicalPath| match parents.allows(&missing) {
            true => Ok(missing),
            false => Err(io::Error::from(Errno::ACCESS)),
        };
        let mut missing = vec![allowed(path)?];
        while let Some(above) = missing.last().and_then(LogicalPath::parent) {
            match self.open(&above, PLACE | OFlags::DIRECTORY, 0) {
                Ok(_) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => missing.push(allowed(above)?),
                Err(error) => return Err(error),
            }
        }
        for path in missing.iter().rev() {
            match self.make_directory(path, parents.mode) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Creates one directory with exactly this mode, independent of the umask.
    pub(super) fn make_directory(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        if path.is_root() {
            return Err(Errno::EXIST.into());
        }
        let (parent, name) = self.parent(path)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let place =
            rustix::fs::openat(&parent, name, PLACE | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let status = rustix::fs::fstat(&place)?;
        // A directory inherits the set-group bit of its parent. It stays, because the administrator
        // set it for this purpose.
        let inherited = status.st_mode & libc::S_ISGID;
        if status.st_mode & 0o7777 == mode | inherited {
            return Ok(());
        }
        self.change_mode(&MetadataHandle::Place(place), mode | inherited)
    }

    /// Opens a file or directory to access its metadata.
    pub(super) fn reach(&self, path: &LogicalPath) -> io::Result<MetadataHandle> {
        if self.has_proc {
            return Ok(MetadataHandle::Place(self.open(path, PLACE, 0)?));
        }
        let quiet = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(MetadataHandle::Open(self.open(path, quiet, 0)?))
    }

    /// Opens the target of a link in this directory like [`ConfinedTree::reach`], in fewer steps
    /// than by its path; `None` if the path has to be resolved.
    pub(super) fn reach_target(
        &self,
        directory: impl AsFd,
        link: &[u8],
    ) -> Option<io::Result<MetadataHandle>> {
        if !self.has_openat2 || !self.has_proc || self.bases.everything {
            return None;
        }
        Some(self.open_target(directory, link, PLACE, Mode::empty())?.map(MetadataHandle::Place))
    }

    /// Sets the permission bits.
    pub(super) fn change_mode(&self, reach: &MetadataHandle, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match reach {
            MetadataHandle::Open(fd) => rustix::fs::fchmod(fd, mode)?,
            MetadataHandle::Place(fd) if self.has_proc => rustix::fs::chmod(proc_name(fd.as_fd()), mode)?,
            MetadataHandle::Place(fd) => {
                let again = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::fchmod(rustix::fs::openat(fd, ".", again, Mode::empty())?, mode)?;
            }
        }
        Ok(())
    }

    /// Sets the access time to now and leaves the modification time.
    pub(super) fn renew_access(&self, reach: &MetadataHandle) -> io::Result<()> {
        let [last_access, last_modification] =
            [UTIME_NOW, UTIME_OMIT].map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        let times = Timestamps { last_access, last_modification };
        match reach {
            MetadataHandle::Open(fd) => rustix::fs::futimens(fd, &times)?,
            MetadataHandle::Place(fd) if self.has_proc => {
                rustix::fs::utimensat(CWD, proc_name(fd.as_fd()), &times, AtFlags::empty())?;
            }
            MetadataHandle::Place(fd) => rustix::fs::utimensat(fd, ".", &times, AtFlags::empty())?,
        }
        Ok(())
    }
}

/// Returns the local path of an open directory.
pub(super) fn directory_of(directory: impl AsFd) -> io::Result<PathBuf> {
    let path = rustix::fs::readlinkat(CWD, proc_name(directory.as_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

fn is_same(fd: BorrowedFd<'_>, path: &[u8]) -> bool {
    let id = |status: Stat| (status.st_dev, status.st_ino);
    match (rustix::fs::fstat(fd), rustix::fs::statat(CWD, path, AtFlags::empty())) {
        (Ok(ours), Ok(theirs)) => id(ours) == id(theirs),
        _ => false,
    }
}

/// Returns a logical path relative to the root: without the leading `/`; `.` for the root itself.
pub(super) fn relative(path: &LogicalPath) -> &[u8] {
    match path.as_os_str().as_bytes() {
        [b'/', rest @ ..] if !rest.is_empty() => rest,
        _ => b".",
    }
}

/// Splits a path into its directory (empty for the root) and its last name, including a trailing
/// slash.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let named = path.strip_suffix(b"/").unwrap_or(path);
    match named.iter().rposition(|&byte| byte == b'/').and_then(|at| path.split_at_checked(at)) {
        Some((directory, name)) => (directory, name.strip_prefix(b"/").unwrap_or(name)),
        None => (b"", path),
    }
}
