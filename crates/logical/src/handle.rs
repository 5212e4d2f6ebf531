//! An open file: reads, writes, close, abandon.
//!
//! What is served on the spot takes no lock that another connection could hold. Operations on the pool are counted, so
//! that a file whose client vanished is released only when the last of them has ended.

use crate::attribute;
use crate::checkpoint::Checkpoint;
use crate::describe;
use crate::job;
use crate::lock::LockTicket;
use crate::persist::{Fate, Ticket};
use crate::shared::{Shared, errno, os, unable};
use base::{Error, ErrorKind, LogicalPath, errno_text};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Now, StoredFile};
use vfs::{
    Answer, CheckpointWork, CloneRange, FileOperation, OpenFile, Piece, ReplyTo, Spot, Started, Value,
};

/// What a handle is made of.
pub(crate) struct NewHandle {
    pub(crate) path: LogicalPath,
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) writable: bool,
    pub(crate) lock: LockTicket,
    pub(crate) persist: Option<Ticket>,
    pub(crate) read_only_export: bool,
}

/// A session's hold on an open file. Dropped without a close, it counts as abandoned.
pub(crate) struct Handle(Arc<Open>);

/// The open file itself, which lives until its last operation has ended.
pub(crate) struct Open {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: LogicalPath,
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) writable: bool,
    read_only_export: bool,
    /// A write failed: what is there is not what the client sent.
    pub(crate) failed: AtomicBool,
    /// Its share in a file that persists only on successful close.
    persist: Option<Ticket>,
    /// There is a checkpoint: writes must save first.
    has_checkpoint: AtomicBool,
    checkpoint: Mutex<Option<Checkpoint>>,
    lock: Mutex<Option<LockTicket>>,
    flight: Mutex<Flight>,
}

/// Operations on the pool, and what to do when the last has ended.
#[derive(Default)]
struct Flight {
    count: usize,
    closing: bool,
    then: Option<Box<dyn FnOnce() + Send>>,
}

/// How a file is let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parting {
    /// The client closed it; `failed` if it knows that what it wrote is bad.
    Close { failed: bool },
    /// The client vanished.
    Abandon,
}

impl Handle {
    pub(crate) fn open(shared: &Arc<Shared>, new: NewHandle) -> Arc<Self> {
        shared.count_open(true);
        Arc::new(Self(Arc::new(Open {
            shared: shared.clone(),
            path: new.path,
            file: new.file,
            writable: new.writable,
            read_only_export: new.read_only_export,
            failed: AtomicBool::new(false),
            persist: new.persist,
            has_checkpoint: AtomicBool::new(false),
            checkpoint: Mutex::default(),
            lock: Mutex::new(Some(new.lock)),
            flight: Mutex::default(),
        })))
    }

    pub(crate) fn stored(&self) -> &Arc<dyn StoredFile> {
        &self.0.file
    }

    /// Lets the file go when nothing is in flight any more, and then answers.
    fn part(&self, parting: Parting, reply: Option<&ReplyTo>) -> Started {
        let mut flight = self.0.flight();
        if flight.closing {
            return fail(unable("close", &self.0.path, errno::BAD_DESCRIPTOR));
        }
        flight.closing = true;
        if flight.count == 0 && self.0.is_quick_to_release() {
            drop(flight);
            return Started::Done(self.0.release(parting));
        }
        let open = self.0.clone();
        let reply = reply.map(ReplyTo::defer);
        let release = move || {
            let answer = open.release(parting);
            if let Some(reply) = reply {
                reply.send(answer);
            }
        };
        let pool = self.0.file.pool().clone();
        // A full pool must not keep a lock for ever: then it happens here.
        let on_pool = move || {
            if let Err(job) = pool.run(Box::new(release)) {
                job();
            }
        };
        if flight.count > 0 {
            flight.then = Some(Box::new(on_pool));
        } else {
            drop(flight);
            on_pool();
        }
        Started::Pending
    }

    /// Runs `work` on the file's pool.
    fn on_pool(&self, reply: &ReplyTo, work: impl FnOnce(&Arc<Open>) -> Answer + Send + 'static) -> Started {
        let Some(flying) = Flying::new(&self.0) else {
            return fail(unable("access", &self.0.path, errno::BAD_DESCRIPTOR));
        };
        job::spawn(self.0.file.pool(), reply, move || work(&flying.0))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.flight().closing {
            self.part(Parting::Abandon, None);
        }
    }
}

/// One operation on the pool.
struct Flying(Arc<Open>);

impl Flying {
    fn new(open: &Arc<Open>) -> Option<Self> {
        let mut flight = open.flight();
        if flight.closing {
            return None;
        }
        flight.count += 1;
        Some(Self(open.clone()))
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        let mut flight = self.0.flight();
        flight.count -= 1;
        if flight.count == 0
            && let Some(then) = flight.then.take()
        {
            drop(flight);
            then();
        }
    }
}

impl Open {
    fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can it be let go without waiting for a disk?
    fn is_quick_to_release(&self) -> bool {
        !self.writable
    }

