//! What a tool of the administrator needs beside [`crate::Backend`]: links, the data files of spaces, lock
//! files of old tools, and the usage log.
//!
//! Such a tool runs beside the server, and often as the superuser, on trees in which users of the machine
//! may have put links. So nothing here follows a link at the last component of a path.

use super::attribute::{self, AttributeBearer};
use super::backend::Posix;
use super::calls::QUIET;
use super::space::NAME_ATTRIBUTE;
use super::usage_log::SpaceEntry;
use base::LogicalPath;
use rustix::fs::{FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// End of the name of a lock file, whose time tells old tools whether the file beside it has a copy.
const LOCK_SUFFIX: &[u8] = b".lock";

/// Permission bits of lock files.
const LOCK_MODE: u32 = 0o644;

/// A data file in a space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceDataFile {
    /// The local path.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// The local path of the name that leads to it, from its attribute; `None` if it has none.
    pub name: Option<PathBuf>,
}

impl Posix {
    /// Returns the target of the link at a path; `None` if the path is not that of a link.
    pub fn link_target(&self, path: &LogicalPath) -> io::Result<Option<PathBuf>> {
        let stored = self.names.stored(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        match rustix::fs::readlinkat(&parent, name, Vec::new()) {
            Ok(target) => Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes())))),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the data file in a space to which the link at a path leads, if it does.
    pub fn space_data(&self, path: &LogicalPath) -> io::Result<Option<PathBuf>> {
        let Some(spaces) = &self.spaces else { return Ok(None) };
        let stored = self.names.stored(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        Ok(spaces.data_behind((&parent, name)))
    }

    /// Returns all spaces with the directories of their partitions, in the order of their names.
    #[must_use]
    pub fn partitions(&self) -> Vec<(String, PathBuf)> {
        let mut all: Vec<_> = self.spaces.iter().flat_map(|spaces| spaces.partition_directories()).collect();
        all.sort();
        all
    }

    /// Passes the data files of a space to `visit`, until it breaks: those on partitions whose path begins
    /// with `begin`. `ENOENT` if there is no such space. Blocks for long.
    pub fn visit_space(
        &self,
        space: &str,
        begin: &OsStr,
        visit: &mut dyn FnMut(SpaceDataFile) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut is_known = false;
        for (_, partition) in self.partitions().into_iter().filter(|(name, _)| name == space) {
            is_known = true;
            if partition.as_os_str().as_bytes().starts_with(begin.as_bytes())
                && visit_directory(&partition.join(space), true, visit)?.is_break()
            {
                return Ok(());
            }
        }
        if is_known { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    /// Creates the link at a path that leads to a data file in a space. `EEXIST` if there is something at the
    /// path, and `EINVAL` if the file is not in a space.
    pub fn restore_name(&self, path: &LogicalPath, data: &Path) -> io::Result<()> {
        let spaces = self.spaces.as_ref().filter(|spaces| spaces.has_placed(data)).ok_or(Errno::INVAL)?;
        let stored = self.names.stored_new(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        rustix::fs::symlinkat(data, &parent, name)?;
        spaces.rename(data, &stored);
        super::stable::sync_directory(&parent)
    }

    /// Sets the attribute of the data file of a path that names the path, because it names another one.
    pub fn restore_cross_reference(&self, path: &LogicalPath) -> io::Result<()> {
        let data = self.space_data(path)?.ok_or(Errno::INVAL)?;
        let stored = self.names.stored(path)?;
        if let Some(spaces) = &self.spaces {
            spaces.rename(&data, &stored);
        }
        Ok(())
    }

    /// Creates the lock file beside a file, or reuses it, with this modification time and owner. `EEXIST` if
    /// a file with content or several names has its name.
    pub fn set_lock_file(
        &self,
        path: &LogicalPath,
        modified: i64,
        owner: (Option<u32>, Option<u32>),
    ) -> io::Result<()> {
        let stored = self.names.stored(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        let name = [name, LOCK_SUFFIX].concat();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | QUIET;
        let file = rustix::fs::openat(&parent, &*name, flags, Mode::from_raw_mode(LOCK_MODE))?;
        let status = rustix::fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if !is_file || status.st_size != 0 || status.st_nlink != 1 {
            return Err(Errno::EXIST.into());
        }
        let (user, group) = owner;
        if user.is_some() || group.is_some() {
            rustix::fs::fchown(&file, user.map(Uid::from_raw), group.map(Gid::from_raw))?;
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            last_modification: Timespec { tv_sec: modified, tv_nsec: 0 },
        };
        Ok(rustix::fs::futimens(&file, &times)?)
    }

    /// Returns the entries of the usage log of all spaces; `None` without a log. May wait.
    pub fn usage_entries(&self) -> io::Result<Option<Vec<SpaceEntry>>> {
        let accounts = self.spaces.as_ref().and_then(|spaces| spaces.accounts());
        accounts.map(|accounts| accounts.with_log(|log| log.read_entries())).transpose()
    }

    /// Sets the bytes that the files of a space use in the usage log. May wait.
    pub fn set_usage(&self, space: &str, bytes: u64) -> io::Result<()> {
        let accounts = self.spaces.as_ref().and_then(|spaces| spaces.accounts()).ok_or(Errno::NOENT)?;
        accounts.with_log(|log| log.set_usage(space, bytes))
    }
}

/// Passes the regular files in a directory of a space, and with `below` those one level further down.
fn visit_directory(
    directory: &Path,
    below: bool,
    visit: &mut dyn FnMut(SpaceDataFile) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ControlFlow::Continue(())),
        other => other?,
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && below {
            directories.push(entry.path());
        } else if kind.is_file()
            && let Some(file) = data_file(entry.path())?
            && visit(file).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    for directory in directories {
        if visit_directory(&directory, false, visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns a data file; `None` if it is gone meanwhile.
fn data_file(path: PathBuf) -> io::Result<Option<SpaceDataFile>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | QUIET;
    let file: OwnedFd = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        other => other?,
    };
    let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or_default();
    let value = attribute::get(&AttributeBearer::from(file.as_fd()), NAME_ATTRIBUTE)?;
    let name = value.map(|mut value| {
        value.truncate(value.iter().position(|byte| *byte == 0).unwrap_or(value.len()));
        PathBuf::from(OsString::from_vec(value))
    });
    Ok(Some(SpaceDataFile { path, bytes, name }))
}
