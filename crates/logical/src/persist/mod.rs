//! Persist on successful close: a new file stays marked as not yet whole until its creator closes it.
//!
//! While it is pending, the file lies under its final name with the sticky bit set, which is the truth about it; the
//! table here says whose it is and how long it may stay, and the journal ([`log`]) carries the table over a restart. A
//! creator that vanishes has the hold time to come back; then the file is removed.
//!
//! The order of steps makes every crash harmless: the journal knows of a file before it exists, and a file loses its mark
//! before the journal forgets it. A journal record without a marked file means nothing.

mod claim;
mod log;

use crate::config::{Persist as Config, PersistMode};
use crate::describe;
use crate::journal::JournalFolder;
use crate::shared::errno;
use base::{Clock, Identity, LogicalPath};
use claim::Claims;
pub(crate) use claim::{Claim, Scope};
use log::Log;
pub(crate) use log::Record;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Backend, StoredFile};

/// Files that may be pending at once.
pub(crate) const PENDING_MAX: usize = 100_000;

/// How long to wait before removing is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// One file that is not yet whole.
struct Pending {
    record: Record,
    /// Handles that write it.
    holders: u32,
    /// The handle that speaks for it: the last one that opened it.
    owner: u64,
    /// When it is removed, while nobody holds it.
    expires: Option<Duration>,
    /// It is being removed now.
    leaving: bool,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Pending>,
    by_path: HashMap<LogicalPath, u64>,
    next_number: u64,
    next_ticket: u64,
}

impl Table {
    fn at(&mut self, path: &LogicalPath) -> Option<&mut Pending> {
        let number = self.by_path.get(path)?;
        self.files.get_mut(number)
    }

    fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.files.remove(&number)?;
        if self.by_path.get(&pending.record.path) == Some(&number) {
            self.by_path.remove(&pending.record.path);
        }
        Some(pending)
    }
}

/// A handle's share in a pending file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    number: u64,
    ticket: u64,
}

/// What an open finds.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Nothing is pending there.
    Free,
    /// The caller goes on writing it.
    Resume(Ticket),
    /// It is somebody else's, who does not give it away.
    Busy,
    /// It is vanishing at this moment.
    Leaving,
}

/// What became of a file when a handle let go of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Others hold it, it waits for its creator, or it was not pending any more.
    Kept,
    /// It is whole.
    Persisted,
    /// It is to be removed with [`Persist::remove`].
    Doomed,
}

/// All files that are not yet whole.
pub(crate) struct Persist {
    config: Config,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// Files in the table, so that the many opens while there is none pass without its lock.
    count: AtomicUsize,
    claims: Claims,
    /// Locked on pool threads only: its holder may wait for a disk.
    log: Mutex<Log>,
}

impl Persist {
    /// Takes over what an earlier run left: each file that still bears the mark has the hold time from now on.
    pub(crate) fn new(
        config: Config,
        clock: Arc<dyn Clock>,
        folder: Arc<dyn JournalFolder>,
        backend: &dyn Backend,
    ) -> io::Result<Self> {
        let mut log = Log::load(folder, config.sync)?;
        let mut table = Table::default();
        let expires = clock.now() + config.hold;
        for record in log.records() {
            table.next_number = table.next_number.max(record.number + 1);
            let places = [Some(&record.path), record.also.as_ref()];
            let place = places.into_iter().flatten().find(|path| may_be_marked(backend, path));
            if let Some(path) = place {
                let record = Record { path: path.clone(), also: None, ..record.clone() };
                // Numbers ascend: the later record speaks for the path.
                if let Some(earlier) = table.by_path.insert(path.clone(), record.number) {
                    table.files.remove(&earlier);
                }
                let number = record.number;
                let pending =
                    Pending { record, holders: 0, owner: 0, expires: Some(expires), leaving: false };
                table.files.insert(number, pending);
            }
        }
        log.rewrite(|record| table.files.contains_key(&record.number))?;
        let count = AtomicUsize::new(table.files.len());
        let (table, log, claims) = (Mutex::new(table), Mutex::new(log), Claims::default());
        Ok(Self { config, clock, table, count, claims, log })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recount(&self, table: &Table) {
        self.count.store(table.files.len(), Ordering::Release);
    }

    /// Files that are pending.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Is this path pending? Never blocks.
    pub(crate) fn is_pending(&self, path: &LogicalPath) -> bool {
        self.count() > 0 && self.table().at(path).is_some()
    }

    /// Keeps others from changing what lies at these paths, and what is known of it. To be held by whoever opens to write, removes,
    /// renames or changes a mode; `None` if others do not let go of them. Blocks.
    pub(crate) fn claim(&self, paths: &[&LogicalPath], scope: Scope) -> Option<Claim<'_>> {
        self.claims.claim(paths, scope)
    }

    /// Is a file that is opened so to persist only on successful close?
    pub(crate) fn wants(&self, asked: bool, creates: bool) -> bool {
        match self.config.mode {
            PersistMode::Off => false,
            PersistMode::Manual => asked && creates,
            PersistMode::Auto => creates,
        }
    }

