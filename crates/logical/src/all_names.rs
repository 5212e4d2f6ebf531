//! Everything that has a name here, for parents that conclude from it what is not here.

use crate::describe;
use crate::presence::{NAMES_AT_ONCE, Presences};
use crate::proof;
use base::LogicalPath;
use std::collections::HashMap;
use std::io;
use storage::RawEntry;
use vfs::FileKind;

/// Why a list of all names is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The file or directory that is the reason.
    pub path: LogicalPath,
    /// The reason.
    pub why: String,
}

/// A walk over all names.
struct NameWalk<'w> {
    presences: &'w Presences,
    with: &'w mut dyn FnMut(&LogicalPath) -> bool,
    /// Directories to read.
    waiting: Vec<LogicalPath>,
    /// Directories that were read, by device and inode.
    visited: HashMap<(u64, u64), LogicalPath>,
    /// The first one that was met.
    gap: Option<Gap>,
}

/// The receiver of the names wants no more of them.
struct Stopped;

impl Presences {
    /// See [`crate::Logical::walk_names`].
    pub(crate) fn walk_names(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) -> Option<Gap> {
        let waiting = self.exports.all().iter().map(|export| export.prefix.without_slash()).collect();
        let mut walk = NameWalk { presences: self, with, waiting, visited: HashMap::new(), gap: None };
        while let Some(directory) = walk.waiting.pop() {
            if walk.is_new(&directory) && walk.read(&directory).is_err() {
                walk.note(&directory, "not all names were wanted");
                break;
            }
        }
        walk.gap
    }
}

impl NameWalk<'_> {
    fn note(&mut self, path: &LogicalPath, why: impl ToString) {
        self.gap.get_or_insert_with(|| Gap { path: path.clone(), why: why.to_string() });
    }

    fn note_error(&mut self, path: &LogicalPath, error: &io::Error) {
        if !proof::is_missing(error) {
            self.note(path, error);
        }
    }

    /// Reports whether a directory was not read yet.
    fn is_new(&mut self, directory: &LogicalPath) -> bool {
        let found = match self.presences.backend.stat(directory) {
            Ok(found) => found,
            Err(error) => {
                self.note_error(directory, &error);
                return false;
            }
        };
        let before = self.visited.insert((found.device, found.inode), directory.clone());
        // An export that lies in another is met twice, by one path.
        if let Some(before) = before.as_ref().filter(|before| *before != directory) {
            self.note(directory, format_args!("it is the same directory as {}", before.shown()));
        }
        before.is_none()
    }

    /// Tells a directory and all names in it, and adds the directories among them to those that are to be read.
    fn read(&mut self, directory: &LogicalPath) -> Result<(), Stopped> {
        self.tell(directory)?;
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
                // Names that no client can say need not be told.
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
    ) -> Result<(), Stopped> {
        if is_alias {
            // What comes to exist by the other name, or below it, has this one as well and is not reported by it.
            self.note(&path, "a link gives something in the exports a second path");
        }
        match found {
            Ok(FileKind::Directory) => self.waiting.push(path),
            Ok(_) => self.tell(&path)?,
            Err(_) if entry.link => self.note(&path, "it cannot be told what this link leads to"),
            Err(error) => self.note_error(&path, &error),
        }
        Ok(())
    }

    fn tell(&mut self, path: &LogicalPath) -> Result<(), Stopped> {
        if (self.with)(path) { Ok(()) } else { Err(Stopped) }
    }
}
