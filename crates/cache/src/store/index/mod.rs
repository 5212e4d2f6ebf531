//! The recorded index: which files are stored, so that a start needs no search.
//!
//! | file | contents |
//! |---|---|
//! | `format` | the bytes of a head, of a record of a journal, and of a block of a snapshot |
//! | `journal` | [`IndexJournal`]: the changes since the last snapshot |
//! | `recorded` | [`RecordedIndex`]: what earlier processes have recorded |
//! | `snapshot` | [`SnapshotWriter`], [`SnapshotReader`]: all files at a time |
//!
//! A snapshot `N.snapshot` has all files, and the journals `N.journal`, `N+1.journal` … have what was changed since that
//! snapshot was begun. A change is recorded before it is made on the disk, and again when it was made. So after the end
//! of the process at any point, only the files whose last change has no second record have to be looked at.
//!
//! Nothing is synced for a change. After the machine has started again, or the file system was mounted again, the
//! records of the last moments can be missing, so all files have to be compared with the disk then.

mod format;
mod journal;
mod recorded;
mod snapshot;

#[cfg(test)]
mod tests;

use super::cache_key::OWN_DIRECTORY;
use super::{CacheDisk, CacheKey, StoreContext};
use base::LogicalPath;
use std::io;

pub(crate) use journal::IndexJournal;
pub(crate) use recorded::RecordedIndex;
pub(crate) use snapshot::SnapshotWriter;

/// A file of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordedFile {
    pub(crate) key: CacheKey,
    /// Number of bytes that are stored.
    pub(crate) bytes: u64,
    /// The last use in seconds since the epoch.
    pub(crate) used: i64,
    /// The place in the order of removals.
    pub(crate) rank: u8,
}

/// The kinds of files of an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum IndexFileKind {
    Snapshot,
    /// A snapshot that is being written.
    Unfinished,
    Journal,
}

impl IndexFileKind {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Snapshot => ".snapshot",
            Self::Unfinished => ".new",
            Self::Journal => ".journal",
        }
    }
}

fn directory() -> io::Result<LogicalPath> {
    LogicalPath::parse(format!("{OWN_DIRECTORY}/index").as_bytes())
        .map_err(|_| io::ErrorKind::InvalidFilename.into())
}

fn path(generation: u64, kind: IndexFileKind) -> io::Result<LogicalPath> {
    let name = format!("{generation}{}", kind.suffix());
    directory()?.join(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

/// Returns what earlier processes have recorded about the files of a cache, and begins the journal that follows. The
/// numbers are the generation after that journal, and the identity of the disk. Without a usable index, nothing is
/// recorded until a snapshot was made.
///
/// # Errors
/// Errors of the disk. There can be an index then, which must not be believed later. See [`IndexJournal::distrust`].
pub(crate) fn resume(context: &StoreContext) -> io::Result<(Option<RecordedIndex>, (u64, u64))> {
    let lock = LogicalPath::parse(format!("{OWN_DIRECTORY}/lock").as_bytes())
        .map_err(|_| io::ErrorKind::InvalidFilename)?;
    let identity = context.disk.identity(&lock)?;
    let (found, next) = match RecordedIndex::find(&*context.disk, identity) {
        Ok((Some(found), next)) if context.journal.begin((next, identity)).is_ok() => (Some(found), next),
        Ok((_, next)) => (None, next),
        Err(error) => {
            tracing::warn!("the index of the cache cannot be read: {error}");
            (None, 1)
        }
    };
    if found.is_none() {
        remove_before(&*context.disk, u64::MAX)?;
    }
    Ok((found, (next + 1, identity)))
}

/// Returns the files of all indexes.
fn list(disk: &dyn CacheDisk) -> io::Result<Vec<(u64, IndexFileKind)>> {
    let entries = match disk.list(&directory()?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let (name, _) = entry?;
        let Ok(name) = String::from_utf8(name) else { continue };
        for kind in [IndexFileKind::Snapshot, IndexFileKind::Unfinished, IndexFileKind::Journal] {
            let generation = name.strip_suffix(kind.suffix()).and_then(|number| number.parse().ok());
            // A generation that has no next one is not from here.
            found.extend(generation.filter(|generation| *generation < u64::MAX).map(|found| (found, kind)));
        }
    }
    Ok(found)
}

/// Removes the files of all generations before this one.
fn remove_before(disk: &dyn CacheDisk, generation: u64) -> io::Result<()> {
    let mut old: Vec<_> = list(disk)?.into_iter().filter(|(found, _)| *found < generation).collect();
    // A snapshot goes before its journal, because it is not believed alone.
    old.sort_by_key(|(generation, kind)| (*kind == IndexFileKind::Journal, *generation));
    // The index is not believed when one of its files has gone, so a failure does not keep the others.
    let mut result = Ok(());
    for (generation, kind) in old {
        let path = path(generation, kind)?;
        // The first failure may have been a passing one.
        if let Err(error) = disk.remove(&path).or_else(|_| disk.remove(&path))
            && error.kind() != io::ErrorKind::NotFound
        {
            result = Err(error);
        }
    }
    result
}
