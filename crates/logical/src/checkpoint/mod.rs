//! Checkpoints: changes to an open file that can be undone, even after a crash of the server.
//!
//! Before each change, the bytes that it overwrites are saved in the journal of the checkpoint
//! ([`record`]) and synced. Undoing writes the saved bytes back in reverse order, restores the size
//! and removes the journal. Committing syncs the changes and removes the journal. Therefore,
//! whenever the server stops, the file is as before the checkpoint, or the next start
//! restores it from the journal before any client can open it.

mod blocked;
mod number;
mod record;
mod resolving;

use crate::config::Checkpoints as Config;
use crate::copy_withdrawal;
use crate::errno::{self, os};
use crate::journal::{Journal, JournalDirectory};
use crate::proof::{self, Proof, ProofSearch};
use crate::rights::with_rights;
use crate::writers::FileKey;
use base::LogicalPath;
use blocked::BlockedFiles;
pub use blocked::{BlockedFile, CheckpointBlock};
use number::{forget_number, set_number};
use record::{JournalContent, JournalHead, JournalReader, OverwrittenBytes, SAVED_BYTES_MAX};
pub use resolving::{CheckpointEffect, CheckpointOrder};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Backend, FileIdentity, OpenMode, StorageUser, StoredFile};

/// Suffix of a journal's name.
const SUFFIX: &str = ".checkpoint";
/// Additional suffix of a journal whose file was removed or replaced.
const ASIDE_SUFFIX: &str = ".replaced";

/// All checkpoints of the server.
pub(crate) struct CheckpointTable {
    pub(crate) config: Config,
    directory: Arc<dyn JournalDirectory>,
    next: AtomicU64,
    /// Files with an active checkpoint, by device and inode.
    active: Mutex<HashMap<FileKey, LogicalPath>>,
    count: AtomicUsize,
    /// Files that could not be restored and must not be used as if they had been.
    blocked: BlockedFiles,
}

impl CheckpointTable {
    /// Undoes the checkpoints that an earlier run left uncommitted. Files that cannot be restored
    /// are blocked.
    pub(crate) fn new(
        config: Config,
        directory: Arc<dyn JournalDirectory>,
        backend: &dyn Backend,
    ) -> io::Result<Self> {
        let blocked = BlockedFiles::new(config.on_failure);
        let checkpoints = Self {
            config,
            directory,
            next: AtomicU64::new(1),
            active: Mutex::default(),
            count: AtomicUsize::new(0),
            blocked,
        };
        for name in checkpoints.directory.names()? {
            let aside = name.strip_suffix(ASIDE_SUFFIX);
            let Some(number) = aside.unwrap_or(&name).strip_suffix(SUFFIX) else { continue };
            // The numbers of journals set aside are not reused, otherwise those journals would be
            // overwritten.
            if let Ok(number) = number.parse::<u64>() {
                checkpoints.next.fetch_max(number.saturating_add(1), Ordering::Relaxed);
            }
            if aside.is_some() {
                continue;
            }
            checkpoints.recover(&name, backend)?;
        }
        Ok(checkpoints)
    }

    fn recover(&self, name: &str, backend: &dyn Backend) -> io::Result<()> {
        let reader = JournalReader::new(self.directory.as_ref(), name);
        let (head, places) = match reader.content()? {
            JournalContent::Unborn => return self.directory.remove(name),
            JournalContent::Unknown(version) => {
                tracing::error!(
                    name,
                    version,
                    "the journal of a checkpoint has an unknown version and is left unchanged; run the release that wrote it"
                );
                return Ok(());
            }
            JournalContent::Entries(head, places) => (head, places),
        };
        let path = &head.path;
        let account = head.account.as_ref();
        let restored =
            with_rights(backend, account, |backend| restore_by_path(backend, &reader, &head, &places));
        match restored {
            Ok(ProofSearch::Same) => {
                tracing::warn!(path = %path.shown(), "undid an uncommitted checkpoint of an earlier run");
                self.directory.remove(name)?;
                let _ = with_rights(backend, account, |backend| {
                    backend.remove_attribute(path, proof::CHECKPOINT)
                });
                Ok(())
            }
            Ok(ProofSearch::Replaced) => self.set_aside(name, path),
            Ok(ProofSearch::NotThere(directory) | ProofSearch::Unreadable(directory)) => {
                tracing::error!(
                    path = %path.shown(), directory = %directory.shown(), name, journals = self.directory.location(),
                    "the file of an uncommitted checkpoint is missing, and its directory has changed: mount its file \
                     system and restart the server; if the tree was moved or restored from a copy, compare the file and run \
                     'scalla admin checkpoint apply PATH' or 'scalla admin checkpoint discard PATH'; until then the file is \
                     neither read nor written"
                );
                self.blocked.block(path, name, CheckpointBlock::Unresolved, files_of(&head, backend));
                Ok(())
            }
            Err(error) => {
                tracing::error!(path = %path.shown(), name, %error, "cannot undo a checkpoint; its file is blocked until a restart or 'scalla admin checkpoint apply PATH'");
                self.blocked.block(path, name, CheckpointBlock::Failed, files_of(&head, backend));
                Ok(())
            }
        }
    }

