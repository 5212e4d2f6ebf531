//! Searches for unfinished files at and below a path, for an administrator.
//!
//! A tree may have any number of names and be on disks that hang. Therefore the walk is [`Work`] of
//! a pool. Each step examines a bounded number of names, in the pool of the file system for which
//! it waits. The walk ends when the list is no longer needed, and at limits that bound its memory.

use super::UnfinishedFiles;
use super::unfinished::{UnfinishedFile, UnfinishedState};
use crate::describe;
use crate::errno;
use crate::job;
use crate::proof;
use crate::wholeness::{Wholeness, WholenessRule};
use crate::writers::FileKey;
use base::{Error, LogicalPath};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use storage::{Backend, DirectoryStream, Pool, RawEntry, STEP_ITEMS_MAX, StepProgress, Work, WorkEnd};

/// Memory of a directory in addition to its path, in bytes.
const DIRECTORY_BYTES: usize = 64;
/// Number of names read at once.
const NAMES_AT_ONCE: usize = 512;

/// A receiver of a list of unfinished files.
pub trait ListReply: Send + 'static {
    /// Reports whether the list is still needed.
    fn is_awaited(&self) -> bool;
    /// Receives the list or an error.
    fn send(self, list: Result<UnfinishedList, Error>);
}

/// The limits of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkLimits {
    /// Maximum number of names examined.
    pub names: usize,
    /// Maximum memory for directories, in bytes.
    pub directory_bytes: usize,
    /// Maximum number of files without a record in the list.
    pub files: usize,
    /// Maximum number of unreadable directories and entries in the list.
    pub unreadable: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { names: 10_000_000, directory_bytes: 16 << 20, files: 1000, unreadable: 100 }
    }
}

/// The unfinished files at and below a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnfinishedList {
    /// The files, sorted by path.
    pub files: Vec<UnfinishedFile>,
    /// Directories and entries that could not be read and may contain unfinished files.
    pub unreadable: Vec<UnreadableEntry>,
    /// Number of further unreadable ones.
    pub more_unreadable: usize,
    /// The limit at which the walk stopped; `None` if it examined everything that it could read.
    pub limit: Option<WalkLimit>,
}

/// A directory or entry that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableEntry {
    /// The path.
    pub path: LogicalPath,
    /// The reason.
    pub reason: String,
}

/// The limit at which a walk stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkLimit {
    /// [`WalkLimits::names`].
    Names(usize),
    /// [`WalkLimits::directory_bytes`].
    DirectoryBytes(usize),
    /// [`WalkLimits::files`].
    Files(usize),
}

impl fmt::Display for WalkLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => write!(f, "{names} names were examined"),
            Self::DirectoryBytes(bytes) => write!(f, "the names of directories use {bytes} bytes"),
            Self::Files(files) => write!(f, "{files} unfinished files without a record were found"),
        }
    }
}

/// A walk that searches for unfinished files.
pub(crate) struct UnfinishedWalk<R> {
    top: LogicalPath,
    limits: WalkLimits,
    backend: Arc<dyn Backend>,
    wholeness: Arc<WholenessRule>,
    persist: Arc<UnfinishedFiles>,
    reply: Option<R>,
    /// The pool of the present step.
    pool: Arc<Pool>,
    /// The next item was resolved to this pool.
    followed: bool,
    /// The directory that is being read.
    reading: Option<OpenDirectory>,
    /// Directories to open, in reverse order.
    waiting: Vec<LogicalPath>,
    /// Directories visited. Links can give a directory many paths, and endlessly many if a link
    /// leads to its own ancestor.
    visited: HashSet<FileKey>,
    directory_bytes: usize,
    names: usize,
    found: Vec<LogicalPath>,
    unreadable: Vec<UnreadableEntry>,
    more_unreadable: usize,
}

/// A directory that is being read.
struct OpenDirectory {
    path: LogicalPath,
    stream: Box<dyn DirectoryStream>,
    /// The pool of the directory.
    home: Arc<Pool>,
    page: VecDeque<RawEntry>,
}

