//! [`StoreContext`]: what all stores of a cache share, and calls about the files of one name.

use super::cache_key::OWN_DIRECTORY;
use super::state_file::{DecodedState, STATE_BYTES_MAX};
use super::{CacheDisk, CacheDiskFile, CacheKey, IndexJournal, PageChecksums, StoreError, StoredState};
use crate::part_layout::PartLayout;
use base::{LogicalPath, Owner};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Pool, SECOND_NAME_ATTRIBUTE};

/// The attribute with the size of the file, which XRootD reads.
const SIZE_ATTRIBUTE: &str = "user.pfc.fsize";
/// The attribute of data that has no state file yet. Without it, data alone cannot be identified.
pub(super) const DATA_ATTRIBUTE: &str = "user.scalla.cache";
/// Number of temporary names that are tried.
const NAMES_MAX: usize = 100;
/// Maximum number of directories whose removed names may come back after a power cut.
const UNSYNCED_MAX: usize = 4096;

/// Number of bytes that are freed to learn whether the disk can do that.
const PROBE_BYTES: u64 = 4096;

/// Parts of a file that are to be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FilePartsToRemove {
    /// These ones.
    Parts(Vec<u32>),
    /// As many of the last ones as have this number of bytes.
    AtLeast(u64),
}

/// What is left of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RemainingFile {
    /// Its stored bytes; 0 if the file was removed.
    pub(crate) bytes: u64,
    /// The number of parts that were removed, of a file that is left.
    pub(crate) parts: u64,
}

/// What all stores of a cache share.
pub(crate) struct StoreContext {
    pub(crate) disk: Arc<dyn CacheDisk>,
    /// Size of the blocks of new files.
    pub(crate) block_bytes: u64,
    /// The threads that close data files.
    closing: Option<Arc<Pool>>,
    next_name: AtomicU64,
    unsynced: Mutex<UnsyncedDirectories>,
    /// Records all changes of files.
    pub(crate) journal: IndexJournal,
    pub(super) pages: PageChecksums,
    /// The least size of the parts of files that are to be removed one by one; `None` for whole files only.
    wanted_part_bytes: Option<u64>,
    /// Whether the disk can free a part of a file. `None` while that is not known.
    can_discard: Mutex<Option<bool>>,
}

/// Directories from which names were removed that may come back after a power cut, with the number of the last
/// removal. That is no harm until another file gets one of these names: its data could then be found beside the state
/// of an earlier file. So they are synced before a file is created there, and a removal does not wait.
#[derive(Default)]
struct UnsyncedDirectories {
    directories: HashMap<LogicalPath, u64>,
    removals: u64,
}

impl StoreContext {
    pub(crate) fn new(disk: Arc<dyn CacheDisk>, block_bytes: u64) -> Self {
        let (next_name, unsynced) = (AtomicU64::new(0), Mutex::default());
        let journal = IndexJournal::new(disk.clone());
        let pages = PageChecksums::new(0);
        let (closing, wanted_part_bytes, can_discard) = (None, None, Mutex::default());
        Self {
            disk,
            block_bytes,
            closing,
            next_name,
            unsynced,
            journal,
            pages,
            wanted_part_bytes,
            can_discard,
        }
    }

    /// Lets a pool close data files, because the last close of a removed file frees its space, which takes long.
    pub(crate) fn closing_on(self, pool: Arc<Pool>) -> Self {
        Self { closing: Some(pool), ..self }
    }

    /// Keeps checksums of pages of this number of bytes of files.
    pub(crate) fn with_pages_of(self, bytes: u64) -> Self {
        Self { pages: PageChecksums::new(bytes), ..self }
    }

    /// Removes parts of files of at least this size, or whole files only. There are no parts before
    /// [`StoreContext::try_discard`].
    pub(crate) fn with_parts_of(self, bytes: Option<u64>) -> Self {
        Self { wanted_part_bytes: bytes, ..self }
    }

