//! Locks that let readers and writers of a path exclude each other on this server.
//!
//! Every open file is counted, even where an export does not enforce the rule or a client overrides
//! it. Other components need the number of writers: for example, no checksum is stored for a file
//! that has one.

use base::{Error, ErrorKind, LogicalPath};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of shards; each has its own lock, so that event loops rarely contend.
const SHARDS: usize = 64;

/// The purpose of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockUse {
    /// Reading.
    Read,
    /// Writing, but counted as a reader by the locks, as in XRootD for opens that create without
    /// requesting updates.
    WriteAsReader,
    /// Writing.
    Write,
    /// Writing another file that takes the place of this one. It counts as a reader.
    Replace,
}

/// The numbers of open files of a path.
#[derive(Default, Debug)]
struct PathLocks {
    /// Files that count as readers, and how many of these may write.
    readers: u32,
    writing_readers: u32,
    /// Readers that replace the file.
    replacing: u32,
    writers: u32,
    /// Number of possible changes to the content, except for those by the present writer.
    disturbances: u32,
}

impl PathLocks {
    fn may_write(&self) -> u32 {
        self.writers + self.writing_readers
    }

    fn is_free(&self) -> bool {
        self.writers == 0 && self.readers == 0
    }
}

/// The locks of all open paths.
pub(crate) struct Locks {
    shards: Vec<Mutex<HashMap<LogicalPath, PathLocks>>>,
    hasher: RandomState,
    /// Sums over all paths, because clients may query statistics at any rate.
    paths: AtomicUsize,
    readers: AtomicUsize,
    writers: AtomicUsize,
}

/// The numbers of open paths, readers and writers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct LockCounts {
    pub(crate) paths: usize,
    pub(crate) readers: usize,
    pub(crate) writers: usize,
}

impl Locks {
    pub(crate) fn new() -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let [paths, readers, writers] = [0; 3].map(AtomicUsize::new);
        Arc::new(Self { shards, hasher: RandomState::new(), paths, readers, writers })
    }

    fn shard(&self, path: &LogicalPath) -> MutexGuard<'_, HashMap<LogicalPath, PathLocks>> {
        let at = self.hasher.hash_one(path) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a user of `path`, which has no trailing `/`. With `enforce`, a writer must be alone,
    /// and a reader must not coincide with a writer. A file that is replaced has no writers of any
    /// kind. Two replacements of a file exclude each other always, and one never begins while the file
    /// is written.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        path: &LogicalPath,
        usage: LockUse,
        enforce: bool,
    ) -> Result<LockTicket, Error> {
        let mut shard = self.shard(path);
        let users = shard.entry(path.clone()).or_default();
        let write = usage == LockUse::Write;
        let is_denied = match usage {
            LockUse::Replace => users.may_write() > 0 || users.replacing > 0,
            LockUse::WriteAsReader => enforce && (users.writers > 0 || users.replacing > 0),
            LockUse::Read | LockUse::Write => enforce && (users.writers > 0 || (write && users.readers > 0)),
        };
        if is_denied {
            return Err(denied(path, usage, users));
        }
        if users.is_free() {
            self.paths.fetch_add(1, Ordering::Relaxed);
        }
        self.number_of(usage).fetch_add(1, Ordering::Relaxed);
        match usage {
            LockUse::Read => users.readers += 1,
            LockUse::Replace => {
                users.readers += 1;
                users.replacing += 1;
            }
            LockUse::WriteAsReader => {
                users.readers += 1;
                users.writing_readers += 1;
            }
            LockUse::Write => users.writers += 1,
        }
        let alone = users.may_write() <= 1;
        if matches!(usage, LockUse::Write | LockUse::WriteAsReader) && !alone {
            users.disturbances += 1;
        }
        let disturbances = users.disturbances;
        Ok(LockTicket { locks: self.clone(), path: path.clone(), usage, alone, disturbances })
    }

    /// Reports whether the path is open with permission to write.
    pub(crate) fn has_writer(&self, path: &LogicalPath) -> bool {
        self.shard(path).get(path).is_some_and(|users| users.may_write() > 0)
    }

    /// Records that the content of `path` was changed other than through an open file.
    pub(crate) fn disturb(&self, path: &LogicalPath) {
        if let Some(users) = self.shard(path).get_mut(path) {
            users.disturbances += 1;
        }
    }

    /// Returns the sum in which a user counts.
    fn number_of(&self, usage: LockUse) -> &AtomicUsize {
        match usage {
            LockUse::Read | LockUse::WriteAsReader | LockUse::Replace => &self.readers,
            LockUse::Write => &self.writers,
        }
    }

    /// Returns the sums. Takes no lock, and its time does not depend on the number of open files.
    pub(crate) fn counts(&self) -> LockCounts {
        let count = |sum: &AtomicUsize| sum.load(Ordering::Relaxed);
        LockCounts { paths: count(&self.paths), readers: count(&self.readers), writers: count(&self.writers) }
    }
}