/// The result of examining one item.
enum WalkStep {
    /// Another item follows.
    Item,
    /// The walk continues in this pool.
    MoveTo(Arc<Pool>),
    /// The walk has ended.
    End(Option<WalkLimit>),
}

impl<R: ListReply> UnfinishedWalk<R> {
    /// Returns a walk that starts at `top`, which must be in an export.
    pub(crate) fn new(
        top: LogicalPath,
        limits: WalkLimits,
        (backend, wholeness, persist): (&Arc<dyn Backend>, &Arc<WholenessRule>, &Arc<UnfinishedFiles>),
        reply: R,
    ) -> Self {
        Self {
            pool: backend.pool(&top).clone(),
            waiting: vec![top.clone()],
            top,
            limits,
            backend: backend.clone(),
            wholeness: wholeness.clone(),
            persist: persist.clone(),
            reply: Some(reply),
            followed: false,
            reading: None,
            visited: HashSet::new(),
            directory_bytes: 0,
            names: 0,
            found: Vec::new(),
            unreadable: Vec::new(),
            more_unreadable: 0,
        }
    }

    /// Returns the pool of the first step.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn advance(&mut self) -> WalkStep {
        match self.reading.take() {
            Some(reading) => self.read_on(reading),
            None => self.open_next(),
        }
    }

    /// Opens the next directory.
    fn open_next(&mut self) -> WalkStep {
        let Some(path) = self.waiting.pop() else { return WalkStep::End(None) };
        if !std::mem::take(&mut self.followed) {
            let own = self.backend.pool(&path);
            let pool = if !Arc::ptr_eq(own, &self.pool) {
                own.clone()
            } else if let Some(place) = self.backend.placement(&path, None) {
                self.followed = true;
                place.pool
            } else {
                return self.open(path);
            };
            self.waiting.push(path);
            return self.move_to(pool);
        }
        self.open(path)
    }

    fn move_to(&mut self, pool: Arc<Pool>) -> WalkStep {
        self.pool = pool.clone();
        WalkStep::MoveTo(pool)
    }

    fn open(&mut self, path: LogicalPath) -> WalkStep {
        if self.visited.is_empty() {
            match self.backend.stat(&path) {
                Ok(found) if describe::is_directory(&found) => {
                    self.visited.insert(FileKey::from(&found));
                }
                Ok(found) => {
                    if self.wholeness.at(&path, &found) != Wholeness::Whole {
                        self.found.push(path);
                    }
                    return WalkStep::End(None);
                }
                Err(error) => {
                    self.note_unreadable(path, &error);
                    return WalkStep::End(None);
                }
            }
        }
        match self.backend.list(&path) {
            Ok(stream) => {
                let (home, page) = (self.pool.clone(), VecDeque::new());
                self.reading = Some(OpenDirectory { path, stream, home, page });
            }
            // The directory was removed meanwhile.
            Err(error) if storage::is_missing(&error) => {}
            Err(error) => self.note_unreadable(path, &error),
        }
        WalkStep::Item
    }

    /// Examines the next entry of a directory.
    fn read_on(&mut self, mut reading: OpenDirectory) -> WalkStep {
        if !std::mem::take(&mut self.followed) {
            let pool = if !Arc::ptr_eq(&reading.home, &self.pool) {
                Some(reading.home.clone())
            } else {
                let pool = reading.page.front().and_then(|entry| reading.stream.other_pool(entry));
                self.followed = pool.is_some();
                pool
            };
            if let Some(pool) = pool {
                self.reading = Some(reading);
                return self.move_to(pool);
            }
        }
        let Some(entry) = reading.page.pop_front() else {
            match reading.stream.next(NAMES_AT_ONCE) {
                Ok(names) if names.is_empty() => {}
                Ok(names) => {
                    reading.page = names.into();
                    self.reading = Some(reading);
                }
                // The directory was removed meanwhile.
                Err(error) if storage::is_missing(&error) => {}
                Err(error) => self.note_unreadable(reading.path, &error),
            }
            return WalkStep::Item;
        };
        let limit = if self.names == self.limits.names {
            Some(WalkLimit::Names(self.names))
        } else {
            self.names += 1;
            self.look_at(&entry, &reading)
        };
        self.reading = Some(reading);
        if limit.is_some() { WalkStep::End(limit) } else { WalkStep::Item }
    }

    fn look_at(&mut self, entry: &RawEntry, reading: &OpenDirectory) -> Option<WalkLimit> {
        // A file whose path is too long cannot be accessed by clients.
        let path = reading.path.join(&entry.name).ok()?;
        let metadata = match reading.stream.stat(&entry.name) {
            Ok(metadata) => metadata,
            Err(error) => {
                if may_hide_files(entry, &error) {
                    self.note_unreadable(path, &error);
                }
                return None;
            }
        };
        if describe::is_directory(&metadata) {
            return self.add_directory(path, FileKey::from(&metadata));
        }
        let number = || reading.stream.attribute(&entry.name, proof::NONCE);
        if self.wholeness.decide(&path, &metadata, number) == Wholeness::Whole {
            return None;
        }
        if self.found.len() == self.limits.files {
            return Some(WalkLimit::Files(self.limits.files));
        }
        self.found.push(path);
        None
    }

    fn add_directory(&mut self, path: LogicalPath, key: FileKey) -> Option<WalkLimit> {
        if !self.visited.insert(key) {
            return None;
        }
        self.directory_bytes += DIRECTORY_BYTES + path.as_bytes().len();
        if self.directory_bytes > self.limits.directory_bytes {
            return Some(WalkLimit::DirectoryBytes(self.limits.directory_bytes));
        }
        self.waiting.push(path);
        None
    }

    fn note_unreadable(&mut self, path: LogicalPath, error: &io::Error) {
        if self.unreadable.len() == self.limits.unreadable {
            self.more_unreadable += 1;
        } else {
            self.unreadable.push(UnreadableEntry { path, reason: error.to_string() });
        }
    }

    /// Returns the files found and those with a record.
    fn list(&mut self, limit: Option<WalkLimit>) -> UnfinishedList {
        let mut files = self.persist.recorded();
        files.retain(|one| one.path.is_within(&self.top));
        let recorded: HashSet<LogicalPath> = files.iter().map(|one| one.path.clone()).collect();
        let found = self.found.drain(..).filter(|path| !recorded.contains(path));
        files.extend(found.map(|path| UnfinishedFile { path, state: UnfinishedState::Unknown }));
        files.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        let unreadable = std::mem::take(&mut self.unreadable);
        UnfinishedList { files, unreadable, more_unreadable: self.more_unreadable, limit }
    }
}