    #[cfg(test)]
    pub(crate) fn with_discard(self) -> Self {
        Self { can_discard: Mutex::new(Some(true)), ..self }
    }

    /// Returns the least size of the parts of files that are removed one by one; `None` for whole files only.
    pub(crate) fn part_bytes(&self) -> Option<u64> {
        self.wanted_part_bytes.filter(|_| *self.can_discard() == Some(true))
    }

    fn can_discard(&self) -> MutexGuard<'_, Option<bool>> {
        self.can_discard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a data file.
    pub(super) fn close(&self, data: Arc<dyn CacheDiskFile>) {
        if let Some(pool) = &self.closing {
            pool.run_surely(Owner::SERVER, Box::new(move || drop(data)));
        }
    }

    fn unsynced(&self) -> MutexGuard<'_, UnsyncedDirectories> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a data file.
    pub(super) fn create_data(&self, key: &CacheKey) -> io::Result<Arc<dyn CacheDiskFile>> {
        let directory = key.directory();
        if self.unsynced().directories.contains_key(&directory) {
            self.sync_names(&directory)?;
        }
        self.journal.started(key);
        // Nothing was changed by a failure, and clients choose the names.
        self.disk.create(key.data()).inspect_err(|_| self.journal.removed(key))
    }

    /// Creates a temporary file. Those of earlier processes were removed at the start.
    fn temporary(&self) -> io::Result<(LogicalPath, Arc<dyn CacheDiskFile>)> {
        for _ in 0..NAMES_MAX {
            let number = self.next_name.fetch_add(1, Ordering::Relaxed);
            let path = LogicalPath::parse(format!("{OWN_DIRECTORY}/new/{number}").as_bytes())
                .map_err(|_| io::ErrorKind::InvalidFilename)?;
            match self.disk.create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|file| (path, file)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Replaces a state file. It is durable afterwards.
    pub(super) fn replace_state(&self, key: &CacheKey, content: &[u8], file_bytes: u64) -> io::Result<()> {
        self.replace(&key.state(), content, |file| {
            // Only a hint for XRootD, which file systems without attributes cannot keep.
            file.set_attribute(SIZE_ATTRIBUTE, &file_bytes.to_ne_bytes()).ok();
        })
    }

    /// Replaces a file by a new one, which `prepare` gets before it has its name. It is durable afterwards.
    pub(super) fn replace(
        &self,
        to: &LogicalPath,
        content: &[u8],
        prepare: impl FnOnce(&dyn CacheDiskFile),
    ) -> io::Result<()> {
        let (path, file) = self.temporary()?;
        let replaced = (|| {
            file.write_at(0, content)?;
            prepare(&*file);
            file.sync()?;
            self.disk.rename(&path, to)
        })();
        if replaced.is_err() {
            self.disk.remove(&path).ok();
        }
        replaced?;
        self.sync_names(&to.parent().unwrap_or_else(LogicalPath::root))
    }

    /// Reads a state file. `None` if there is none.
    pub(crate) fn load(&self, key: &CacheKey) -> Result<Option<DecodedState>, StoreError> {
        let Some(file) = found(self.disk.open(&key.state()))? else { return Ok(None) };
        let size = file.status()?.size;
        if size == 0 {
            // XRootD has created it and was stopped.
            return Ok(Some(DecodedState::Damaged));
        }
        let Some(length) = usize::try_from(size).ok().filter(|_| size <= STATE_BYTES_MAX) else {
            return Ok(Some(DecodedState::Foreign));
        };
        let mut content = vec![0; length];
        let read = file.read_at(0, &mut content)?;
        content.truncate(read);
        Ok(Some(StoredState::decode(&content)))
    }

    /// Returns the last recorded use of a file in seconds since the epoch; `None` if it has no valid state.
    pub(crate) fn last_use(&self, key: &CacheKey) -> Result<Option<i64>, StoreError> {
        Ok(match self.load(key)? {
            Some(DecodedState::Valid(state)) => Some(state.last_use()),
            _ => None,
        })
    }

    /// Removes the files of a key, if they are files of the cache that nobody has open. Returns whether there
    /// were any.
    pub(crate) fn remove(&self, key: &CacheKey) -> Result<bool, StoreError> {
        let state = self.load(key)?;
        let data = found(self.disk.open(key.data()))?;
        let (has_state, has_data) = match (&state, &data) {
            (Some(DecodedState::Foreign), _) => return Err(StoreError::Foreign),
            (Some(_), data) => (true, data.is_some()),
            (None, Some(data)) if is_unclaimed(&**data)? => (false, true),
            (None, Some(_)) => return Err(StoreError::Foreign),
            (None, None) => {
                // Another program may have removed it.
                self.journal.removed(key);
                return Ok(false);
            }
        };
        self.unlink(key, has_data, has_state)?;
        Ok(true)
    }

    /// Removes parts of a file that nobody has open. The claim ends before the space is freed, so it is true after a power
    /// cut at any point. All space of a part is freed, also what an earlier removal has left. Without any bytes that are
    /// left, and if the file has no parts, the files are removed. `None` if there were none.
    ///
    /// If the disk is too full for another state file or for a hole in the data, the whole file is removed, if
    /// `may_go_whole`. It is also removed if the disk cannot free parts any longer, or cannot tell whether clients read the
    /// file directly: they keep a file that is removed.
    pub(crate) fn remove_parts(
        &self,
        key: &CacheKey,
        parts: &FilePartsToRemove,
        may_go_whole: bool,
    ) -> Result<Option<RemainingFile>, StoreError> {
        let remove = || {
            let was_there = self.remove(key)?;
            if was_there {
                self.remove_empty_directories(key);
            }
            Ok(was_there.then(RemainingFile::default))
        };
        let (mut state, data) = match (self.load(key)?, found(self.disk.open(key.data()))?) {
            (Some(DecodedState::Valid(state)), Some(data)) => (state, data),
            _ => return remove(),
        };
        let block_bytes = state.cinfo.block_bytes;
        let Some(layout) = PartLayout::new(state.cinfo.file_bytes, self.part_bytes(), block_bytes) else {
            return remove();
        };
        let parts = match parts {
            FilePartsToRemove::Parts(parts) => parts.clone(),
            FilePartsToRemove::AtLeast(bytes) => layout.last_parts(&state.cinfo.blocks, *bytes),
        };
        let ranges: Vec<Range<u64>> = parts.iter().map(|part| layout.blocks_of(*part)).collect();
        match Self::check_unread(&*data) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(error.into()),
            Err(_) => return remove(),
            Ok(()) => {}
        }
        // If what an earlier removal has left cannot be freed, nothing more is given up.
        let earlier = self.free_empty_parts(&state, &*data);
        let before = state.stored_bytes();
        for block in ranges.iter().cloned().flatten() {
            state.cinfo.blocks.remove(block);
            state.checksums.set(block, None);
        }
        let left = state.stored_bytes();
        if left == 0 {
            return remove();
        }
        let result = (|| {
            earlier?;
            if left != before {
                self.journal.started(key);
                self.replace_state(key, &state.encode(), state.cinfo.file_bytes)?;
                self.journal.stored(key, left, state.last_use());
            }
            ranges.iter().try_for_each(|blocks| self.discard(&*data, blocks, block_bytes))
        })();
        match result {
            Err(error) if may_go_whole && is_full(&error) || is_unsupported(&error) => remove(),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(Some(RemainingFile { bytes: left, parts: ranges.len() as u64 })),
        }
    }

    /// Learns whether the disk can free a part of a file, if there are to be parts and that is not known.
    ///
    /// # Errors
    /// Errors of the disk, also of a full one. It is not known then.
    pub(crate) fn try_discard(&self) -> io::Result<()> {
        if self.wanted_part_bytes.is_none() || self.can_discard().is_some() {
            return Ok(());
        }
        let (path, file) = self.temporary()?;
        let freed = file.discard(0, PROBE_BYTES);
        // The next start removes it otherwise.
        self.disk.remove(&path).ok();
        match freed {
            Err(error) if !is_unsupported(&error) => return Err(error),
            freed => *self.can_discard() = Some(freed.is_ok()),
        }
        Ok(())
    }

    /// Frees the space of the parts of a file of which nothing is stored, if its data has more space than is stored.
    pub(super) fn free_empty_parts(&self, state: &StoredState, data: &dyn CacheDiskFile) -> io::Result<()> {
        let block_bytes = state.cinfo.block_bytes;
        let layout = PartLayout::new(state.cinfo.file_bytes, self.part_bytes(), block_bytes);
        let allocated = data.status()?.allocated;
        let has_more = allocated > state.stored_bytes().saturating_add(block_bytes);
        let empty = layout.filter(|_| has_more).map(|layout| layout.empty_parts(&state.cinfo.blocks));
        empty.iter().flatten().try_for_each(|blocks| self.discard(data, blocks, block_bytes))
    }

    /// Frees the space of blocks. If the disk cannot do that, there are no parts any longer.
    pub(super) fn discard(
        &self,
        data: &dyn CacheDiskFile,
        blocks: &Range<u64>,
        block_bytes: u64,
    ) -> io::Result<()> {
        // All of the last block, also behind the end of the file, because only whole pages are freed.
        let length = blocks.end.saturating_sub(blocks.start).saturating_mul(block_bytes);
        if length == 0 {
            return Ok(());
        }
        Self::check_unread(data)?;
        data.discard(blocks.start.saturating_mul(block_bytes), length).inspect_err(|error| {
            if is_unsupported(error) {
                *self.can_discard() = Some(false);
            }
        })
    }

    /// Returns an error if clients may read data directly, because they would find zeros in space that is freed: it has a
    /// second name, or had one and is open elsewhere.
    pub(super) fn check_unread(data: &dyn CacheDiskFile) -> io::Result<()> {
        let is_read = data.has_attribute(SECOND_NAME_ATTRIBUTE)?
            && (data.status()?.names > 1 || data.is_open_elsewhere()?);
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another program reads it directly");
        if is_read { Err(busy()) } else { Ok(()) }
    }

    /// Removes the mark of data that has had a second name, if it has none and is not open elsewhere. Returns whether that is
    /// so. The caller sees to it that it does not get a name meanwhile.
    pub(crate) fn unmark(data: &dyn CacheDiskFile) -> io::Result<bool> {
        if data.status()?.names > 1 || data.is_open_elsewhere()? {
            return Ok(false);
        }
        // With it, the question above is asked before each removal of a part.
        data.remove_attribute(SECOND_NAME_ATTRIBUTE)?;
        Ok(true)
    }

    /// Returns an error if the disk cannot give second names, or cannot tell whether other programs have a file open.
    pub(crate) fn check_names(&self, second: &LogicalPath) -> io::Result<()> {
        let (path, file) = self.temporary()?;
        // Nobody has it open beside this function.
        let is_open = (|| {
            let before = file.is_open_elsewhere()?;
            let _other = self.disk.open(&path)?;
            match (before, file.is_open_elsewhere()?) {
                (false, true) => Ok(()),
                _ => Err(io::Error::other("the file system does not tell whether a file is open")),
            }
        })();
        let named = self.disk.add_name(&path, second).and_then(|()| self.disk.remove(second));
        self.disk.remove(&path)?;
        is_open.and(named)
    }

    /// Reports whether there is data that a cache has marked as its own.
    pub(crate) fn is_unclaimed(&self, key: &CacheKey) -> bool {
        self.disk.open(key.data()).is_ok_and(|data| data.has_attribute(DATA_ATTRIBUTE).unwrap_or(false))
    }

    /// Reports whether there is a state without data, which a crash during a removal leaves.
    pub(crate) fn has_state_only(&self, key: &CacheKey) -> bool {
        matches!(found(self.disk.open(key.data())), Ok(None))
            && matches!(self.load(key), Ok(Some(DecodedState::Valid(_))))
    }

    /// Removes the data before the state, because data alone cannot be identified after a crash.
    pub(super) fn unlink(&self, key: &CacheKey, has_data: bool, has_state: bool) -> io::Result<()> {
        self.journal.started(key);
        if has_data {
            self.disk.remove(key.data())?;
        }
        if has_state {
            self.disk.remove(&key.state())?;
        }
        self.journal.removed(key);
        self.note_removal(key.directory())
    }

    /// Records that names in a directory may come back after a power cut.
    fn note_removal(&self, directory: LogicalPath) -> io::Result<()> {
        let mut unsynced = self.unsynced();
        let is_known = unsynced.directories.contains_key(&directory);
        let is_full = !is_known && unsynced.directories.len() >= UNSYNCED_MAX;
        let another = unsynced.directories.keys().next().filter(|_| is_full).cloned();
        unsynced.removals += 1;
        let number = unsynced.removals;
        unsynced.directories.insert(directory, number);
        drop(unsynced);
        another.map_or(Ok(()), |another| self.sync_names(&another))
    }

    /// Makes all removals durable.
    pub(crate) fn sync_removals(&self) -> io::Result<()> {
        let directories: Vec<_> = self.unsynced().directories.keys().cloned().collect();
        directories.iter().try_for_each(|directory| self.sync_names(directory))
    }

    /// Makes the names in a directory durable. It may have been removed because it is empty.
    pub(super) fn sync_names(&self, directory: &LogicalPath) -> io::Result<()> {
        let before = self.unsynced().directories.get(directory).copied();
        let mut nearest = directory.clone();
        loop {
            match (self.disk.sync_directory(&nearest), nearest.parent()) {
                (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => nearest = above,
                (other, _) => break other?,
            }
        }
        let mut unsynced = self.unsynced();
        if unsynced.directories.get(directory).copied() == before {
            unsynced.directories.remove(directory);
        }
        Ok(())
    }

    /// Removes the files of keys as [`StoreContext::remove`] does, and directories that are empty then.
    pub(crate) fn remove_all(&self, keys: &[CacheKey]) -> Vec<Result<bool, StoreError>> {
        let remove = |key: &CacheKey| {
            let removed = self.remove(key);
            if matches!(removed, Ok(true)) {
                self.remove_empty_directories(key);
            }
            removed
        };
        keys.iter().map(remove).collect()
    }

    /// Removes the directories of a file that has gone, as far as they are empty.
    pub(crate) fn remove_empty_directories(&self, key: &CacheKey) {
        let mut directory = key.directory();
        while let Some(above) = directory.parent() {
            if self.disk.remove_directory(&directory).is_err() {
                break;
            }
            directory = above;
        }
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Reports whether the disk, or the quota of its user, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Returns a file; `None` if it does not exist. Anything but a plain file is foreign.
pub(crate) fn found(
    opened: io::Result<Arc<dyn CacheDiskFile>>,
) -> Result<Option<Arc<dyn CacheDiskFile>>, StoreError> {
    let Err(error) = opened else { return Ok(opened.ok()) };
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Ok(None),
        Some(Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::MLINK | Errno::NOTBLK) => {
            Err(StoreError::Foreign)
        }
        _ => Err(error.into()),
    }
}

/// Reports whether data without a state file is that of a cache that was stopped before it could claim it.
pub(super) fn is_unclaimed(data: &dyn CacheDiskFile) -> io::Result<bool> {
    Ok(data.has_attribute(DATA_ATTRIBUTE)? || data.status()?.size == 0)
}