fn denied(path: &LogicalPath, usage: LockUse, users: &PathLocks) -> Error {
    if users.replacing > 0 && usage != LockUse::Read {
        let text = format!("Output file {} is being replaced by another client; open denied.", path.text());
        return Error::new(ErrorKind::FileLocked, text);
    }
    let counts_as_reader = matches!(usage, LockUse::Read | LockUse::WriteAsReader);
    let direction = if counts_as_reader { "Input" } else { "Output" };
    let (count, who) = match (users.writers, users.readers) {
        (0, 1) => (1, "reader"),
        (0, readers) => (readers, "readers"),
        (1, _) => (1, "writer"),
        (writers, _) => (writers, "writers"),
    };
    let text = format!("{direction} file {} is already opened by {count} {who}; open denied.", path.text());
    Error::new(ErrorKind::FileLocked, text)
}

/// A reader or writer of a path, until dropped.
pub(crate) struct LockTicket {
    locks: Arc<Locks>,
    path: LogicalPath,
    usage: LockUse,
    /// There was no other writer when the lock was acquired.
    alone: bool,
    disturbances: u32,
}

impl LockTicket {
    /// Reports whether another user of this server may have changed the content since the lock was
    /// acquired.
    pub(crate) fn was_disturbed(&self) -> bool {
        let shard = self.locks.shard(&self.path);
        !self.alone || shard.get(&self.path).is_none_or(|users| users.disturbances != self.disturbances)
    }
}

