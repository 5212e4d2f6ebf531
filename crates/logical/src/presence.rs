//! Presence of paths on this server, and walks over all of them, for its cluster node. The node
//! learns of later changes from [`crate::Events`].

use crate::describe;
use crate::exports::ExportTable;
use crate::job::{ByPool, sort_in};
use crate::persist::UnfinishedFiles;
use crate::proof;
use crate::wholeness::{Wholeness, WholenessRule};
use base::{LogicalPath, Owner};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use storage::{Backend, Job, LookPermit, Metadata, Now, Pool};
use vfs::FileKind;

/// Maximum number of names that one thread looks up for one query.
const LOOKS_TOGETHER_MAX: usize = 16;

/// Number of names of a directory that a walk reads at once.
pub(crate) const NAMES_AT_ONCE: usize = 512;

/// The presence of a path on this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathPresence {
    /// A file or directory with this path exists.
    Here {
        /// It is an unfinished file.
        pending: bool,
    },
    /// The path does not exist or is not exported.
    NotHere,
    /// Unknown, because the storage failed.
    Unknown,
    /// Not looked up, because too many lookups wait for the storage.
    Overloaded,
}

/// The components that determine presence.
#[derive(Clone)]
pub(crate) struct PresenceServices {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) persist: Arc<UnfinishedFiles>,
    pub(crate) wholeness: Arc<WholenessRule>,
}

impl PresenceServices {
    /// Reports whether a path lies in an export, independent of its existence.
    pub(crate) fn is_exported(&self, path: &LogicalPath) -> bool {
        self.exports.find(path, "Locating").is_ok()
    }

    /// Implements [`crate::Logical::look_now`].
    pub(crate) fn look_now(&self, path: &LogicalPath) -> Option<PathPresence> {
        let plain = path.without_slash();
        if !self.is_exported(&plain) {
            return Some(PathPresence::NotHere);
        }
        match self.backend.stat_now(&plain) {
            Now::Done(result) => self.presence_now(&plain, result),
            Now::WouldBlock => None,
        }
    }

    /// Implements [`crate::Logical::look`].
    pub(crate) fn look<T, F>(self: &Arc<Self>, mut paths: Vec<(LogicalPath, T)>, then: &F)
    where
        T: Copy + Send + 'static,
        F: Fn(Vec<(LogicalPath, T, PathPresence)>) + Clone + Send + 'static,
    {
        let backend = &self.backend;
        while let Some(first) = paths.pop() {
            let (pool, near) = (backend.pool(&first.0).clone(), backend.has_local_names(&first.0));
            let mut group = vec![first];
            if near {
                let same = |(path, _): &mut (LogicalPath, T)| {
                    Arc::ptr_eq(backend.pool(path), &pool) && backend.has_local_names(path)
                };
                group.extend(paths.extract_if(.., same).take(LOOKS_TOGETHER_MAX - 1));
            }
            let refused = refused(&group);
            let Some(permit) = admit(&pool, &group) else {
                then(refused);
                continue;
            };
            let (inside, hears) = (self.clone(), then.clone());
            let job = move || {
                let (mut here, mut elsewhere) = (Vec::new(), ByPool::new());
                for one in group {
                    match inside.backend.placement(&one.0.without_slash(), None) {
                        None => here.push(one),
                        Some(place) => sort_in(&mut elsewhere, place.pool, one),
                    }
                }
                if !here.is_empty() {
                    hears(inside.seen(here));
                }
                // Names that are looked up in another pool count there.
                drop(permit);
                let last = elsewhere.pop();
                for (pool, group) in elsewhere {
                    look_up_in_pool(&inside, &pool, group, &hears, |job| pool.run(Owner::SERVER, job));
                }
                // This thread may be lent to another pool only for the last group, because it may
                // not return for long.
                if let Some((pool, group)) = last {
                    look_up_in_pool(&inside, &pool, group, &hears, |job| pool.take_over(job));
                }
            };
            if pool.run(Owner::SERVER, Box::new(job)).is_err() {
                then(refused);
            }
        }
    }

