//! The close of a file that persists on close: the file becomes complete, is removed, or is kept
//! for its creator.
//!
//! The order of claim, sync and mark is kept in one place here, because a crash after each step
//! must leave a consistent state.

use super::mark::{MarkedFile, SyncedFile};
use super::table::CloseDecision;
use super::{ClaimScope, PathClaim, PendingTicket, ReleasedFile, UnfinishedFiles};
use crate::config::Durability;
use crate::describe;
use crate::errno;
use base::LogicalPath;
use std::io;
use std::time::Duration;
use storage::{Backend, CLIENT_ATTRIBUTE_PREFIX, ExistingName, Metadata, StoredFile};

/// Deadline of a close for the claim on the name of its file.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

/// The attribute with the POSIX access control list of a file.
const ACCESS_LIST: &str = "system.posix_acl_access";

impl UnfinishedFiles {
    /// Closes a handle. The close of the owning handle completes the file, unless a write of any
    /// handle failed; with `failed` the file will be removed. Blocks until the data of the file has
    /// reached stable storage.
    pub(crate) fn close(
        &self,
        ticket: PendingTicket,
        file: &dyn StoredFile,
        (backend, check): (&dyn Backend, ReplacedCheck<'_>),
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
            CloseDecision::Whole => self.make_whole(ticket, file, (backend, check)),
        }
    }

    /// Dooms the file of the owning handle after a failed close. Reports whether no handle holds it.
    pub(crate) fn doom(&self, ticket: PendingTicket) -> bool {
        let mut table = self.table();
        let Some(pending) = table.files.get_mut(&ticket.number) else { return false };
        let is_free = pending.owner == ticket.ticket && pending.holders == 0;
        pending.leaving |= is_free;
        is_free
    }

