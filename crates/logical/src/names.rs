//! The names of files open for writing, which must survive a power failure together with the synced
//! data.
//!
//! A client that syncs its file must find the data under the name that the file has then. Therefore
//! a sync makes that name durable, and those of all directories above it, independent of who
//! created or renamed them. The name differs from that at the open if this server renamed the file
//! or a directory above it. Before a rename starts, it registers the new names of the open files
//! that it moves.

use crate::errno;
use base::LogicalPath;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use storage::Backend;

/// Maximum number of attempts of a sync when the file is renamed meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// The names of all files that are open for writing.
#[derive(Default)]
pub(crate) struct NameTable(Mutex<NameEntries>);

#[derive(Default)]
struct NameEntries {
    next: u64,
    /// Sorted by the present name and the number of the entry, so that all entries below a
    /// directory are adjacent.
    names: BTreeMap<(LogicalPath, u64), Weak<State>>,
}

type State = Mutex<FileNames>;

/// The names of one file.
struct FileNames {
    present: LogicalPath,
    /// The new name during a rename.
    becoming: Option<LogicalPath>,
    /// Number of starts and ends of renames.
    changes: u64,
    /// The number of changes for which the names were last made durable.
    synced: Option<u64>,
}

impl NameTable {
    /// Registers a file that was opened.
    pub(crate) fn enter(self: &Arc<Self>, path: &LogicalPath) -> FileName {
        let names = FileNames { present: path.clone(), becoming: None, changes: 0, synced: None };
        let names = Arc::new(Mutex::new(names));
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        entries.names.insert((path.clone(), number), Arc::downgrade(&names));
        FileName { table: self.clone(), number, names: names.clone() }
    }

    /// Prepares a rename. Both names must be claimed, so that no other rename concerns them and no
    /// file is created there.
    pub(crate) fn renaming(self: &Arc<Self>, from: &LogicalPath, to: &LogicalPath) -> RenameInProgress {
        let mut moved = Vec::new();
        // A rename of a directory into itself fails.
        if !from.is_within(to) && !to.is_within(from) {
            moved = self.entries().within(from);
        }
        for (_, state) in &moved {
            let mut names = lock(state);
            // `None` if the new name is too long; then the file cannot be reached by a name.
            names.becoming = names.present.moved(from, to);
            names.changes += 1;
        }
        RenameInProgress { table: self.clone(), moved, done: false }
    }

    fn entries(&self) -> MutexGuard<'_, NameEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameEntries {
    /// Returns the open files at and below a path.
    fn within(&self, path: &LogicalPath) -> Vec<(u64, Arc<State>)> {
        let at = self.names.range((path.clone(), 0)..=(path.clone(), u64::MAX));
        let below = LogicalPath::parse(&[path.as_bytes(), b"/"].concat()).ok();
        let below = below.into_iter().flat_map(|below| {
            let names = self.names.range((below.clone(), 0)..);
            names.take_while(move |((name, _), _)| name.as_bytes().starts_with(below.as_bytes()))
        });
        at.chain(below).filter_map(|((_, number), state)| Some((*number, state.upgrade()?))).collect()
    }
}

fn lock(state: &State) -> MutexGuard<'_, FileNames> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rename in progress.
pub(crate) struct RenameInProgress {
    table: Arc<NameTable>,
    moved: Vec<(u64, Arc<State>)>,
    done: bool,
}

impl RenameInProgress {
    /// Records that the rename succeeded.
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for RenameInProgress {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        for (number, state) in &self.moved {
            let mut names = lock(state);
            names.changes += 1;
            let Some(new) = names.becoming.take().filter(|_| self.done) else { continue };
            let old = std::mem::replace(&mut names.present, new.clone());
            // A file that was closed meanwhile has no entry.
            if let Some(entry) = entries.names.remove(&(old, *number)) {
                entries.names.insert((new, *number), entry);
            }
        }
    }
}

/// The registered name of an open file.
pub(crate) struct FileName {
    table: Arc<NameTable>,
    number: u64,
    names: Arc<State>,
}

impl FileName {
    /// Makes the present names of the file durable.
    ///
    /// # Errors
    /// Those of the storage, and `EBUSY` if the file is renamed again and again. May wait.
    pub(crate) fn sync(&self, backend: &dyn Backend) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let (present, becoming, changes) = {
                let names = lock(&self.names);
                if names.synced == Some(names.changes) {
                    return Ok(());
                }
                (names.present.clone(), names.becoming.clone(), names.changes)
            };
            // A file whose directory does not exist was removed with it.
            backend.sync_above(&present)?;
            if let Some(becoming) = becoming {
                backend.sync_above(&becoming)?;
            }
            let mut names = lock(&self.names);
            if names.changes == changes {
                names.synced = Some(changes);
                return Ok(());
            }
        }
        Err(io::Error::from_raw_os_error(errno::BUSY))
    }
}

impl Drop for FileName {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        let present = lock(&self.names).present.clone();
        entries.names.remove(&(present, self.number));
    }
}
