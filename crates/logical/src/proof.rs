//! Recognises a file again after a restart, and tells one that is gone from one whose file system is not there.
//!
//! A journal record names its file by identity and not by path alone: by a random number in an attribute of the file where
//! the file system has attributes, otherwise by inode and time of birth, or by its handle on NFS. It also names the directories above the file. A
//! missing file counts as removed only if the directory that would hold it is the one that held it; an empty mount point or
//! a restored tree is another directory, and proves nothing.

use crate::errno;
use base::LogicalPath;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use storage::{Backend, FileIdentity, StoredFile};

/// The attribute that holds the number of an unfinished file. Full local name; clients do not see it.
pub(crate) const NONCE: &str = "user.scalla.pending";
/// The same of a file with a checkpoint.
pub(crate) const CHECKPOINT: &str = "user.scalla.checkpoint";

/// What recovery finds where a record says that a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// The file of the record.
    Same,
    /// Another file, or none: the record no longer applies.
    Replaced,
    /// Nothing can be said, because this directory is not what it was: its file system may not be mounted.
    NotThere(LogicalPath),
    /// Nothing can be said, because what is at this path cannot be looked at now.
    Unreadable(LogicalPath),
}

/// What an identity and a number say of a file that lies where a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Likeness {
    /// It is the file of the record.
    Same,
    /// It is the file of the record by its inode, and somebody gave it another number since.
    Renumbered,
    /// It is another file.
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Place {
    device: u64,
    inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<(i64, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<(u64, u64)>,
}

impl From<FileIdentity> for Place {
    fn from(identity: FileIdentity) -> Self {
        let FileIdentity { device, inode, born, handle } = identity;
        Self { device, inode, born, handle }
    }
}

impl From<Place> for FileIdentity {
    fn from(place: Place) -> Self {
        let Place { device, inode, born, handle } = place;
        Self { device, inode, born, handle }
    }
}

impl Place {
    fn is(self, found: &FileIdentity) -> bool {
        FileIdentity::from(self).is_same(found)
    }
}

/// The identity of a file and of the directories above it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    file: Place,
    /// The root of the tree first, the directory of the file last.
    above: Vec<Place>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
}

/// Returns a number that no other file has.
pub(crate) fn nonce() -> String {
    // The keys of each are random.
    let part = || RandomState::new().hash_one(NONCE);
    format!("{:016x}{:016x}", part(), part())
}

/// The directories above a path, the root first.
fn directories(path: &LogicalPath) -> Vec<LogicalPath> {
    let mut all: Vec<_> = std::iter::successors(path.parent(), LogicalPath::parent).collect();
    all.reverse();
    all
}

fn above(backend: &dyn Backend, path: &LogicalPath) -> io::Result<Vec<Place>> {
    directories(path).iter().map(|path| Ok(backend.identity(path)?.into())).collect()
}

/// Reports whether nothing is there, which is an answer; other errors are none.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::NOT_FOUND | errno::NOT_A_DIRECTORY))
}

impl Proof {
    /// Describes an open file that lies at `path`.
    pub(crate) fn of(
        backend: &dyn Backend,
        path: &LogicalPath,
        file: &dyn StoredFile,
        nonce: Option<String>,
    ) -> io::Result<Self> {
        Ok(Self { file: file.identity()?.into(), above: above(backend, path)?, nonce })
    }

    /// The file was renamed to `path`.
    pub(crate) fn moved(self, backend: &dyn Backend, path: &LogicalPath) -> Self {
        // Without them a file that is missing later is taken for one whose file system is not there.
        Self { above: above(backend, path).unwrap_or_default(), ..self }
    }

    /// Returns the identity of the file without its number.
    pub(crate) fn file(&self) -> FileIdentity {
        FileIdentity::from(self.file)
    }

    fn compare(&self, found: &FileIdentity, number: Option<&[u8]>) -> Likeness {
        let is_same = self.file.is(found);
        match (&self.nonce, number) {
            (Some(nonce), Some(number)) if nonce.as_bytes() == number => Likeness::Same,
            (Some(_), Some(_)) if is_same => Likeness::Renumbered,
            (_, None) if is_same => Likeness::Same,
            _ => Likeness::Other,
        }
    }

    /// Returns the number of a file if the record has one too; `None` also where the file system has no attributes.
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
        Ok(self.compare(&file.identity()?, number.as_deref()) == Likeness::Same)
    }

    /// Looks for the file at a path. `attribute`: where its number is. A file that is the same by inode and has another number was
    /// taken over by another server if it is unfinished; with a checkpoint, nobody knows its state.
    pub(crate) fn find(&self, backend: &dyn Backend, path: &LogicalPath, attribute: &str) -> Finding {
        let found = match backend.identity(path) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return self.missing(backend, path),
            Err(_) => return Finding::Unreadable(path.clone()),
        };
        let Ok(number) = self.number(|| backend.attribute(path, attribute)) else {
            return Finding::Unreadable(path.clone());
        };
        match self.compare(&found, number.as_deref()) {
            Likeness::Same => Finding::Same,
            Likeness::Renumbered if attribute == CHECKPOINT => Finding::NotThere(path.clone()),
            Likeness::Renumbered => Finding::Replaced,
            Likeness::Other => self.missing(backend, path),
        }
    }

    /// The file is not at a path. Was it removed, or is its file system not there?
    fn missing(&self, backend: &dyn Backend, path: &LogicalPath) -> Finding {
        for (directory, place) in directories(path).into_iter().zip(&self.above) {
            match backend.identity(&directory) {
                Ok(found) if place.is(&found) => {}
                // The directory that held it is the same, and does not hold it any more.
                Err(error) if is_missing(&error) && backend.has_name(&directory).is_ok_and(|has| !has) => {
                    return Finding::Replaced;
                }
                Ok(_) => return Finding::NotThere(directory),
                Err(error) if is_missing(&error) => return Finding::NotThere(directory),
                Err(_) => return Finding::Unreadable(directory),
            }
        }
        if self.above.is_empty() {
            return Finding::NotThere(path.parent().unwrap_or_else(LogicalPath::root));
        }
        let is_dangling = backend.identity(path).is_err() && backend.has_name(path).is_ok_and(|has| has);
        if is_dangling { Finding::NotThere(path.clone()) } else { Finding::Replaced }
    }
}
