//! The names of files that are open for writing, which must survive a loss of power together with what was synced.
//!
//! A client that syncs its file must find the data by the name that the file has then. So a sync makes that name stable, and those
//! of all directories above it, whoever made or renamed them. The name is another one than at the opening if the file, or a
//! directory above it, was renamed by this server; a rename enters the names that it gives to open files before it begins.

use crate::errno;
use crate::proof;
use base::LogicalPath;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use storage::Backend;

/// How often a sync begins anew because the file was renamed meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Makes the name of a file and those of the directories above it on the same file system stable: a mount point is there already,
/// and the disk that it is on may hang. Reports whether the file's directory is there. A directory that this process may not
/// search is left to the file system. May wait.
pub(crate) fn sync_above(backend: &dyn Backend, path: &LogicalPath) -> io::Result<bool> {
    let mut is_there = true;
    let home = backend.pool(path);
    for name in std::iter::successors(Some(path.clone()), LogicalPath::parent) {
        if !name.parent().is_some_and(|folder| Arc::ptr_eq(backend.pool(&folder), home)) {
            break;
        }
        match backend.sync_name(&name) {
            Err(error) if proof::is_missing(&error) => is_there &= name != *path,
            Err(error) if error.raw_os_error() == Some(errno::ACCESS) => {}
            other => other?,
        }
    }
    Ok(is_there)
}

/// The names of all files that are open for writing.
#[derive(Default)]
pub(crate) struct NameTable(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    next: u64,
    /// By the present name and the number of the entry: what is below a directory stands side by side.
    names: BTreeMap<(LogicalPath, u64), Weak<State>>,
}

type State = Mutex<Names>;

/// The names of one file.
struct Names {
    present: LogicalPath,
    /// The name that a rename under way gives it.
    becoming: Option<LogicalPath>,
    /// Counts beginnings and ends of renames.
    changes: u64,
    /// The number of changes at which the names were last made stable.
    synced: Option<u64>,
}

impl NameTable {
    /// Enters a file that was opened.
    pub(crate) fn enter(self: &Arc<Self>, path: &LogicalPath) -> FileName {
        let names = Names { present: path.clone(), becoming: None, changes: 0, synced: None };
        let names = Arc::new(Mutex::new(names));
        let mut entries = self.entries();
        let number = entries.next;
        entries.next += 1;
        entries.names.insert((path.clone(), number), Arc::downgrade(&names));
        FileName { table: self.clone(), number, names: names.clone() }
    }

    /// Prepares a rename, for which both names are claimed: no other rename concerns them, and nobody creates files there.
    pub(crate) fn renaming(self: &Arc<Self>, from: &LogicalPath, to: &LogicalPath) -> Renaming {
        let mut moved = Vec::new();
        // Nothing becomes of a rename into itself.
        if !from.is_within(to) && !to.is_within(from) {
            moved = self.entries().within(from);
        }
        for (_, state) in &moved {
            let mut names = lock(state);
            // Without a name, because it would be too long, nobody reaches the file.
            names.becoming = names.present.moved(from, to);
            names.changes += 1;
        }
        Renaming { table: self.clone(), moved, done: false }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// The open files at and below a path.
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

fn lock(state: &State) -> MutexGuard<'_, Names> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rename that has begun.
pub(crate) struct Renaming {
    table: Arc<NameTable>,
    moved: Vec<(u64, Arc<State>)>,
    done: bool,
}

impl Renaming {
    /// It has succeeded.
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Renaming {
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

/// The name of an open file.
pub(crate) struct FileName {
    table: Arc<NameTable>,
    number: u64,
    names: Arc<State>,
}

impl FileName {
    /// Makes the names that the file has now stable.
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
            // A file whose directory is not there was removed with it.
            sync_above(backend, &present)?;
            if let Some(becoming) = becoming {
                sync_above(backend, &becoming)?;
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
