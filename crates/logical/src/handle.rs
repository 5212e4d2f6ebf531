//! The file handle of a session: implements [`vfs::OpenFile`] for [`OpenFileState`].
//!
//! Operations served without waiting take no lock that another connection could hold. Operations on
//! the pool are counted, so that the file of a client that disconnected is released only after the
//! last of them has ended.

use crate::attribute;
use crate::clone;
use crate::errno::{self, unable};
use crate::file_services::FileServices;
use crate::in_flight::InFlight;
use crate::job;
use crate::open_file::{NewFile, OpenFileState, ReleaseReason};
use crate::third_party::{CopyTarget, RunningCopy};
use base::{Error, ErrorKind, LogicalPath, ReadPiece};
use std::any::Any;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use storage::Job;
use vfs::{Answer, CheckpointWork, FileOperation, Now, OpenFile, ReplyTo, Started, Value};

/// Code of a query with an argument on a handle. Source: xroot protocol 5.2.0, kXR_Qopaqug.
const QUERY_OPAQUE_HANDLE: u16 = 64;
/// The argument that cancels a third-party copy.
const CANCEL_COPY: &[u8] = b"ofs.tpc cancel";

/// The file handle of a session. Dropping it without a close counts as a disconnect.
pub(crate) struct LogicalHandle {
    open: Arc<OpenFileState>,
    /// The third-party copy of which this file is the destination.
    copy: Option<Arc<RunningCopy>>,
}

impl LogicalHandle {
    pub(crate) fn open(
        services: &Arc<FileServices>,
        new: NewFile,
        copy: Option<Arc<RunningCopy>>,
    ) -> Arc<Self> {
        Arc::new(Self { open: OpenFileState::new(services, new), copy })
    }

    /// Releases the file after the last operation in progress, and then answers.
    fn part(&self, parting: ReleaseReason, reply: Option<&ReplyTo>) -> Started {
        let mut flight = self.open.flight();
        if flight.closing {
            return fail(unable("close", &self.open.path, errno::BAD_DESCRIPTOR));
        }
        flight.closing = true;
        if flight.count == 0 && self.open.is_quick_to_release() {
            drop(flight);
            return Started::Done(self.open.release(parting));
        }
        let open = self.open.clone();
        let reply = reply.map(ReplyTo::defer);
        let release = move || {
            let answer = open.release(parting);
            if let Some(reply) = reply {
                reply.send(answer);
            }
        };
        let (pool, owner) = (self.open.file.pool().clone(), self.open.owner);
        // A full pool must not keep a lock for ever. The release must not run on this thread
        // either, which may be an event loop.
        let on_pool = move || pool.run_surely(owner, Box::new(release));
        if flight.count > 0 {
            flight.then = Some(Box::new(on_pool));
        } else {
            drop(flight);
            on_pool();
        }
        Started::Pending
    }

    /// Reads data that is not in memory: without a thread if the event loop can, otherwise on the
    /// pool.
    fn read(&self, buffer: Vec<u8>, pieces: Vec<ReadPiece>, reply: &ReplyTo) -> Started {
        let open = &self.open;
        if let Err(error) = open.check_pieces(buffer.len(), &pieces) {
            return fail(error);
        }
        let mut done = || -> storage::ring::Completion {
            let (flying, reply) = (InFlight::new(open), reply.defer());
            let path = open.path.clone();
            Box::new(move |buffer, result| {
                // Dropped before the reply, so that a close waits for the operation but not for the
                // reply.
                drop(flying);
                reply.send(match result {
                    Ok(lengths) => Answer::Value(Value::Data { buffer, lengths }),
                    Err(error) => Answer::Error(Error::unable("read", &path, error)),
                });
            })
        };
        match self.open.file.start_read(buffer, &pieces, &mut done) {
            Ok(()) => Started::Pending,
            Err(buffer) => {
                let range = match pieces[..] {
                    [piece] => Some(piece.extent),
                    _ => None,
                };
                let run = |job| self.open.file.read_in_pool(reply.owner(), range, job);
                self.submit_with(run, reply, move |open| open.read(buffer, &pieces).into())
            }
        }
    }

    /// Runs `work` on the pool of the file.
    fn on_pool(
        &self,
        reply: &ReplyTo,
        work: impl FnOnce(&Arc<OpenFileState>) -> Answer + Send + 'static,
    ) -> Started {
        self.submit_with(|job| self.open.file.pool().run(reply.owner(), job), reply, work)
    }

    /// Runs `work` on the pool of the file, to which `run` passes the job.
    fn submit_with(
        &self,
        run: impl FnOnce(Job) -> Result<(), Job>,
        reply: &ReplyTo,
        work: impl FnOnce(&Arc<OpenFileState>) -> Answer + Send + 'static,
    ) -> Started {
        let Some(flying) = InFlight::new(&self.open) else {
            return fail(unable("access", &self.open.path, errno::BAD_DESCRIPTOR));
        };
        job::spawn_answer(run, reply, move || work(flying.open()))
    }
}