    /// Lets the file go: afterwards it may be opened by anybody. An error is the first that what was written met.
    fn release(&self, parting: Parting) -> Answer {
        let undone = self.undo_checkpoint();
        let persisted = self.settle_persist(parting);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.count_open(false);
        undone.and(persisted).map(|()| Value::Nothing).into()
    }

    /// A checkpoint that was not committed is undone.
    fn undo_checkpoint(&self) -> Result<(), Error> {
        let Some(mut checkpoint) = self.checkpoint().take() else { return Ok(()) };
        self.has_checkpoint.store(false, Ordering::Release);
        checkpoint.roll_back().map_err(|e| Error::unable("restore checkpoint for", &self.path, e))
    }

    fn settle_persist(&self, parting: Parting) -> Result<(), Error> {
        let Some(ticket) = self.persist else { return Ok(()) };
        let spoiled = self.failed.load(Ordering::Acquire);
        let persist = &self.shared.persist;
        let fate = match parting {
            Parting::Close { failed } => persist
                .close(ticket, self.file.as_ref(), failed || spoiled)
                .map_err(|e| Error::unable("close", &self.path, e))?,
            Parting::Abandon => persist.abandon(ticket, spoiled),
        };
        if fate == Fate::Doomed {
            persist.remove(ticket, self.shared.backend.as_ref());
        }
        Ok(())
    }

