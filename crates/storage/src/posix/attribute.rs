//! Extended attributes by their full local names, for open files and for files reached by `O_PATH`
//! only.
//!
//! An `O_PATH` descriptor does not support `fgetxattr` and the like, so these go through its name
//! in `/proc`.

use super::tree::{MetadataHandle, proc_name};
use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The object that has the attributes.
pub(super) enum AttributeBearer<'a> {
    Descriptor(BorrowedFd<'a>),
    Name(String),
}

impl<'a> From<BorrowedFd<'a>> for AttributeBearer<'a> {
    fn from(fd: BorrowedFd<'a>) -> Self {
        Self::Descriptor(fd)
    }
}

impl<'a> From<&'a MetadataHandle> for AttributeBearer<'a> {
    fn from(reach: &'a MetadataHandle) -> Self {
        match reach {
            MetadataHandle::Open(fd) => Self::Descriptor(fd.as_fd()),
            MetadataHandle::Place(fd) => Self::Name(proc_name(fd.as_fd())),
        }
    }
}

/// First buffer size for a value or list; most are shorter.
const GUESS_BYTES: usize = 256;
/// Maximum size of a value (`XATTR_SIZE_MAX`) or a list (`XATTR_LIST_MAX`) in Linux.
const BYTES_MAX: usize = 65_536;

/// Runs a call, and again with the maximum buffer after `ERANGE`.
fn grown(mut call: impl FnMut(&mut Vec<u8>) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(GUESS_BYTES);
    match call(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer = Vec::with_capacity(BYTES_MAX);
            call(&mut buffer)?;
        }
        done => {
            done?;
        }
    }
    Ok(buffer)
}

/// Returns a value; `None` if there is no such attribute.
pub(super) fn get(bearer: &AttributeBearer<'_>, name: &str) -> io::Result<Option<Vec<u8>>> {
    let value = grown(|buffer| match bearer {
        AttributeBearer::Descriptor(fd) => rustix::fs::fgetxattr(fd, name, spare_capacity(buffer)),
        AttributeBearer::Name(path) => rustix::fs::getxattr(path.as_str(), name, spare_capacity(buffer)),
    });
    match value {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets a value; with `new` there must not be one yet.
pub(super) fn set(bearer: &AttributeBearer<'_>, name: &str, value: &[u8], new: bool) -> io::Result<()> {
    let flags = if new { XattrFlags::CREATE } else { XattrFlags::empty() };
    match bearer {
        AttributeBearer::Descriptor(fd) => rustix::fs::fsetxattr(fd, name, value, flags)?,
        AttributeBearer::Name(path) => rustix::fs::setxattr(path.as_str(), name, value, flags)?,
    }
    Ok(())
}

/// Removes an attribute.
pub(super) fn remove(bearer: &AttributeBearer<'_>, name: &str) -> io::Result<()> {
    match bearer {
        AttributeBearer::Descriptor(fd) => rustix::fs::fremovexattr(fd, name)?,
        AttributeBearer::Name(path) => rustix::fs::removexattr(path.as_str(), name)?,
    }
    Ok(())
}

/// Returns all names. A name that is not UTF-8 is omitted, because a client cannot request it.
pub(super) fn list(bearer: &AttributeBearer<'_>) -> io::Result<Vec<String>> {
    let names = grown(|buffer| match bearer {
        AttributeBearer::Descriptor(fd) => rustix::fs::flistxattr(fd, spare_capacity(buffer)),
        AttributeBearer::Name(path) => rustix::fs::listxattr(path.as_str(), spare_capacity(buffer)),
    })?;
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect())
}