impl Drop for LogicalHandle {
    fn drop(&mut self) {
        if !self.open.flight().closing {
            self.interrupt();
            self.part(ReleaseReason::Abandon, None);
        }
    }
}

fn fail(error: Error) -> Started {
    Started::Done(Answer::Error(error))
}

/// Answers a query on a handle. The only supported one cancels a third-party copy; the others are
/// for plug-ins.
fn query(handle: &LogicalHandle, code: u16, argument: &[u8]) -> Started {
    if code != QUERY_OPAQUE_HANDLE || argument != CANCEL_COPY || !handle.open.offers_copies {
        return fail(Error::new(ErrorKind::Unsupported, "fctl operation not supported"));
    }
    match &handle.copy {
        Some(copy) => {
            copy.cancel();
            Started::Done(Answer::DONE)
        }
        None => fail(Error::new(ErrorKind::FsError, "tpc operation not found")),
    }
}

impl OpenFile for LogicalHandle {
    fn path(&self) -> &LogicalPath {
        &self.open.path
    }

    fn is_writable(&self) -> bool {
        self.open.writable
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        if let Err(error) = self.open.check_read(offset, into.len()) {
            return Now::Done(Err(error));
        }
        self.open.read_result(self.open.file.read_now(offset, into))
    }

    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        if let Err(error) = self.open.check_read(offset, length) {
            return Now::Done(Err(error));
        }
        self.open.read_result(self.open.file.append_now(offset, length, out))
    }

    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        let length = into.iter().map(|place| place.len()).sum();
        self.open.check_read(offset, length).ok()?;
        self.open.file.read_scattered_now(offset, into)
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        if let Err(error) = self.open.check_write(offset, from.len()) {
            return Now::Done(Err(error));
        }
        if !self.open.is_free_to_write() {
            return Now::WouldBlock;
        }
        match self.open.file.write_now(offset, from) {
            Now::Done(Ok(())) => {
                self.open.written_now(offset, from);
                Now::Done(Ok(()))
            }
            Now::Done(Err(error)) => Now::Done(Err(self.open.write_failed("write", error))),
            Now::WouldBlock => Now::WouldBlock,
        }
    }

    fn lend(&self) -> Option<BorrowedFd<'_>> {
        self.open.check_read(0, 0).ok()?;
        self.open.file.descriptor()
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        self.open.file.is_resident(offset, length)
    }

    fn size_now(&self) -> Option<u64> {
        self.open.file.size_now()
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.open.file.prefetch(offset, length);
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let open = &self.open;
        match operation {
            FileOperation::Read { buffer, pieces } => self.read(buffer, pieces, reply),
            FileOperation::Write { buffer, offset, checkpoint } => {
                match open.check_write(offset, buffer.len()) {
                    Ok(()) => {
                        open.about_to_write(offset, &buffer);
                        self.on_pool(reply, move |open| open.write(buffer, offset, checkpoint).into())
                    }
                    Err(error) => fail(error),
                }
            }
            FileOperation::Sync => match &self.copy {
                Some(copy) => copy.sync(&(open.clone() as Arc<dyn CopyTarget>), reply),
                None => self.on_pool(reply, |open| open.sync().into()),
            },
            FileOperation::Truncate { size, checkpoint } => {
                if !open.writable || i64::try_from(size).is_err() {
                    return fail(unable("truncate", &open.path, errno::INVALID));
                }
                self.on_pool(reply, move |open| open.truncate(size, checkpoint).into())
            }
            FileOperation::Stat => match open.stat_now() {
                Some(value) => Started::Done(Answer::Value(value)),
                None => self.on_pool(reply, |open| open.stat().into()),
            },
            FileOperation::Close { failed } => {
                self.interrupt();
                self.part(ReleaseReason::Close { failed }, Some(reply))
            }
            FileOperation::Abandon => {
                self.interrupt();
                self.part(ReleaseReason::Abandon, Some(reply))
            }
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
                match InFlight::new(open) {
                    Some(flying) => clone::start(flying, ranges, reply),
                    None => fail(unable("access", &open.path, errno::BAD_DESCRIPTOR)),
                }
            }
            FileOperation::Attributes(work) => {
                match attribute::check_handle(open.services.attribute_limits, open.writable, &work) {
                    Ok(()) => self.on_pool(reply, move |open| {
                        attribute::on_file(open.file.as_ref(), &open.path, work).into()
                    }),
                    Err(error) => fail(error),
                }
            }
            FileOperation::Query { code, argument } => query(self, code, &argument),
        }
    }

    fn needs_this_server(&self) -> bool {
        self.open.needs_this_server
    }

    fn interrupt(&self) {
        if let Some(copy) = &self.copy {
            copy.cancel();
        }
    }

    /// Allows [`OpenFileState::of`] to downcast.
    fn as_any(&self) -> &dyn Any {
        &self.open
    }
}
