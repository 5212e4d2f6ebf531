//! The open file itself: reads, writes, checkpoints, and letting it go.

use crate::checkpoint::Checkpoint;
use crate::checksum::{Growing, stored};
use crate::describe::{self, View};
use crate::errno::{self, os, unable};
use crate::file_services::FileServices;
use crate::lock::LockTicket;
use crate::names::FileName;
use crate::persist::{Fate, Ticket};
use crate::third_party::{HeldGrant, PullState};
use crate::writers::{FileKey, WriterTicket};
use base::{Error, ErrorKind, LogicalPath, Owner, errno_text};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Metadata, Now, StoredFile};
use vfs::{Answer, Caller, CheckpointWork, OpenFile, Piece, Spot, Value};

/// What an open file is made of.
pub(crate) struct NewFile {
    pub(crate) path: LogicalPath,
    pub(crate) key: FileKey,
    pub(crate) caller: Arc<Caller>,
    pub(crate) owner: Owner,
    pub(crate) file: Arc<dyn StoredFile>,
    /// It may be written.
    pub(crate) writer: Option<WriterTicket>,
    pub(crate) lock: LockTicket,
    pub(crate) persist: Option<Ticket>,
    pub(crate) read_only_export: bool,
    /// It is empty: what is written in order from now on is all there is to it.
    pub(crate) empty: bool,
    /// Checksums may be stored with it.
    pub(crate) has_checksums: bool,
    /// It is the destination of a copy.
    pub(crate) pull: Option<Arc<PullState>>,
    /// It was opened for a copy of which it is the source.
    pub(crate) stays_here: bool,
    /// This server copies files from and to others.
    pub(crate) offers_copies: bool,
}

/// Operations on the pool, and what to do when the last has ended.
#[derive(Default)]
pub(crate) struct Flight {
    pub(crate) count: usize,
    pub(crate) closing: bool,
    pub(crate) then: Option<Box<dyn FnOnce() + Send>>,
}

/// The open file itself, which lives until its last operation has ended.
pub(crate) struct Open {
    pub(crate) services: Arc<FileServices>,
    pub(crate) path: LogicalPath,
    /// The client, which may have left.
    pub(crate) caller: Arc<Caller>,
    /// Its session.
    pub(crate) owner: Owner,
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) writable: bool,
    key: FileKey,
    read_only_export: bool,
    /// A write failed: what is there is not what the client sent.
    pub(crate) failed: AtomicBool,
    /// Its share in a file that persists only on successful close.
    persist: Option<Ticket>,
    /// There is a checkpoint: writes must save first.
    has_checkpoint: AtomicBool,
    checkpoint: Mutex<Option<Checkpoint>>,
    /// No checksum is stored with it any more.
    bare: AtomicBool,
    /// Its name, which a sync makes stable, if it may be written.
    name: Option<FileName>,
    /// It was changed by this handle.
    changed: AtomicBool,
    growing: Growing,
    /// It is the destination of a copy, which alone writes it.
    pull: Option<Arc<PullState>>,
    pub(crate) stays_here: bool,
    pub(crate) offers_copies: bool,
    /// It was opened to grant it to a destination.
    grant: Mutex<Option<HeldGrant>>,
    tickets: Mutex<Option<Tickets>>,
    flight: Mutex<Flight>,
}

/// What excludes or warns others while a file is open.
struct Tickets {
    lock: LockTicket,
    writer: Option<WriterTicket>,
}

impl Tickets {
    /// Reports whether anybody else of this server may have changed the content, under this name or another.
    fn were_disturbed(&self) -> bool {
        self.lock.was_disturbed() || self.writer.as_ref().is_some_and(WriterTicket::was_disturbed)
    }
}

/// How a file is let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parting {
    /// The client closed it; `failed` if it knows that what it wrote is bad.
    Close { failed: bool },
    /// The client vanished.
    Abandon,
}

