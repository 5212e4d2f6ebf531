//! The usage of the file systems of an export: that of its names, and those of its spaces.

use super::calls::usage_of;
use super::space::{SPACE_DEFAULT, Spaces};
use crate::FileSystemUsage;
use std::io;
use std::os::fd::OwnedFd;

/// Opens the directory of an export.
type OpenDirectory<'a> = &'a dyn Fn() -> io::Result<OwnedFd>;

/// Returns the usage of the file systems that new files go to.
pub(super) fn usages(
    spaces: Option<&Spaces>,
    directory: OpenDirectory<'_>,
) -> io::Result<Vec<FileSystemUsage>> {
    match spaces {
        Some(spaces) => Ok(spaces.file_systems()),
        None => Ok(vec![own_usage(directory)?]),
    }
}

/// Returns the usage of all file systems with files, and the spaces that they have parts of. Files from before the
/// spaces lie beside their names.
pub(super) fn space_usages(
    spaces: Option<&Spaces>,
    directory: OpenDirectory<'_>,
) -> io::Result<Vec<(String, FileSystemUsage)>> {
    let mut all = spaces.map(Spaces::space_file_systems).unwrap_or_default();
    let is_known = |all: &[(String, FileSystemUsage)], own: &FileSystemUsage| {
        all.iter().any(|(space, usage)| space == SPACE_DEFAULT && usage.number == own.number)
    };
    match own_usage(directory) {
        Err(error) if all.is_empty() => return Err(error),
        Ok(own) if !is_known(&all, &own) => all.push((SPACE_DEFAULT.to_owned(), own)),
        _ => {}
    }
    Ok(all)
}

/// Returns the usage of one of them. The others are not queried, because their disks may be slow.
pub(super) fn usage_of_number(
    spaces: Option<&Spaces>,
    directory: OpenDirectory<'_>,
    number: u64,
) -> io::Result<Option<FileSystemUsage>> {
    if let Some(found) = spaces.and_then(|spaces| spaces.file_system(number)) {
        return found.map(Some);
    }
    Ok(Some(own_usage(directory)?).filter(|usage| usage.number == number))
}

fn own_usage(directory: OpenDirectory<'_>) -> io::Result<FileSystemUsage> {
    let directory = directory()?;
    let (number, usage) = (rustix::fs::fstat(&directory)?.st_dev, usage_of(&directory)?);
    Ok(FileSystemUsage { number, total: usage.total, free: usage.free })
}
