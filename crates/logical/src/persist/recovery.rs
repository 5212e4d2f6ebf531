//! Decides at the start about the records of an earlier run. It is separate from [`super`] because
//! a removal after the hold time makes the same decision.

use super::UnfinishedRecord;
use crate::describe;
use crate::proof::{self, ProofSearch};
use base::LogicalPath;
use std::io;
use storage::{Backend, OpenMode};

/// The state of a record.
pub(super) enum RecoveredRecord {
    /// The file is at this path and unfinished.
    Marked(LogicalPath),
    /// The file cannot be found, because this directory has changed.
    Absent(LogicalPath),
    /// The state is unknown, because this path cannot be read now.
    Unreadable(LogicalPath),
    /// The record no longer applies.
    Over,
}

/// Determines the state of a record.
pub(super) fn recover(backend: &dyn Backend, record: &UnfinishedRecord) -> RecoveredRecord {
    let (mut absent, mut unreadable) = (None, None);
    for path in [Some(&record.path), record.also.as_ref()].into_iter().flatten() {
        let finding = match &record.proof {
            Some(proof) if *path == record.path => proof.find(backend, path, proof::NONCE),
            Some(proof) => proof.find_renamed(backend, path, proof::NONCE),
            None => find_unproven(backend, path),
        };
        match finding {
            ProofSearch::Same if is_marked(backend, path) => return RecoveredRecord::Marked(path.clone()),
            ProofSearch::Same | ProofSearch::Replaced => {}
            ProofSearch::NotThere(directory) => absent = absent.or(Some(directory)),
            ProofSearch::Unreadable(path) => unreadable = unreadable.or(Some(path)),
        }
    }
    let absent = absent.map(RecoveredRecord::Absent);
    unreadable.map(RecoveredRecord::Unreadable).or(absent).unwrap_or(RecoveredRecord::Over)
}

/// Reports whether a marked file may be at a path. A file that cannot be read now may appear later. A
/// replacement loses its mark before it gets its name, and is unfinished until then.
fn is_marked(backend: &dyn Backend, path: &LogicalPath) -> bool {
    storage::is_replacement(path)
        || backend.stat(path).map_or(true, |metadata| describe::has_mark_bit(&metadata))
}

/// Finds the file of a record of version 1, which contains no identity. The mark has to suffice,
/// and a directory with other files shows that its file system is mounted.
fn find_unproven(backend: &dyn Backend, path: &LogicalPath) -> ProofSearch {
    match backend.stat(path) {
        Ok(_) => ProofSearch::Same,
        Err(error) if storage::is_missing(&error) => {
            if backend.has_name(path).is_err() {
                return ProofSearch::Unreadable(path.clone());
            }
            let above = path.parent().unwrap_or_else(LogicalPath::root);
            let others = backend.list(&above).and_then(|mut names| names.next(1));
            match others {
                Ok(names) if !names.is_empty() => ProofSearch::Replaced,
                _ => ProofSearch::NotThere(above),
            }
        }
        Err(_) => ProofSearch::Unreadable(path.clone()),
    }
}

/// Stores a number with a file that has the mark and is at the path of its record, although its
/// directory has changed ([`RecoveredRecord::Absent`]): the tree was copied without attributes.
/// From then on the file itself proves that it is unfinished, and the record is not needed. Reports
/// whether the number has reached stable storage.
pub(super) fn adopt(backend: &dyn Backend, record: &UnfinishedRecord) -> bool {
    let adopt_at = |path: &LogicalPath| -> io::Result<bool> {
        if record.proof.is_none() || !describe::has_mark_bit(&backend.stat(path)?) {
            return Ok(false);
        }
        if backend.attribute(path, proof::NONCE)?.is_none() {
            backend.set_attribute(path, proof::NONCE, proof::nonce().as_bytes(), false)?;
        }
        backend.open(path, &OpenMode::default())?.sync_all()?;
        Ok(true)
    };
    [Some(&record.path), record.also.as_ref()]
        .into_iter()
        .flatten()
        .any(|path| adopt_at(path).unwrap_or(false))
}
