//! Proofs that identify a file after a restart, and distinguish a removed file from one whose
//! file system is not mounted.
//!
//! A journal record identifies its file by more than its path. Where the file system supports
//! attributes, it is a random number in an attribute of the file. Otherwise it is the inode and
//! time of birth, or the handle on NFS. The record also identifies the directories above the file.
//! A missing file counts as removed only if its directory is the same one as before. An empty mount
//! point or a restored tree has another directory and proves nothing.

use crate::errno;
use crate::persist::escape;
use base::LogicalPath;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use storage::{Backend, DirectoryAbove, DirectoryState, FileIdentity, StoredFile, is_missing};

/// Attribute with the number of an unfinished file: the full local name, which clients do not see.
pub(crate) const NONCE: &str = "user.scalla.pending";
/// Attribute with the number of a file with a checkpoint.
pub(crate) const CHECKPOINT: &str = "user.scalla.checkpoint";

/// The result of searching for the file of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProofSearch {
    /// The file of the record was found.
    Same,
    /// There is another file or none, so the record no longer applies.
    Replaced,
    /// Unknown, because this directory has changed: its file system may not be mounted.
    NotThere(LogicalPath),
    /// Unknown, because this path cannot be read now.
    Unreadable(LogicalPath),
}

/// The result of comparing a file with a record by identity and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProofMatch {
    /// The file is the one of the record.
    Same,
    /// The file is the one of the record by its inode, but its number was changed.
    Renumbered,
    /// The file is another one.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ProofFile {
    device: u64,
    inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<(i64, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<(u64, u64)>,
}

impl From<FileIdentity> for ProofFile {
    fn from(identity: FileIdentity) -> Self {
        let FileIdentity { device, inode, born, handle } = identity;
        Self { device, inode, born, handle }
    }
}

impl From<ProofFile> for FileIdentity {
    fn from(place: ProofFile) -> Self {
        let ProofFile { device, inode, born, handle } = place;
        Self { device, inode, born, handle }
    }
}

impl ProofFile {
    fn is(self, found: &FileIdentity) -> bool {
        FileIdentity::from(self).is_same(found)
    }
}

/// The identity of a file and of the directories above it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    file: ProofFile,
    /// From the root of the tree to the directory of the file.
    above: Vec<ProofFile>,
    /// The escaped path below the root where the file is stored, if it is not its logical path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
}

/// Returns a random number for a file.
pub(crate) fn nonce() -> String {
    // Each `RandomState` has random keys.
    let part = || RandomState::new().hash_one(NONCE);
    format!("{:016x}{:016x}", part(), part())
}

/// Returns the escaped path where a path is stored; `None` if it is the same.
fn stored(backend: &dyn Backend, path: &LogicalPath) -> io::Result<Option<String>> {
    let stored = backend.stored_path(path)?;
    Ok((*stored != *path).then(|| escape(&stored)))
}

/// Returns the directories above the place where a path is stored, the root first.
fn above(backend: &dyn Backend, path: &LogicalPath) -> io::Result<Vec<ProofFile>> {
    let identity = |directory: DirectoryAbove| match directory.state {
        DirectoryState::Found(found) => Ok(found.into()),
        DirectoryState::Absent | DirectoryState::Detached => {
            Err(io::Error::from_raw_os_error(errno::NOT_FOUND))
        }
        DirectoryState::Unreadable(error) => Err(error),
    };
    backend.identities_above(path)?.into_iter().map(identity).collect()
}

impl Proof {
    /// Returns the proof for an open file at `path`.
    pub(crate) fn of(
        backend: &dyn Backend,
        path: &LogicalPath,
        file: &dyn StoredFile,
        nonce: Option<String>,
    ) -> io::Result<Self> {
        let (file, above) = (file.identity()?.into(), above(backend, path)?);
        Ok(Self { file, above, stored: stored(backend, path)?, nonce })
    }

    /// Returns the proof after the file was renamed to `path`.
    pub(crate) fn moved(self, backend: &dyn Backend, path: &LogicalPath) -> Self {
        // Without these directories, a file that is missing later counts as one whose file system
        // is not mounted.
        let above = above(backend, path).unwrap_or_default();
        Self { above, stored: stored(backend, path).unwrap_or_default(), ..self }
    }

