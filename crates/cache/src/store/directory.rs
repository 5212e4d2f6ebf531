//! [`CacheDirectory`]: the contents of a directory of a cache.

use super::{CacheKey, DecodedState, StoreContext, StoreError};
use base::{LogicalPath, errno_text};
use std::collections::HashSet;
use std::io;
use storage::PlainKind;

/// The contents of a directory of a cache.
#[derive(Default, Debug)]
pub struct CacheDirectory {
    /// The directories in which cached files can be.
    pub directories: Vec<LogicalPath>,
    /// The cached files.
    pub files: Vec<CachedFileStatus>,
    /// Files whose data is missing, because another program or a crash has left only their state.
    pub without_data: Vec<CacheKey>,
    /// Files whose state is damaged. They are fetched anew when they are opened.
    pub damaged: Vec<CacheKey>,
    /// Data that is not claimed yet, or was left so by a crash.
    pub unclaimed: Vec<CacheKey>,
    /// Files that are not of the cache.
    pub foreign: Vec<LogicalPath>,
    /// Directories and state files that cannot be read, with the reason.
    pub unreadable: Vec<(LogicalPath, String)>,
}

/// The status of a cached file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedFileStatus {
    /// Its name.
    pub key: CacheKey,
    /// Its size in bytes.
    pub size: u64,
    /// Number of bytes that are stored.
    pub stored: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Number of opens.
    pub opens: u64,
    /// The end of the last recorded access, in seconds since the epoch.
    pub accessed: Option<i64>,
    /// The last use: the end of the last recorded access, or the begin of its storing.
    pub used: i64,
}

/// Looks through a directory.
pub(crate) fn look(context: &StoreContext, directory: &LogicalPath) -> io::Result<CacheDirectory> {
    let mut found = CacheDirectory::default();
    let (mut data, mut with_state) = (Vec::new(), HashSet::new());
    for entry in context.disk.list(directory)? {
        let (name, kind) = entry?;
        let Ok(path) = directory.join(&name) else { continue };
        match kind {
            // Otherwise no file below it is one of the cache.
            PlainKind::Directory => found.directories.extend(CacheKey::new(&path).map(|_| path)),
            PlainKind::File => match CacheKey::of_state(&path) {
                Some(key) => {
                    match context.load(&key) {
                        Ok(Some(DecodedState::Valid(state))) => {
                            let (cinfo, stored) = (&state.cinfo, state.stored_bytes());
                            let accessed = cinfo.accesses.last().map(|last| last.detached.max(last.attached));
                            let used = state.last_use();
                            let (size, block_bytes, opens) =
                                (cinfo.file_bytes, cinfo.block_bytes, cinfo.opens);
                            let key = key.clone();
                            found.files.push(CachedFileStatus {
                                key,
                                size,
                                stored,
                                block_bytes,
                                opens,
                                accessed,
                                used,
                            });
                        }
                        Ok(Some(DecodedState::Damaged)) => found.damaged.push(key.clone()),
                        Ok(Some(DecodedState::Foreign)) | Err(StoreError::Foreign) => {
                            found.foreign.push(path)
                        }
                        Err(StoreError::Disk(error)) => found.unreadable.push((path, errno_text(&error))),
                        // It was removed meanwhile.
                        Ok(None) => {}
                    }
                    with_state.insert(key);
                }
                None => data.push(path),
            },
            PlainKind::Other => found.foreign.push(path),
        }
    }
    let names: HashSet<&LogicalPath> = data.iter().collect();
    // A file may have been removed during the listing.
    let lacks_data = |key: &CacheKey| !names.contains(key.data()) && context.has_state_only(key);
    let without_data = found.files.extract_if(.., |file| lacks_data(&file.key));
    found.without_data = without_data.map(|file| file.key).collect();
    for path in data {
        match CacheKey::new(&path).filter(|key| !with_state.contains(key)) {
            Some(key) if context.is_unclaimed(&key) => found.unclaimed.push(key),
            None if CacheKey::new(&path).is_some() => {}
            _ => found.foreign.push(path),
        }
    }
    Ok(found)
}