    /// Implements [`crate::Logical::walk`].
    pub(crate) fn walk(&self, with: &mut dyn FnMut(&LogicalPath) -> bool) {
        let backend = &self.backend;
        let mut directories: Vec<LogicalPath> =
            self.exports.all().iter().map(|export| export.prefix.without_slash()).collect();
        // Links can give a directory many paths, and endlessly many if a link leads to its own
        // ancestor.
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
                        && self.wholeness.decide(&path, &metadata, number) == Wholeness::Whole;
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

/// A path to look up, and the tag by which the caller identifies it.
type Sought<T> = (LogicalPath, T);

fn refused<T: Copy>(group: &[Sought<T>]) -> Vec<(LogicalPath, T, PathPresence)> {
    group.iter().map(|(path, tag)| (path.clone(), *tag, PathPresence::Overloaded)).collect()
}

impl PresenceServices {
    /// Looks up paths where blocking is allowed.
    fn seen<T>(&self, group: Vec<Sought<T>>) -> Vec<(LogicalPath, T, PathPresence)> {
        let look = |(path, tag): Sought<T>| {
            let plain = path.without_slash();
            let presence = self.presence(&plain, self.backend.stat(&plain));
            (path, tag, presence)
        };
        group.into_iter().map(look).collect()
    }

    /// Implements [`crate::Logical::presence`].
    pub(crate) fn presence_of(&self, path: &LogicalPath) -> PathPresence {
        let plain = path.without_slash();
        self.presence(&plain, self.backend.stat(&plain))
    }

    fn presence(&self, path: &LogicalPath, found: io::Result<Metadata>) -> PathPresence {
        let wholeness = |metadata: &Metadata| Some(self.wholeness.at(path, metadata));
        self.look_up_here(path, found, wholeness).unwrap_or(PathPresence::Unknown)
    }

    /// Returns the presence if that is possible without waiting.
    fn presence_now(&self, path: &LogicalPath, found: io::Result<Metadata>) -> Option<PathPresence> {
        self.look_up_here(path, found, |metadata| self.wholeness.now(path, metadata))
    }

    fn look_up_here(
        &self,
        path: &LogicalPath,
        found: io::Result<Metadata>,
        wholeness: impl FnOnce(&Metadata) -> Option<Wholeness>,
    ) -> Option<PathPresence> {
        Some(match found {
            Ok(metadata) => {
                let pending = self.persist.is_pending(path) || wholeness(&metadata)? != Wholeness::Whole;
                PathPresence::Here { pending }
            }
            Err(error) if storage::is_missing(&error) => PathPresence::NotHere,
            Err(_) => PathPresence::Unknown,
        })
    }
}

/// Takes a permit for names that a pool looks up; `None` if too many wait there.
fn admit<T>(pool: &Pool, group: &[Sought<T>]) -> Option<LookPermit> {
    let bytes = group.iter().map(|(path, _)| path.as_bytes().len()).sum();
    pool.looks().take(group.len(), bytes)
}

/// Queues a lookup in another pool.
fn look_up_in_pool<T, F>(
    presences: &Arc<PresenceServices>,
    pool: &Pool,
    group: Vec<Sought<T>>,
    then: &F,
    run: impl FnOnce(Job) -> Result<(), Job>,
) where
    T: Copy + Send + 'static,
    F: Fn(Vec<(LogicalPath, T, PathPresence)>) + Clone + Send + 'static,
{
    let refused = refused(&group);
    let Some(permit) = admit(pool, &group) else { return then(refused) };
    let (inside, hears) = (presences.clone(), then.clone());
    let job = move || {
        hears(inside.seen(group));
        drop(permit);
    };
    if run(Box::new(job)).is_err() {
        then(refused);
    }
}