    /// Returns the identity of the file without its number.
    pub(crate) fn file(&self) -> FileIdentity {
        FileIdentity::from(self.file)
    }

    fn compare(&self, found: &FileIdentity, number: Option<&[u8]>) -> ProofMatch {
        let is_same = self.file.is(found);
        match (&self.nonce, number) {
            (Some(nonce), Some(number)) if nonce.as_bytes() == number => ProofMatch::Same,
            (Some(_), Some(_)) if is_same => ProofMatch::Renumbered,
            (_, None) if is_same => ProofMatch::Same,
            _ => ProofMatch::Other,
        }
    }

    /// Returns the number of a file if the record has one too; `None` also where the file system
    /// does not support attributes.
    fn number(&self, read: impl FnOnce() -> io::Result<Option<Vec<u8>>>) -> io::Result<Option<Vec<u8>>> {
        if self.nonce.is_none() {
            return Ok(None);
        }
        match read() {
            Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => Ok(None),
            other => other,
        }
    }

    /// Reports whether an open file is certainly the one of the record.
    pub(crate) fn is_proven_by(&self, file: &dyn StoredFile, attribute: &str) -> io::Result<bool> {
        let number = self.number(|| file.attribute(attribute))?;
        Ok(self.compare(&file.identity()?, number.as_deref()) == ProofMatch::Same)
    }

    /// Searches for the file at a path; `attribute` contains its number.
    ///
    /// A file with the same inode but another number was taken over by another server if it is
    /// unfinished. If it has a checkpoint, its state is unknown.
    pub(crate) fn find(&self, backend: &dyn Backend, path: &LogicalPath, attribute: &str) -> ProofSearch {
        match stored(backend, path) {
            Ok(stored) if stored == self.stored => self.find_renamed(backend, path, attribute),
            // A changed rule stores the path elsewhere.
            Ok(_) => ProofSearch::NotThere(path.clone()),
            Err(_) => ProofSearch::Unreadable(path.clone()),
        }
    }

    /// Searches for the file at the other path of a rename, which is stored elsewhere.
    pub(crate) fn find_renamed(
        &self,
        backend: &dyn Backend,
        path: &LogicalPath,
        attribute: &str,
    ) -> ProofSearch {
        let found = match backend.identity(path) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return self.missing(backend, path),
            Err(_) => return ProofSearch::Unreadable(path.clone()),
        };
        let Ok(number) = self.number(|| backend.attribute(path, attribute)) else {
            return ProofSearch::Unreadable(path.clone());
        };
        match self.compare(&found, number.as_deref()) {
            ProofMatch::Same => ProofSearch::Same,
            ProofMatch::Renumbered if attribute == CHECKPOINT => ProofSearch::NotThere(path.clone()),
            ProofMatch::Renumbered => ProofSearch::Replaced,
            ProofMatch::Other => self.missing(backend, path),
        }
    }

    /// Decides whether a missing file was removed, or its file system is not mounted.
    fn missing(&self, backend: &dyn Backend, path: &LogicalPath) -> ProofSearch {
        let Ok(found) = backend.identities_above(path) else {
            return ProofSearch::Unreadable(path.clone());
        };
        for (directory, place) in found.into_iter().zip(&self.above) {
            match directory.state {
                DirectoryState::Found(found) if place.is(&found) => {}
                // The directory is the same, and no longer contains the file.
                DirectoryState::Absent => return ProofSearch::Replaced,
                DirectoryState::Found(_) | DirectoryState::Detached => {
                    return ProofSearch::NotThere(directory.path);
                }
                DirectoryState::Unreadable(_) => return ProofSearch::Unreadable(directory.path),
            }
        }
        if self.above.is_empty() {
            return ProofSearch::NotThere(path.parent().unwrap_or_else(LogicalPath::root));
        }
        let is_dangling = backend.identity(path).is_err() && backend.has_name(path).is_ok_and(|has| has);
        if is_dangling { ProofSearch::NotThere(path.clone()) } else { ProofSearch::Replaced }
    }
}
