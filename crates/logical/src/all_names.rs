//! Walks all names of the exports, for the inventory that parent nodes in a cluster use to conclude
//! which names do not exist here.
//!
//! Because of that use the walk reports an [`IncompleteReason`] whenever it may have missed a name.

use crate::describe;
use crate::presence::{NAMES_AT_ONCE, PresenceServices};
use base::LogicalPath;
use std::collections::HashMap;
use std::io;
use storage::RawEntry;
use vfs::FileKind;

/// The reason why a list of all names is incomplete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IncompleteReason {
    /// The file or directory that caused the gap.
    pub path: LogicalPath,
    /// The reason, as text.
    pub why: String,
}

/// A walk over all names.
struct NameWalk<'w> {
    presences: &'w PresenceServices,
    with: &'w mut dyn FnMut(&LogicalPath) -> bool,
    /// Directories that still have to be read.
    waiting: Vec<LogicalPath>,
    /// Directories that were read, by device and inode.
    visited: HashMap<(u64, u64), LogicalPath>,
    /// The first gap.
    gap: Option<IncompleteReason>,
}

/// The error when the receiver accepts no more names.
struct ReceiverStopped;

impl PresenceServices {
    /// Implements [`crate::Logical::walk_names`].
    pub(crate) fn walk_names(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) -> Option<IncompleteReason> {
        let waiting = self.exports.all().iter().map(|export| export.prefix.without_slash()).collect();
        let mut walk = NameWalk { presences: self, with, waiting, visited: HashMap::new(), gap: None };
        if !self.backend.lists_all_names() {
            walk.note(&LogicalPath::root(), "name rules (scalla.namerule) store names that no listing shows");
        }
        while let Some(directory) = walk.waiting.pop() {
            if walk.is_new(&directory) && walk.read(&directory).is_err() {
                walk.note(&directory, "the receiver stopped the walk");
                break;
            }
        }
        walk.gap
    }
}

impl NameWalk<'_> {
    fn note(&mut self, path: &LogicalPath, why: impl ToString) {
        self.gap.get_or_insert_with(|| IncompleteReason { path: path.clone(), why: why.to_string() });
    }

    fn note_error(&mut self, path: &LogicalPath, error: &io::Error) {
        if !storage::is_missing(error) {
            self.note(path, error);
        }
    }

    /// Reports whether a directory was not read before.
    fn is_new(&mut self, directory: &LogicalPath) -> bool {
        let found = match self.presences.backend.stat(directory) {
            Ok(found) => found,
            Err(error) => {
                self.note_error(directory, &error);
                return false;
            }
        };
        let before = self.visited.insert((found.device, found.inode), directory.clone());
        // A nested export is reached twice, by the same path.
        if let Some(before) = before.as_ref().filter(|before| *before != directory) {
            self.note(directory, format_args!("it is the same directory as {}", before.shown()));
        }
        before.is_none()
    }

    /// Reports a directory and all names in it, and queues its subdirectories.
    fn read(&mut self, directory: &LogicalPath) -> Result<(), ReceiverStopped> {
        self.send_name(directory)?;
        let mut stream = match self.presences.backend.list(directory) {
            Ok(stream) => stream,
            Err(error) => {
                self.note_error(directory, &error);
                return Ok(());
            }
        };
        loop {
            let names = match stream.next(NAMES_AT_ONCE) {
                Ok(names) if names.is_empty() => return Ok(()),
                Ok(names) => names,
                Err(error) => {
                    self.note(directory, error);
                    return Ok(());
                }
            };
            for entry in names {
                // A name that no client can request is omitted.
                let Ok(path) = directory.join(&entry.name) else { continue };
                let found = stream.stat(&entry.name).map(|metadata| describe::kind(&metadata));
                self.entry(path, &entry, found, stream.is_alias(&entry))?;
            }
        }
    }

    fn entry(
        &mut self,
        path: LogicalPath,
        entry: &RawEntry,
        found: io::Result<FileKind>,
        is_alias: bool,
    ) -> Result<(), ReceiverStopped> {
        if is_alias {
            // A name created through the link also appears under this path, but no event reports
            // that.
            self.note(&path, "a link gives a file or directory in the exports a second path");
        }
        match found {
            Ok(FileKind::Directory) => self.waiting.push(path),
            Ok(_) => self.send_name(&path)?,
            Err(_) if entry.link => self.note(&path, "the target of this link cannot be determined"),
            Err(error) => self.note_error(&path, &error),
        }
        Ok(())
    }

    fn send_name(&mut self, path: &LogicalPath) -> Result<(), ReceiverStopped> {
        if (self.with)(path) { Ok(()) } else { Err(ReceiverStopped) }
    }
}