impl Open {
    pub(crate) fn new(services: &Arc<FileServices>, new: NewFile) -> Arc<Self> {
        services.open_table.add_handle();
        let name = new.writer.is_some().then(|| services.open_table.names.enter(&new.path));
        let growing = services.checksum_type.filter(|_| new.writer.is_some() && new.empty);
        Arc::new(Self {
            services: services.clone(),
            path: new.path,
            caller: new.caller,
            owner: new.owner,
            file: new.file,
            writable: new.writer.is_some(),
            key: new.key,
            read_only_export: new.read_only_export,
            failed: AtomicBool::new(false),
            persist: new.persist,
            has_checkpoint: AtomicBool::new(false),
            checkpoint: Mutex::default(),
            bare: AtomicBool::new(!new.has_checksums),
            name,
            changed: AtomicBool::new(false),
            growing: Growing::new(growing),
            pull: new.pull,
            stays_here: new.stays_here,
            offers_copies: new.offers_copies,
            grant: Mutex::default(),
            tickets: Mutex::new(Some(Tickets { lock: new.lock, writer: new.writer })),
            flight: Mutex::default(),
        })
    }

    /// Returns the open file behind a handle of this crate.
    pub(crate) fn of(file: &dyn OpenFile) -> Option<&Arc<Self>> {
        file.as_any().downcast_ref()
    }