impl Drop for LockTicket {
    fn drop(&mut self) {
        let mut shard = self.locks.shard(&self.path);
        if let Some(users) = shard.get_mut(&self.path) {
            self.locks.number_of(self.usage).fetch_sub(1, Ordering::Relaxed);
            match self.usage {
                LockUse::Read => users.readers = users.readers.saturating_sub(1),
                LockUse::Replace => {
                    users.readers = users.readers.saturating_sub(1);
                    users.replacing = users.replacing.saturating_sub(1);
                }
                LockUse::WriteAsReader => {
                    users.readers = users.readers.saturating_sub(1);
                    users.writing_readers = users.writing_readers.saturating_sub(1);
                }
                LockUse::Write => users.writers = users.writers.saturating_sub(1),
            }
            if users.is_free() {
                shard.remove(&self.path);
                self.locks.paths.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> LogicalPath {
        LogicalPath::parse(b"/f").unwrap()
    }

    #[test]
    fn a_writer_excludes_others_with_explaining_errors() {
        let locks = Locks::new();
        let first = locks.acquire(&path(), LockUse::Read, true).unwrap();
        let text = |result: Result<LockTicket, Error>| result.map(|_| ()).unwrap_err().text;
        assert_eq!(
            text(locks.acquire(&path(), LockUse::Write, true)),
            "Output file /f is already opened by 1 reader; open denied."
        );
        let second = locks.acquire(&path(), LockUse::Read, true).unwrap();
        assert_eq!(
            text(locks.acquire(&path(), LockUse::Write, true)),
            "Output file /f is already opened by 2 readers; open denied."
        );
        drop((first, second));
        let writer = locks.acquire(&path(), LockUse::Write, true).unwrap();
        assert_eq!(
            text(locks.acquire(&path(), LockUse::Read, true)),
            "Input file /f is already opened by 1 writer; open denied."
        );
        let forced = locks.acquire(&path(), LockUse::Write, false).unwrap();
        assert_eq!(
            text(locks.acquire(&path(), LockUse::Read, true)),
            "Input file /f is already opened by 2 writers; open denied."
        );
        drop((writer, forced));
        assert_eq!(locks.counts(), LockCounts::default());
    }

    #[test]
    fn a_file_that_is_replaced_has_no_writers() {
        for writer in [LockUse::Write, LockUse::WriteAsReader] {
            for enforce in [true, false] {
                let locks = Locks::new();
                let writing = locks.acquire(&path(), writer, enforce).unwrap();
                assert!(locks.acquire(&path(), LockUse::Replace, enforce).is_err(), "{writer:?}");
                drop(writing);
                let reading = locks.acquire(&path(), LockUse::Read, true).unwrap();
                let replacing = locks.acquire(&path(), LockUse::Replace, enforce).unwrap();
                assert!(locks.acquire(&path(), LockUse::Replace, enforce).is_err());
                assert!(locks.acquire(&path(), writer, true).is_err(), "{writer:?}");
                assert!(locks.acquire(&path(), LockUse::Read, true).is_ok());
                assert!(!locks.has_writer(&path()));
                let forced = locks.acquire(&path(), writer, false).unwrap();
                assert!(locks.has_writer(&path()));
                drop((forced, reading, replacing));
                assert_eq!(locks.counts(), LockCounts::default());
            }
        }
    }

    #[test]
    fn the_sums_are_those_of_the_open_files() {
        let locks = Locks::new();
        let other = LogicalPath::parse(b"/g").unwrap();
        let counts = |paths, readers, writers| LockCounts { paths, readers, writers };
        let reader = locks.acquire(&path(), LockUse::Read, false).unwrap();
        let creator = locks.acquire(&other, LockUse::WriteAsReader, false).unwrap();
        assert_eq!(locks.counts(), counts(2, 2, 0));
        assert!(locks.acquire(&path(), LockUse::Write, true).is_err());
        assert_eq!(locks.counts(), counts(2, 2, 0), "one that is refused does not count");
        let writer = locks.acquire(&path(), LockUse::Write, false).unwrap();
        assert_eq!(locks.counts(), counts(2, 2, 1));
        // A walk over all paths would wait for this lock, as event loops would.
        let held: Vec<_> = locks.shards.iter().map(|shard| shard.lock().unwrap()).collect();
        assert_eq!(locks.counts(), counts(2, 2, 1));
        drop(held);
        drop(reader);
        assert_eq!(locks.counts(), counts(2, 1, 1));
        drop((creator, writer));
        assert_eq!(locks.counts(), LockCounts::default());
    }

    #[test]
    fn a_second_writer_counts_as_a_disturbance_after_it_left() {
        let locks = Locks::new();
        let first = locks.acquire(&path(), LockUse::Write, false).unwrap();
        assert!(!first.was_disturbed());
        let second = locks.acquire(&path(), LockUse::Write, false).unwrap();
        assert!(second.was_disturbed());
        drop(second);
        assert!(first.was_disturbed());
        drop(first);
        let alone = locks.acquire(&path(), LockUse::Write, false).unwrap();
        locks.disturb(&path());
        assert!(alone.was_disturbed());
    }

    #[test]
    fn creating_without_updates_counts_as_a_reader_and_as_writing() {
        let locks = Locks::new();
        let first = locks.acquire(&path(), LockUse::WriteAsReader, true).unwrap();
        assert!(locks.has_writer(&path()) && !first.was_disturbed());
        let reader = locks.acquire(&path(), LockUse::Read, true).unwrap();
        assert!(!first.was_disturbed());
        let second = locks.acquire(&path(), LockUse::WriteAsReader, true).unwrap();
        assert!(first.was_disturbed() && second.was_disturbed());
        assert!(locks.acquire(&path(), LockUse::Write, true).is_err());
        drop((first, second));
        assert!(!locks.has_writer(&path()));
        drop(reader);
        let writer = locks.acquire(&path(), LockUse::Write, true).unwrap();
        assert!(locks.acquire(&path(), LockUse::WriteAsReader, true).is_err());
        drop(writer);
        assert_eq!(locks.counts(), LockCounts::default());
    }
}