    /// May this client open a pending file for writing? `asked`: it asked for persist on close, with which anybody who may
    /// write takes it over.
    pub(crate) fn admit(&self, path: &LogicalPath, who: &Identity, asked: bool) -> Admission {
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
        let same = record.user == who.user() && record.pid == who.pid && record.host == who.host();
        if !same && !asked {
            return Admission::Busy;
        }
        (record.user, record.pid, record.host) = (who.user().to_owned(), who.pid, who.host().to_owned());
        pending.holders += 1;
        pending.owner = ticket;
        pending.expires = None;
        let (ticket, record) = (Ticket { number: record.number, ticket }, record.clone());
        drop(table);
        if !same && let Err(error) = self.log().pending(&record) {
            tracing::warn!(%path, %error, "a change of creator is not in the journal");
        }
        Admission::Resume(ticket)
    }

    /// Reserves `path` for a file that is about to be created. `None` if it is reserved already; EUSERS if there are too
    /// many.
    pub(crate) fn reserve(
        &self,
        path: &LogicalPath,
        who: &Identity,
        mode: u32,
    ) -> io::Result<Option<Ticket>> {
        let (ticket, record) = {
            let mut table = self.table();
            if table.by_path.contains_key(path) {
                return Ok(None);
            }
            if table.files.len() >= PENDING_MAX {
                return Err(io::Error::from_raw_os_error(errno::TOO_MANY));
            }
            table.next_number += 1;
            table.next_ticket += 1;
            let ticket = Ticket { number: table.next_number, ticket: table.next_ticket };
            let record = Record {
                number: ticket.number,
                path: path.clone(),
                also: None,
                mode,
                user: who.user().to_owned(),
                pid: who.pid,
                host: who.host().to_owned(),
            };
            let pending = Pending {
                record: record.clone(),
                holders: 1,
                owner: ticket.ticket,
                expires: None,
                leaving: false,
            };
            table.by_path.insert(path.clone(), ticket.number);
            table.files.insert(ticket.number, pending);
            self.recount(&table);
            (ticket, record)
        };
        if let Err(error) = self.log().pending(&record) {
            self.forget_number(ticket.number);
            return Err(error);
        }
        Ok(Some(ticket))
    }

