//! Moves the data of a file to another space, beside the server.
//!
//! The data is copied under a new name first, while clients may read and write. Then the lease of the system
//! (`F_SETLEASE`) proves that the old file is open nowhere and was not changed since. Only then does its name
//! lead to the copy. A crash before leaves a data file without a name, which an audit of the space finds.

use super::attribute::{self, AttributeBearer};
use super::backend::Posix;
use super::held_file;
use super::incoming::temporary_name;
use super::local_file_system::check_local;
use super::space::{NAME_ATTRIBUTE, Spaces};
use super::stable::sync_directory;
use super::tree::ParentDirectory;
use super::unused_file::{has_lease, take_lease};
use crate::CreateMode;
use base::LogicalPath;
use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

/// `st_mode` without the type.
const MODE_BITS: u32 = 0o7777;

/// A new data file, which is removed unless it gets its name.
struct NewData {
    path: PathBuf,
    is_kept: bool,
}

impl Drop for NewData {
    fn drop(&mut self) {
        if !self.is_kept {
            rustix::fs::unlink(&self.path).ok();
        }
    }
}

impl Posix {
    /// Moves the data of the file at a path to a space, `NAME[:PARTITION]`. `EEXIST` if it is there, `ENOENT`
    /// if there is no such space, `EBUSY` if the file is open or was changed meanwhile. Blocks for long.
    pub fn relocate(&self, path: &LogicalPath, wish: &str) -> io::Result<()> {
        let spaces = self.spaces.as_ref().ok_or(Errno::NOENT)?;
        let stored = self.names.stored(path)?;
        let (parent, name) = self.tree.parent(&stored)?;
        let old = spaces.data_behind((&parent, name));
        if old.as_deref().is_some_and(|data| spaces.fits(data, wish)) {
            return Err(Errno::EXIST.into());
        }
        let file = held_file::open(&self.tree, Some(spaces), &stored)?;
        let before = rustix::fs::fstat(&file)?;
        if before.st_nlink != 1 {
            return Err(Errno::MLINK.into());
        }
        check_local(&file)?;
        let size = u64::try_from(before.st_size).unwrap_or_default();
        let create = CreateMode {
            exclusive: true,
            mode: 0o600,
            parents: None,
            size_hint: Some(size),
            space: Some(wish.to_owned()),
            beside: None,
            at: None,
        };
        let (copy, data) = spaces.create_wanted(wish, &create)?;
        let mut new = NewData { path: data, is_kept: false };
        let copy = copy_content(File::from(file.try_clone()?), File::from(copy))?;
        copy_status(&file, &copy, &before)?;
        spaces.rename(&new.path, &stored);
        rustix::fs::fsync(&copy)?;
        take_lease(file.as_fd())?;
        let hidden = temporary_name(&[b"reloc/", name].concat());
        make_link(spaces, &new.path, (&parent, &hidden))?;
        let replaced = is_unchanged(&file, &before).and_then(|()| {
            // The name may lead to another file by now.
            let named = rustix::fs::statat(&parent, name, AtFlags::empty())?;
            let is_same = (named.st_dev, named.st_ino) == (before.st_dev, before.st_ino);
            if !is_same || !has_lease(file.as_fd())? {
                return Err(Errno::BUSY.into());
            }
            Ok(rustix::fs::renameat(&parent, &*hidden, &parent, name)?)
        });
        if let Err(error) = replaced {
            rustix::fs::unlinkat(&parent, &*hidden, AtFlags::empty()).ok();
            return Err(error);
        }
        new.is_kept = true;
        if let Some((accounts, space)) = spaces.account_of(&new.path) {
            accounts.grow(&space, size);
        }
        sync_directory(&parent)?;
        if let Some(old) = old {
            Spaces::remove_data(&old, spaces.account_of(&old));
        }
        Ok(())
    }
}

/// Creates the link to new data. One that a crash has left there is replaced.
fn make_link(spaces: &Spaces, data: &PathBuf, at: (&ParentDirectory<'_>, &[u8])) -> io::Result<()> {
    let (parent, hidden) = at;
    match rustix::fs::symlinkat(data, parent, hidden) {
        Err(Errno::EXIST) if spaces.data_behind(at).is_some() => {
            rustix::fs::unlinkat(parent, hidden, AtFlags::empty())?;
            Ok(rustix::fs::symlinkat(data, parent, hidden)?)
        }
        other => Ok(other?),
    }
}

fn copy_content(mut from: File, mut to: File) -> io::Result<OwnedFd> {
    io::copy(&mut from, &mut to)?;
    Ok(to.into())
}

/// Gives a copy the attributes, the owner, the mode and the times of its original.
fn copy_status(from: &OwnedFd, to: &OwnedFd, status: &Stat) -> io::Result<()> {
    let (source, target) = (AttributeBearer::from(from.as_fd()), AttributeBearer::from(to.as_fd()));
    for name in attribute::list(&source)? {
        if !name.starts_with("user.") || name == NAME_ATTRIBUTE {
            continue;
        }
        if let Some(value) = attribute::get(&source, &name)? {
            attribute::set(&target, &name, &value, false)?;
        }
    }
    let now = rustix::fs::fstat(to)?;
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid) {
        rustix::fs::fchown(to, Some(Uid::from_raw(status.st_uid)), Some(Gid::from_raw(status.st_gid)))?;
    }
    rustix::fs::fchmod(to, Mode::from_raw_mode(status.st_mode & MODE_BITS))?;
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    };
    let times = Timestamps {
        last_access: time(status.st_atime, status.st_atime_nsec),
        last_modification: time(status.st_mtime, status.st_mtime_nsec),
    };
    Ok(rustix::fs::futimens(to, &times)?)
}

/// Checks that a file was not written since.
fn is_unchanged(file: &OwnedFd, before: &Stat) -> io::Result<()> {
    let now = rustix::fs::fstat(file)?;
    let key = |status: &Stat| (status.st_size, status.st_mtime, status.st_mtime_nsec, status.st_nlink);
    if key(&now) == key(before) { Ok(()) } else { Err(Errno::BUSY.into()) }
}
