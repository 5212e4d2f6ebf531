//! Whether a path is here, and all that is: what the rest of a cluster asks a server. What comes and goes meanwhile it
//! hears through [`crate::Events`].

use crate::describe;
use crate::file_system::Logical;
use crate::job::{ByPool, sort_in};
use crate::proof;
use crate::shared::{Shared, errno};
use crate::wholeness::Wholeness;
use base::{LogicalPath, Owner};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use storage::{Job, Metadata, Now};
use vfs::FileKind;

/// Names that one thread looks up for one question.
const LOOKS_TOGETHER_MAX: usize = 16;

/// Whether a path is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// A file or directory of this name is here.
    Here {
        /// It is a file that is not yet whole.
        pending: bool,
    },
    /// Nothing of this name is here, or nothing that is exported.
    NotHere,
    /// It cannot be told now: the storage failed or is overloaded.
    Unknown,
}

impl Logical {
    /// Whether a path lies in an export, whatever is there.
    pub fn exports(&self, path: &LogicalPath) -> bool {
        self.shared.export(path, "Locating").is_ok()
    }

    /// Whether a path is here, if that is in memory; `None`: see [`Self::look`]. Never blocks.
    pub fn look_now(&self, path: &LogicalPath) -> Option<Presence> {
        let shared = &self.shared;
        let plain = path.without_slash();
        if shared.export(&plain, "Locating").is_err() {
            return Some(Presence::NotHere);
        }
        match shared.backend.stat_now(&plain) {
            Now::Done(result) => presence_now(shared, &plain, result),
            Now::WouldBlock => None,
        }
    }

    /// Whether these paths are here: `then` hears it of all of them, of several at a time, on a thread of the pool of their file
    /// system, that of where links lead among them, or at once where that takes no more. Names that are near are looked up one after the other by one thread: to
    /// wake one for each would take longer. Never blocks.
    pub fn look<T, F>(&self, mut paths: Vec<(LogicalPath, T)>, then: &F)
    where
        T: Copy + Send + 'static,
        F: Fn(Vec<(LogicalPath, T, Presence)>) + Clone + Send + 'static,
    {
        let backend = &self.shared.backend;
        while let Some(first) = paths.pop() {
            let (pool, near) = (backend.pool(&first.0).clone(), backend.names_are_near(&first.0));
            let mut group = vec![first];
            if near {
                let same = |(path, _): &mut (LogicalPath, T)| {
                    Arc::ptr_eq(backend.pool(path), &pool) && backend.names_are_near(path)
                };
                group.extend(paths.extract_if(.., same).take(LOOKS_TOGETHER_MAX - 1));
            }
            let unknown = unknown(&group);
            let (shared, hears) = (self.shared.clone(), then.clone());
            let job = move || {
                let (mut here, mut elsewhere) = (Vec::new(), ByPool::new());
                for one in group {
                    match shared.backend.elsewhere(&one.0.without_slash(), None) {
                        None => here.push(one),
                        Some(place) => sort_in(&mut elsewhere, place.pool, one),
                    }
                }
                if !here.is_empty() {
                    hears(seen(&shared, here));
                }
                let last = elsewhere.pop();
                for (pool, group) in elsewhere {
                    look_there(&shared, group, &hears, |job| pool.run(Owner::SERVER, job));
                }
                // This thread may go along with the last ones only: it may not come back for long.
                if let Some((pool, group)) = last {
                    look_there(&shared, group, &hears, |job| pool.take_over(job));
                }
            };
            if pool.run(Owner::SERVER, Box::new(job)).is_err() {
                then(unknown);
            }
        }
    }

    /// Somebody says that a file is wanted: its access time becomes now, if it is here. Never blocks.
    pub fn freshen(&self, path: &LogicalPath) {
        if self.shared.export(path, "Preparing").is_ok() {
            crate::prepare::freshen(&self.shared, path);
        }
    }

