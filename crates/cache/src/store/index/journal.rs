//! [`IndexJournal`]: the changes of stored files since the last snapshot.

use super::format::{IndexHead, JournalRecord};
use super::{IndexFileKind, path, remove_before};
use crate::CacheKey;
use crate::store::{CacheDisk, CacheDiskFile};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of bytes of records that are kept in memory until the next one of a change that begins.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The journal of a cache. Its calls block.
pub(crate) struct IndexJournal {
    disk: Arc<dyn CacheDisk>,
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    /// `None` if nothing is recorded, because the index is not complete, or the journal could not be written.
    file: Option<OpenJournal>,
    /// Changes that were begun and whose result is not known.
    unresolved: HashSet<CacheKey>,
    /// The recorded index is wrong and could not be removed. That is tried again before each change.
    is_stale: bool,
}

struct OpenJournal {
    file: Arc<dyn CacheDiskFile>,
    /// Number of bytes on disk.
    length: u64,
    /// Records that are not on disk yet.
    buffer: Vec<u8>,
}

impl OpenJournal {
    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(self.length, &self.buffer)?;
            self.length += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl IndexJournal {
    /// Creates a journal that records nothing before [`IndexJournal::begin`].
    pub(crate) fn new(disk: Arc<dyn CacheDisk>) -> Self {
        Self { disk, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the journal of a generation, which follows all others. Changes without result are carried over.
    ///
    /// # Errors
    /// Errors of the disk. Nothing is recorded then, and what was recorded before is not believed any longer.
    pub(crate) fn begin(&self, (generation, disk): (u64, u64)) -> io::Result<()> {
        let mut state = self.state();
        let begun = self.begin_locked(&mut state, (generation, disk));
        if begun.is_err() {
            self.give_up(&mut state);
        }
        begun
    }

    fn begin_locked(&self, state: &mut JournalState, (generation, disk): (u64, u64)) -> io::Result<()> {
        if let Some(before) = &mut state.file {
            before.flush()?;
        }
        let mounted = self.disk.mounted().unwrap_or(0);
        let mut buffer =
            IndexHead { kind: IndexFileKind::Journal, generation, disk, mounted, others: 0 }.encode();
        for key in &state.unresolved {
            JournalRecord::Started.encode(key, &mut buffer);
        }
        let file = self.disk.create(&path(generation, IndexFileKind::Journal)?)?;
        let mut file = OpenJournal { file, length: 0, buffer };
        file.flush()?;
        state.file = Some(file);
        Ok(())
    }

    /// Removes what was recorded, because changes are not recorded from now on.
    ///
    /// # Errors
    /// Errors of the disk. The removal is tried again before each change.
    pub(crate) fn distrust(&self) -> io::Result<()> {
        let mut state = self.state();
        self.give_up(&mut state);
        // The first failure may have been a passing one.
        if state.is_stale {
            remove_before(&*self.disk, u64::MAX).inspect(|()| state.is_stale = false)
        } else {
            Ok(())
        }
    }

    /// Ends the journal, and removes what was recorded, because changes are not recorded from now on.
    fn give_up(&self, state: &mut JournalState) {
        state.file = None;
        let removed = remove_before(&*self.disk, u64::MAX);
        state.is_stale = removed.is_err();
        if let Err(error) = removed {
            tracing::warn!("the index of the cache cannot be removed: {error}");
        }
    }

    /// Adds a record. With `is_urgent`, it is on disk afterwards, unless the journal has failed.
    fn add(&self, key: &CacheKey, record: &JournalRecord, is_urgent: bool) {
        let mut state = self.state();
        match record {
            JournalRecord::Started => state.unresolved.insert(key.clone()),
            JournalRecord::Stored(..) | JournalRecord::Removed => state.unresolved.remove(key),
        };
        if state.is_stale && is_urgent {
            self.give_up(&mut state);
        }
        let Some(file) = &mut state.file else { return };
        record.encode(key, &mut file.buffer);
        if (is_urgent || file.buffer.len() >= BUFFER_BYTES_MAX)
            && let Err(error) = file.flush()
        {
            tracing::warn!("the index of the cache cannot be recorded: {error}");
            self.give_up(&mut state);
        }
    }

    /// Records that the files of a key are about to be changed, before that is done.
    pub(crate) fn started(&self, key: &CacheKey) {
        self.add(key, &JournalRecord::Started, true);
    }

    /// Records that a change was made, and this number of bytes is stored now.
    pub(crate) fn stored(&self, key: &CacheKey, bytes: u64, used: i64) {
        self.add(key, &JournalRecord::Stored(bytes, used), false);
    }

    /// Records that nothing is stored any longer.
    pub(crate) fn removed(&self, key: &CacheKey) {
        self.add(key, &JournalRecord::Removed, false);
    }

    /// Writes what is in memory, and removes an index that could not be removed before.
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        if state.is_stale && state.file.is_none() {
            self.give_up(&mut state);
        }
        let flushed = state.file.as_mut().map_or(Ok(()), OpenJournal::flush);
        if let Err(error) = flushed {
            tracing::warn!("the index of the cache cannot be recorded: {error}");
            self.give_up(&mut state);
        }
    }

    /// Returns the size of the journal; `None` if nothing is recorded.
    pub(crate) fn length(&self) -> Option<u64> {
        self.state().file.as_ref().map(|file| file.length + file.buffer.len() as u64)
    }
}
