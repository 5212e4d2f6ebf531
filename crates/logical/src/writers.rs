//! The table of files that are open for writing, by device and inode.
//!
//! A file can have several names: hard links, and links to it inside the tree. [`crate::lock`]
//! works by path, as in XRootD. Checksums however need to detect every writer of a file, under
//! whatever name it was opened.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{FileIdentity, Metadata};

/// Number of shards. Each has its own lock, so that threads rarely wait for each other.
const SHARDS: usize = 64;

/// Identifies a file while it is open or named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
}

impl From<&Metadata> for FileKey {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.device, inode: metadata.inode }
    }
}

impl From<&FileIdentity> for FileKey {
    fn from(identity: &FileIdentity) -> Self {
        Self { device: identity.device, inode: identity.inode }
    }
}

/// The writers and observers of one file.
#[derive(Default, Debug)]
struct FileWriters {
    writers: u32,
    observers: u32,
    /// Number of writers that came since the entry was made.
    arrivals: u64,
    /// See [`WriterTicket::withdrawal_order`].
    withdrawal_order: Arc<Mutex<()>>,
}

/// All files that are open for writing.
pub(crate) struct Writers {
    shards: Vec<Mutex<HashMap<FileKey, FileWriters>>>,
    hasher: RandomState,
}

impl Writers {
    pub(crate) fn new() -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, hasher: RandomState::new() })
    }

    fn shard(&self, key: FileKey) -> MutexGuard<'_, HashMap<FileKey, FileWriters>> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a writer of a file.
    pub(crate) fn add(self: &Arc<Self>, key: FileKey) -> WriterTicket {
        let mut shard = self.shard(key);
        let users = shard.entry(key).or_default();
        let alone = users.writers == 0;
        users.writers += 1;
        users.arrivals += 1;
        let (arrivals, withdrawal_order) = (users.arrivals, users.withdrawal_order.clone());
        WriterTicket { writers: self.clone(), key, is_writer: true, alone, arrivals, withdrawal_order }
    }

    /// Observes a file without writing it, so that writers that come and go meanwhile are noticed.
    pub(crate) fn observe(self: &Arc<Self>, key: FileKey) -> WriterTicket {
        let mut shard = self.shard(key);
        let users = shard.entry(key).or_default();
        let alone = users.writers == 0;
        users.observers += 1;
        let (arrivals, withdrawal_order) = (users.arrivals, users.withdrawal_order.clone());
        WriterTicket { writers: self.clone(), key, is_writer: false, alone, arrivals, withdrawal_order }
    }

    /// Reports whether a file is open for writing.
    pub(crate) fn has_any(&self, key: FileKey) -> bool {
        self.shard(key).get(&key).is_some_and(|users| users.writers > 0)
    }
}

/// A writer or observer of a file, until dropped.
pub(crate) struct WriterTicket {
    writers: Arc<Writers>,
    key: FileKey,
    is_writer: bool,
    /// There was no other writer when it was made.
    alone: bool,
    arrivals: u64,
    withdrawal_order: Arc<Mutex<()>>,
}

impl WriterTicket {
    /// Returns the lock under which writers of the file withdraw its copy in mass storage.
    pub(crate) fn withdrawal_order(&self) -> &Arc<Mutex<()>> {
        &self.withdrawal_order
    }

    /// Returns the file that is written or observed.
    pub(crate) fn key(&self) -> FileKey {
        self.key
    }

    /// Reports whether the file had another writer at any time since this ticket was made.
    pub(crate) fn was_disturbed(&self) -> bool {
        let shard = self.writers.shard(self.key);
        !self.alone || shard.get(&self.key).is_none_or(|users| users.arrivals != self.arrivals)
    }
}

impl Drop for WriterTicket {
    fn drop(&mut self) {
        let mut shard = self.writers.shard(self.key);
        let Some(users) = shard.get_mut(&self.key) else { return };
        let count = if self.is_writer { &mut users.writers } else { &mut users.observers };
        *count = count.saturating_sub(1);
        if users.writers == 0 && users.observers == 0 {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FileKey = FileKey { device: 1, inode: 2 };

    #[test]
    fn a_second_writer_disturbs_the_first_even_after_it_left() {
        let writers = Writers::new();
        let first = writers.add(KEY);
        let _other_file = writers.add(FileKey { device: 2, inode: 2 });
        assert!(!first.was_disturbed());
        let second = writers.add(KEY);
        assert!(second.was_disturbed());
        drop(second);
        assert!(first.was_disturbed() && writers.has_any(KEY));
        drop(first);
        assert!(!writers.has_any(KEY));
    }

    #[test]
    fn an_observer_detects_writers_and_does_not_disturb_them() {
        let writers = Writers::new();
        let before = writers.observe(KEY);
        assert!(!writers.has_any(KEY));
        let writer = writers.add(KEY);
        let during = writers.observe(KEY);
        assert!(!writer.was_disturbed());
        drop(writer);
        assert!(before.was_disturbed() && during.was_disturbed());
        assert!(!writers.observe(KEY).was_disturbed());
        drop((before, during));
        assert!(writers.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