    /// Calls `with` for files that are here, those of one directory after the other, until all were named or it says
    /// `false`. Blocks for long: for a thread of its own. Files that are not yet whole are left out. A directory that links
    /// lead to is visited once, under one of its paths.
    pub fn walk(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) {
        const NAMES_AT_ONCE: usize = 512;
        let backend = &self.shared.backend;
        let mut directories: Vec<LogicalPath> =
            self.shared.config.exports.iter().map(|export| export.prefix.without_slash()).collect();
        // Links to directories make many paths of one, without end where a link leads above itself.
        let mut visited = HashSet::new();
        while let Some(directory) = directories.pop() {
            let Ok(found) = backend.stat(&directory) else { continue };
            if !visited.insert((found.device, found.inode)) {
                continue;
            }
            let Ok(mut stream) = backend.list(&directory) else { continue };
            while let Ok(names) = stream.next(NAMES_AT_ONCE)
                && !names.is_empty()
            {
                for entry in names {
                    let Ok(path) = directory.join(&entry.name) else { continue };
                    let Ok(metadata) = stream.stat(&entry.name) else { continue };
                    let kind = describe::kind(&metadata);
                    let number = || stream.attribute(&entry.name, proof::NONCE);
                    let is_whole = kind == FileKind::File
                        && self.shared.wholeness(&path, &metadata, number) == Wholeness::Whole;
                    if is_whole && !with(&path) {
                        return;
                    }
                    if kind == FileKind::Directory {
                        directories.push(path);
                    }
                }
            }
        }
    }
}

/// What is to be looked for, and what its asker knows it by.
type Sought<T> = (LogicalPath, T);

fn unknown<T: Copy>(group: &[Sought<T>]) -> Vec<(LogicalPath, T, Presence)> {
    group.iter().map(|(path, tag)| (path.clone(), *tag, Presence::Unknown)).collect()
}

/// Looks where it may wait.
fn seen<T>(shared: &Shared, group: Vec<Sought<T>>) -> Vec<(LogicalPath, T, Presence)> {
    let look = |(path, tag): Sought<T>| {
        let plain = path.without_slash();
        let presence = presence(shared, &plain, shared.backend.stat(&plain));
        (path, tag, presence)
    };
    group.into_iter().map(look).collect()
}

/// Has another pool look.
fn look_there<T, F>(
    shared: &Arc<Shared>,
    group: Vec<Sought<T>>,
    then: &F,
    run: impl FnOnce(Job) -> Result<(), Job>,
) where
    T: Copy + Send + 'static,
    F: Fn(Vec<(LogicalPath, T, Presence)>) + Clone + Send + 'static,
{
    let unknown = unknown(&group);
    let (shared, hears) = (shared.clone(), then.clone());
    if run(Box::new(move || hears(seen(&shared, group)))).is_err() {
        then(unknown);
    }
}

fn presence(shared: &Shared, path: &LogicalPath, found: io::Result<Metadata>) -> Presence {
    let wholeness = |metadata: &Metadata| Some(shared.wholeness_at(path, metadata));
    here(shared, path, found, wholeness).unwrap_or(Presence::Unknown)
}

/// The same if it can be told without waiting.
fn presence_now(shared: &Shared, path: &LogicalPath, found: io::Result<Metadata>) -> Option<Presence> {
    here(shared, path, found, |metadata| shared.wholeness_now(path, metadata))
}

fn here(
    shared: &Shared,
    path: &LogicalPath,
    found: io::Result<Metadata>,
    wholeness: impl FnOnce(&Metadata) -> Option<Wholeness>,
) -> Option<Presence> {
    Some(match found {
        Ok(metadata) => {
            let pending = shared.persist.is_pending(path) || wholeness(&metadata)? != Wholeness::Whole;
            Presence::Here { pending }
        }
        Err(error) if matches!(error.raw_os_error(), Some(errno::NOT_FOUND | errno::NOT_A_DIRECTORY)) => {
            Presence::NotHere
        }
        Err(_) => Presence::Unknown,
    })
}
