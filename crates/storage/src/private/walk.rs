//! Opens a path component by component, so that links of other users are not followed.
//!
//! Links of this user and of root are followed: `/var/run` is one, and administrators move state to
//! other disks in this way. In a directory in which every user may create entries, such as `/tmp`,
//! a subdirectory must also belong to this user or root. Otherwise another user may have created it
//! under the name that the server expects.

use super::proof::{UntrustedFile, is_for_everybody, is_trusted, user};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links in one path.
const LINKS_MAX: usize = 40;

/// The last component of a path.
pub(super) enum LastComponent {
    /// A file, or a name that does not exist.
    Name(OsString),
    /// A descriptor of this process, to which for example `/dev/stdout` leads.
    OpenDescriptor(OsString),
}

/// Opens the directory at `path` with `O_PATH`. With `create`, missing directories are created with
/// this mode.
pub(super) fn directory(path: &Path, create: Option<Mode>) -> io::Result<OwnedFd> {
    let mut walk = PrivateWalk::start(path, create)?;
    while let Some(name) = walk.rest.pop_front() {
        walk.enter(&name)?;
    }
    Ok(walk.at)
}

/// Opens the directory of the log file at `path`, following links in the last component too.
/// Returns the directory with its path and the name.
pub(super) fn log(path: &Path, create: Mode) -> io::Result<(OwnedFd, PathBuf, LastComponent)> {
    let mut walk = PrivateWalk::start(path, Some(create))?;
    loop {
        let Some(name) = walk.rest.pop_front() else { return Err(Errno::ISDIR.into()) };
        if !walk.rest.is_empty() {
            walk.enter(&name)?;
            continue;
        }
        let found = fs::statat(&walk.at, &name, AtFlags::SYMLINK_NOFOLLOW);
        if !found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink) {
            return Ok((walk.at, walk.path, LastComponent::Name(name)));
        }
        let link = walk.peek(&name)?;
        if is_proc(&walk.at)? {
            return Ok((walk.at, walk.path, LastComponent::OpenDescriptor(name)));
        }
        walk.follow(&link, &name)?;
    }
}

/// Opens the directory `name` in `directory` with `O_PATH`, without following a link.
pub(super) fn step(directory: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(directory, name, flags, Mode::empty()) {
        Ok(found) => Ok(found),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Err(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => UntrustedFile::link(path, stat.st_uid),
                _ => UntrustedFile::no_directory(path),
            }
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the owner of a link for the error message; this user if the link was removed meanwhile.
pub(super) fn owner_of(directory: BorrowedFd<'_>, name: &OsStr) -> u32 {
    fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_or_else(|_| user(), |stat| stat.st_uid)
}

/// Reports whether a directory is in `/proc`, whose links lead to open files independent of their
/// text.
fn is_proc(directory: &OwnedFd) -> io::Result<bool> {
    Ok(fs::fstatfs(directory)?.f_type == fs::PROC_SUPER_MAGIC)
}

struct PrivateWalk {
    at: OwnedFd,
    /// Path of `at`, for error messages.
    path: PathBuf,
    rest: VecDeque<OsString>,
    links: usize,
    create: Option<Mode>,
}

impl PrivateWalk {
    fn start(path: &Path, create: Option<Mode>) -> io::Result<Self> {
        let top = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
        let mut walk =
            Self { at: open_top(top)?, path: top.to_owned(), rest: VecDeque::new(), links: 0, create };
        walk.put_in_front(path);
        Ok(walk)
    }

    fn put_in_front(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front("..".into()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }

    /// Enters the next component.
    fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let path = self.path.join(name);
        let found = match self.down(name) {
            Err(Errno::NOENT) => {
                let Some(mode) = self.create else { return Err(Errno::NOENT.into()) };
                match fs::mkdirat(&self.at, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => self.down(name),
                    Err(error) => return Err(error.into()),
                }
            }
            other => other,
        };
        let found = match found {
            Ok(found) => found,
            Err(Errno::NOTDIR | Errno::LOOP) => return self.enter_link(name, &path),
            Err(Errno::ACCESS) => return Err(self.no_access()),
            Err(error) => return Err(error.into()),
        };
        let stat = fs::fstat(&found)?;
        if name != ".." && is_for_everybody(&fs::fstat(&self.at)?) && !is_trusted(stat.st_uid) {
            return Err(UntrustedFile::owner(&path, stat.st_uid).into());
        }
        (self.at, self.path) = (found, path);
        Ok(())
    }

    /// Opens the directory `name`. `O_DIRECTORY` makes the kernel mount an automount point, which
    /// `O_PATH` alone does not.
    fn down(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.at, name, flags, Mode::empty())
    }

    /// Follows the link `name` to a directory.
    fn enter_link(&mut self, name: &OsStr, path: &Path) -> io::Result<()> {
        let found = self.peek(name)?;
        if FileType::from_raw_mode(fs::fstat(&found)?.st_mode) != FileType::Symlink {
            return Err(UntrustedFile::no_directory(path).into());
        }
        if !is_proc(&self.at)? {
            return self.follow(&found, name);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.at = fs::openat(&self.at, name, flags, Mode::empty())?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Returns the error for missing permission: it names a directory of another user, with the
    /// remedy.
    fn no_access(&self) -> io::Error {
        match fs::fstat(&self.at) {
            Ok(stat) if stat.st_uid != user() => UntrustedFile::owner(&self.path, stat.st_uid).into(),
            _ => Errno::ACCESS.into(),
        }
    }

    /// Opens the component itself, even if it is a link.
    fn peek(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(fs::openat(&self.at, name, flags, Mode::empty())?)
    }

    /// Replaces a link by its target in the remaining path.
    fn follow(&mut self, link: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let owner = fs::fstat(link)?.st_uid;
        if !is_trusted(owner) {
            return Err(UntrustedFile::link(&self.path.join(name), owner).into());
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let text = fs::readlinkat(link.as_fd(), "", Vec::new())?;
        let text = Path::new(OsStr::from_bytes(text.as_bytes()));
        if text.is_absolute() {
            (self.at, self.path) = (open_top(Path::new("/"))?, PathBuf::from("/"));
        }
        self.put_in_front(text);
        Ok(())
    }
}

fn open_top(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::open(path, flags, Mode::empty())?)
}
