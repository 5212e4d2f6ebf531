//! An open file: reads, writes, close, abandon.
//!
//! What is served on the spot takes no lock that another connection could hold. Operations on the pool are counted, so
//! that a file whose client vanished is released only when the last of them has ended.

use crate::attribute;
use crate::describe;
use crate::job;
use crate::lock::LockTicket;
use crate::shared::{Shared, errno, os, unable};
use base::{Error, ErrorKind, LogicalPath, errno_text};
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use storage::{Now, StoredFile};
use vfs::{Answer, CloneRange, FileOperation, OpenFile, Piece, ReplyTo, Spot, Started, Value};

/// What a handle is made of.
pub(crate) struct NewHandle {
    pub(crate) path: LogicalPath,
    pub(crate) file: Arc<dyn StoredFile>,
    pub(crate) writable: bool,
    pub(crate) lock: LockTicket,
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

    /// Lets the file go: afterwards it may be opened by anybody.
    fn release(&self, parting: Parting) -> Answer {
        let _ = parting;
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.count_open(false);
        Answer::DONE
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
        self.check_range("write", offset, length)
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

    fn write(&self, buffer: Vec<u8>, offset: u64) -> Result<Value, Error> {
        self.file.write(offset, &buffer).map_err(|e| self.write_failed(e))?;
        Ok(Value::Written { buffer })
    }

    fn write_failed(&self, error: std::io::Error) -> Error {
        self.failed.store(true, Ordering::Release);
        Error::unable("write", &self.path, error)
    }

    fn truncate(&self, size: u64) -> Result<Value, Error> {
        self.file.truncate(size).map_err(|e| {
            self.failed.store(true, Ordering::Release);
            Error::unable("truncate", &self.path, e)
        })?;
        Ok(Value::Nothing)
    }

    fn clone_ranges(&self, ranges: &[CloneRange]) -> Result<Value, Error> {
        let fail = |error: std::io::Error| {
            let text = format!("Unable to clone {} from file ranges; {}", self.path, errno_text(&error));
            Error { kind: ErrorKind::from_io(&error), text, source: Some(error) }
        };
        for range in ranges {
            let source = range.source.as_any().downcast_ref::<Handle>();
            let source = source.ok_or_else(|| fail(os(errno::UNSUPPORTED)))?;
            self.file
                .clone_range(source.stored().as_ref(), range.source_offset, range.length, range.offset)
                .map_err(|error| {
                    self.failed.store(true, Ordering::Release);
                    fail(error)
                })?;
        }
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
        match self.0.file.write_now(offset, from) {
            Now::Done(Ok(())) => Spot::Done(()),
            Now::Done(Err(error)) => Spot::Failed(self.0.write_failed(error)),
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
            FileOperation::Write { buffer, offset, .. } => match open.check_write(offset, buffer.len()) {
                Ok(()) => self.on_pool(reply, move |open| open.write(buffer, offset).into()),
                Err(error) => fail(error),
            },
            FileOperation::Sync => self.on_pool(reply, |open| {
                let synced = open.file.sync().map_err(|e| open.write_failed_at("sync", e));
                synced.map(|()| Value::Nothing).into()
            }),
            FileOperation::Truncate { size, .. } => {
                if !open.writable || i64::try_from(size).is_err() {
                    return fail(unable("truncate", &open.path, errno::INVALID));
                }
                self.on_pool(reply, move |open| open.truncate(size).into())
            }
            FileOperation::Stat => Started::Done(open.stat().into()),
            FileOperation::Close { failed } => self.part(Parting::Close { failed }, Some(reply)),
            FileOperation::Abandon => self.part(Parting::Abandon, Some(reply)),
            FileOperation::Checkpoint(_) => {
                fail(unable("create checkpoint for", &open.path, errno::UNSUPPORTED))
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
    /// An operation that makes what was written doubtful.
    fn write_failed_at(&self, verb: &str, error: std::io::Error) -> Error {
        if self.writable {
            self.failed.store(true, Ordering::Release);
        }
        Error::unable(verb, &self.path, error)
    }

    fn stat(&self) -> Result<Value, Error> {
        let metadata = self.file.stat().map_err(|e| Error::unable("stat", &self.path, e))?;
        Ok(Value::Stat(describe::stat(&metadata, self.shared.users.as_ref(), self.read_only_export)))
    }
}
