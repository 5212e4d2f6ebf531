//! Fuzz target for damaged journals of an earlier run.
//!
//! The server must start with any journal, repair all entries that it can decode, and start again
//! from the repaired state. Otherwise a crash at a bad moment could prevent every later start.
//!
//! The first byte of an input selects the format of the rest. Even: the journal of pending files as
//! stored on disk. Odd: blocks of the journal of a checkpoint, each a length (u8) and its bytes, to
//! which a valid checksum is added.

mod storage;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use base::{Clock, LogicalPath};
use logical::config::{Config, ExportConfig};
use logical::{Journal, JournalDirectory, Journals, Logical, LogicalParts, NumberedUsers};

/// Checks a journal of one of the two kinds.
pub fn target(data: &[u8]) {
    let Some((kind, content)) = data.split_first() else { return };
    let (pending, checkpoints) = (MemoryJournals::default(), MemoryJournals::default());
    if kind % 2 == 0 {
        pending.put("pending", content.to_vec());
    } else {
        checkpoints.put("1.checkpoint", sealed(content));
    }
    let first = start(&pending, &checkpoints);
    let left = (pending.content(), checkpoints.content());
    if first {
        assert!(start(&pending, &checkpoints), "the repaired state prevents the next start");
        assert_eq!((pending.content(), checkpoints.content()), left, "a second start repairs again");
    }
}

/// Returns the blocks with their checksums. The last block may be incomplete.
fn sealed(mut content: &[u8]) -> Vec<u8> {
    let mut journal = Vec::new();
    while let Some((length, rest)) = content.split_first() {
        let (block, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        journal.extend_from_slice(block);
        if block.len() == usize::from(*length) {
            journal.extend_from_slice(&digest::crc32c(block).to_le_bytes());
        }
        content = rest;
    }
    journal
}

/// Starts a logical file system and returns whether it succeeded.
fn start(pending: &MemoryJournals, checkpoints: &MemoryJournals) -> bool {
    let parts = LogicalParts {
        config: Config::new(vec![ExportConfig::new(LogicalPath::root())], PathBuf::from("/nowhere")),
        backend: Arc::new(storage::OneFile),
        clock: Arc::new(FixedClock),
        users: Arc::new(NumberedUsers),
        locator: None,
        accounts: None,
        journals: Journals { persist: Arc::new(pending.clone()), checkpoints: Arc::new(checkpoints.clone()) },
    };
    Logical::new(parts).is_ok()
}

/// A clock that stands still.
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Duration {
        Duration::from_secs(1000)
    }

    fn today(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// A directory of journals in memory.
#[derive(Clone, Default)]
struct MemoryJournals(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl MemoryJournals {
    fn papers(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &str, content: Vec<u8>) {
        self.papers().insert(name.to_owned(), content);
    }

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        self.papers().clone()
    }
}

impl JournalDirectory for MemoryJournals {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.papers().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.papers().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Journal>> {
        self.replace(name, &[])
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>> {
        self.put(name, content.to_vec());
        Ok(Box::new(MemoryJournal(self.clone(), name.to_owned())))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.papers().remove(name);
        Ok(())
    }
}

struct MemoryJournal(MemoryJournals, String);

impl Journal for MemoryJournal {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.papers().entry(self.1.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns an input with the checkpoint journal of the only file: a header and one change.
#[must_use]
pub fn checkpoint_seed() -> Vec<u8> {
    let path = storage::PATH;
    let length = u32::try_from(path.len()).unwrap_or(0);
    let head = [
        &b"SCKP"[..],
        &1u32.to_le_bytes(),
        &storage::INODE.to_le_bytes(),
        &10u64.to_le_bytes(),
        &length.to_le_bytes(),
        path,
    ]
    .concat();
    let entry = [&2u64.to_le_bytes()[..], &4u32.to_le_bytes(), b"save"].concat();
    let mut input = vec![1];
    for block in [head, entry] {
        input.push(u8::try_from(block.len()).unwrap_or(0));
        input.extend_from_slice(&block);
    }
    input
}
