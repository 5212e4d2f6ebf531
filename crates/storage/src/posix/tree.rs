//! Staying inside: turns a logical path into a descriptor without ever leaving what the server may touch.
//!
//! The kernel does it in one call (`openat2` with `RESOLVE_BENEATH`). Where it refuses, because a link is absolute or leads
//! upwards or because a container forbids the call, the [`walk`](super::walk) goes name by name.
//!
//! **Links.** A symbolic link is followed if its target lies within the local root or within one of the folders that were
//! named beside it (`oss.space` partitions among them); all others end in `EACCES`. XRootD follows every link. With `/` as
//! root every link is followed as there, but for the magic ones of `/proc`, which lead into other processes.

use super::walk;
use crate::refusal::Facility;
use base::LogicalPath;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the storage is to do without although the kernel has it: so that tests see the ways for kernels that lack it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Without {
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

/// Tries for a name that others are renaming meanwhile.
const RACE_TRIES: usize = 8;

/// A folder that names may lie in, with all its names.
struct Base {
    /// As links may name it: as configured, and with its own links resolved.
    names: Vec<PathBuf>,
    /// The local root stays open; partitions may be mounted later and are opened at each use.
    root: Option<OwnedFd>,
}

impl Base {
    fn open(&self) -> io::Result<OwnedFd> {
        match (&self.root, self.names.first()) {
            (Some(root), _) => Ok(root.try_clone()?),
            (None, Some(path)) => Ok(open_directory(path)?),
            (None, None) => Err(Errno::NOENT.into()),
        }
    }
}

/// The local root, and what else links may lead to.
pub(super) struct Tree {
    root: OwnedFd,
    bases: Vec<Base>,
    /// The root is `/`: every link leads inside.
    pub(super) everything: bool,
    resolve: ResolveFlags,
    has_openat2: bool,
    has_cached: bool,
    has_proc: bool,
}

/// The directory that holds a name.
pub(super) enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) => fd.as_fd(),
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

/// A file that is described or marked, not read: how system calls get at it.
pub(super) enum Reach {
    /// Opened in earnest.
    Open(OwnedFd),
    /// Opened as a place only, which needs no permission on the file and disturbs no device: reached through `/proc`.
    Place(OwnedFd),
}

impl AsFd for Reach {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(fd) | Self::Place(fd) => fd.as_fd(),
        }
    }
}

/// The name by which `/proc` knows an open descriptor of this process.
pub(super) fn proc_name(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, PLACE | OFlags::DIRECTORY, Mode::empty())
}

/// Did the kernel do what it was asked for, or is it only not to be done at once?
fn is_granted(asked: rustix::io::Result<OwnedFd>, facility: Facility) -> bool {
    match asked {
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(error) => {
            facility.refused(error);
            false
        }
    }
}

