//! The table of unfinished files: the owner and the hold time of each file. It is plain data
//! without I/O, so that its lock is never held while a disk is accessed.

use super::log::UnfinishedRecord;
use crate::writers::FileKey;
use base::LogicalPath;
use std::collections::HashMap;
use std::time::Duration;
use storage::Metadata;

/// The ticket of a handle for an unfinished file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingTicket {
    pub(super) number: u64,
    pub(super) ticket: u64,
    /// The handle that owned the file before.
    pub(super) before: u64,
}

/// An unfinished file.
pub(super) struct PendingFile {
    pub(super) record: UnfinishedRecord,
    /// Device and inode of the file, once it exists.
    pub(super) file: Option<FileKey>,
    /// Number of handles that write it.
    pub(super) holders: u32,
    /// The owner: the last handle that opened it.
    pub(super) owner: u64,
    /// Time of its removal, while no handle holds it.
    pub(super) expires: Option<Duration>,
    /// It is being removed.
    pub(super) leaving: bool,
    /// A write of a handle failed, so the content differs from what a client sent.
    pub(super) failed: bool,
}

impl PendingFile {
    pub(super) fn new(record: UnfinishedRecord, holders: u32, owner: u64, expires: Option<Duration>) -> Self {
        Self { record, file: None, holders, owner, expires, leaving: false, failed: false }
    }
}

#[derive(Default)]
pub(super) struct PendingTable {
    pub(super) files: HashMap<u64, PendingFile>,
    pub(super) by_path: HashMap<LogicalPath, u64>,
    /// Numbers by device and inode.
    by_file: HashMap<FileKey, u64>,
    pub(super) next_number: u64,
    pub(super) next_ticket: u64,
}

impl PendingTable {
    pub(super) fn at(&mut self, path: &LogicalPath) -> Option<&mut PendingFile> {
        let number = self.by_path.get(path)?;
        self.files.get_mut(number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<PendingFile> {
        let pending = self.files.remove(&number)?;
        if self.by_path.get(&pending.record.path) == Some(&number) {
            self.by_path.remove(&pending.record.path);
        }
        if let Some(file) = pending.file.filter(|file| self.by_file.get(file) == Some(&number)) {
            self.by_file.remove(&file);
        }
        Some(pending)
    }

    /// Records the device and inode of a file.
    pub(super) fn set_file(&mut self, number: u64, metadata: &Metadata) {
        let file = FileKey::from(metadata);
        if let Some(pending) = self.files.get_mut(&number) {
            pending.file = Some(file);
            self.by_file.insert(file, number);
        }
    }

    /// Adds a file, or one that was removed from the table.
    pub(super) fn insert(&mut self, pending: PendingFile) {
        let number = pending.record.number;
        self.by_path.insert(pending.record.path.clone(), number);
        if let Some(file) = pending.file {
            self.by_file.insert(file, number);
        }
        self.files.insert(number, pending);
    }

    /// Adds a file and replaces an earlier one at its path.
    pub(super) fn replace(&mut self, pending: PendingFile) {
        if let Some(earlier) = self.by_path.get(&pending.record.path).copied() {
            self.remove(earlier);
        }
        self.insert(pending);
    }

    /// Reports whether this file is unfinished.
    pub(super) fn has_file(&self, metadata: &Metadata) -> bool {
        self.by_file.contains_key(&FileKey::from(metadata))
    }

    /// Returns the path of the record of this file.
    pub(super) fn path_of_file(&self, metadata: &Metadata) -> Option<LogicalPath> {
        let number = self.by_file.get(&FileKey::from(metadata))?;
        self.files.get(number).map(|pending| pending.record.path.clone())
    }

    /// Decides about a file after the close of a handle. A file that is kept for its creator
    /// expires at `expires`. The handle no longer holds the file afterwards, unless the result is
    /// [`CloseDecision::Whole`].
    pub(super) fn close_handle(
        &mut self,
        ticket: PendingTicket,
        failed: bool,
        expires: Duration,
    ) -> CloseDecision {
        let Some(pending) = self.files.get_mut(&ticket.number) else { return CloseDecision::Kept };
        let is_owner = pending.owner == ticket.ticket;
        let spoiled = pending.failed;
        if is_owner && !failed && !spoiled {
            return CloseDecision::Whole;
        }
        pending.holders = pending.holders.saturating_sub(1);
        pending.failed |= failed;
        if failed && (is_owner || pending.holders == 0) {
            pending.leaving = true;
            return CloseDecision::Doomed;
        }
        match (is_owner, pending.holders) {
            (false, 1..) => return CloseDecision::Kept,
            (_, 0) => pending.expires = Some(expires),
            _ => {}
        }
        if is_owner { CloseDecision::Spoiled } else { CloseDecision::Orphan }
    }
}

/// The decision about a file after the close of a handle.
pub(super) enum CloseDecision {
    /// Other handles hold the file, or it is no longer unfinished.
    Kept,
    /// It has to be completed. The handle holds the file until that has ended.
    Whole,
    /// It has to be removed.
    Doomed,
    /// The owning handle was lost without a close.
    Orphan,
    /// A write of another handle failed.
    Spoiled,
}
