//! Persist on successful close (POSC): a new file stays marked as unfinished until its creator
//! closes it.
//!
//! An unfinished file has its final name, and its sticky bit marks it. The table here contains its
//! creator and its remaining hold time, and the journal ([`log`]) preserves the table over a
//! restart. If the creator disconnects, the file is kept for the hold time and then removed.
//!
//! The order of steps makes every crash harmless. The journal contains a file before the file
//! exists. The data of a file is synced before its mark is removed ([`mark`]), and its mark is
//! removed before its record ends. A record without a marked file has no effect.

mod absent;
mod absent_files;
mod administration;
mod claim;
mod closing;
mod log;
mod mark;
mod recovery;
mod shared_journal;
mod table;
mod unfinished;
mod walk;

use crate::config::{Durability, Persist as Config, PersistMode};
use crate::describe;
use crate::errno;
use crate::journal::JournalDirectory;
use crate::proof::Proof;
use crate::rights::with_rights;
use absent::{AbsentRecords, warn_of_absent};
use absent_files::AbsentFiles;
pub use administration::ClearOutcome;
use base::{Clock, Identity, LogicalPath};
use claim::Claims;
pub(crate) use claim::{ClaimScope, PathClaim};
pub(crate) use closing::keep_owner;
use log::UnfinishedJournal;
pub(crate) use log::{UnfinishedRecord, escape};
use mark::MarkedFile;
pub(crate) use mark::withdraw;
use recovery::{RecoveredRecord, adopt, recover};
use shared_journal::{SharedJournal, sync_removal};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Backend, Metadata, StorageUser, StoredFile};
pub(crate) use table::PendingTicket;
use table::{PendingFile, PendingTable};
pub use unfinished::{UnfinishedFile, UnfinishedState};
pub use walk::{ListReply, UnfinishedList, UnreadableEntry, WalkLimit, WalkLimits};

/// Maximum number of unfinished files.
pub(crate) const PENDING_MAX: usize = 100_000;

/// Permission bits of a file that will replace another one, until it is complete.
const REPLACEMENT_MODE: u32 = 0o600;

/// Time until a failed removal is retried.
const RETRY: Duration = Duration::from_secs(60);

/// The result of checking an open against the table.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// The path has no unfinished file.
    Free,
    /// The caller resumes writing the file.
    Resume(PendingTicket),
    /// The file belongs to another client and cannot be taken over.
    Busy,
    /// The file is being removed.
    Leaving,
}

/// The state of a file after a handle released it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleasedFile {
    /// Other handles hold it, it is kept for its creator, or it was not unfinished any longer.
    Kept,
    /// It is complete.
    Persisted,
    /// It is complete and has its name, but the name may be lost by a power failure.
    Unsynced,
    /// It has to be removed with [`UnfinishedFiles::remove`].
    Doomed,
}

/// The table of unfinished files, with its journal.
pub(crate) struct UnfinishedFiles {
    config: Config,
    clock: Arc<dyn Clock>,
    table: Mutex<PendingTable>,
    /// Number of files in the table; lets the common case of none pass without its lock.
    count: AtomicUsize,
    /// Number of unfinished files that were removed since the start.
    undone: AtomicU64,
    claims: Claims,
    /// Files that cannot be found.
    absent: AbsentFiles,
    journal: Arc<SharedJournal>,
}