impl Tree {
    pub(super) fn new(root: &Path, links_to: &[PathBuf], without: Without) -> io::Result<Self> {
        let fd = open_directory(root)?;
        let names = |path: &Path| match path.canonicalize() {
            Ok(real) if real != path => vec![path.to_owned(), real],
            _ => vec![path.to_owned()],
        };
        let everything = root.canonicalize().is_ok_and(|real| real == Path::new("/"));
        let mut bases = vec![Base { names: names(root), root: Some(fd.try_clone()?) }];
        bases.extend(links_to.iter().map(|path| Base { names: names(path), root: None }));
        let beneath = if everything { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        let resolve = beneath | ResolveFlags::NO_MAGICLINKS;
        let probe = |flags| rustix::fs::openat2(&fd, ".", PLACE | OFlags::DIRECTORY, Mode::empty(), flags);
        let has_openat2 = !without.openat2 && is_granted(probe(resolve), Facility::Openat2);
        let has_cached =
            has_openat2 && is_granted(probe(resolve | ResolveFlags::CACHED), Facility::ResolveCached);
        let has_proc = !without.proc && is_same(&fd, proc_name(fd.as_fd()).as_bytes());
        Ok(Self { root: fd, bases, everything, resolve, has_openat2, has_cached, has_proc })
    }

    /// Are descriptors to be found in `/proc`?
    pub(super) fn has_proc(&self) -> bool {
        self.has_proc
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens; the flags are as for `open`. Devices, pipes and the like do not make it wait.
    pub(super) fn open(&self, path: &LogicalPath, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        self.open_below(relative(path), flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
    }

    fn open_below(&self, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        if self.has_openat2 {
            for _ in 0..RACE_TRIES {
                match rustix::fs::openat2(&self.root, name, flags, mode, self.resolve) {
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
        walk::open(self, name, flags, mode)
    }

    /// The usual case of what the kernel does not follow: the last name is a link to a partition, and nothing before it is
    /// one of that kind. `None` for all others.
    fn open_by_link(&self, name: &[u8], flags: OFlags, mode: Mode) -> Option<io::Result<OwnedFd>> {
        let (folder, last) = split(name);
        if flags.contains(OFlags::NOFOLLOW) || last.ends_with(b"/") {
            return None;
        }
        let folder = if folder.is_empty() { b"." } else { folder };
        let place = PLACE | OFlags::DIRECTORY;
        let folder = rustix::fs::openat2(&self.root, folder, place, Mode::empty(), self.resolve).ok()?;
        self.open_target(folder, last, flags, mode)
    }

    /// Opens what a link in this directory leads to; `None` if it is none that is absolute, or leads on to others.
    fn open_target(
        &self,
        folder: impl AsFd,
        link: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Option<io::Result<OwnedFd>> {
        let target = rustix::fs::readlinkat(folder, link, Vec::new()).ok()?.into_bytes();
        if !target.starts_with(b"/") {
            return None;
        }
        let (base, rest) = match self.base_of(&target) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        match rustix::fs::openat2(base, rest, flags, mode, self.resolve) {
            Err(Errno::AGAIN | Errno::INTR | Errno::XDEV) => None,
            opened => Some(opened.map_err(io::Error::from)),
        }
    }

    /// The base an absolute target of a link lies in, and the rest of the target within it.
    pub(super) fn base_of(&self, target: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
        if self.everything {
            return Ok((self.root.try_clone()?, target.to_vec()));
        }
        let target = Path::new(OsStr::from_bytes(target));
        let Some((base, rest)) = self.within(target) else {
            tracing::debug!(target = %target.display(), "a symbolic link leads out of what may be served");
            return Err(Errno::ACCESS.into());
        };
        let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        Ok((base.open()?, rest.as_os_str().as_bytes().to_vec()))
    }

    /// The innermost base that a local path lies in, and the rest of the path.
    fn within<'p>(&self, path: &'p Path) -> Option<(&Base, &'p Path)> {
        let rest = |base: &Base| {
            let rests = base.names.iter().filter_map(|name| path.strip_prefix(name).ok());
            rests.min_by_key(|rest| rest.as_os_str().len())
        };
        let found = self.bases.iter().filter_map(|base| Some((base, rest(base)?)));
        found.min_by_key(|(_, rest)| rest.as_os_str().len())
    }

    /// An absolute target of a link without the links that lead to its base; `None` outside of all bases.
    pub(super) fn real(&self, target: &[u8]) -> Option<PathBuf> {
        let (base, rest) = self.within(Path::new(OsStr::from_bytes(target)))?;
        Some(base.names.last()?.join(rest))
    }

    /// May links lead out of the root?
    pub(super) fn leads_out(&self) -> bool {
        self.everything || self.bases.len() > 1
    }

    /// The target of a link at a path to which no other link leads, and no mount; `EINVAL` for what is no link. `None` for all
    /// other paths.
    pub(super) fn link_at(&self, path: &LogicalPath) -> Option<rustix::io::Result<Vec<u8>>> {
        if !self.has_openat2 || path.is_root() {
            return None;
        }
        let (folder, last) = split(relative(path));
        let last = last.strip_suffix(b"/").unwrap_or(last);
        let read = |folder: BorrowedFd<'_>| {
            rustix::fs::readlinkat(folder, last, Vec::new()).map(std::ffi::CString::into_bytes)
        };
        if folder.is_empty() {
            return Some(read(self.root.as_fd()));
        }
        let resolve = self.resolve | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.root, folder, PLACE | OFlags::DIRECTORY, Mode::empty(), resolve) {
            Ok(folder) => Some(read(folder.as_fd())),
            Err(Errno::NOENT) => Some(Err(Errno::NOENT)),
            Err(_) => None,
        }
    }

    /// Opens what exists if its name is in memory; `None` if that cannot be told without waiting, or if links are not to be
    /// followed and there is one.
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
        match rustix::fs::openat2(&self.root, relative(path), flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR | Errno::XDEV) => None,
            Err(Errno::LOOP) if !follow => None,
            done => Some(done.map_err(io::Error::from)),
        }
    }

    /// The directory that holds the last name of `path`, and that name with the slash that may follow it.
    pub(super) fn parent<'p>(&self, path: &'p LogicalPath) -> io::Result<(Parent<'_>, &'p [u8])> {
        if path.is_root() {
            return Err(Errno::BUSY.into());
        }
        let (folder, name) = split(relative(path));
        if folder.is_empty() {
            return Ok((Parent::Root(self.root.as_fd()), name));
        }
        Ok((Parent::Below(self.open_below(folder, PLACE | OFlags::DIRECTORY, Mode::empty())?), name))
    }

    /// The same; creates directories that are missing, with this mode.
    pub(super) fn parent_made<'p>(
        &self,
        path: &'p LogicalPath,
        mode: Option<u32>,
    ) -> io::Result<(Parent<'_>, &'p [u8])> {
        match (self.parent(path), mode) {
            (Err(error), Some(mode)) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.make_directories(&path.parent().ok_or(Errno::BUSY)?, mode)?;
                self.parent(path)
            }
            (found, _) => found,
        }
    }

    /// Creates a directory and those above it that are missing. Existing ones are left as they are.
    fn make_directories(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        let mut missing = vec![path.clone()];
        while let Some(above) = missing.last().and_then(LogicalPath::parent) {
            match self.open(&above, PLACE | OFlags::DIRECTORY, 0) {
                Ok(_) => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => missing.push(above),
                Err(error) => return Err(error),
            }
        }
        for path in missing.iter().rev() {
            match self.make_directory(path, mode) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Creates one directory with exactly this mode, whatever the process's mask.
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
        // A directory inherits the set-group bit of the one above it; that is the site's wish and stays.
        let inherited = status.st_mode & libc::S_ISGID;
        if status.st_mode & 0o7777 == mode | inherited {
            return Ok(());
        }
        self.change_mode(&Reach::Place(place), mode | inherited)
    }

    /// Gets at a file or directory to describe or mark it.
    pub(super) fn reach(&self, path: &LogicalPath) -> io::Result<Reach> {
        if self.has_proc {
            return Ok(Reach::Place(self.open(path, PLACE, 0)?));
        }
        let quiet = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(Reach::Open(self.open(path, quiet, 0)?))
    }

    /// The same for what a link in this directory leads to, in fewer steps than by its path; `None` if it takes that.
    pub(super) fn reach_target(&self, folder: impl AsFd, link: &[u8]) -> Option<io::Result<Reach>> {
        if !self.has_openat2 || !self.has_proc || self.everything {
            return None;
        }
        Some(self.open_target(folder, link, PLACE, Mode::empty())?.map(Reach::Place))
    }

    /// Sets the permission bits.
    pub(super) fn change_mode(&self, reach: &Reach, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match reach {
            Reach::Open(fd) => rustix::fs::fchmod(fd, mode)?,
            Reach::Place(fd) if self.has_proc => rustix::fs::chmod(proc_name(fd.as_fd()), mode)?,
            Reach::Place(fd) => {
                let again = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::fchmod(rustix::fs::openat(fd, ".", again, Mode::empty())?, mode)?;
            }
        }
        Ok(())
    }

    /// Sets the time of the last access to now, and leaves that of the last change.
    pub(super) fn renew_access(&self, reach: &Reach) -> io::Result<()> {
        let [last_access, last_modification] =
            [UTIME_NOW, UTIME_OMIT].map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        let times = Timestamps { last_access, last_modification };
        match reach {
            Reach::Open(fd) => rustix::fs::futimens(fd, &times)?,
            Reach::Place(fd) if self.has_proc => {
                rustix::fs::utimensat(CWD, proc_name(fd.as_fd()), &times, AtFlags::empty())?;
            }
            Reach::Place(fd) => rustix::fs::utimensat(fd, ".", &times, AtFlags::empty())?,
        }
        Ok(())
    }
}

fn is_same(fd: &OwnedFd, path: &[u8]) -> bool {
    let id = |status: Stat| (status.st_dev, status.st_ino);
    match (rustix::fs::fstat(fd), rustix::fs::statat(CWD, path, AtFlags::empty())) {
        (Ok(ours), Ok(theirs)) => id(ours) == id(theirs),
        _ => false,
    }
}

/// A logical path as one below the root: without the `/` at its front, `.` for the root itself.
pub(super) fn relative(path: &LogicalPath) -> &[u8] {
    match path.as_os_str().as_bytes() {
        [b'/', rest @ ..] if !rest.is_empty() => rest,
        _ => b".",
    }
}

/// The folder (empty for the root) and the last name with a slash that may follow it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let named = path.strip_suffix(b"/").unwrap_or(path);
    match named.iter().rposition(|&byte| byte == b'/').and_then(|at| path.split_at_checked(at)) {
        Some((folder, name)) => (folder, name.strip_prefix(b"/").unwrap_or(name)),
        None => (b"", path),
    }
}