    fn checkpoint(&self) -> MutexGuard<'_, Option<Checkpoint>> {
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the file, under its checkpoint if it has one. With `protected` it must have one.
    fn change<T>(
        &self,
        verb: &str,
        protected: bool,
        save: impl FnOnce(&mut Checkpoint) -> io::Result<()>,
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
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

    fn check_write(&self, offset: u64, length: usize) -> Result<(), Error> {
        if !self.writable {
            return Err(unable("write", &self.path, errno::BAD_DESCRIPTOR));
        }
        self.check_blocked("write")?;
        self.check_range("write", offset, length)
    }

    /// A file whose checkpoint could not be undone is not changed further.
    fn check_blocked(&self, verb: &str) -> Result<(), Error> {
        let checked = self.shared.checkpoints.check_open(&self.path, true);
        checked.map_err(|e| Error::unable(verb, &self.path, e))
    }

    fn read(&self, mut buffer: Vec<u8>, pieces: &[Piece]) -> Result<Value, Error> {
        let mut lengths = Vec::with_capacity(pieces.len());
        for piece in pieces {
            self.check_range("read", piece.offset, piece.length)?;
            let end = piece.at.checked_add(piece.length);
            let into = end.and_then(|end| buffer.get_mut(piece.at..end));
            let into = into.ok_or_else(|| unable("read", &self.path, errno::INVALID))?;
            let read =
                self.file.read(piece.offset, into).map_err(|e| Error::unable("read", &self.path, e))?;
            lengths.push(read);
        }
        Ok(Value::Data { buffer, lengths })
    }

    fn write(&self, buffer: Vec<u8>, offset: u64, protected: bool) -> Result<Value, Error> {
        let length = buffer.len() as u64;
        let save = |checkpoint: &mut Checkpoint| checkpoint.before_write(offset, length);
        self.change("write", protected, save, || {
            self.file.write(offset, &buffer).map_err(|e| self.write_failed("write", e))
        })?;
        Ok(Value::Written { buffer })
    }

    /// An operation that makes what was written doubtful.
    fn write_failed(&self, verb: &str, error: io::Error) -> Error {
        if self.writable {
            self.failed.store(true, Ordering::Release);
        }
        Error::unable(verb, &self.path, error)
    }

    fn truncate(&self, size: u64, protected: bool) -> Result<Value, Error> {
        self.check_blocked("truncate")?;
        self.change(
            "truncate",
            protected,
            |checkpoint| checkpoint.before_truncate(size),
            || self.file.truncate(size).map_err(|e| self.write_failed("truncate", e)),
        )?;
        Ok(Value::Nothing)
    }

    fn sync(&self) -> Result<Value, Error> {
        self.file.sync().map_err(|e| self.write_failed("sync", e))?;
        Ok(Value::Nothing)
    }

    fn clone_ranges(&self, ranges: &[CloneRange]) -> Result<Value, Error> {
        let fail = |error: io::Error| {
            let text = format!("Unable to clone {} from file ranges; {}", self.path, errno_text(&error));
            Error { kind: ErrorKind::from_io(&error), text, source: Some(error) }
        };
        for range in ranges {
            let source = range.source.as_any().downcast_ref::<Handle>();
            let source = source.ok_or_else(|| fail(os(errno::UNSUPPORTED)))?.stored();
            self.check_range("clone", range.offset, 0)?;
            self.check_blocked("clone")?;
            let save = |checkpoint: &mut Checkpoint| checkpoint.before_write(range.offset, range.length);
            self.change("clone", false, save, || {
                let cloned =
                    self.file.clone_range(source.as_ref(), range.source_offset, range.length, range.offset);
                cloned.map_err(|error| {
                    self.failed.store(true, Ordering::Release);
                    fail(error)
                })
            })?;
        }
        Ok(Value::Nothing)
    }

    /// May a checkpoint be started by this handle?
    fn check_begin(&self) -> Result<(), Error> {
        let conflict = |what: &str, context: &str| {
            let reason = errno_text(&os(errno::NOT_A_TERMINAL));
            let text = format!("Unable to create checkpoint for {what} {}; {reason}{context}", self.path);
            Error::new(ErrorKind::Conflict, text)
        };
        if !self.shared.checkpoints.config.enabled {
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

    fn run_checkpoint(&self, work: CheckpointWork) -> Result<Value, Error> {
        let mut slot = self.checkpoint();
        let verb = match work {
            CheckpointWork::Begin => {
                let fail = |e| Error::unable("create checkpoint for", &self.path, e);
                if slot.is_some() {
                    return Err(fail(os(errno::EXISTS)));
                }
                *slot = Some(self.shared.checkpoints.begin(&self.path, &self.file).map_err(fail)?);
                self.has_checkpoint.store(true, Ordering::Release);
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
                let max = self.shared.checkpoints.config.bytes_max;
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
}

fn fail(error: Error) -> Started {
    Started::Done(Answer::Error(error))
}

impl OpenFile for Handle {
    fn path(&self) -> &LogicalPath {
        &self.0.path
    }

    fn is_writable(&self) -> bool {
        self.0.writable
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Spot<usize> {
        if let Err(error) = self.0.check_range("read", offset, into.len()) {
            return Spot::Failed(error);
        }
        match self.0.file.read_now(offset, into) {
            Now::Done(Ok(read)) => Spot::Done(read),
            Now::Done(Err(error)) => Spot::Failed(Error::unable("read", &self.0.path, error)),
            Now::WouldBlock => Spot::WouldBlock,
        }
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Spot<()> {
        if let Err(error) = self.0.check_write(offset, from.len()) {
            return Spot::Failed(error);
        }
        // What it overwrites must be saved first, which waits for a disk.
        if self.0.has_checkpoint.load(Ordering::Acquire) {
            return Spot::WouldBlock;
        }
        match self.0.file.write_now(offset, from) {
            Now::Done(Ok(())) => Spot::Done(()),
            Now::Done(Err(error)) => Spot::Failed(self.0.write_failed("write", error)),
            Now::WouldBlock => Spot::WouldBlock,
        }
    }

    fn lend(&self) -> Option<BorrowedFd<'_>> {
        self.0.file.descriptor()
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        self.0.file.is_resident(offset, length)
    }

    fn size_now(&self) -> Option<u64> {
        self.0.file.stat().ok().map(|metadata| metadata.size)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.0.file.prefetch(offset, length);
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let open = &self.0;
        match operation {
            FileOperation::Read { buffer, pieces } => {
                self.on_pool(reply, move |open| open.read(buffer, &pieces).into())
            }
            FileOperation::Write { buffer, offset, checkpoint } => {
                match open.check_write(offset, buffer.len()) {
                    Ok(()) => self.on_pool(reply, move |open| open.write(buffer, offset, checkpoint).into()),
                    Err(error) => fail(error),
                }
            }
            FileOperation::Sync => self.on_pool(reply, |open| open.sync().into()),
            FileOperation::Truncate { size, checkpoint } => {
                if !open.writable || i64::try_from(size).is_err() {
                    return fail(unable("truncate", &open.path, errno::INVALID));
                }
                self.on_pool(reply, move |open| open.truncate(size, checkpoint).into())
            }
            FileOperation::Stat => Started::Done(open.stat().into()),
            FileOperation::Close { failed } => self.part(Parting::Close { failed }, Some(reply)),
            FileOperation::Abandon => self.part(Parting::Abandon, Some(reply)),
            FileOperation::Checkpoint(work) => {
                if work == CheckpointWork::Begin
                    && let Err(error) = open.check_begin()
                {
                    return fail(error);
                }
                self.on_pool(reply, move |open| open.run_checkpoint(work).into())
            }
            FileOperation::CloneFrom(ranges) => {
                if !open.writable {
                    let text = "clone does not refer to an open dest file";
                    return fail(Error::new(ErrorKind::FileNotOpen, text));
                }
                self.on_pool(reply, move |open| open.clone_ranges(&ranges).into())
            }
            FileOperation::Attributes(work) => {
                match attribute::check_handle(&open.shared, &open.path, open.writable, &work) {
                    Ok(()) => self.on_pool(reply, move |open| attribute::on_file(open, work).into()),
                    Err(error) => fail(error),
                }
            }
            FileOperation::Query { .. } => {
                fail(Error::new(ErrorKind::Unsupported, "fctl operation not supported"))
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Open {
    fn stat(&self) -> Result<Value, Error> {
        let metadata = self.file.stat().map_err(|e| Error::unable("stat", &self.path, e))?;
        Ok(Value::Stat(describe::stat(&metadata, self.shared.users.as_ref(), self.read_only_export)))
    }
}
