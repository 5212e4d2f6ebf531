//! Resolves a path name by name: the fallback for links that `openat2` does not follow and for
//! kernels without it.
//!
//! Each step opens one name without following links, relative to a descriptor that was opened in
//! the same way. Therefore a concurrent rename cannot lead it outside. Links are read and checked
//! here.

use super::bases::Bases;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of links in one path, as in the kernel.
pub(super) const LINKS_MAX: usize = 40;

/// Opens `name`, relative to the root, with the flags of `open`.
pub(super) fn open(bases: &Bases, name: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let mut walk =
        PathWalk { bases, base: bases.root().try_clone_to_owned()?, above: Vec::new(), todo: Vec::new() };
    let mut flags = flags;
    if name.ends_with(b"/") {
        flags |= OFlags::DIRECTORY;
    }
    walk.push(name);
    let mut links = 0;
    while let Some(name) = walk.todo.pop() {
        if name == b".." {
            walk.up()?;
            continue;
        }
        let last = walk.todo.is_empty();
        let follow =
            !last || !flags.contains(OFlags::NOFOLLOW) && !flags.contains(OFlags::CREATE | OFlags::EXCL);
        if follow && let Some(target) = walk.link(&name)? {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if last && target.ends_with(b"/") {
                flags |= OFlags::DIRECTORY;
            }
            walk.turn(&target)?;
            continue;
        }
        if last {
            return Ok(rustix::fs::openat(walk.here(), name.as_slice(), flags | OFlags::NOFOLLOW, mode)?);
        }
        walk.down(&name)?;
    }
    // The path ended in `..` or was empty, so that the current directory is its target.
    Ok(rustix::fs::openat(walk.here(), ".", flags, mode)?)
}

struct PathWalk<'a> {
    bases: &'a Bases,
    base: OwnedFd,
    /// The directories below the base that lead to the current one.
    above: Vec<OwnedFd>,
    /// Remaining names in reverse order.
    todo: Vec<Vec<u8>>,
}

impl PathWalk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.above.last().map_or(self.base.as_fd(), AsFd::as_fd)
    }

    fn push(&mut self, path: &[u8]) {
        let names = path.split(|&byte| byte == b'/').rev().filter(|name| !name.is_empty() && *name != b".");
        self.todo.extend(names.map(<[u8]>::to_vec));
    }

    fn down(&mut self, name: &[u8]) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = rustix::fs::openat(self.here(), name, flags, Mode::empty())?;
        self.above.push(below);
        Ok(())
    }

    fn up(&mut self) -> io::Result<()> {
        // The parent of `/` is `/`. The parent of any other base is outside.
        if self.above.pop().is_none() && !self.bases.everything { Err(Errno::ACCESS.into()) } else { Ok(()) }
    }

    /// Returns the target if `name` is a link.
    fn link(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match rustix::fs::readlinkat(self.here(), name, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Continues with the target of a link.
    fn turn(&mut self, target: &[u8]) -> io::Result<()> {
        if target.starts_with(b"/") {
            let (base, rest) = self.bases.base_of(target)?;
            self.base = base;
            self.above.clear();
            self.push(&rest);
        } else {
            self.push(target);
        }
        Ok(())
    }
}