    fn active(&self) -> MutexGuard<'_, HashMap<FileKey, LogicalPath>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files whose checkpoint could not be undone.
    pub(crate) fn blocked(&self) -> &BlockedFiles {
        &self.blocked
    }

    /// Reports whether a file at or below `path` must keep its name, so that recovery finds it.
    pub(crate) fn keeps_names_below(&self, path: &LogicalPath) -> bool {
        self.is_active_below(path) || self.blocked.is_any_below(path)
    }

    /// Sets the checkpoint of a removed file aside and unblocks its path.
    pub(crate) fn removed(&self, path: &LogicalPath) {
        let Some(BlockedFile { journal, .. }) = self.blocked.at(path) else { return };
        match self.set_aside(&journal, path) {
            Ok(()) => self.blocked.unblock(path),
            Err(error) => {
                tracing::error!(path = %path.shown(), journal, %error, "cannot rename the journal of the checkpoint of a removed file; its path stays blocked until a restart");
            }
        }
    }

    /// Renames the journal of a checkpoint, so that no start of the server applies it.
    fn set_aside(&self, name: &str, path: &LogicalPath) -> io::Result<()> {
        let kept = format!("{name}{ASIDE_SUFFIX}");
        let content = self.directory.read(name)?;
        drop(self.directory.replace(&kept, &content)?);
        tracing::warn!(path = %path.shown(), kept, "the file of a checkpoint was removed, replaced or resolved; its journal was renamed and will not be applied");
        self.directory.remove(name)
    }

    /// Returns the number of files with an active checkpoint.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Reports whether a file at or below `path` has an active checkpoint.
    pub(crate) fn is_active_below(&self, path: &LogicalPath) -> bool {
        self.count() > 0 && self.active().values().any(|file| file.is_within(path))
    }

    /// Reports whether this file has an active checkpoint, under any name.
    pub(crate) fn is_active(&self, key: FileKey) -> bool {
        self.count() > 0 && self.active().contains_key(&key)
    }

    /// Starts a checkpoint of a file that `account` changes. Blocks.
    pub(crate) fn begin(
        self: &Arc<Self>,
        path: &LogicalPath,
        file: &Arc<dyn StoredFile>,
        (backend, account): (&dyn Backend, Option<&Arc<StorageUser>>),
    ) -> io::Result<FileCheckpoint> {
        let metadata = file.stat()?;
        let key = FileKey::from(&metadata);
        // The new number would replace that of the checkpoint that blocks the file.
        self.blocked.check_open(path, (key, file.as_ref()), true)?;
        {
            let mut active = self.active();
            if active.contains_key(&key) {
                return Err(os(errno::EXISTS));
            }
            active.insert(key, path.clone());
            self.count.store(active.len(), Ordering::Release);
        }
        let name = format!("{}{SUFFIX}", self.next.fetch_add(1, Ordering::Relaxed));
        // From here on, dropping `place` removes the entry from the table.
        let place = ActiveCheckpoint { all: self.clone(), key, name };
        let proof = Proof::of(backend, path, file.as_ref(), set_number(file.as_ref())?)?;
        let (inode, size) = (metadata.inode, metadata.size);
        let account = account.cloned();
        let head = JournalHead { path: path.clone(), inode, size, proof: Some(proof.clone()), account };
        let journal = self.start_journal(&place.name, &head)?;
        Ok(FileCheckpoint {
            place,
            path: path.clone(),
            identity: proof.file(),
            file: file.clone(),
            journal,
            size: metadata.size,
            least: metadata.size,
            used: 0,
            entries: 0,
            torn: false,
            settled: false,
        })
    }

    fn start_journal(&self, name: &str, head: &JournalHead) -> io::Result<Box<dyn Journal>> {
        let started = self.directory.create(name).and_then(|mut journal| {
            journal.append(&head.encode())?;
            journal.sync()?;
            Ok(journal)
        });
        // A journal that remained would be applied at the next start, although it protects nothing.
        if started.is_err()
            && let Err(error) = self.directory.remove(name)
        {
            tracing::error!(path = %head.path.shown(), name, %error, "cannot start a checkpoint, and cannot remove its journal; remove the journal by hand");
            let file = head.proof.as_ref().map(Proof::file);
            self.blocked.block(&head.path, name, CheckpointBlock::Failed, file);
        }
        started
    }
}

/// The entry of a file in the table of active checkpoints, until dropped.
struct ActiveCheckpoint {
    all: Arc<CheckpointTable>,
    key: FileKey,
    name: String,
}

impl Drop for ActiveCheckpoint {
    fn drop(&mut self) {
        let mut active = self.all.active();
        active.remove(&self.key);
        self.all.count.store(active.len(), Ordering::Release);
    }
}

/// An active checkpoint of an open file.
pub(crate) struct FileCheckpoint {
    place: ActiveCheckpoint,
    path: LogicalPath,
    identity: FileIdentity,
    file: Arc<dyn StoredFile>,
    journal: Box<dyn Journal>,
    /// Size before the first change, in bytes.
    size: u64,
    /// Smallest size since then. Bytes above it were saved already or did not exist.
    least: u64,
    used: u64,
    /// Number of entries known to be in the journal.
    entries: usize,
    /// An append failed midway, so that later entries could not be read.
    torn: bool,
    /// The checkpoint was committed or undone.
    settled: bool,
}

