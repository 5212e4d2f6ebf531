//! What becomes at a start of the records that an earlier run left.

use super::Record;
use crate::describe;
use crate::proof::{self, Finding};
use base::LogicalPath;
use std::io;
use storage::{Backend, OpenHow};

/// What a record means now.
pub(super) enum Recovered {
    /// Its file lies at this path and is not yet whole.
    Marked(LogicalPath),
    /// Its file cannot be looked for, because this is not what it was.
    Absent(LogicalPath),
    /// Nothing is known of its file, because what is at this path cannot be looked at now.
    Unreadable(LogicalPath),
    /// It no longer applies.
    Over,
}

/// Finds out what a record means now.
pub(super) fn recover(backend: &dyn Backend, record: &Record) -> Recovered {
    let (mut absent, mut unreadable) = (None, None);
    for path in [Some(&record.path), record.also.as_ref()].into_iter().flatten() {
        let finding = match &record.proof {
            Some(proof) => proof.find(backend, path, proof::NONCE),
            None => find_unproven(backend, path),
        };
        match finding {
            Finding::Same if is_marked(backend, path) => return Recovered::Marked(path.clone()),
            Finding::Same | Finding::Replaced => {}
            Finding::NotThere(directory) => absent = absent.or(Some(directory)),
            Finding::Unreadable(path) => unreadable = unreadable.or(Some(path)),
        }
    }
    let absent = absent.map(Recovered::Absent);
    unreadable.map(Recovered::Unreadable).or(absent).unwrap_or(Recovered::Over)
}

/// Could a marked file lie there? One that cannot be looked at now may turn up later.
fn is_marked(backend: &dyn Backend, path: &LogicalPath) -> bool {
    backend.stat(path).map_or(true, |metadata| describe::has_mark_bit(&metadata))
}

/// The records of the first format name no identity: the mark must do, and a directory with other files in it shows that
/// its file system is there.
fn find_unproven(backend: &dyn Backend, path: &LogicalPath) -> Finding {
    match backend.stat(path) {
        Ok(_) => Finding::Same,
        Err(error) if proof::is_missing(&error) => {
            let above = path.parent().unwrap_or_else(LogicalPath::root);
            let others = backend.list(&above).and_then(|mut names| names.next(1));
            match others {
                Ok(names) if !names.is_empty() => Finding::Replaced,
                _ => Finding::NotThere(above),
            }
        }
        Err(_) => Finding::Unreadable(path.clone()),
    }
}

/// Gives a number to a file with the bit of unfinished ones that lies where a record says, although its directory is not the
/// one it was ([`Recovered::Absent`]): the tree was moved by a copy without attributes. From then on the file itself proves that it is unfinished,
/// and the record is not needed. Reports whether the number has reached stable storage.
pub(super) fn adopt(backend: &dyn Backend, record: &Record) -> bool {
    let adopt_at = |path: &LogicalPath| -> io::Result<bool> {
        if record.proof.is_none() || !describe::has_mark_bit(&backend.stat(path)?) {
            return Ok(false);
        }
        if backend.attribute(path, proof::NONCE)?.is_none() {
            backend.set_attribute(path, proof::NONCE, proof::nonce().as_bytes(), false)?;
        }
        backend.open(path, &OpenHow::default())?.sync_all()?;
        Ok(true)
    };
    [Some(&record.path), record.also.as_ref()]
        .into_iter()
        .flatten()
        .any(|path| adopt_at(path).unwrap_or(false))
}
