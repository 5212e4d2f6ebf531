//! The open file: reads, writes, checkpoints, and its release.
//!
//! It is separate from [`crate::handle`], because it lives until its last operation has ended, even
//! if the session has closed the handle.

use crate::access_time::{self, RecordedAccess};
use crate::checkpoint::FileCheckpoint;
use crate::checksum::{GrowingChecksum, stored};
use crate::copy_mark;
use crate::copy_withdrawal::CopyWithdrawal;
use crate::describe::{self, StatView};
use crate::errno::{self, os, unable};
use crate::file_services::FileServices;
use crate::lock::LockTicket;
use crate::names::FileName;
use crate::persist::PendingTicket;
use crate::persisting_release::PersistRelease;
use crate::third_party::{HeldGrant, PullState};
use crate::writers::{FileKey, WriterTicket};
use base::{CopyRange, Error, ErrorKind, LogicalPath, Owner, ReadPiece, errno_text};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Metadata, StoredFile};
use vfs::{Answer, Caller, CheckpointWork, Now, OpenFile, Value};

/// The parts from which an open file is built.
pub(crate) struct NewFile {
    pub(crate) path: LogicalPath,
    pub(crate) key: FileKey,
    pub(crate) caller: Arc<Caller>,
    pub(crate) owner: Owner,
    pub(crate) file: Arc<dyn StoredFile>,
    /// Present if the file may be written.
    pub(crate) writer: Option<WriterTicket>,
    pub(crate) lock: LockTicket,
    pub(crate) persist: Option<PendingTicket>,
    /// The lock on the file that this one replaces when it is closed.
    pub(crate) replaced_lock: Option<Arc<LockTicket>>,
    pub(crate) read_only_export: bool,
    /// The access by the open, on exports that record accesses.
    pub(crate) access: Option<RecordedAccess>,
    /// The file is empty. If it is written in order, its checksum can be computed while it is
    /// written.
    pub(crate) empty: bool,
    /// Checksums may be stored with the file.
    pub(crate) has_checksums: bool,
    /// The file can have a copy in mass storage.
    pub(crate) has_copies: bool,
    /// The file is the destination of a third-party copy.
    pub(crate) pull: Option<Arc<PullState>>,
    /// The file was opened as the source of a third-party copy.
    pub(crate) needs_this_server: bool,
    /// This server offers third-party copies.
    pub(crate) offers_copies: bool,
}

/// The operations in progress on the pool, and the action after the last one has ended.
#[derive(Default)]
pub(crate) struct OperationsInFlight {
    pub(crate) count: usize,
    pub(crate) closing: bool,
    pub(crate) then: Option<Box<dyn FnOnce() + Send>>,
}

/// The open file, which lives until its last operation has ended.
pub(crate) struct OpenFileState {
    pub(crate) services: Arc<FileServices>,
    pub(crate) path: LogicalPath,
    /// The client, which may have left.
    pub(crate) caller: Arc<Caller>,
    /// The session of the client.
    pub(crate) owner: Owner,
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) writable: bool,
    key: FileKey,
    read_only_export: bool,
    access: Option<RecordedAccess>,
    /// A write failed, so the content differs from what the client sent.
    pub(crate) failed: AtomicBool,
    /// The ticket of a file that persists only on successful close.
    persist: Option<PendingTicket>,
    /// The file replaces another one when it is closed.
    is_replacement: bool,
    /// A checkpoint is active, so changes must save the old bytes first.
    has_checkpoint: AtomicBool,
    checkpoint: Mutex<Option<FileCheckpoint>>,
    /// No checksum is stored with the file.
    no_stored_checksum: AtomicBool,
    copy: CopyWithdrawal,
    /// The registered name of a writable file, which a sync makes durable.
    name: Option<FileName>,
    /// The file was changed through this handle.
    changed: AtomicBool,
    growing: GrowingChecksum,
    /// The file is the destination of a third-party copy, and only that copy writes it.
    pull: Option<Arc<PullState>>,
    pub(crate) needs_this_server: bool,
    pub(crate) offers_copies: bool,
    /// The grant to a destination for which this file was opened.
    grant: Mutex<Option<HeldGrant>>,
    tickets: Mutex<Option<Tickets>>,
    flight: Mutex<OperationsInFlight>,
}