impl UnfinishedFiles {
    /// Recovers the files of an earlier run: the hold time of each file that still has the mark
    /// starts now.
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        journals: Arc<dyn JournalDirectory>,
        backend: &dyn Backend,
    ) -> io::Result<Self> {
        if config.durability == Durability::Relaxed && config.mode != PersistMode::Off {
            tracing::warn!(
                "ofs.persist nosync: files are not synced when they are closed; after a power failure a file that was \
                 closed successfully may be short or empty"
            );
        }
        let location = journals.location();
        let mut log = UnfinishedJournal::load(journals, config.sync)?;
        let mut table = PendingTable::default();
        let expires = clock.now() + config.hold;
        let absent = AbsentRecords::default();
        for record in log.records() {
            table.next_number = table.next_number.max(record.number + 1);
            let account = record.account.as_ref();
            match with_rights(backend, account, |backend| recover(backend, record)) {
                RecoveredRecord::Marked(path) => {
                    let record = UnfinishedRecord { path, also: None, ..record.clone() };
                    let metadata = with_rights(backend, account, |backend| backend.stat(&record.path));
                    let number = record.number;
                    // No client continues a replacement.
                    let expires = if record.replaces.is_some() { clock.now() } else { expires };
                    // Numbers ascend, so that the later record of a path replaces the earlier one.
                    table.replace(PendingFile::new(record, 0, 0, Some(expires)));
                    if let Ok(metadata) = metadata {
                        table.set_file(number, &metadata);
                    }
                }
                RecoveredRecord::Absent(_)
                    if with_rights(backend, account, |backend| adopt(backend, record)) =>
                {
                    tracing::warn!(
                        path = %record.path.shown(),
                        "the tree of an unfinished file was copied; the file stays unfinished and is not removed; upload it again, or clear or remove it"
                    );
                }
                RecoveredRecord::Absent(directory) | RecoveredRecord::Unreadable(directory) => {
                    warn_of_absent(record, &directory, &location);
                    absent.insert(record.clone(), directory);
                }
                RecoveredRecord::Over => {}
            }
        }
        log.rewrite(|record| {
            let is_absent = absent.at(&record.path, |kept| kept.record.number == record.number);
            table.files.contains_key(&record.number) || is_absent == Some(true)
        })?;
        let count = AtomicUsize::new(table.files.len());
        let journal = Arc::new(SharedJournal::new(log, config.durability, location));
        let absent = AbsentFiles::new(absent, journal.clone());
        let (table, claims, undone) = (Mutex::new(table), Claims::default(), AtomicU64::new(0));
        Ok(Self { config, clock, table, count, undone, claims, absent, journal })
    }

    /// Returns the files of earlier runs that cannot be found.
    pub(crate) fn absent(&self) -> &AbsentFiles {
        &self.absent
    }

    fn table(&self) -> MutexGuard<'_, PendingTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recount(&self, table: &PendingTable) {
        self.count.store(table.files.len(), Ordering::Release);
    }

    /// Returns the number of unfinished files.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the number of unfinished files that were removed since the start.
    pub(crate) fn undone(&self) -> u64 {
        self.undone.load(Ordering::Relaxed)
    }

    /// Reports whether the file at this path is unfinished. Never blocks.
    pub(crate) fn is_pending(&self, path: &LogicalPath) -> bool {
        self.count() > 0 && self.table().at(path).is_some()
    }

    /// Reports whether this marked file has a record under any path. Never blocks.
    pub(crate) fn is_known(&self, metadata: &Metadata) -> bool {
        self.count() > 0 && self.table().has_file(metadata)
    }

    /// Claims these paths. An operation that opens for writing, removes, renames or changes a mode
    /// holds a claim. `None` if others do not release the paths. Blocks.
    pub(crate) fn claim(&self, paths: &[&LogicalPath], scope: ClaimScope) -> Option<PathClaim<'_>> {
        self.claims.claim(paths, scope)
    }

    /// Reports whether a file opened in this way persists only on successful close.
    pub(crate) fn persists_on_close(&self, asked: bool, creates: bool) -> bool {
        match self.config.mode {
            PersistMode::Off => false,
            PersistMode::Manual => asked && creates,
            PersistMode::Auto => creates,
        }
    }

    /// Decides whether this client may open an unfinished file for writing. `asked`: the open
    /// requests persist on close, by which any client with write permission takes the file over.
    ///
    /// `account` has the rights of the client. Nobody takes over the file of another account.
    pub(crate) fn admit(
        &self,
        path: &LogicalPath,
        (who, account): (&Identity, Option<&Arc<StorageUser>>),
        asked: bool,
    ) -> Admission {
        if self.count() == 0 {
            return Admission::Free;
        }
        let mut table = self.table();
        table.next_ticket += 1;
        let ticket = table.next_ticket;
        let Some(pending) = table.at(path) else { return Admission::Free };
        if pending.leaving {
            return Admission::Leaving;
        }
        let record = &mut pending.record;
        let is_of_account = |owner: &Arc<StorageUser>| account.is_some_and(|own| own.uid() == owner.uid());
        if !record.account.as_ref().is_none_or(is_of_account) {
            return Admission::Busy;
        }
        let same = record.user == who.user() && record.pid == who.pid && record.host == who.host();
        if !same && !asked {
            return Admission::Busy;
        }
        (record.user, record.pid, record.host) = (who.user().to_owned(), who.pid, who.host().to_owned());
        pending.holders += 1;
        let before = std::mem::replace(&mut pending.owner, ticket);
        pending.expires = None;
        let (ticket, record) = (PendingTicket { number: record.number, ticket, before }, record.clone());
        drop(table);
        if !same && let Err(error) = self.journal.pending(&record) {
            tracing::warn!(path = %path.shown(), %error, "cannot write a change of creator to the journal of unfinished files; after a restart the earlier creator owns the file");
        }
        Admission::Resume(ticket)
    }

    /// Reserves `path` for a file that will be created, and that takes the place of the file with the
    /// name `replaces` beside it when it is complete. `None` if it is reserved already; EUSERS if the
    /// limit is reached.
    pub(crate) fn reserve(
        &self,
        (path, replaces): (&LogicalPath, Option<&[u8]>),
        (who, account): (&Identity, Option<&Arc<StorageUser>>),
        mode: u32,
    ) -> io::Result<Option<PendingTicket>> {
        let mut table = self.table();
        if table.by_path.contains_key(path) {
            return Ok(None);
        }
        if table.files.len() >= PENDING_MAX {
            return Err(io::Error::from_raw_os_error(errno::TOO_MANY));
        }
        table.next_number += 1;
        table.next_ticket += 1;
        let ticket = PendingTicket { number: table.next_number, ticket: table.next_ticket, before: 0 };
        let record = UnfinishedRecord {
            number: ticket.number,
            path: path.clone(),
            also: None,
            mode,
            user: who.user().to_owned(),
            pid: who.pid,
            host: who.host().to_owned(),
            proof: None,
            replaces: replaces.map(<[u8]>::to_vec),
            account: account.cloned(),
        };
        table.insert(PendingFile::new(record.clone(), 1, ticket.ticket, None));
        self.recount(&table);
        drop(table);
        // Nobody sees a replacement, so it must be known before it exists. Its name proves its kind.
        if record.replaces.is_some()
            && let Err(error) = self.journal.pending(&record)
        {
            self.forget_number(record.number);
            return Err(error);
        }
        Ok(Some(ticket))
    }

    /// Cancels a reservation, because the file was not created at its path or does not exist any
    /// longer.
    pub(crate) fn cancel(&self, ticket: PendingTicket, path: &LogicalPath, backend: &dyn Backend) {
        self.forget(Some(ticket.number), path, backend);
    }

    /// Ends the record of a file that was removed or replaced. The record is selected by number,
    /// because the path may have another unfinished file by now. May wait for a disk.
    pub(crate) fn forget(&self, number: Option<u64>, path: &LogicalPath, backend: &dyn Backend) {
        let Some(number) = number else { return };
        self.forget_number(number);
        if self.journal.has(number) {
            self.journal.end_once_durable(path, &[number], || sync_removal(backend, path));
        }
    }

    fn forget_number(&self, number: u64) {
        let mut table = self.table();
        table.remove(number);
        self.recount(&table);
    }

    /// Returns whether files are synced before they become complete.
    pub(crate) fn durability(&self) -> Durability {
        self.config.durability
    }

    /// Marks an open file as unfinished, and writes its identity to the journal. Until then the
    /// file has no record, and its content is unchanged.
    pub(crate) fn mark(
        &self,
        ticket: PendingTicket,
        file: &dyn StoredFile,
        before: &Metadata,
        backend: &dyn Backend,
    ) -> io::Result<()> {
        let Some(path) = self.path_of(ticket) else { return Ok(()) };
        let nonce = mark::set_number(file)?;
        let is_created = describe::is_being_created(before);
        let mode = match is_created {
            true => None,
            false => Some(MarkedFile::set(file, before, self.config.durability)?.1),
        };
        let proof = Proof::of(backend, &path, file, nonce)?;
        let record = {
            let mut table = self.table();
            table.set_file(ticket.number, before);
            let Some(pending) = table.files.get_mut(&ticket.number) else { return Ok(()) };
            pending.record.proof = Some(proof);
            pending.record.mode = mode.unwrap_or(pending.record.mode);
            pending.record.clone()
        };
        self.journal.pending(&record)?;
        if is_created {
            // A replacement gets the rights of the replaced file when it is complete.
            let mode = if record.replaces.is_some() { REPLACEMENT_MODE } else { record.mode };
            MarkedFile::set_created(file, mode, self.config.durability)?;
        }
        // From here on this record applies to the path.
        self.absent.end_identified(&path, || Ok(()));
        Ok(())
    }

    fn note_mode_of(&self, number: u64, mode: u32) {
        let record = {
            let mut table = self.table();
            let Some(pending) = table.files.get_mut(&number) else { return };
            if pending.record.mode == mode {
                return;
            }
            pending.record.mode = mode;
            pending.record.clone()
        };
        if let Err(error) = self.journal.pending(&record) {
            tracing::warn!(path = %record.path.shown(), %error, "cannot write a change of mode to the journal of unfinished files; after a restart the earlier mode applies");
        }
    }

    /// Records the permission bits that an unfinished file will have when it is complete.
    pub(crate) fn note_mode(&self, path: &LogicalPath, mode: u32) {
        if self.count() == 0 {
            return;
        }
        let number = self.table().by_path.get(path).copied();
        if let Some(number) = number {
            self.note_mode_of(number, mode);
        }
    }

    /// Releases the file of a client that disconnected.
    pub(crate) fn abandon(&self, ticket: PendingTicket, failed: bool) -> ReleasedFile {
        let mut table = self.table();
        let Some(pending) = table.files.get_mut(&ticket.number) else { return ReleasedFile::Kept };
        pending.holders = pending.holders.saturating_sub(1);
        pending.failed |= failed;
        if pending.holders > 0 {
            return ReleasedFile::Kept;
        }
        if pending.failed || self.config.hold.is_zero() {
            pending.leaving = true;
            return ReleasedFile::Doomed;
        }
        pending.expires = Some(self.clock.now() + self.config.hold);
        ReleasedFile::Kept
    }

    /// Releases a file whose open failed after its admission; the previous handle owns the file
    /// again.
    pub(crate) fn retract(&self, ticket: PendingTicket) {
        if let Some(pending) = self.table().files.get_mut(&ticket.number)
            && pending.owner == ticket.ticket
        {
            pending.owner = ticket.before;
        }
        self.abandon(ticket, false);
    }

    /// Forgets earlier write errors, because the file was truncated at its open.
    pub(crate) fn emptied(&self, ticket: PendingTicket) {
        if let Some(pending) = self.table().files.get_mut(&ticket.number) {
            pending.failed = false;
        }
    }

    /// Returns the files whose hold time is over; they count as being removed from now on.
    pub(crate) fn expired(&self) -> Vec<(PendingTicket, LogicalPath)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let now = self.clock.now();
        let mut table = self.table();
        let over = table.files.values_mut().filter(|pending| {
            !pending.leaving && pending.holders == 0 && pending.expires.is_some_and(|at| at <= now)
        });
        over.map(|pending| {
            pending.leaving = true;
            (
                PendingTicket { number: pending.record.number, ticket: 0, before: 0 },
                pending.record.path.clone(),
            )
        })
        .collect()
    }

    /// Returns the path at which the file of a ticket is when it is complete.
    pub(crate) fn final_path_of(&self, ticket: PendingTicket) -> Option<LogicalPath> {
        let table = self.table();
        let record = &table.files.get(&ticket.number)?.record;
        Some(record.target().ok()?.unwrap_or_else(|| record.path.clone()))
    }

    /// Returns the present path of the file of a ticket.
    pub(crate) fn path_of(&self, ticket: PendingTicket) -> Option<LogicalPath> {
        self.table().files.get(&ticket.number).map(|pending| pending.record.path.clone())
    }

    /// Removes a file, if it is the one of its record and still marked. Returns its path if no file
    /// is there now. Blocks.
    pub(crate) fn remove(&self, ticket: PendingTicket, backend: &dyn Backend) -> Option<LogicalPath> {
        let Some((path, _claim)) = self.claim_of(ticket, claim::PATIENCE) else {
            self.removal_failed(ticket.number);
            return None;
        };
        let record = self.table().files.get(&ticket.number).map(|pending| pending.record.clone())?;
        let account = record.account.clone();
        with_rights(backend, account.as_ref(), |backend| self.remove_claimed(ticket, path, record, backend))
    }

    fn remove_claimed(
        &self,
        ticket: PendingTicket,
        path: LogicalPath,
        record: UnfinishedRecord,
        backend: &dyn Backend,
    ) -> Option<LogicalPath> {
        let seen = backend.stat(&path);
        let removed = match recover(backend, &record) {
            // An error other than a missing file may be temporary.
            _ if seen.as_ref().is_err_and(|error| !storage::is_missing(error)) => seen.map(drop),
            RecoveredRecord::Unreadable(_) => Err(io::Error::from_raw_os_error(errno::INPUT_OUTPUT)),
            RecoveredRecord::Marked(_) => backend.remove_file(&path),
            RecoveredRecord::Over => {
                tracing::info!(path = %path.shown(), "an unfinished file was removed or completed by another program");
                self.forget(Some(ticket.number), &path, backend);
                return backend.has_name(&path).is_ok_and(|has| !has).then_some(path);
            }
            RecoveredRecord::Absent(directory) => {
                // Its file system may have been unmounted meanwhile.
                warn_of_absent(&record, &directory, self.journal.location());
                self.forget_number(ticket.number);
                self.absent.add(record, directory);
                return None;
            }
        };
        match removed {
            Err(error) if error.raw_os_error() != Some(errno::NOT_FOUND) => {
                tracing::error!(path = %path.shown(), %error, "cannot remove an unfinished file; the removal is retried in 60 s");
                self.removal_failed(ticket.number);
                None
            }
            _ => {
                tracing::info!(path = %path.shown(), "removed an unfinished file");
                self.undone.fetch_add(1, Ordering::Relaxed);
                self.forget(Some(ticket.number), &path, backend);
                Some(path)
            }
        }
    }

    /// Schedules another attempt to remove a file.
    fn removal_failed(&self, number: u64) {
        let retry = self.clock.now() + RETRY;
        if let Some(pending) = self.table().files.get_mut(&number) {
            pending.leaving = false;
            pending.expires = Some(retry);
        }
    }

    /// Schedules another attempt, because no pool accepted the removal.
    pub(crate) fn postpone(&self, ticket: PendingTicket) {
        self.removal_failed(ticket.number);
    }

    /// Returns the number of the unfinished file at a path. To be called before a path is removed
    /// or replaced.
    pub(crate) fn number_at(&self, path: &LogicalPath) -> Option<u64> {
        if self.count() == 0 {
            return None;
        }
        self.table().by_path.get(path).copied()
    }

    /// Ends the record of a file that no longer exists, unless a handle holds it. May wait for a
    /// disk.
    pub(crate) fn forget_unheld(&self, path: &LogicalPath, backend: &dyn Backend) {
        let unheld = self
            .table()
            .at(path)
            .and_then(|pending| (pending.holders == 0 && !pending.leaving).then_some(pending.record.number));
        self.forget(unheld, path, backend);
    }

    /// Returns the records of unfinished files at or below `path`.
    fn below(&self, path: &LogicalPath) -> Vec<UnfinishedRecord> {
        if self.count() == 0 {
            return Vec::new();
        }
        let table = self.table();
        let records = table.files.values().map(|pending| &pending.record);
        records.filter(|record| record.path.is_within(path)).cloned().collect()
    }

    /// Records that unfinished files are about to move from below `from` to below `to`; the result
    /// is passed to [`UnfinishedFiles::moved`].
    pub(crate) fn moving(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<Vec<UnfinishedRecord>> {
        let mut moving = Vec::new();
        for record in self.below(from) {
            let new = record.path.moved(from, to);
            let new = new.ok_or_else(|| io::Error::from_raw_os_error(errno::INVALID))?;
            let record = UnfinishedRecord { also: Some(new), ..record };
            self.journal.pending(&record)?;
            moving.push(record);
        }
        Ok(moving)
    }

    /// Updates the records after a rename succeeded or failed.
    pub(crate) fn moved(&self, moving: Vec<UnfinishedRecord>, done: bool, backend: &dyn Backend) {
        for record in moving {
            let path = match record.also {
                Some(new) if done => new,
                _ => record.path,
            };
            let proof = record.proof.map(|proof| proof.moved(backend, &path));
            self.place(record.number, path, proof);
        }
    }

    /// Sets the path of an unfinished file.
    fn place(&self, number: u64, path: LogicalPath, proof: Option<Proof>) {
        let now = {
            let mut table = self.table();
            let Some(mut pending) = table.remove(number) else { return };
            (pending.record.path, pending.record.proof) = (path, proof);
            let now = pending.record.clone();
            table.insert(pending);
            now
        };
        if let Err(error) = self.journal.pending(&now) {
            tracing::warn!(path = %now.path.shown(), %error, "cannot write a completed rename to the journal of unfinished files; a restart searches both paths");
        }
    }
}
