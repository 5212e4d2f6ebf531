//! Directories of this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::identity::{DirectoryMark, Identity};
use super::items::{Items, LocalStatus};
use super::listed::DirectoryListing;
use super::unknown::{UnreliableEntry, whole};
use crate::failure::{Cause, Error};
use crate::path::{EntryName, Name, RelativePath, shown_path};

/// Links to files count as these. Links to directories are not followed: they could lead anywhere.
pub(super) fn read_local(
    path: &Path,
    from: &RelativePath,
    stays_here: bool,
    follows_links: bool,
) -> DirectoryListing {
    let mut listed = DirectoryListing::default();
    let failed = |path: &Path, error: &std::io::Error| {
        Error::new("list", shown_path(path), Cause::System(error.to_string()))
    };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            listed.is_missing = error.kind() == std::io::ErrorKind::NotFound;
            listed.unknown.push(whole(from, failed(path, &error)));
            return listed;
        }
    };
    if let Ok(meta) = std::fs::metadata(path) {
        listed.ids.push(local_id(&meta));
    }
    let unknown = &mut listed.unknown;
    listed.items = Items::local(entries.filter_map(|entry| match entry {
        Ok(entry) => {
            let known = look_at(&entry, from, stays_here, follows_links);
            known.map_err(|not_known| unknown.push(*not_known)).ok().flatten()
        }
        Err(error) => {
            unknown.push(whole(from, failed(path, &error)));
            None
        }
    }));
    listed
}

fn look_at(
    entry: &std::fs::DirEntry,
    from: &RelativePath,
    stays_here: bool,
    follows_links: bool,
) -> Result<Option<(Vec<u8>, LocalStatus)>, Box<UnreliableEntry>> {
    let (path, raw) = (entry.path(), entry.file_name());
    let name = EntryName::from_os(&raw);
    let unknown = |cause: Cause| {
        let error = Error::new("read", shown_path(&path), cause);
        Err(Box::new(UnreliableEntry { directory: from.clone(), name: Some(name.to_string()), error }))
    };
    let checked = if stays_here { Name::on_this_machine(&raw) } else { Name::from_os(&raw) };
    if let Err(why) = checked {
        return unknown(Cause::BadName { name: name.to_string(), why });
    }
    let read = entry.file_type().and_then(|kind| Ok((kind.is_symlink(), std::fs::metadata(entry.path())?)));
    let (is_link, meta) = match read {
        Ok(read) => read,
        Err(error) if follows_links && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return unknown(Cause::System(error.to_string())),
    };
    if is_link && meta.is_dir() && !follows_links {
        return unknown(Cause::NotEntered("it is a link to a directory, which is not followed".to_owned()));
    }
    if !meta.is_dir() && !meta.is_file() && follows_links {
        return Ok(None);
    }
    if !meta.is_dir() && !meta.is_file() {
        return unknown(Cause::NotEntered("it is neither a file nor a directory".to_owned()));
    }
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let known = LocalStatus {
        is_directory: meta.is_dir(),
        size: meta.len(),
        modified: modified.and_then(|time| i64::try_from(time.as_secs()).ok()).unwrap_or(0),
        device: meta.dev(),
        inode: meta.ino(),
    };
    Ok(Some((raw.into_encoded_bytes(), known)))
}

fn local_id(meta: &std::fs::Metadata) -> Identity {
    (0, DirectoryMark::Local(meta.dev(), meta.ino()))
}