    /// A reserved file did not come to be.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        self.forget_number(ticket.number);
        self.log().done(ticket.number);
    }

    fn forget_number(&self, number: u64) {
        let mut table = self.table();
        table.remove(number);
        self.recount(&table);
    }

    /// Marks an open file as not yet whole, with the permission bits it will have.
    pub(crate) fn mark(&self, ticket: Ticket, file: &dyn StoredFile) -> io::Result<()> {
        let metadata = file.stat()?;
        let mode = metadata.mode & describe::MODE_BITS & !describe::MODE_PENDING;
        if metadata.mode & describe::MODE_PENDING == 0 {
            file.set_mode(mode | describe::MODE_PENDING)?;
        }
        self.note_mode_of(ticket.number, mode);
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
        if let Err(error) = self.log().pending(&record) {
            tracing::warn!(path = %record.path, %error, "a change of mode is not in the journal");
        }
    }

    /// The permission bits of a pending file are to be these when it is whole.
    pub(crate) fn note_mode(&self, path: &LogicalPath, mode: u32) {
        if self.count() == 0 {
            return;
        }
        let number = self.table().by_path.get(path).copied();
        if let Some(number) = number {
            self.note_mode_of(number, mode);
        }
    }

    /// A handle was closed. The one that speaks for the file makes it whole; with `failed` the file is doomed.
    pub(crate) fn close(&self, ticket: Ticket, file: &dyn StoredFile, failed: bool) -> io::Result<Fate> {
        let mode = {
            let mut table = self.table();
            let Some(pending) = table.files.get_mut(&ticket.number) else { return Ok(Fate::Kept) };
            pending.holders = pending.holders.saturating_sub(1);
            if pending.owner != ticket.ticket && pending.holders > 0 {
                return Ok(Fate::Kept);
            }
            if failed {
                pending.leaving = true;
                return Ok(Fate::Doomed);
            }
            pending.record.mode
        };
        if let Err(error) = file.set_mode(mode) {
            self.keep_until_hold_ends(ticket.number);
            return Err(error);
        }
        self.forget_number(ticket.number);
        self.log().done(ticket.number);
        Ok(Fate::Persisted)
    }

    /// A client vanished with the file open.
    pub(crate) fn abandon(&self, ticket: Ticket, failed: bool) -> Fate {
        let mut table = self.table();
        let Some(pending) = table.files.get_mut(&ticket.number) else { return Fate::Kept };
        pending.holders = pending.holders.saturating_sub(1);
        if pending.holders > 0 {
            return Fate::Kept;
        }
        if failed || self.config.hold.is_zero() {
            pending.leaving = true;
            return Fate::Doomed;
        }
        pending.expires = Some(self.clock.now() + self.config.hold);
        Fate::Kept
    }

    fn keep_until_hold_ends(&self, number: u64) {
        let expires = self.clock.now() + self.config.hold;
        if let Some(pending) = self.table().files.get_mut(&number) {
            pending.leaving = false;
            if pending.holders == 0 {
                pending.expires = Some(expires);
            }
        }
    }

    /// Files whose hold time is over; they count as leaving from now on.
    pub(crate) fn expired(&self) -> Vec<(Ticket, LogicalPath)> {
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
            (Ticket { number: pending.record.number, ticket: 0 }, pending.record.path.clone())
        })
        .collect()
    }

    /// Where the file of this ticket lies now.
    pub(crate) fn path_of(&self, ticket: Ticket) -> Option<LogicalPath> {
        self.table().files.get(&ticket.number).map(|pending| pending.record.path.clone())
    }

    /// Removes a doomed file, if what lies there is still marked; where it lay, if it is gone now. Blocks.
    pub(crate) fn remove(&self, ticket: Ticket, backend: &dyn Backend) -> Option<LogicalPath> {
        let (path, _claim) = loop {
            let path = self.path_of(ticket)?;
            let Some(claim) = self.claim(&[&path], Scope::Name) else {
                self.removal_failed(ticket.number);
                return None;
            };
            // It may have been renamed meanwhile.
            if self.path_of(ticket)? == path {
                break (path, claim);
            }
        };
        let removed = match backend.stat(&path) {
            Ok(metadata) if describe::is_pending(&metadata) => backend.remove_file(&path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.raw_os_error() != Some(errno::NOT_FOUND) => {
                tracing::error!(%path, %error, "an unfinished file cannot be removed; trying again later");
                self.removal_failed(ticket.number);
                None
            }
            _ => {
                tracing::info!(%path, "an unfinished file was removed");
                self.forget_number(ticket.number);
                self.log().done(ticket.number);
                Some(path)
            }
        }
    }

    /// A file could not be removed: later again.
    fn removal_failed(&self, number: u64) {
        let retry = self.clock.now() + RETRY;
        if let Some(pending) = self.table().files.get_mut(&number) {
            pending.leaving = false;
            pending.expires = Some(retry);
        }
    }

    /// Nobody could be found to remove it: later again.
    pub(crate) fn postpone(&self, ticket: Ticket) {
        self.removal_failed(ticket.number);
    }

    /// Which pending file lies there, if any: to be asked before a path is removed or replaced.
    pub(crate) fn number_at(&self, path: &LogicalPath) -> Option<u64> {
        if self.count() == 0 {
            return None;
        }
        self.table().by_path.get(path).copied()
    }

    /// A client removed or replaced what was pending. Another file may be pending there by now, so it goes by number.
    pub(crate) fn forget(&self, number: Option<u64>) {
        if let Some(number) = number {
            self.forget_number(number);
            self.log().done(number);
        }
    }

    /// What lay there is gone, unless somebody holds it still.
    pub(crate) fn forget_unheld(&self, path: &LogicalPath) {
        let unheld = self
            .table()
            .at(path)
            .and_then(|pending| (pending.holders == 0 && !pending.leaving).then_some(pending.record.number));
        self.forget(unheld);
    }

    /// Pending files at or below `path`, if any.
    fn below(&self, path: &LogicalPath) -> Vec<Record> {
        if self.count() == 0 {
            return Vec::new();
        }
        let table = self.table();
        let records = table.files.values().map(|pending| &pending.record);
        records.filter(|record| record.path.is_within(path)).cloned().collect()
    }

    /// States that pending files will move from below `from` to below `to`; give the result to [`Persist::moved`].
    pub(crate) fn moving(&self, from: &LogicalPath, to: &LogicalPath) -> io::Result<Vec<Record>> {
        let mut moving = Vec::new();
        for record in self.below(from) {
            let rest = record.path.as_bytes().get(from.as_bytes().len()..).unwrap_or_default();
            let new = LogicalPath::parse(&[to.as_bytes(), rest].concat())
                .map_err(|_| io::Error::from_raw_os_error(errno::INVALID))?;
            let record = Record { also: Some(new), ..record };
            self.log().pending(&record)?;
            moving.push(record);
        }
        Ok(moving)
    }

    /// They moved, or did not.
    pub(crate) fn moved(&self, moving: Vec<Record>, done: bool) {
        for record in moving {
            let path = match record.also {
                Some(new) if done => new,
                _ => record.path,
            };
            self.place(record.number, path);
        }
    }

    /// A pending file lies there now.
    fn place(&self, number: u64, path: LogicalPath) {
        let now = {
            let mut table = self.table();
            let Some(mut pending) = table.remove(number) else { return };
            pending.record.path = path.clone();
            let now = pending.record.clone();
            table.by_path.insert(path, number);
            table.files.insert(number, pending);
            now
        };
        if let Err(error) = self.log().pending(&now) {
            tracing::warn!(path = %now.path, %error, "a rename is not in the journal");
        }
    }
}

/// Could a marked file lie there? A file that cannot be looked at now may turn up later.
fn may_be_marked(backend: &dyn Backend, path: &LogicalPath) -> bool {
    match backend.stat(path) {
        Ok(metadata) => describe::is_pending(&metadata),
        Err(error) => !matches!(error.raw_os_error(), Some(errno::NOT_FOUND | errno::NOT_A_DIRECTORY)),
    }
}
