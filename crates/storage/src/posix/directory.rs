//! Reading directories, a page of names at a time.

use super::attribute::{self, Bearer};
use super::file::metadata;
use super::tree::{Reach, Tree, proc_name};
use crate::{DirectoryStream, Metadata, RawEntry};
use base::LogicalPath;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

pub(super) struct Directory {
    tree: Arc<Tree>,
    path: LogicalPath,
    names: Dir,
}

impl Directory {
    pub(super) fn open(tree: &Arc<Tree>, path: &LogicalPath) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let names = Dir::new(tree.open(path, flags, 0)?)?;
        Ok(Self { tree: tree.clone(), path: path.clone(), names })
    }

    fn through_link(&self, name: &[u8]) -> io::Result<Reach> {
        let path = self.path.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        self.tree.reach(&path)
    }
}

/// Names of this directory only: nothing that could lead elsewhere.
fn checked(name: &[u8]) -> io::Result<&[u8]> {
    let bad = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
    if bad { Err(Errno::INVAL.into()) } else { Ok(name) }
}

impl DirectoryStream for Directory {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        let mut page = Vec::new();
        while page.len() < most {
            let Some(entry) = self.names.read() else { break };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                page.push(RawEntry { name: name.to_vec() });
            }
        }
        Ok(page)
    }

    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        let status = rustix::fs::statat(self.names.fd()?, checked(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        if status.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Ok(metadata(&status));
        }
        Ok(metadata(&rustix::fs::fstat(self.through_link(name)?)?))
    }

    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(self.names.fd()?, checked(name)?, flags, Mode::empty())?;
        let is_link = rustix::fs::fstat(&place)?.st_mode & libc::S_IFMT == libc::S_IFLNK;
        if is_link || !self.tree.has_proc() {
            return attribute::get(&Bearer::from(&self.through_link(name)?), attribute);
        }
        attribute::get(&Bearer::Name(proc_name(place.as_fd())), attribute)
    }
}
