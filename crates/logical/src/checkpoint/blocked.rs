//! Files whose uncommitted checkpoint could not be undone, and what an administrator does about them.

use super::record::{Content, Reader};
use super::{ASIDE_SUFFIX, Checkpoints, restore};
use crate::config::CheckpointFailure;
use crate::describe;
use crate::errno::{self, os, unable};
use crate::file_system::Logical;
use crate::persist::Scope;
use crate::proof;
use base::{Error, ErrorKind, LogicalPath};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use storage::{Backend, OpenHow, StoredFile};
use vfs::FileKind;

/// Why a file is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointBlock {
    /// Undoing failed. The configuration says whether the file may be read.
    Failed,
    /// Nobody knows whether the file is the one of the checkpoint. It may be half changed, so it is not read either.
    Unresolved,
}

/// A file whose checkpoint is neither committed nor undone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedFile {
    /// Its name.
    pub path: LogicalPath,
    /// The name of the journal that holds what was overwritten.
    pub journal: String,
    /// Why it is blocked.
    pub block: CheckpointBlock,
}

/// All blocked files, by path.
#[derive(Default)]
pub(super) struct BlockedFiles {
    by_path: Mutex<HashMap<LogicalPath, (String, CheckpointBlock)>>,
    /// So that the many reads while there is none pass without the lock.
    count: AtomicUsize,
}

impl BlockedFiles {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<LogicalPath, (String, CheckpointBlock)>) -> T) -> T {
        let mut by_path = self.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut by_path);
        self.count.store(by_path.len(), Ordering::Release);
        result
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn at(&self, path: &LogicalPath) -> Option<(String, CheckpointBlock)> {
        if self.is_empty() { None } else { self.with(|by_path| by_path.get(path).cloned()) }
    }
}

impl Checkpoints {
    pub(super) fn block(&self, path: &LogicalPath, journal: &str, block: CheckpointBlock) {
        self.blocked.with(|by_path| by_path.insert(path.clone(), (journal.to_owned(), block)));
    }

    /// May a file be opened, as far as checkpoints are concerned that could not be undone?
    pub(crate) fn check_open(&self, path: &LogicalPath, write: bool) -> io::Result<()> {
        // Each read asks, and hardly ever is a file blocked.
        if self.blocked.is_empty() { Ok(()) } else { self.check_blocked(path, write) }
    }

    fn check_blocked(&self, path: &LogicalPath, write: bool) -> io::Result<()> {
        let Some((_, block)) = self.blocked.at(path) else { return Ok(()) };
        match (block, self.config.on_failure) {
            (CheckpointBlock::Unresolved, _) => Err(io::Error::other(format!(
                "an uncommitted checkpoint of it must be resolved first: the administrator mounts its file system and restarts \
                 the server, or runs 'scalla admin checkpoint apply {0}' (undo the changes) or 'scalla admin checkpoint \
                 discard {0}' (keep the file as it is)",
                path.text()
            ))),
            (CheckpointBlock::Failed, CheckpointFailure::StopIo) => Err(os(errno::INPUT_OUTPUT)),
            (CheckpointBlock::Failed, CheckpointFailure::MakeReadOnly) if write => Err(os(errno::READ_ONLY)),
            (CheckpointBlock::Failed, CheckpointFailure::MakeReadOnly) => Ok(()),
        }
    }

    /// Reports whether a file at or below `path` must keep its name, so that its checkpoint finds it.
    pub(crate) fn keeps_names_below(&self, path: &LogicalPath) -> bool {
        self.is_active_below(path)
            || !self.blocked.is_empty()
                && self.blocked.with(|by_path| by_path.keys().any(|file| file.is_within(path)))
    }

    /// A blocked file was removed: its checkpoint is kept aside.
    pub(crate) fn removed(&self, path: &LogicalPath) {
        let Some((journal, _)) = self.blocked.at(path) else { return };
        match self.set_aside(&journal, path) {
            Ok(()) => self.unblock(path),
            Err(error) => {
                tracing::error!(path = %path.shown(), journal, %error, "a checkpoint cannot be kept aside");
            }
        }
    }

