//! The close of a file that persists on close: it becomes whole, or is doomed, or waits for its creator.

use super::mark::Marked;
use super::table::Settled;
use super::{Claim, Fate, Persist, Scope, Ticket};
use crate::errno;
use base::LogicalPath;
use std::io;
use std::time::Duration;
use storage::{Backend, StoredFile};

/// How long a close waits for others who work on the name of its file.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

impl Persist {
    /// A handle was closed. The one that speaks for the file makes it whole, unless a write of any handle failed; with
    /// `failed` the file is doomed. Blocks until the file's data has reached stable storage.
    pub(crate) fn close(
        &self,
        ticket: Ticket,
        file: &dyn StoredFile,
        backend: &dyn Backend,
        failed: bool,
    ) -> io::Result<Fate> {
        let settled = self.table().settle(ticket, failed, self.clock.now() + self.config.hold);
        match settled {
            Settled::Kept => Ok(Fate::Kept),
            Settled::Doomed => Ok(Fate::Doomed),
            Settled::Orphan => Err(io::Error::other("the client that took this file over has vanished")),
            Settled::Spoiled => Err(spoiled()),
            Settled::Whole => self.make_whole(ticket, file, backend),
        }
    }

    fn make_whole(&self, ticket: Ticket, file: &dyn StoredFile, backend: &dyn Backend) -> io::Result<Fate> {
        let _closing = Closing { persist: self, number: ticket.number };
        let Some(path) = self.path_of(ticket) else { return Ok(Fate::Kept) };
        let synced = Marked::assume(file, self.config.durability).sync(backend, &path);
        let synced = synced.inspect_err(|_| {
            // After an error the system may take the data for written, so no later sync would prove anything.
            if let Some(pending) = self.table().files.get_mut(&ticket.number) {
                pending.failed = true;
            }
        })?;
        // From here on nobody else changes the name or mode, so that the mark is not set again.
        let Some((path, _claim)) = self.claim_of(ticket, CLOSE_PATIENCE) else {
            return Err(io::Error::from_raw_os_error(errno::TEXT_BUSY));
        };
        // During the sync nobody was kept from taking the file over, or from failing to write it.
        let mode = match self.table().files.get(&ticket.number) {
            Some(pending) if pending.owner != ticket.ticket => return Ok(Fate::Kept),
            Some(pending) if pending.failed => return Err(spoiled()),
            Some(pending) => pending.record.mode,
            None => return Ok(Fate::Kept),
        };
        if let Err(error) = synced.make_whole(mode) {
            tracing::debug!(path = %path.shown(), %error, "a file does not become whole");
            return Err(error);
        }
        self.forget_number(ticket.number);
        self.end_in_journal([ticket.number]);
        Ok(Fate::Persisted)
    }

    /// Claims the name of a pending file, wherever it was renamed to; `None` if others do not let go of it, or if it is
    /// no longer pending.
    pub(super) fn claim_of(&self, ticket: Ticket, patience: Duration) -> Option<(LogicalPath, Claim<'_>)> {
        loop {
            let path = self.path_of(ticket)?;
            let claim = self.claims.claim_within(&[&path], Scope::Name, patience)?;
            // It may have been renamed meanwhile.
            if self.path_of(ticket)? == path {
                return Some((path, claim));
            }
        }
    }
}

fn spoiled() -> io::Error {
    io::Error::other("another writer of this file met an error")
}

/// The handle whose close makes a file whole. It holds the file until the close has ended, so that nobody takes the record away
/// meanwhile; if the file did not become whole, it waits for its creator then.
struct Closing<'a> {
    persist: &'a Persist,
    number: u64,
}

impl Drop for Closing<'_> {
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
