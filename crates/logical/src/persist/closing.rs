//! The close of a file that persists on close: the file becomes complete, is removed, or is kept
//! for its creator.
//!
//! The order of claim, sync and mark is kept in one place here, because a crash after each step
//! must leave a consistent state.

use super::mark::MarkedFile;
use super::table::CloseDecision;
use super::{ClaimScope, PathClaim, PendingTicket, ReleasedFile, UnfinishedFiles};
use crate::errno;
use base::LogicalPath;
use std::io;
use std::time::Duration;
use storage::{Backend, StoredFile};

/// Deadline of a close for the claim on the name of its file.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

impl UnfinishedFiles {
    /// Closes a handle. The close of the owning handle completes the file, unless a write of any
    /// handle failed; with `failed` the file will be removed. Blocks until the data of the file has
    /// reached stable storage.
    pub(crate) fn close(
        &self,
        ticket: PendingTicket,
        file: &dyn StoredFile,
        backend: &dyn Backend,
        failed: bool,
    ) -> io::Result<ReleasedFile> {
        let settled = self.table().close_handle(ticket, failed, self.clock.now() + self.config.hold);
        match settled {
            CloseDecision::Kept => Ok(ReleasedFile::Kept),
            CloseDecision::Doomed => Ok(ReleasedFile::Doomed),
            CloseDecision::Orphan => {
                Err(io::Error::other("the client that took this file over has disconnected"))
            }
            CloseDecision::Spoiled => Err(spoiled()),
            CloseDecision::Whole => self.make_whole(ticket, file, backend),
        }
    }

    fn make_whole(
        &self,
        ticket: PendingTicket,
        file: &dyn StoredFile,
        backend: &dyn Backend,
    ) -> io::Result<ReleasedFile> {
        let _closing = CompletingClose { persist: self, number: ticket.number };
        let Some(path) = self.path_of(ticket) else { return Ok(ReleasedFile::Kept) };
        let synced = MarkedFile::assume(file, self.config.durability).sync(backend, &path);
        let synced = synced.inspect_err(|_| {
            // After a failed sync the kernel may consider the data written, so a later sync would
            // prove nothing.
            if let Some(pending) = self.table().files.get_mut(&ticket.number) {
                pending.failed = true;
            }
        })?;
        // From here on no other operation changes the name or mode, so the mark is not set again.
        let Some((path, _claim)) = self.claim_of(ticket, CLOSE_PATIENCE) else {
            return Err(io::Error::from_raw_os_error(errno::TEXT_BUSY));
        };
        // During the sync another client may have taken the file over or failed to write it.
        let mode = match self.table().files.get(&ticket.number) {
            Some(pending) if pending.owner != ticket.ticket => return Ok(ReleasedFile::Kept),
            Some(pending) if pending.failed => return Err(spoiled()),
            Some(pending) => pending.record.mode,
            None => return Ok(ReleasedFile::Kept),
        };
        if let Err(error) = synced.make_whole(mode) {
            tracing::debug!(path = %path.shown(), %error, "cannot complete a file on its close");
            return Err(error);
        }
        self.forget_number(ticket.number);
        self.journal.end([ticket.number]);
        Ok(ReleasedFile::Persisted)
    }

    /// Claims the present name of an unfinished file. `None` if others do not release it, or if the
    /// file is no longer unfinished.
    pub(super) fn claim_of(
        &self,
        ticket: PendingTicket,
        patience: Duration,
    ) -> Option<(LogicalPath, PathClaim<'_>)> {
        loop {
            let path = self.path_of(ticket)?;
            let claim = self.claims.claim_within(&[&path], ClaimScope::Name, patience)?;
            // The file may have been renamed meanwhile.
            if self.path_of(ticket)? == path {
                return Some((path, claim));
            }
        }
    }
}

fn spoiled() -> io::Error {
    io::Error::other("a write by another client of this file failed")
}

/// The handle whose close completes a file. It holds the file until the close has ended, so that no
/// other operation removes the record. If the file was not completed, it is kept for its creator
/// afterwards.
struct CompletingClose<'a> {
    persist: &'a UnfinishedFiles,
    number: u64,
}

impl Drop for CompletingClose<'_> {
    fn drop(&mut self) {
        let expires = self.persist.clock.now() + self.persist.config.hold;
        if let Some(pending) = self.persist.table().files.get_mut(&self.number) {
            pending.holders = pending.holders.saturating_sub(1);
            if pending.holders == 0 {
                pending.expires = Some(expires);
            }
        }
    }
}
