//! The directories that paths and links may lead into: the local root, and others by configuration.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Flags of a descriptor that only names a file.
pub(super) const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens a directory by its path.
pub(super) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, PLACE | OFlags::DIRECTORY, Mode::empty())
}

/// A directory that paths and links may lead into, with all its names.
struct Base {
    /// The names by which links may refer to it: as configured, and with its own links resolved.
    names: Vec<PathBuf>,
    /// The descriptor of the local root, which stays open. Partitions may be mounted later, so they
    /// are opened at each use.
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

/// The local root, and the other directories that links may lead into.
pub(super) struct Bases {
    root: OwnedFd,
    all: Vec<Base>,
    /// The root is `/`, so that every link leads inside.
    pub(super) everything: bool,
}

impl Bases {
    /// Opens the root.
    pub(super) fn new(root: &Path, links_to: &[PathBuf]) -> io::Result<Self> {
        let fd = open_directory(root)?;
        let names = |path: &Path| match path.canonicalize() {
            Ok(real) if real != path => vec![path.to_owned(), real],
            _ => vec![path.to_owned()],
        };
        let everything = root.canonicalize().is_ok_and(|real| real == Path::new("/"));
        let mut all = vec![Base { names: names(root), root: Some(fd.try_clone()?) }];
        all.extend(links_to.iter().map(|path| Base { names: names(path), root: None }));
        Ok(Self { root: fd, all, everything })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Reports whether links may lead into a directory other than the root.
    pub(super) fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the base in which an absolute link target lies, and the path of the target within
    /// it.
    pub(super) fn base_of(&self, target: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
        if self.everything {
            return Ok((self.root.try_clone()?, target.to_vec()));
        }
        let target = Path::new(OsStr::from_bytes(target));
        let Some((base, rest)) = self.within(target) else {
            tracing::debug!(target = %target.display(), "refused to follow a symbolic link: its target is outside of the directories that may be served");
            return Err(Errno::ACCESS.into());
        };
        let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
        Ok((base.open()?, rest.as_os_str().as_bytes().to_vec()))
    }

    /// Returns the innermost base in which a local path lies, and the rest of the path.
    fn within<'p>(&self, path: &'p Path) -> Option<(&Base, &'p Path)> {
        let rest = |base: &Base| {
            let rests = base.names.iter().filter_map(|name| path.strip_prefix(name).ok());
            rests.min_by_key(|rest| rest.as_os_str().len())
        };
        let found = self.all.iter().filter_map(|base| Some((base, rest(base)?)));
        found.min_by_key(|(_, rest)| rest.as_os_str().len())
    }

    /// Returns an absolute link target after resolving the links of its base; `None` outside of all
    /// bases.
    pub(super) fn real(&self, target: &[u8]) -> Option<PathBuf> {
        let (base, rest) = self.within(Path::new(OsStr::from_bytes(target)))?;
        Some(base.names.last()?.join(rest))
    }
}
