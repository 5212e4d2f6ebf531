//! Commands of an administrator for blocked files: undo the changes of a checkpoint, or keep them.
//!
//! The server cannot decide this itself, because it cannot prove that the file at the path is the
//! one of the checkpoint.

use super::blocked::BlockedFile;
use super::number::forget_number;
use super::record::{JournalContent, JournalHead, JournalReader};
use super::{CheckpointTable, restore};
use crate::admin_claims::{AdminOrders, ClaimedFile, ClaimedName};
use crate::checksum::stored;
use crate::errno::{self, os};
use crate::proof;
use base::{Error, ErrorKind, LogicalPath};
use std::fmt;
use std::io;
use std::sync::Arc;
use storage::StorageUser;

/// The decision about a blocked file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointOrder {
    /// Undo the changes in the file that is at the path now.
    Apply {
        /// Undo them even if nothing proves that it is the file of the checkpoint.
        force: bool,
    },
    /// Keep the file as it is.
    Discard,
}

/// The effect of undoing a checkpoint on a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointEffect {
    /// Number of ranges that are written back.
    pub ranges: usize,
    /// Total length of these ranges in bytes.
    pub bytes: u64,
    /// Present size of the file in bytes.
    pub size: u64,
    /// Size before the checkpoint, which is restored.
    pub size_before: u64,
    /// The number in the file's attribute, or its inode and time of birth, prove that it is the
    /// file of the checkpoint.
    pub is_proven: bool,
}

impl fmt::Display for CheckpointEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranges, bytes, size, size_before, .. } = self;
        write!(f, "{bytes} bytes in {ranges} ranges written back, size {size} -> {size_before} bytes")
    }
}

impl CheckpointTable {
    /// Returns the account in the journal of the checkpoint that blocks a path.
    fn account_at(&self, path: &LogicalPath) -> Option<Arc<StorageUser>> {
        let blocked = self.blocked.at(path)?;
        match JournalReader::new(self.directory.as_ref(), &blocked.journal).content() {
            Ok(JournalContent::Entries(head, _)) => head.account,
            _ => None,
        }
    }
}

/// The journal of a checkpoint, and its effect on a file.
struct UndoJournal<'a> {
    reader: JournalReader<'a>,
    head: JournalHead,
    places: Vec<u64>,
    effect: CheckpointEffect,
}

impl<'a> UndoJournal<'a> {
    /// Computes the effect of undoing. Nothing is changed.
    fn plan(reader: JournalReader<'a>, target: &ClaimedFile) -> io::Result<Self> {
        let JournalContent::Entries(head, places) = reader.content()? else {
            return Err(io::Error::other("its journal cannot be read"));
        };
        let is_proven = match &head.proof {
            Some(proof) => proof.is_proven_by(target.file.as_ref(), proof::CHECKPOINT)?,
            // Journals of version 1 contain only the inode number, which other files may have too.
            None => false,
        };
        let mut effect = CheckpointEffect {
            ranges: places.len(),
            bytes: 0,
            size: target.metadata.size,
            size_before: head.size,
            is_proven,
        };
        for place in &places {
            let entry = reader.entry(*place)?.ok_or_else(|| os(errno::INPUT_OUTPUT))?;
            effect.bytes += entry.bytes.len() as u64;
        }
        Ok(Self { reader, head, places, effect })
    }
}

impl AdminOrders {
    /// Returns the files whose checkpoint is neither committed nor undone.
    pub(crate) fn blocked_files(&self) -> Vec<BlockedFile> {
        self.checkpoints.blocked.all()
    }

    /// Resolves the checkpoint of a blocked file, and returns the effect on the file. Blocks.
    pub(crate) fn resolve_checkpoint(
        &self,
        path: &LogicalPath,
        order: CheckpointOrder,
    ) -> Result<Option<CheckpointEffect>, Error> {
        let (verb, write) = match order {
            CheckpointOrder::Apply { .. } => ("apply checkpoint to", true),
            CheckpointOrder::Discard => ("discard checkpoint of", false),
        };
        let checkpoints = &self.checkpoints;
        let refuse = |kind, path: &LogicalPath, why: &str| {
            Error::new(kind, format!("Unable to {verb} {}; {why}", path.escaped()))
        };
        let account = checkpoints.account_at(&path.without_slash());
        let claimed = ClaimedName::take(self, path, verb, (write, account))?;
        let path = &claimed.path;
        let Some(blocked) = checkpoints.blocked.at(path) else {
            return Err(refuse(ErrorKind::NotFound, path, "no unresolved checkpoint blocks it"));
        };
        let done = match (order, &claimed.file) {
            (CheckpointOrder::Apply { force }, Some(target)) => {
                let effect = self.undo_in(path, &blocked, target, force).map_err(|error| match error {
                    UndoError::Unproven(effect) => refuse(ErrorKind::Conflict, path, &unproven(&effect)),
                    UndoError::Failed(error) => Error::unable(verb, path, error),
                })?;
                Some(effect)
            }
            (CheckpointOrder::Apply { .. }, None) => {
                let nothing = || refuse(ErrorKind::NotFound, path, "no file is there");
                return Err(claimed.obstacle.unwrap_or_else(nothing));
            }
            (CheckpointOrder::Discard, _) => None,
        };
        checkpoints.set_aside(&blocked.journal, path).map_err(|e| Error::unable(verb, path, e))?;
        if let Some(target) = &claimed.file {
            forget_number(target.file.as_ref());
        }
        checkpoints.blocked.unblock(path);
        let (journal, done_text) =
            (blocked.journal, done.as_ref().map_or_else(|| "kept".to_owned(), ToString::to_string));
        tracing::info!(path = %path.shown(), journal, done = done_text, "an administrator resolved a checkpoint");
        Ok(done)
    }

    /// Writes the overwritten bytes back to a file that is proven to be the right one, or to any
    /// file with `force`.
    fn undo_in(
        &self,
        path: &LogicalPath,
        blocked: &BlockedFile,
        target: &ClaimedFile,
        force: bool,
    ) -> Result<CheckpointEffect, UndoError> {
        let checkpoints = &self.checkpoints;
        let reader = JournalReader::new(checkpoints.directory.as_ref(), &blocked.journal);
        let UndoJournal { reader, head, places, effect } = UndoJournal::plan(reader, target)?;
        if !effect.is_proven && !force {
            return Err(UndoError::Unproven(effect));
        }
        if checkpoints.is_active(target.key()) {
            // A client started another checkpoint of this file under another name.
            return Err(os(errno::TEXT_BUSY).into());
        }
        stored::drop_all(&self.checksums.memory, target.file.as_ref(), path, target.key());
        restore(target.file.as_ref(), &reader, &head, &places)?;
        Ok(effect)
    }
}

/// The reason why changes were not undone.
enum UndoError {
    /// Nothing proves that the file is the one of the checkpoint.
    Unproven(CheckpointEffect),
    /// The disk or the journal failed.
    Failed(io::Error),
}

impl From<io::Error> for UndoError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn unproven(effect: &CheckpointEffect) -> String {
    format!(
        "nothing proves that this file is the one of the checkpoint. Undoing does: {effect}. Compare the file with a copy, and \
         use --force if it is the right one; nothing was changed"
    )
}
