//! Checksums that are stored with their files, and a small memory of them.
//!
//! A stored checksum speaks for a file while the file's modification time is the one it was computed for, and while
//! nobody has it open for writing: times have a resolution, and a writer may be inside of it.

use crate::writers::FileKey;
use base::{Clock, LogicalPath};
use digest::{ATTRIBUTE_PREFIX, Algorithm, Checksum, Record};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use storage::{Backend, Metadata, StoredFile};

/// Checksums remembered, so that repeated questions are answered on the spot.
const REMEMBERED_MAX: usize = 4096;

/// The state of a file that a checksum was computed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    file: FileKey,
    size: u64,
    modified: (i64, u32),
}

impl From<&Metadata> for State {
    fn from(metadata: &Metadata) -> Self {
        Self {
            file: FileKey::from(metadata),
            size: metadata.size,
            modified: (metadata.modified, metadata.modified_nanoseconds),
        }
    }
}

/// Is it the same file with the same content, as far as its metadata tells?
pub(crate) fn is_unchanged(before: &Metadata, after: &Metadata) -> bool {
    State::from(before) == State::from(after)
}

/// The latest checksums; the oldest makes room.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    known: HashMap<(FileKey, Algorithm), (State, Checksum)>,
    /// Keys in the order in which they came. Those of forgotten entries stay until it is their turn.
    order: VecDeque<(FileKey, Algorithm)>,
}

impl Memory {
    pub(crate) fn put(&self, metadata: &Metadata, checksum: Checksum) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (FileKey::from(metadata), checksum.algorithm());
        if inner.known.insert(key, (State::from(metadata), checksum)).is_none() {
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
        (*state == State::from(now)).then_some(*checksum)
    }

    /// Forgets the checksums of a file that changes. Its size and times may stay as they were: times have a resolution.
    fn forget(&self, file: FileKey) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for algorithm in Algorithm::ALL {
            inner.known.remove(&(file, algorithm));
        }
    }
}

/// The checksum that an attribute's value holds, if it is for this modification time and size.
pub(crate) fn valid(raw: &[u8], algorithm: Algorithm, metadata: &Metadata) -> Option<Checksum> {
    let record = Record::decode(raw)?;
    let fits = record.fits(metadata.modified, metadata.modified_nanoseconds, metadata.size);
    (fits && record.checksum.algorithm() == algorithm).then_some(record.checksum)
}

/// Stores a checksum with its file. Failing is no harm: it will be computed again.
pub(crate) fn store(
    (memory, clock): (&Memory, &dyn Clock),
    path: &LogicalPath,
    file: &dyn StoredFile,
    metadata: &Metadata,
    checksum: Checksum,
) {
    let today = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let record = Record::new(checksum, metadata.modified, i64::try_from(today).unwrap_or(i64::MAX))
        .of_file(metadata.size, metadata.modified_nanoseconds);
    let name = Record::attribute(checksum.algorithm());
    match file.set_attribute(&name, &record.encode(), false) {
        Ok(()) => memory.put(metadata, checksum),
        Err(error) => tracing::debug!(path = %path.shown(), %error, "a checksum cannot be stored"),
    }
}

/// Are checksums stored with this file? Where attributes cannot be had, there are none.
pub(crate) fn has_any(file: &dyn StoredFile) -> bool {
    file.attributes().is_ok_and(|names| names.iter().any(|name| name.starts_with(ATTRIBUTE_PREFIX)))
}

/// Removes all checksums that `names` lists by `remove`.
fn drop_listed(names: io::Result<Vec<String>>, path: &LogicalPath, remove: impl Fn(&str) -> io::Result<()>) {
    let Ok(names) = names else { return };
    for name in names.iter().filter(|name| name.starts_with(ATTRIBUTE_PREFIX)) {
        if let Err(error) = remove(name) {
            // Its modification time will still tell most changes. Who may not remove it may seldom change the file.
            tracing::debug!(path = %path.shown(), name, %error, "a stored checksum of a changed file cannot be removed");
        }
    }
}

/// Removes the checksums of a file that changes, stored and remembered.
pub(crate) fn drop_all(memory: &Memory, file: &dyn StoredFile, path: &LogicalPath, key: FileKey) {
    memory.forget(key);
    drop_listed(file.attributes(), path, |name| file.remove_attribute(name));
}

/// The same by path.
pub(crate) fn drop_all_of_path(memory: &Memory, backend: &dyn Backend, path: &LogicalPath, key: FileKey) {
    memory.forget(key);
    drop_listed(backend.attributes(path), path, |name| backend.remove_attribute(path, name));
}