impl Drop for FileCheckpoint {
    fn drop(&mut self) {
        // Only a panic gets here. The next start would apply the journal over all later changes, so
        // the file is blocked.
        if !self.settled {
            self.block();
        }
    }
}

impl FileCheckpoint {
    /// Returns the number of bytes saved.
    pub(crate) fn used(&self) -> u32 {
        u32::try_from(self.used).unwrap_or(u32::MAX)
    }

    /// Saves the bytes that a write will overwrite. EDQUOT if they exceed the limit; then nothing
    /// is saved.
    pub(crate) fn before_write(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.save(offset, offset.saturating_add(length).min(self.least))
    }

    /// Saves the bytes that a truncation will remove.
    pub(crate) fn before_truncate(&mut self, size: u64) -> io::Result<()> {
        self.save(size, self.least)?;
        self.least = self.least.min(size);
        Ok(())
    }

    fn save(&mut self, from: u64, to: u64) -> io::Result<()> {
        if from >= to {
            return Ok(());
        }
        let max = u64::from(self.place.all.config.bytes_max);
        if to - from > max.saturating_sub(self.used) {
            return Err(os(errno::OVER_QUOTA));
        }
        if self.torn {
            return Err(os(errno::INPUT_OUTPUT));
        }
        let mut at = from;
        while at < to {
            let mut bytes = vec![0; (to - at).min(SAVED_BYTES_MAX as u64) as usize];
            let read = self.file.read(at, &mut bytes)?;
            bytes.truncate(read);
            if bytes.is_empty() {
                break; // truncated by another writer meanwhile
            }
            self.torn = true;
            self.journal.append(&OverwrittenBytes { offset: at, bytes }.encode())?;
            self.torn = false;
            self.entries += 1;
            at += read as u64;
        }
        self.torn = true;
        self.journal.sync()?;
        self.torn = false;
        self.used += to - from;
        Ok(())
    }

    /// Commits the changes.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.place.all.directory.remove(&self.place.name)?;
        self.settled = true;
        forget_number(self.file.as_ref());
        Ok(())
    }

    /// Undoes the changes. If that fails, the file is blocked until a restart restores it.
    pub(crate) fn roll_back(&mut self) -> io::Result<()> {
        let undone = self.undo();
        self.settled = true;
        if let Err(error) = &undone {
            tracing::error!(path = %self.path.shown(), %error, "cannot undo a checkpoint; its file is blocked until a restart or 'scalla admin checkpoint apply PATH'");
            self.block();
        }
        undone
    }

    fn block(&self) {
        let ActiveCheckpoint { all, name, .. } = &self.place;
        all.blocked.block(&self.path, name, CheckpointBlock::Failed, [self.identity]);
    }

    fn undo(&self) -> io::Result<()> {
        let reader = JournalReader::new(self.place.all.directory.as_ref(), &self.place.name);
        match reader.content()? {
            JournalContent::Entries(head, places)
                if head.size == self.size && places.len() >= self.entries =>
            {
                restore(self.file.as_ref(), &reader, &head, &places)?;
            }
            _ => return Err(os(errno::INPUT_OUTPUT)),
        }
        self.place.all.directory.remove(&self.place.name)?;
        forget_number(self.file.as_ref());
        Ok(())
    }
}

/// Returns the possible files of a checkpoint: the one that its journal names, and the one at its
/// path.
fn files_of(head: &JournalHead, backend: &dyn Backend) -> impl Iterator<Item = FileIdentity> {
    let named = head.proof.as_ref().map(Proof::file);
    let found = backend.identity(&head.path).ok();
    named.into_iter().chain(found)
}

/// Writes the overwritten bytes back in reverse order and restores the size.
fn restore(
    file: &dyn StoredFile,
    reader: &JournalReader<'_>,
    head: &JournalHead,
    places: &[u64],
) -> io::Result<()> {
    copy_withdrawal::withdraw(file)?;
    for at in places.iter().rev() {
        let entry = reader.entry(*at)?.ok_or_else(|| os(errno::INPUT_OUTPUT))?;
        file.write(entry.offset, &entry.bytes)?;
    }
    file.truncate(head.size)?;
    file.sync()
}

/// Restores the file at a path, if it is the one of the checkpoint.
fn restore_by_path(
    backend: &dyn Backend,
    reader: &JournalReader<'_>,
    head: &JournalHead,
    places: &[u64],
) -> io::Result<ProofSearch> {
    let finding = match &head.proof {
        Some(proof) => proof.find(backend, &head.path, proof::CHECKPOINT),
        // Only the inode number is known, and a file on another file system may have the same one.
        None => ProofSearch::NotThere(head.path.clone()),
    };
    if finding == ProofSearch::Same {
        let how = OpenMode { write: true, ..OpenMode::default() };
        restore(backend.open(&head.path, &how)?.as_ref(), reader, head, places)?;
    }
    Ok(finding)
}