/// Reports whether an entry that cannot be read may be an unfinished file or contain some. A
/// missing entry does not, and the target of a link out of the tree is not served.
fn may_hide_files(entry: &RawEntry, error: &io::Error) -> bool {
    let leads_nowhere =
        matches!(error.raw_os_error(), Some(errno::ACCESS | errno::OTHER_DEVICE | errno::TOO_MANY_LINKS));
    !(storage::is_missing(error) || entry.link && leads_nowhere)
}

impl<R: ListReply> Work for UnfinishedWalk<R> {
    fn step(&mut self) -> StepProgress {
        for _ in 0..STEP_ITEMS_MAX {
            match self.advance() {
                WalkStep::Item => {}
                WalkStep::MoveTo(pool) => return StepProgress::MoveTo(pool),
                WalkStep::End(limit) => {
                    let list = self.list(limit);
                    if let Some(reply) = self.reply.take() {
                        reply.send(Ok(list));
                    }
                    return StepProgress::Done;
                }
            }
        }
        StepProgress::More
    }

    fn is_cancelled(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| !reply.is_awaited())
    }

    fn end(self: Box<Self>, reason: WorkEnd) {
        if reason == WorkEnd::Refused
            && let Some(reply) = self.reply
        {
            reply.send(Err(job::overload()));
        }
    }
}
