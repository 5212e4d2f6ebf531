//! Checksums that are stored in file attributes, and a cache of recent ones.
//!
//! A stored checksum is valid only while the file has the modification time recorded with it, and
//! no client has the file open for writing. The second condition is needed because a write may fall
//! within the resolution of file times.

use crate::writers::FileKey;
use base::{Clock, LogicalPath};
use digest::{ATTRIBUTE_PREFIX, Algorithm, Checksum, ChecksumRecord};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use storage::{Backend, Metadata, StoredFile};

/// Maximum number of cached checksums; repeated requests are answered without waiting for the disk.
const REMEMBERED_MAX: usize = 4096;

/// The state of a file for which a checksum was computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChecksummedState {
    file: FileKey,
    size: u64,
    modified: (i64, u32),
}

impl From<&Metadata> for ChecksummedState {
    fn from(metadata: &Metadata) -> Self {
        Self {
            file: FileKey::from(metadata),
            size: metadata.size,
            modified: (metadata.modified, metadata.modified_nanoseconds),
        }
    }
}

/// Reports whether the metadata shows the same file with the same content.
pub(crate) fn is_unchanged(before: &Metadata, after: &Metadata) -> bool {
    ChecksummedState::from(before) == ChecksummedState::from(after)
}

/// A cache of recent checksums with eviction of the oldest entry.
#[derive(Default)]
pub(crate) struct ChecksumCache(Mutex<CachedChecksums>);

#[derive(Default)]
struct CachedChecksums {
    known: HashMap<(FileKey, Algorithm), (ChecksummedState, Checksum)>,
    /// Keys in the order of insertion. The key of a removed entry stays until it is the oldest.
    order: VecDeque<(FileKey, Algorithm)>,
}

impl ChecksumCache {
    pub(crate) fn put(&self, metadata: &Metadata, checksum: Checksum) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (FileKey::from(metadata), checksum.algorithm());
        if inner.known.insert(key, (ChecksummedState::from(metadata), checksum)).is_none() {
            inner.order.push_back(key);
        }
        while inner.order.len() > REMEMBERED_MAX {
            if let Some(oldest) = inner.order.pop_front() {
                inner.known.remove(&oldest);
            }
        }
    }

    pub(crate) fn get(&self, algorithm: Algorithm, now: &Metadata) -> Option<Checksum> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, checksum) = inner.known.get(&(FileKey::from(now), algorithm))?;
        (*state == ChecksummedState::from(now)).then_some(*checksum)
    }

    /// Removes the checksums of a file that changes. Its size and times may stay equal, because
    /// times have a resolution.
    fn forget(&self, file: FileKey) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for algorithm in Algorithm::ALL {
            inner.known.remove(&(file, algorithm));
        }
    }
}

/// Decodes the value of an attribute, and returns the checksum if it is valid for this modification
/// time and size.
pub(crate) fn valid(raw: &[u8], algorithm: Algorithm, metadata: &Metadata) -> Option<Checksum> {
    let record = ChecksumRecord::decode(raw)?;
    let fits = record.fits(metadata.modified, metadata.modified_nanoseconds, metadata.size);
    (fits && record.checksum.algorithm() == algorithm).then_some(record.checksum)
}

/// Stores a checksum in an attribute of its file. A failure is not an error, because the checksum
/// can be computed again.
pub(crate) fn store(
    (memory, clock): (&ChecksumCache, &dyn Clock),
    path: &LogicalPath,
    file: &dyn StoredFile,
    metadata: &Metadata,
    checksum: Checksum,
) {
    let today = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let record = ChecksumRecord::new(checksum, metadata.modified, i64::try_from(today).unwrap_or(i64::MAX))
        .of_file(metadata.size, metadata.modified_nanoseconds);
    let name = ChecksumRecord::attribute(checksum.algorithm());
    match file.set_attribute(&name, &record.encode(), false) {
        Ok(()) => memory.put(metadata, checksum),
        // A user who may only read the file would otherwise have it read again for each request.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => memory.put(metadata, checksum),
        Err(error) => {
            tracing::debug!(path = %path.shown(), %error, "cannot store a checksum in an attribute")
        }
    }
}

/// Reports whether checksums are stored with this file. Where attributes are not supported, there
/// are none.
pub(crate) fn has_any(file: &dyn StoredFile) -> bool {
    file.attributes().is_ok_and(|names| names.iter().any(|name| name.starts_with(ATTRIBUTE_PREFIX)))
}

/// Removes all checksum attributes in `names` by calling `remove`.
fn drop_listed(names: io::Result<Vec<String>>, path: &LogicalPath, remove: impl Fn(&str) -> io::Result<()>) {
    let Ok(names) = names else { return };
    for name in names.iter().filter(|name| name.starts_with(ATTRIBUTE_PREFIX)) {
        if let Err(error) = remove(name) {
            // The modification time still reveals most changes. A user who may not remove the
            // attribute can rarely change the file.
            tracing::debug!(path = %path.shown(), name, %error, "cannot remove a stored checksum of a changed file");
        }
    }
}

/// Removes the stored and cached checksums of an open file that changes.
pub(crate) fn drop_all(memory: &ChecksumCache, file: &dyn StoredFile, path: &LogicalPath, key: FileKey) {
    memory.forget(key);
    drop_listed(file.attributes(), path, |name| file.remove_attribute(name));
}

/// Removes the stored and cached checksums of the file at a path.
pub(crate) fn drop_all_of_path(
    memory: &ChecksumCache,
    backend: &dyn Backend,
    path: &LogicalPath,
    key: FileKey,
) {
    memory.forget(key);
    drop_listed(backend.attributes(path), path, |name| backend.remove_attribute(path, name));
}
