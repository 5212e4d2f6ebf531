//! Files whose uncommitted checkpoint could not be undone, and which are therefore blocked.
//!
//! A file is blocked by its path, and under all its other names as soon as the server knows its
//! identity.

use crate::config::CheckpointFailure;
use crate::errno::{self, os};
use crate::writers::FileKey;
use base::LogicalPath;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use storage::{Backend, FileIdentity, StoredFile};

/// The reason why a file is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointBlock {
    /// Undoing failed. The configuration decides whether the file may be read.
    Failed,
    /// It is unknown whether the file is the one of the checkpoint. It may be half changed, so it
    /// must not be read either.
    Unresolved,
}

/// A file whose checkpoint is neither committed nor undone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedFile {
    /// The path of the file.
    pub path: LogicalPath,
    /// Name of the journal with the overwritten bytes.
    pub journal: String,
    /// The reason for blocking.
    pub block: CheckpointBlock,
}

/// The table of blocked files.
pub(crate) struct BlockedFiles {
    on_failure: CheckpointFailure,
    table: Mutex<BlockedTable>,
    /// Number of blocked files; lets the common case of none pass without the lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct BlockedTable {
    by_path: HashMap<LogicalPath, BlockedFile>,
    /// Blocked files by device and inode. A path has two entries if the file at the path is not the
    /// one that the journal names.
    by_file: HashMap<FileKey, (FileIdentity, LogicalPath)>,
}

impl BlockedFiles {
    /// Creates an empty table. `on_failure` decides how a file may be used whose changes could not
    /// be undone.
    pub(super) fn new(on_failure: CheckpointFailure) -> Self {
        Self { on_failure, table: Mutex::default(), count: AtomicUsize::new(0) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut BlockedTable) -> T) -> T {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut table);
        self.count.store(table.by_path.len(), Ordering::Release);
        result
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn at(&self, path: &LogicalPath) -> Option<BlockedFile> {
        if self.is_empty() { None } else { self.with(|table| table.by_path.get(path).cloned()) }
    }

    pub(super) fn all(&self) -> Vec<BlockedFile> {
        let mut all: Vec<_> = self.with(|table| table.by_path.values().cloned().collect());
        all.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        all
    }

    fn has_file(&self, key: FileKey) -> bool {
        !self.is_empty() && self.with(|table| table.by_file.contains_key(&key))
    }

    /// Returns the entry of a file if its identity is the recorded one.
    fn of_file(
        &self,
        key: FileKey,
        identity: impl FnOnce() -> io::Result<FileIdentity>,
    ) -> io::Result<Option<BlockedFile>> {
        if !self.has_file(key) {
            return Ok(None);
        }
        let found = identity()?;
        Ok(self.with(|table| {
            let (noted, path) = table.by_file.get(&key)?;
            table.by_path.get(path).filter(|_| noted.is_same(&found)).cloned()
        }))
    }

    /// Reports whether a blocked file is at or below `path`.
    pub(super) fn is_any_below(&self, path: &LogicalPath) -> bool {
        !self.is_empty() && self.with(|table| table.by_path.keys().any(|file| file.is_within(path)))
    }

    /// Blocks a path, and these files under all their names.
    pub(super) fn block(
        &self,
        path: &LogicalPath,
        journal: &str,
        block: CheckpointBlock,
        files: impl IntoIterator<Item = FileIdentity>,
    ) {
        let entry = BlockedFile { path: path.clone(), journal: journal.to_owned(), block };
        self.with(|table| {
            table.by_path.insert(path.clone(), entry);
            let files = files.into_iter().map(|file| (FileKey::from(&file), (file, path.clone())));
            table.by_file.extend(files);
        });
    }

    pub(super) fn unblock(&self, path: &LogicalPath) {
        self.with(|table| {
            table.by_path.remove(path);
            table.by_file.retain(|_, (_, named)| named != path);
        });
    }

    /// Checks whether the file at a path may be opened or is blocked.
    pub(crate) fn check_path(&self, path: &LogicalPath, write: bool) -> io::Result<()> {
        self.at(path).map_or(Ok(()), |blocked| self.check(&blocked, write))
    }

    /// Checks whether a file may be opened under any name or is blocked.
    pub(crate) fn check_file(
        &self,
        key: FileKey,
        identity: impl FnOnce() -> io::Result<FileIdentity>,
        write: bool,
    ) -> io::Result<()> {
        self.of_file(key, identity)?.map_or(Ok(()), |blocked| self.check(&blocked, write))
    }

    /// Checks an open file by path and by identity. Waits for the disk only if the file may be
    /// blocked.
    pub(crate) fn check_open(
        &self,
        path: &LogicalPath,
        (key, file): (FileKey, &dyn StoredFile),
        write: bool,
    ) -> io::Result<()> {
        // Fast path: every read gets here, and files are rarely blocked.
        if self.is_empty() {
            return Ok(());
        }
        self.check_path(path, write)?;
        self.check_file(key, || file.identity(), write)
    }

    /// Reports whether a file may be blocked, by its device and inode only. Never waits for the
    /// disk.
    pub(crate) fn may_contain(&self, key: FileKey) -> bool {
        self.has_file(key)
    }

    /// Records the identity of the file at a blocked path that a client requested, because its file
    /// system may have been mounted since.
    pub(crate) fn note_file_at(&self, path: &LogicalPath, backend: &dyn Backend) {
        let Some(asked) = self.at(path) else { return };
        let Ok(found) = backend.identity(path) else { return };
        self.with(|table| {
            // An administrator may have resolved the checkpoint while the identity was read.
            if table.by_path.get(path).is_some_and(|blocked| blocked.journal == asked.journal) {
                table.by_file.insert(FileKey::from(&found), (found, path.clone()));
            }
        });
    }

    fn check(&self, blocked: &BlockedFile, write: bool) -> io::Result<()> {
        match (blocked.block, self.on_failure) {
            (CheckpointBlock::Unresolved, _) => Err(io::Error::other(format!(
                "an uncommitted checkpoint of it must be resolved first: the administrator mounts its file system and restarts \
                 the server, or undoes the changes (scalla admin checkpoint apply {0}) or keeps the file as it is (scalla \
                 admin checkpoint discard {0})",
                blocked.path.shell_word()
            ))),
            (CheckpointBlock::Failed, CheckpointFailure::StopIo) => Err(os(errno::INPUT_OUTPUT)),
            (CheckpointBlock::Failed, CheckpointFailure::MakeReadOnly) if write => Err(os(errno::READ_ONLY)),
            (CheckpointBlock::Failed, CheckpointFailure::MakeReadOnly) => Ok(()),
        }
    }
}