    fn make_whole(
        &self,
        ticket: PendingTicket,
        file: &dyn StoredFile,
        (backend, check): (&dyn Backend, ReplacedCheck<'_>),
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
        let Some((path, target, _claim)) = self.claim_with_replaced(ticket)? else {
            return Err(io::Error::from_raw_os_error(errno::TEXT_BUSY));
        };
        // During the sync another client may have taken the file over or failed to write it.
        let mode = match self.table().files.get(&ticket.number) {
            Some(pending) if pending.owner != ticket.ticket => return Ok(ReleasedFile::Kept),
            Some(pending) if pending.failed => return Err(spoiled()),
            Some(pending) => pending.record.mode,
            None => return Ok(ReleasedFile::Kept),
        };
        let completed = match &target {
            Some(target) => self.replace((&path, target), (file, synced, mode), (backend, check)),
            None => synced.make_whole(mode).map(|_| ReleasedFile::Persisted),
        };
        let completed = completed.inspect_err(|error| {
            tracing::debug!(path = %path.shown(), %error, "cannot complete a file on its close");
        })?;
        self.forget_number(ticket.number);
        // After a power failure a file without its name must still be known.
        if completed == ReleasedFile::Persisted {
            self.journal.end([ticket.number]);
        }
        Ok(completed)
    }

    /// Gives a synced replacement the name, the permission bits, the owner and the attributes of clients
    /// of the file that it replaces. Before the rename, that file is unchanged; after it, the replacement
    /// is complete.
    fn replace(
        &self,
        (path, target): (&LogicalPath, &LogicalPath),
        (file, synced, mode): (&dyn StoredFile, SyncedFile<'_>, u32),
        (backend, check): (&dyn Backend, ReplacedCheck<'_>),
    ) -> io::Result<ReleasedFile> {
        let replaced = match backend.stat(target) {
            Ok(metadata) => Some(metadata),
            Err(error) if storage::is_missing(&error) => None,
            Err(error) => return Err(error),
        };
        check(target, replaced.as_ref())?;
        if self.number_at(target).is_some() {
            return Err(io::Error::from_raw_os_error(errno::TEXT_BUSY));
        }
        // A rename publishes the file with the name, which must be the one that the client has written.
        if !backend.identity(path)?.is_same(&file.identity()?) {
            return Err(io::Error::other("another program has changed the new content"));
        }
        let mut mode = mode;
        if let Some(replaced) = &replaced {
            mode = replaced.mode & describe::MODE_BITS & !describe::MODE_PENDING;
            keep_owner(file, replaced)?;
            keep_attributes(backend, target, file)?;
            keep_access_list(backend, target, file)?;
        }
        synced.replace(mode, || backend.rename(path, target, ExistingName::Replace, None))?;
        // From here on the new file is in place, whatever fails.
        if self.config.durability == Durability::Synced
            && let Err(error) = backend.sync_name(target)
        {
            tracing::error!(path = %target.shown(), %error, "a new file is in place, but its name may be lost by a power failure; check the disk");
            return Ok(ReleasedFile::Unsynced);
        }
        Ok(ReleasedFile::Persisted)
    }

    /// Claims the present name of an unfinished file, with that of the file that it replaces.
    fn claim_with_replaced(
        &self,
        ticket: PendingTicket,
    ) -> io::Result<Option<(LogicalPath, Option<LogicalPath>, PathClaim<'_>)>> {
        loop {
            let Some((path, target)) = self.names_of(ticket)? else { return Ok(None) };
            let all: Vec<_> = std::iter::once(&path).chain(&target).collect();
            let Some(claim) = self.claims.claim_within(&all, ClaimScope::Name, CLOSE_PATIENCE) else {
                return Ok(None);
            };
            // The file may have been renamed meanwhile.
            if self.path_of(ticket).as_ref() == Some(&path) {
                return Ok(Some((path, target, claim)));
            }
        }
    }

    /// Returns the present name of an unfinished file, and that of the file that it replaces.
    fn names_of(&self, ticket: PendingTicket) -> io::Result<Option<(LogicalPath, Option<LogicalPath>)>> {
        let table = self.table();
        let Some(pending) = table.files.get(&ticket.number) else { return Ok(None) };
        Ok(Some((pending.record.path.clone(), pending.record.target()?)))
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

/// Decides whether a file may be replaced, of which this is the status if it exists.
pub(crate) type ReplacedCheck<'a> = &'a dyn Fn(&LogicalPath, Option<&Metadata>) -> io::Result<()>;

/// Gives a file the owner and the group of the one that it replaces.
pub(crate) fn keep_owner(file: &dyn StoredFile, replaced: &Metadata) -> io::Result<()> {
    let own = file.stat()?;
    if (own.uid, own.gid) == (replaced.uid, replaced.gid) {
        return Ok(());
    }
    file.set_owner(replaced.uid, replaced.gid)
}

/// Gives a file the attributes that clients have set for the one that it replaces. Checksums and records
/// of the server describe the former content, and stay with it.
fn keep_attributes(backend: &dyn Backend, target: &LogicalPath, file: &dyn StoredFile) -> io::Result<()> {
    let names = match backend.attributes(target) {
        Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => return Ok(()),
        names => names?,
    };
    for name in names.iter().filter(|name| name.starts_with(CLIENT_ATTRIBUTE_PREFIX)) {
        if let Some(value) = backend.attribute(target, name)? {
            file.set_attribute(name, &value, false)?;
        }
    }
    Ok(())
}

/// Gives a file the access control list of the one that it replaces, or none. Where there is a list, the
/// permission bits of the group are those of its mask, which nobody else may get.
fn keep_access_list(backend: &dyn Backend, target: &LogicalPath, file: &dyn StoredFile) -> io::Result<()> {
    let unless_unsupported = |found: io::Result<Option<Vec<u8>>>| match found {
        Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => Ok(None),
        found => found,
    };
    let wanted = unless_unsupported(backend.attribute(target, ACCESS_LIST))?;
    let own = unless_unsupported(file.attribute(ACCESS_LIST))?;
    match wanted {
        wanted if wanted == own => Ok(()),
        Some(list) => file.set_attribute(ACCESS_LIST, &list, false),
        None => file.remove_attribute(ACCESS_LIST),
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