    /// Releases a file that has not been announced, because its creation failed. May block.
    pub(crate) fn release_here(&self) {
        let mut flight = self.flight();
        if !flight.closing && flight.count == 0 {
            flight.closing = true;
            drop(flight);
            self.release(Parting::Close { failed: true });
        }
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grant of its client to a destination ends with this file.
    pub(crate) fn hold(&self, grant: HeldGrant) {
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(grant);
    }

    /// Takes back what was granted, and settles what becomes of the destination of a copy: what is not whole is as good as
    /// failed, and what is whole stays so without its client, unless that asked for more.
    fn settle_copy(&self, parting: Parting) -> Parting {
        let grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(grant) = grant {
            grant.withdraw();
        }
        let Some(pull) = &self.pull else { return parting };
        if !pull.is_whole() {
            self.failed.store(true, Ordering::Release);
            return parting;
        }
        match parting {
            Parting::Abandon if !pull.asks_persist => Parting::Close { failed: false },
            parting => parting,
        }
    }

    /// Can it be let go without waiting for a disk?
    pub(crate) fn is_quick_to_release(&self) -> bool {
        let touched = self.changed.load(Ordering::Acquire) || self.has_checkpoint.load(Ordering::Acquire);
        !touched && self.persist.is_none()
    }

    /// Lets the file go: afterwards it may be opened by anybody. An error is the first that what was written met.
    pub(crate) fn release(&self, parting: Parting) -> Answer {
        let parting = self.settle_copy(parting);
        let undone = self.undo_checkpoint();
        self.settle_checksum(parting);
        let persisted = self.settle_persist(parting);
        drop(self.tickets.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.services.open_table.remove_handle();
        undone.and(persisted).map(|()| Value::Nothing).into()
    }

    /// A checkpoint that was not committed is undone.
    fn undo_checkpoint(&self) -> Result<(), Error> {
        let Some(mut checkpoint) = self.checkpoint().take() else { return Ok(()) };
        self.has_checkpoint.store(false, Ordering::Release);
        checkpoint.roll_back().map_err(|e| Error::unable("restore checkpoint for", &self.path, e))
    }

    /// Stores the checksum of a file that was written in order. Of another that was changed, what a concurrent reading may
    /// have stored is removed.
    fn settle_checksum(&self, parting: Parting) {
        if !self.changed.load(Ordering::Acquire) {
            return;
        }
        let good = parting == (Parting::Close { failed: false }) && !self.failed.load(Ordering::Acquire);
        let grown = self.growing.finish().filter(|_| good && !self.was_disturbed());
        if let Some((checksum, length)) = grown
            && let Ok(metadata) = self.file.stat()
            && metadata.size == length
        {
            stored::store(
                (&self.services.checksums.memory, self.services.clock.as_ref()),
                &self.path,
                self.file.as_ref(),
                &metadata,
                checksum,
            );
        } else {
            self.drop_checksums();
        }
    }

    fn drop_checksums(&self) {
        if self.writable {
            stored::drop_all(&self.services.checksums.memory, self.file.as_ref(), &self.path, self.key);
        }
    }

    pub(crate) fn was_disturbed(&self) -> bool {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.as_ref().is_none_or(Tickets::were_disturbed)
    }

    fn settle_persist(&self, parting: Parting) -> Result<(), Error> {
        let Some(ticket) = self.persist else { return Ok(()) };
        let spoiled = self.failed.load(Ordering::Acquire);
        let persist = &self.services.persist;
        let path = persist.path_of(ticket);
        let fate = match parting {
            Parting::Close { failed } => persist
                .close(ticket, self.file.as_ref(), self.services.backend.as_ref(), failed || spoiled)
                .map_err(|e| Error::unable("close", &self.path, e))?,
            Parting::Abandon => persist.abandon(ticket, spoiled),
        };
        match fate {
            Fate::Kept => {}
            Fate::Persisted => self.services.events.made(path.as_ref().unwrap_or(&self.path), false),
            Fate::Doomed => {
                if let Some(path) = persist.remove(ticket, self.services.backend.as_ref()) {
                    self.services.events.gone(&path);
                }
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> MutexGuard<'_, Option<Checkpoint>> {
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file that changes has no stored checksum any more.
    fn before_change(&self) {
        if !self.bare.load(Ordering::Acquire) {
            self.drop_checksums();
            self.bare.store(true, Ordering::Release);
        }
        self.changed.store(true, Ordering::Release);
    }

    /// May a write happen on the spot? Not while something must be saved or removed first, which waits for a disk.
    pub(crate) fn is_free_to_write(&self) -> bool {
        !self.has_checkpoint.load(Ordering::Acquire) && self.bare.load(Ordering::Acquire)
    }

    /// These bytes were written on the spot.
    pub(crate) fn written_now(&self, offset: u64, bytes: &[u8]) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
        self.growing.feed(offset, bytes);
        self.growing.count(bytes.len() as u64);
    }

    /// These bytes are on their way to [`Open::write`].
    pub(crate) fn about_to_write(&self, offset: u64, bytes: &[u8]) {
        self.growing.feed(offset, bytes);
    }

    /// Changes the file, under its checkpoint if it has one. With `protected` it must have one.
    fn change<T>(
        &self,
        verb: &str,
        protected: bool,
        save: impl FnOnce(&mut Checkpoint) -> io::Result<()>,
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.before_change();
        if !protected && !self.has_checkpoint.load(Ordering::Acquire) {
            return act();
        }
        // Held over both, so that no other change comes between what is saved and what overwrites it.
        let mut checkpoint = self.checkpoint();
        match checkpoint.as_mut() {
            Some(active) => {
                save(active).map_err(|e| Error::unable(&format!("checkpoint {verb}"), &self.path, e))?;
            }
            None if protected => {
                return Err(unable(&format!("checkpoint {verb}"), &self.path, errno::NOT_FOUND));
            }
            None => {}
        }
        act()
    }

    fn check_range(&self, verb: &str, offset: u64, length: usize) -> Result<(), Error> {
        let end = offset.checked_add(length as u64);
        match end.map(i64::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => Err(unable(verb, &self.path, errno::INVALID)),
        }
    }

    pub(crate) fn check_write(&self, offset: u64, length: usize) -> Result<(), Error> {
        if !self.writable {
            return Err(unable("write", &self.path, errno::BAD_DESCRIPTOR));
        }
        self.check_blocked("write")?;
        self.check_range("write", offset, length)
    }

    /// May it be read, as far as a checkpoint that could not be undone is concerned?
    pub(crate) fn check_read(&self, offset: u64, length: usize) -> Result<(), Error> {
        self.check_range("read", offset, length)?;
        let opened = (self.key, self.file.as_ref());
        let checked = self.services.checkpoints.check_open(&self.path, opened, false);
        checked.map_err(|e| Error::unable("read", &self.path, e))
    }

    /// The answer to a read on the spot.
    pub(crate) fn read_spot(&self, read: Now<usize>) -> Spot<usize> {
        match read {
            Now::Done(Ok(read)) => Spot::Done(read),
            Now::Done(Err(error)) => Spot::Failed(Error::unable("read", &self.path, error)),
            Now::WouldBlock => Spot::WouldBlock,
        }
    }

    /// A file whose checkpoint could not be undone is not changed further, and a copy not by its client.
    fn check_blocked(&self, verb: &str) -> Result<(), Error> {
        if self.pull.is_some() {
            let text = format!("Unable to {verb} {}; it is copied from another server", self.path.text());
            return Err(Error::new(ErrorKind::InvalidRequest, text));
        }
        let opened = (self.key, self.file.as_ref());
        let checked = self.services.checkpoints.check_open(&self.path, opened, true);
        checked.map_err(|e| Error::unable(verb, &self.path, e))
    }

    /// Do all pieces lie in a buffer of this length, and may they be read?
    pub(crate) fn check_pieces(&self, length: usize, pieces: &[Piece]) -> Result<(), Error> {
        for piece in pieces {
            self.check_read(piece.offset, piece.length)?;
            if piece.at.checked_add(piece.length).is_none_or(|end| end > length) {
                return Err(unable("read", &self.path, errno::INVALID));
            }
        }
        Ok(())
    }

    pub(crate) fn read(&self, mut buffer: Vec<u8>, pieces: &[Piece]) -> Result<Value, Error> {
        let mut lengths = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let end = piece.at.checked_add(piece.length);
            let into = end.and_then(|end| buffer.get_mut(piece.at..end));
            let into = into.ok_or_else(|| unable("read", &self.path, errno::INVALID))?;
            let read =
                self.file.read(piece.offset, into).map_err(|e| Error::unable("read", &self.path, e))?;
            lengths.push(read);
        }
        Ok(Value::Data { buffer, lengths })
    }

    pub(crate) fn write(&self, buffer: Vec<u8>, offset: u64, protected: bool) -> Result<Value, Error> {
        let length = buffer.len() as u64;
        let save = |checkpoint: &mut Checkpoint| checkpoint.before_write(offset, length);
        self.change("write", protected, save, || {
            self.file.write(offset, &buffer).map_err(|e| self.write_failed("write", e))
        })?;
        self.growing.count(length);
        Ok(Value::Written { buffer })
    }

    /// Writes what a copy has brought, after [`Open::about_to_write`].
    pub(crate) fn write_pulled(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_range("write", offset, bytes.len())?;
        self.before_change();
        self.file.write(offset, bytes).map_err(|e| self.write_failed("write", e))?;
        self.growing.count(bytes.len() as u64);
        Ok(())
    }

    /// An operation that makes what was written doubtful.
    pub(crate) fn write_failed(&self, verb: &str, error: io::Error) -> Error {
        if self.writable {
            self.failed.store(true, Ordering::Release);
        }
        Error::unable(verb, &self.path, error)
    }

    pub(crate) fn truncate(&self, size: u64, protected: bool) -> Result<Value, Error> {
        self.check_blocked("truncate")?;
        self.growing.end();
        self.change(
            "truncate",
            protected,
            |checkpoint| checkpoint.before_truncate(size),
            || self.file.truncate(size).map_err(|e| self.write_failed("truncate", e)),
        )?;
        Ok(Value::Nothing)
    }

    pub(crate) fn sync(&self) -> Result<Value, Error> {
        self.file.sync().map_err(|e| self.write_failed("sync", e))?;
        // Data that was synced must be found by its name after a loss of power.
        let synced = self.name.as_ref().map(|name| name.sync(self.services.backend.as_ref()));
        synced.transpose().map_err(|e| Error::unable("sync", &self.path, e))?;
        Ok(Value::Nothing)
    }

    /// May a range be cloned to here?
    pub(crate) fn check_clone(&self, offset: u64) -> Result<(), Error> {
        self.check_range("clone", offset, 0)?;
        self.check_blocked("clone")
    }

    /// Does `begin` after the range that it is about to overwrite was saved, if there is a checkpoint.
    pub(crate) fn before_clone<T>(
        &self,
        offset: u64,
        length: u64,
        begin: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.end_running_checksum();
        self.change("clone", false, |checkpoint| checkpoint.before_write(offset, length), begin)
    }

    /// The file is written in another way than in order from its start.
    pub(crate) fn end_running_checksum(&self) {
        self.growing.end();
    }

    /// What was written is not what its client wanted.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Is it a file that persists only on successful close?
    pub(crate) fn persists_on_close(&self) -> bool {
        self.persist.is_some()
    }

    /// May a checkpoint be started by this handle?
    pub(crate) fn check_begin(&self) -> Result<(), Error> {
        let conflict = |what: &str, context: &str| {
            let reason = errno_text(&os(errno::NOT_A_TERMINAL));
            let text =
                format!("Unable to create checkpoint for {what} {}; {reason}{context}", self.path.text());
            Error::new(ErrorKind::Conflict, text)
        };
        if !self.services.checkpoints.config.enabled {
            return Err(unable("create checkpoint for", &self.path, errno::UNSUPPORTED));
        }
        if !self.writable {
            let context = "\nAdditional context: ofs_CreateCKP: file is not open in r/w mode";
            return Err(conflict("R/O", context));
        }
        if self.persist.is_some() {
            return Err(conflict("POSC file", ""));
        }
        Ok(())
    }

    pub(crate) fn run_checkpoint(&self, work: CheckpointWork) -> Result<Value, Error> {
        let mut slot = self.checkpoint();
        let verb = match work {
            CheckpointWork::Begin => {
                let fail = |e| Error::unable("create checkpoint for", &self.path, e);
                if slot.is_some() {
                    return Err(fail(os(errno::EXISTS)));
                }
                *slot = Some(
                    self.services
                        .checkpoints
                        .begin(&self.path, &self.file, self.services.backend.as_ref())
                        .map_err(fail)?,
                );
                self.has_checkpoint.store(true, Ordering::Release);
                self.growing.end();
                return Ok(Value::Nothing);
            }
            CheckpointWork::Commit => "delete checkpoint for",
            CheckpointWork::Query => "query checkpoint for",
            CheckpointWork::RollBack => "restore checkpoint for",
        };
        let Some(active) = slot.as_mut() else { return Err(unable(verb, &self.path, errno::NOT_FOUND)) };
        let fail = |e| Error::unable(verb, &self.path, e);
        match work {
            CheckpointWork::Query => {
                let max = self.services.checkpoints.config.bytes_max;
                return Ok(Value::CheckpointSize { max, used: active.used() });
            }
            CheckpointWork::Commit => active.commit().map_err(fail)?,
            _ => {
                // Whatever comes of it, this checkpoint is over: what it could not restore is blocked.
                let undone = active.roll_back().map_err(fail);
                self.has_checkpoint.store(false, Ordering::Release);
                *slot = None;
                if undone.is_err() {
                    self.failed.store(true, Ordering::Release);
                }
                return undone.map(|()| Value::Nothing);
            }
        }
        self.has_checkpoint.store(false, Ordering::Release);
        *slot = None;
        Ok(Value::Nothing)
    }

    pub(crate) fn stat(&self) -> Result<Value, Error> {
        let metadata = self.file.stat().map_err(|e| Error::unable("stat", &self.path, e))?;
        Ok(Value::Stat(describe::stat(&metadata, self.services.users.as_ref(), self.view(&metadata))))
    }

    /// The same if it can be told without waiting.
    pub(crate) fn stat_now(&self) -> Option<Value> {
        let Now::Done(Ok(metadata)) = self.file.stat_now() else { return None };
        describe::stat_now(&metadata, self.services.users.as_ref(), self.view(&metadata)).map(Value::Stat)
    }

    /// A marked file is pending if this server knows its name as such, or if this handle would have made it whole: it may have
    /// lost its name.
    fn view(&self, metadata: &Metadata) -> View {
        let pending = describe::has_mark_bit(metadata)
            && (self.persist.is_some() || self.services.persist.is_known(metadata));
        View { read_only: self.read_only_export, pending }
    }
}
