//! Reads directories one page of names at a time, so that a large directory never occupies a thread
//! or memory as a whole.

use super::attribute::{self, AttributeBearer};
use super::calls::metadata;
use super::link::{LinkResolver, LinkTarget, leads};
use super::tree::{ConfinedTree, MetadataHandle, proc_name, relative};
use super::volume::{Volume, Volumes};
use crate::incoming::INCOMING_PREFIX;
use crate::replacement::REPLACEMENT_PREFIX;
use crate::{DirectoryPosition, DirectoryStream, Metadata, Pool, RawEntry};
use base::LogicalPath;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

pub(super) struct PosixDirectory {
    tree: Arc<ConfinedTree>,
    volumes: Arc<Volumes>,
    path: LogicalPath,
    names: Dir,
    /// The place behind the last name that was read.
    place: Option<i64>,
    /// The file system of the directory; determined on first use.
    here: OnceLock<Arc<Volume>>,
    /// The file systems mounted on entries, sorted by name; determined on first use.
    mounted: OnceLock<Vec<(Vec<u8>, Arc<Volume>)>>,
}

impl PosixDirectory {
    pub(super) fn open(
        tree: &Arc<ConfinedTree>,
        volumes: &Arc<Volumes>,
        path: &LogicalPath,
    ) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let names = Dir::new(tree.open(path, flags, 0)?)?;
        let (tree, volumes, path) = (tree.clone(), volumes.clone(), path.clone());
        Ok(Self { tree, volumes, path, names, place: None, here: OnceLock::new(), mounted: OnceLock::new() })
    }

    /// Returns the file system of the directory.
    fn here(&self) -> &Arc<Volume> {
        self.here.get_or_init(|| match leads(&self.tree, &self.volumes, &self.path) {
            LinkTarget::There(volume) => volume.clone(),
            LinkTarget::Here | LinkTarget::Nowhere => self.volumes.of_path(&self.path).clone(),
        })
    }

    /// Returns the file system that is mounted on an entry of this directory.
    fn mounted(&self, name: &[u8]) -> Option<&Arc<Volume>> {
        let all = self.mounted.get_or_init(|| self.volumes.mounted_in(&self.local_path()));
        let at = all.binary_search_by(|(point, _)| point.as_slice().cmp(name)).ok()?;
        all.get(at).map(|(_, volume)| volume)
    }

    /// Returns the local path without links; without `/proc` it is the path as configured.
    fn local_path(&self) -> PathBuf {
        let fd = self.names.fd().ok().filter(|_| self.tree.has_proc());
        match fd.map(|fd| rustix::fs::readlinkat(CWD, proc_name(fd), Vec::new())) {
            Some(Ok(place)) => PathBuf::from(OsString::from_vec(place.into_bytes())),
            _ => self.volumes.root().join(OsStr::from_bytes(relative(&self.path))),
        }
    }

    fn through_link(&self, name: &[u8]) -> io::Result<MetadataHandle> {
        if let Some(reached) = self.tree.reach_target(self.names.fd()?, checked(name)?) {
            return reached;
        }
        let path = self.path.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        self.tree.reach(&path)
    }
}

/// Checks that a name is a single component of this directory and cannot lead elsewhere.
fn checked(name: &[u8]) -> io::Result<&[u8]> {
    let bad = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
    if bad { Err(Errno::INVAL.into()) } else { Ok(name) }
}

impl DirectoryStream for PosixDirectory {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        let mut page = Vec::new();
        while page.len() < most {
            let Some(entry) = self.names.read() else { break };
            let entry = entry?;
            self.place = Some(entry.offset());
            let name = entry.file_name().to_bytes();
            let is_hidden = name.starts_with(INCOMING_PREFIX) || name.starts_with(REPLACEMENT_PREFIX);
            if name != b"." && name != b".." && !is_hidden {
                let link = matches!(entry.file_type(), FileType::Symlink | FileType::Unknown);
                let is_directory = (!link).then_some(entry.file_type() == FileType::Directory);
                page.push(RawEntry { name: name.to_vec(), link, is_directory });
            }
        }
        Ok(page)
    }

    #[cfg(target_pointer_width = "64")]
    fn position(&self) -> Option<DirectoryPosition> {
        self.place.map(DirectoryPosition)
    }

    #[cfg(target_pointer_width = "64")]
    fn go_to(&mut self, position: DirectoryPosition) -> io::Result<()> {
        self.names.seek(position.0)?;
        self.place = Some(position.0);
        Ok(())
    }

    fn other_pool(&self, entry: &RawEntry) -> Option<Arc<Pool>> {
        if let Some(volume) = self.mounted(&entry.name) {
            return Some(volume.pool.clone());
        }
        if !entry.link || !self.tree.leads_out() && !self.volumes.are_several() {
            return None;
        }
        let directory = self.names.fd().ok()?;
        let target =
            rustix::fs::readlinkat(directory, checked(&entry.name).ok()?, Vec::new()).ok()?.into_bytes();
        let found = if target.starts_with(b"/") {
            LinkResolver { tree: &self.tree, volumes: &self.volumes, here: self.here() }.turn(&target, &[], 1)
        } else {
            leads(&self.tree, &self.volumes, &self.path.join(&entry.name).ok()?)
        };
        match found {
            LinkTarget::There(volume) if !Arc::ptr_eq(volume, self.here()) => Some(volume.pool.clone()),
            _ => None,
        }
    }

    fn is_alias(&self, entry: &RawEntry) -> bool {
        if !entry.link {
            return false;
        }
        let target = checked(&entry.name).and_then(|name| {
            let directory = self.names.fd().map_err(io::Error::from)?;
            rustix::fs::readlinkat(directory, name, Vec::new()).map_err(io::Error::from)
        });
        match target {
            // The data of a space lies outside the root.
            Ok(target) if target.to_bytes().starts_with(b"/") => {
                let place = self.tree.bases().real(target.to_bytes());
                place.is_none_or(|place| place.starts_with(self.volumes.root()))
            }
            Ok(_) => true,
            Err(error) => error.raw_os_error() != Some(Errno::INVAL.raw_os_error()),
        }
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
            return attribute::get(&AttributeBearer::from(&self.through_link(name)?), attribute);
        }
        attribute::get(&AttributeBearer::Name(proc_name(place.as_fd())), attribute)
    }
}