/// The tickets by which other operations know that the file is open.
struct Tickets {
    lock: LockTicket,
    /// That of the file that is replaced.
    _replaced: Option<Arc<LockTicket>>,
    writer: Option<WriterTicket>,
}

impl Tickets {
    /// Reports whether another user of this server may have changed the content, under any name.
    fn were_disturbed(&self) -> bool {
        self.lock.was_disturbed() || self.writer.as_ref().is_some_and(WriterTicket::was_disturbed)
    }
}

/// The reason for releasing a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseReason {
    /// The client closed it; `failed` if the client reports that its data is bad.
    Close { failed: bool },
    /// The client disconnected.
    Abandon,
}

impl OpenFileState {
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
            access: new.access,
            failed: AtomicBool::new(false),
            persist: new.persist,
            is_replacement: new.replaced_lock.is_some(),
            has_checkpoint: AtomicBool::new(false),
            checkpoint: Mutex::default(),
            no_stored_checksum: AtomicBool::new(!new.has_checksums),
            copy: CopyWithdrawal::new(new.writer.as_ref().filter(|_| new.has_copies)),
            name,
            changed: AtomicBool::new(false),
            growing: GrowingChecksum::new(growing),
            pull: new.pull,
            needs_this_server: new.needs_this_server,
            offers_copies: new.offers_copies,
            grant: Mutex::default(),
            tickets: Mutex::new(Some(Tickets {
                lock: new.lock,
                _replaced: new.replaced_lock,
                writer: new.writer,
            })),
            flight: Mutex::default(),
        })
    }

    /// Returns the open file behind a handle of this crate.
    pub(crate) fn of(file: &dyn OpenFile) -> Option<&Arc<Self>> {
        file.as_any().downcast_ref()
    }

    /// Releases a file that was not announced, because its creation failed. May block.
    pub(crate) fn release_unannounced(&self) {
        let mut flight = self.flight();
        if !flight.closing && flight.count == 0 {
            flight.closing = true;
            drop(flight);
            self.release(ReleaseReason::Close { failed: true });
        }
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, OperationsInFlight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a grant of the client to a destination, which ends with this file.
    pub(crate) fn set_grant(&self, grant: HeldGrant) {
        *self.grant.lock().unwrap_or_else(PoisonError::into_inner) = Some(grant);
    }

    /// Withdraws the grant, and decides about the destination of a third-party copy. An incomplete
    /// copy counts as failed. A complete one stays even if its client disconnects, unless the
    /// client requested persist on close.
    fn finish_copy(&self, parting: ReleaseReason) -> ReleaseReason {
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
            ReleaseReason::Abandon if !pull.asks_persist => ReleaseReason::Close { failed: false },
            parting => parting,
        }
    }

    /// Reports whether the file can be released without waiting for a disk.
    pub(crate) fn is_quick_to_release(&self) -> bool {
        let touched = self.changed.load(Ordering::Acquire) || self.has_checkpoint.load(Ordering::Acquire);
        !touched && self.persist.is_none() && !self.is_access_due()
    }

    /// Reports whether the end of the use is to be recorded as an access.
    fn is_access_due(&self) -> bool {
        self.access.as_ref().is_some_and(|access| access.is_old(self.services.clock.as_ref()))
    }

    /// Releases the file, after which other clients may open it. Returns the first error that a
    /// write met.
    pub(crate) fn release(&self, parting: ReleaseReason) -> Answer {
        let parting = self.finish_copy(parting);
        if self.is_access_due() {
            access_time::record(self.services.backend.as_ref(), &self.path);
        }
        let undone = self.undo_checkpoint();
        self.finish_checksum(parting);
        let persisted = self.finish_persist(parting);
        drop(self.tickets.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.services.open_table.remove_handle();
        undone.and(persisted).map(|()| Value::Nothing).into()
    }

    /// Undoes a checkpoint that was not committed.
    fn undo_checkpoint(&self) -> Result<(), Error> {
        let Some(mut checkpoint) = self.checkpoint().take() else { return Ok(()) };
        self.has_checkpoint.store(false, Ordering::Release);
        checkpoint.roll_back().map_err(|e| Error::unable("restore checkpoint for", &self.path, e))
    }

    /// Stores the checksum of a file that was written in order. Removes the stored checksums of any
    /// other file that was changed, because a concurrent read may have stored one.
    fn finish_checksum(&self, parting: ReleaseReason) {
        if !self.changed.load(Ordering::Acquire) {
            return;
        }
        let good =
            parting == (ReleaseReason::Close { failed: false }) && !self.failed.load(Ordering::Acquire);
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

    fn finish_persist(&self, parting: ReleaseReason) -> Result<(), Error> {
        let Some(ticket) = self.persist else { return Ok(()) };
        let spoiled = self.failed.load(Ordering::Acquire);
        let release = PersistRelease { ticket, parting, spoiled, is_replacement: self.is_replacement };
        release.finish(&self.services, &self.path, self.file.as_ref())
    }

    fn checkpoint(&self) -> MutexGuard<'_, Option<FileCheckpoint>> {
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Withdraws the copy in mass storage and removes the stored checksums before a change.
    fn before_change(&self, verb: &str) -> Result<(), Error> {
        self.copy.before_change(self.file.as_ref()).map_err(|error| {
            self.note_failure();
            copy_mark::cannot_reset(verb, &self.path, error)
        })?;
        if !self.no_stored_checksum.load(Ordering::Acquire) {
            self.drop_checksums();
            self.no_stored_checksum.store(true, Ordering::Release);
        }
        self.changed.store(true, Ordering::Release);
        Ok(())
    }

    /// Reports whether a write may be made without waiting. It may not while old bytes must be
    /// saved, or the copy in mass storage withdrawn, or checksums removed first.
    pub(crate) fn is_free_to_write(&self) -> bool {
        let no_checksum = self.no_stored_checksum.load(Ordering::Acquire);
        no_checksum && self.copy.is_done() && !self.has_checkpoint.load(Ordering::Acquire)
    }

    /// Records a write that was made without waiting.
    pub(crate) fn written_now(&self, offset: u64, bytes: &[u8]) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
        self.growing.feed(offset, bytes);
        self.growing.count(bytes.len() as u64);
    }

    /// Records the bytes that [`OpenFileState::write`] is going to write.
    pub(crate) fn about_to_write(&self, offset: u64, bytes: &[u8]) {
        self.growing.feed(offset, bytes);
    }

    /// Changes the file, and first saves the old bytes if there is a checkpoint. With `protected` a
    /// checkpoint is required.
    fn change<T>(
        &self,
        verb: &str,
        protected: bool,
        save: impl FnOnce(&mut FileCheckpoint) -> io::Result<()>,
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.before_change(verb)?;
        if !protected && !self.has_checkpoint.load(Ordering::Acquire) {
            return act();
        }
        // The lock is held during both steps, so that no other change comes between saving and
        // overwriting.
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

    /// Checks whether the file may be read. It may not if its checkpoint could not be undone.
    pub(crate) fn check_read(&self, offset: u64, length: usize) -> Result<(), Error> {
        self.check_range("read", offset, length)?;
        let opened = (self.key, self.file.as_ref());
        let checked = self.services.checkpoints.blocked().check_open(&self.path, opened, false);
        checked.map_err(|e| Error::unable("read", &self.path, e))
    }

    /// Converts the result of a read without waiting.
    pub(crate) fn read_result(&self, read: storage::Now<usize>) -> Now<usize> {
        match read {
            Now::Done(read) => Now::Done(read.map_err(|error| Error::unable("read", &self.path, error))),
            Now::WouldBlock => Now::WouldBlock,
        }
    }

    /// Refuses changes of a file whose checkpoint could not be undone, and changes by a client of
    /// the destination of a copy.
    fn check_blocked(&self, verb: &str) -> Result<(), Error> {
        if self.pull.is_some() {
            let text = format!("Unable to {verb} {}; it is copied from another server", self.path.text());
            return Err(Error::new(ErrorKind::InvalidRequest, text));
        }
        let opened = (self.key, self.file.as_ref());
        let checked = self.services.checkpoints.blocked().check_open(&self.path, opened, true);
        checked.map_err(|e| Error::unable(verb, &self.path, e))
    }

    /// Checks that all pieces fit into a buffer of this length, and may be read.
    pub(crate) fn check_pieces(&self, length: usize, pieces: &[ReadPiece]) -> Result<(), Error> {
        for piece in pieces {
            self.check_read(piece.extent.offset, piece.extent.length)?;
            if piece.place().is_none_or(|place| place.end > length) {
                return Err(unable("read", &self.path, errno::INVALID));
            }
        }
        Ok(())
    }

    pub(crate) fn read(&self, mut buffer: Vec<u8>, pieces: &[ReadPiece]) -> Result<Value, Error> {
        let mut lengths = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let into = piece.place().and_then(|place| buffer.get_mut(place));
            let into = into.ok_or_else(|| unable("read", &self.path, errno::INVALID))?;
            let read = self.file.read(piece.extent.offset, into);
            lengths.push(read.map_err(|error| Error::unable("read", &self.path, error))?);
        }
        Ok(Value::Data { buffer, lengths })
    }

    pub(crate) fn write(&self, buffer: Vec<u8>, offset: u64, protected: bool) -> Result<Value, Error> {
        let length = buffer.len() as u64;
        let save = |checkpoint: &mut FileCheckpoint| checkpoint.before_write(offset, length);
        self.change("write", protected, save, || {
            self.file.write(offset, &buffer).map_err(|e| self.write_failed("write", e))
        })?;
        self.growing.count(length);
        Ok(Value::Written { buffer })
    }

    /// Writes data received by a copy, after [`OpenFileState::about_to_write`].
    pub(crate) fn write_pulled(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_range("write", offset, bytes.len())?;
        self.before_change("write")?;
        self.file.write(offset, bytes).map_err(|e| self.write_failed("write", e))?;
        self.growing.count(bytes.len() as u64);
        Ok(())
    }

    /// Records that a failed operation makes the content doubtful, and returns its error.
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
        // Synced data must be found under its name after a power failure.
        let synced = self.name.as_ref().map(|name| name.sync(self.services.backend.as_ref()));
        synced.transpose().map_err(|e| Error::unable("sync", &self.path, e))?;
        Ok(Value::Nothing)
    }

    /// Checks whether a range may be cloned into this file.
    pub(crate) fn check_clone(&self, range: CopyRange) -> Result<(), Error> {
        self.check_range("clone", range.to, 0)?;
        self.check_blocked("clone")
    }

    /// Saves the range that is about to be overwritten if there is a checkpoint, and then runs
    /// `begin`.
    pub(crate) fn before_clone<T>(
        &self,
        range: CopyRange,
        begin: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.end_running_checksum();
        self.change("clone", false, |checkpoint| checkpoint.before_write(range.to, range.length), begin)
    }

    /// Ends the running checksum, because the file is not written in order from its start.
    pub(crate) fn end_running_checksum(&self) {
        self.growing.end();
    }

    /// Records that the content differs from what the client sent.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Reports whether the file persists only on successful close.
    pub(crate) fn persists_on_close(&self) -> bool {
        self.persist.is_some()
    }

    /// Checks whether this handle may start a checkpoint.
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
                        .begin(
                            &self.path,
                            &self.file,
                            (self.services.backend.as_ref(), self.services.rights.user()),
                        )
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
                // The checkpoint ends in any case, because a file that could not be restored is
                // blocked.
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

    /// Returns the status if it is available without waiting.
    pub(crate) fn stat_now(&self) -> Option<Value> {
        let Now::Done(Ok(metadata)) = self.file.stat_now() else { return None };
        describe::stat_now(&metadata, self.services.users.as_ref(), self.view(&metadata)).map(Value::Stat)
    }

    /// Returns the view for a status. A marked file is pending if this server has a record of it.
    /// It also is if the close of this handle would complete it, because its name may have been
    /// removed.
    fn view(&self, metadata: &Metadata) -> StatView {
        let pending = describe::has_mark_bit(metadata)
            && (self.persist.is_some() || self.services.persist.is_known(metadata));
        StatView { read_only: self.read_only_export, pending }
    }
}