    fn unblock(&self, path: &LogicalPath) {
        self.blocked.with(|by_path| by_path.remove(path));
    }

    /// Keeps a checkpoint where no start applies it.
    pub(super) fn set_aside(&self, name: &str, path: &LogicalPath) -> io::Result<()> {
        let kept = format!("{name}{ASIDE_SUFFIX}");
        let content = self.folder.read(name)?;
        drop(self.folder.replace(&kept, &content)?);
        tracing::warn!(path = %path.shown(), kept, "a checkpoint is kept aside and not applied");
        self.folder.remove(name)
    }

    /// Writes back what was overwritten, to the file that lies at the path now.
    fn apply(&self, path: &LogicalPath, journal: &str, backend: &dyn Backend) -> io::Result<()> {
        let reader = Reader::new(self.folder.as_ref(), journal);
        let Content::Entries(head, places) = reader.content()? else {
            return Err(io::Error::other(format!("its journal {journal} cannot be read")));
        };
        let file = backend.open(path, &OpenHow { write: true, ..OpenHow::default() })?;
        if describe::kind(&file.stat()?) != FileKind::File {
            return Err(os(errno::INVALID));
        }
        restore(file.as_ref(), &reader, &head, &places)?;
        // Nothing proves that it was the right file.
        self.set_aside(journal, path)?;
        forget_number(file.as_ref());
        Ok(())
    }
}

/// Gives a file the number of a checkpoint, which has reached stable storage then; `None` where it cannot have one.
pub(super) fn set_number(file: &dyn StoredFile) -> io::Result<Option<String>> {
    let number = proof::nonce();
    match file.set_attribute(proof::CHECKPOINT, number.as_bytes(), false) {
        // Otherwise the file could have the number of an earlier checkpoint after a loss of power.
        Ok(()) => file.sync_all().map(|()| Some(number)),
        Err(_) => Ok(None),
    }
}

/// The next checkpoint sets another number, so it does not matter if this one stays.
pub(super) fn forget_number(file: &dyn StoredFile) {
    let _ = file.remove_attribute(proof::CHECKPOINT);
}

impl Logical {
    /// Files whose checkpoint is neither committed nor undone, and which nobody may change.
    pub fn blocked_files(&self) -> Vec<BlockedFile> {
        let mut all: Vec<_> = self.shared.checkpoints.blocked.with(|by_path| {
            let blocked = by_path.iter().map(|(path, (journal, block))| BlockedFile {
                path: path.clone(),
                journal: journal.clone(),
                block: *block,
            });
            blocked.collect()
        });
        all.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        all
    }

    /// Resolves the checkpoint of a blocked file: with `undo` its changes are undone in the file that lies there now, otherwise
    /// the file stays as it is and the checkpoint is kept aside. Blocks.
    pub fn resolve_checkpoint(&self, path: &LogicalPath, undo: bool) -> Result<(), Error> {
        let (shared, path) = (&self.shared, &path.without_slash());
        let verb = if undo { "apply checkpoint to" } else { "discard checkpoint of" };
        shared.export(path, "Resolving")?;
        let claim = shared.persist.claim(&[path], Scope::Name);
        let _claim = claim.ok_or_else(|| unable(verb, path, errno::TEXT_BUSY))?;
        let checkpoints = &shared.checkpoints;
        let Some((journal, _)) = checkpoints.blocked.at(path) else {
            let text = format!("Unable to {verb} {}; no unresolved checkpoint blocks it", path.text());
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let resolved = match undo {
            true => checkpoints.apply(path, &journal, shared.backend.as_ref()),
            false => checkpoints.set_aside(&journal, path),
        };
        resolved.map_err(|e| Error::unable(verb, path, e))?;
        checkpoints.unblock(path);
        let done = if undo { "undone" } else { "discarded" };
        tracing::info!(path = %path.shown(), journal, "by order of the administrator a checkpoint was {done}");
        Ok(())
    }
}
