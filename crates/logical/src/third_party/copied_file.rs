//! Files behind this server that take part in a copy: [`GrantedFile`], open at the client that grants it,
//! and [`CopiedFile`], the destination.
//!
//! The server behind knows nothing of the copy. So a destination that is not complete is emptied and removed
//! here before it is closed.

use super::HeldGrant;
use super::copy::RunningCopy;
use super::copying_files::ask;
use super::fetcher::{Bytes, Written};
use super::target::{CopyTarget, HeldTarget};
use crate::errno::{self, unable};
use crate::job::done;
use base::{Error, ErrorKind, Extent, LogicalPath, ReadPiece};
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use vfs::{
    Answer, Caller, FileOperation, FileStat, FileSystem, OpenFile, Operation, ReplyTo, Started, Target, Value,
};

/// Code of a query with an argument on a handle. Source: xroot protocol 5.2.0, kXR_Qopaqug.
const QUERY_OPAQUE_HANDLE: u16 = 64;
/// The argument that cancels a third-party copy.
const CANCEL_COPY: &[u8] = b"ofs.tpc cancel";
/// Maximum time of one request of the verification of a copy. The files behind answer earlier; the limit
/// keeps the thread if they do not.
const ANSWER_TIME: Duration = Duration::from_secs(1800);

/// A file that a client has granted to a destination.
pub(super) struct GrantedFile {
    file: Arc<dyn OpenFile>,
    grant: Mutex<Option<HeldGrant>>,
}

impl GrantedFile {
    pub(super) fn new(file: Arc<dyn OpenFile>, grant: HeldGrant) -> Self {
        Self { file, grant: Mutex::new(Some(grant)) }
    }

    fn withdraw(&self) {
        if let Some(grant) = self.grant.lock().unwrap_or_else(PoisonError::into_inner).take() {
            grant.withdraw();
        }
    }
}

impl Drop for GrantedFile {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl OpenFile for GrantedFile {
    fn path(&self) -> &LogicalPath {
        self.file.path()
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        if matches!(operation, FileOperation::Close { .. } | FileOperation::Abandon) {
            self.withdraw();
        }
        if let FileOperation::Query { code, argument } = &operation
            && is_cancellation(*code, argument)
        {
            return no_copy();
        }
        self.file.start(operation, reply)
    }

    fn needs_this_server(&self) -> bool {
        true
    }

    fn interrupt(&self) {
        self.file.interrupt();
    }

    fn as_any(&self) -> &dyn Any {
        self.file.as_any()
    }
}

/// The writes of a copy that are in progress, and the action after the last one.
#[derive(Default)]
struct WritesInFlight {
    count: usize,
    closing: bool,
    then: Option<Box<dyn FnOnce() + Send>>,
}

/// The file of a copy at the files behind.
pub(super) struct FileBehind {
    path: LogicalPath,
    file: Arc<dyn OpenFile>,
    files: Arc<dyn FileSystem>,
    /// The client, for what is done after it has left.
    caller: Arc<Caller>,
    target: Target,
    /// Accounts work to the session of the client.
    account: ReplyTo,
    flight: Mutex<WritesInFlight>,
    /// The copy has been stopped.
    is_given_up: AtomicBool,
}

impl FileBehind {
    /// Creates the file that was opened for `target`.
    pub(super) fn new(
        file: Arc<dyn OpenFile>,
        (files, caller, target): (Arc<dyn FileSystem>, Arc<Caller>, Target),
        account: &ReplyTo,
    ) -> Arc<Self> {
        let path = target.path.without_slash();
        Arc::new(Self {
            path,
            file,
            files,
            caller,
            target,
            account: account.clone(),
            flight: Mutex::default(),
            is_given_up: AtomicBool::new(false),
        })
    }

    fn flight(&self) -> MutexGuard<'_, WritesInFlight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an operation, and passes its answer to `then`, which must not block.
    fn ask(&self, operation: FileOperation, then: impl FnOnce(Answer) + Send + 'static) {
        let detour = self.account.intercept(then);
        if let Started::Done(answer) = self.file.start(operation, &detour) {
            detour.defer().send(answer);
        }
    }

    /// Starts an operation, and waits for its answer. Blocks. The caller holds the file.
    fn wait(&self, operation: FileOperation) -> Result<Value, Error> {
        self.check_wanted()?;
        let (answer, answered) = mpsc::sync_channel(1);
        self.ask(operation, move |value| drop(answer.send(value)));
        self.end_unwanted();
        match answered.recv_timeout(ANSWER_TIME) {
            Ok(Answer::Value(value)) => Ok(value),
            Ok(Answer::Error(error)) => Err(error),
            Ok(_) | Err(_) => {
                let text = format!("Unable to copy {}; its server does not answer", self.path.text());
                Err(Error::new(ErrorKind::FsError, text))
            }
        }
    }

    /// Fails if the copy has been stopped.
    fn check_wanted(&self) -> Result<(), Error> {
        match self.is_given_up.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Cancelled, "the copy has been stopped")),
            false => Ok(()),
        }
    }

    /// Ends an operation that was started while the copy was stopped, and that this may have missed. The file is
    /// held meanwhile, so that no operation of a discard is ended.
    fn end_unwanted(&self) {
        if self.is_given_up.load(Ordering::Acquire) {
            self.file.give_up();
        }
    }

    /// Calls `then` after the last write in progress. Fails if the file is being closed already.
    fn after_writes(&self, then: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let mut flight = self.flight();
        if flight.closing {
            return Err(unable("close", &self.path, errno::BAD_DESCRIPTOR));
        }
        flight.closing = true;
        if flight.count > 0 {
            flight.then = Some(Box::new(then));
        } else {
            drop(flight);
            then();
        }
        Ok(())
    }

    /// Empties an incomplete file, removes it and closes it. `then` gets the answer to the close.
    ///
    /// It is removed while it is open, because servers then let nobody else open it for writing: after the
    /// close, the name could be that of the next copy.
    fn discard(self: Arc<Self>, then: impl FnOnce(Answer) + Send + 'static) {
        let file = self.clone();
        self.ask(FileOperation::Truncate { size: 0, checkpoint: false }, move |emptied| {
            let failure = match emptied {
                Answer::Error(error) => Some(error),
                _ => None,
            };
            let inside = file.clone();
            file.ask(FileOperation::Stat, move |opened| {
                let close = inside.clone();
                inside.remove_if_same(stat_of(opened), move |is_removed| {
                    // A file that persists on close and is not removed must not be closed as complete.
                    close.ask(FileOperation::Close { failed: !is_removed }, move |closed| {
                        then(failure.map_or(closed, Answer::Error));
                    });
                });
            });
        });
    }

    /// Removes the file, unless its name is that of another file by now or it was not emptied.
    /// `then` gets whether it was removed.
    fn remove_if_same(self: Arc<Self>, opened: Option<FileStat>, then: impl FnOnce(bool) + Send + 'static) {
        // A server that has no ids reports 0 for each file.
        let Some(opened) = opened.filter(|opened| opened.id != 0) else { return then(false) };
        let file = self.clone();
        self.ask_files(Operation::Stat(self.target.clone()), move |named| {
            let is_same = |named: FileStat| (named.id, named.size, opened.size) == (opened.id, 0, 0);
            if !stat_of(named).is_some_and(is_same) {
                return then(false);
            }
            let removal = Operation::Remove(file.target.clone());
            file.ask_files(removal, move |removed| then(matches!(removed, Answer::Value(_))));
        });
    }

    /// Starts an operation on names in the name of the client, which may have left.
    fn ask_files(&self, operation: Operation, then: impl FnOnce(Answer) + Send + 'static) {
        ask(&self.files, &self.caller, operation, &self.account, then);
    }
}

fn stat_of(answer: Answer) -> Option<FileStat> {
    match answer {
        Answer::Value(Value::Stat(stat)) => Some(stat),
        _ => None,
    }
}

/// A write in progress, which keeps the file open.
struct WriteInFlight(Arc<FileBehind>);

impl Drop for WriteInFlight {
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

impl WriteInFlight {
    fn new(file: &Arc<FileBehind>) -> Option<Self> {
        let mut flight = file.flight();
        if flight.closing {
            return None;
        }
        flight.count += 1;
        Some(Self(file.clone()))
    }

    /// Keeps the file open beyond the end of this write.
    fn hold_on(&self) -> Self {
        self.0.flight().count += 1;
        Self(self.0.clone())
    }
}

impl CopyTarget for FileBehind {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn hold(self: Arc<Self>) -> Option<HeldTarget> {
        WriteInFlight::new(&self).map(|flying| HeldTarget::new(self, flying))
    }

    fn size(&self) -> Result<u64, Error> {
        match self.wait(FileOperation::Stat)? {
            Value::Stat(stat) => Ok(stat.size),
            _ => Err(unable("check", &self.path, errno::INPUT_OUTPUT)),
        }
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let pieces = vec![ReadPiece { extent: Extent { offset, length: buffer.len() }, at: 0 }];
        match self.wait(FileOperation::Read { buffer: vec![0; buffer.len()], pieces })? {
            Value::Data { buffer: read, lengths } => {
                let came = lengths.first().copied().unwrap_or_default().min(buffer.len());
                if let (Some(to), Some(from)) = (buffer.get_mut(..came), read.get(..came)) {
                    to.copy_from_slice(from);
                }
                Ok(came)
            }
            _ => Err(unable("read", &self.path, errno::INPUT_OUTPUT)),
        }
    }

    fn settle(&self) -> Result<(), Error> {
        self.wait(FileOperation::Sync).map(drop)
    }

    fn receive(self: Arc<Self>, offset: u64, bytes: Bytes, then: Written) {
        let Some(flying) = WriteInFlight::new(&self) else {
            return then(Err(unable("write", &self.path, errno::BAD_DESCRIPTOR)));
        };
        if let Err(error) = self.check_wanted() {
            drop(flying);
            return then(Err(error));
        }
        let buffer = (*bytes).as_ref().to_vec();
        drop(bytes);
        let starting = flying.hold_on();
        self.ask(FileOperation::Write { buffer, offset, checkpoint: false }, move |answer| {
            drop(flying);
            then(match answer {
                Answer::Value(_) => Ok(()),
                Answer::Error(error) => Err(error),
                _ => Err(Error::new(ErrorKind::FsError, "the destination cannot be written now")),
            });
        });
        self.end_unwanted();
        drop(starting);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.file.give_up();
    }
}

/// The destination of a copy, open at its client.
pub(super) struct CopiedFile {
    file: Arc<FileBehind>,
    copy: Arc<RunningCopy>,
}

impl CopiedFile {
    pub(super) fn new(file: Arc<FileBehind>, copy: Arc<RunningCopy>) -> Self {
        Self { file, copy }
    }

    /// Closes the file after the last write. It stays only if it is complete.
    fn part(&self, operation: FileOperation, reply: Option<&ReplyTo>) -> Started {
        self.copy.cancel();
        let (file, copy, reply) = (self.file.clone(), self.copy.clone(), reply.map(ReplyTo::defer));
        let close = move || {
            let answer = move |answer| {
                if let Some(reply) = reply {
                    reply.send(answer);
                }
            };
            let pull = &copy.pull_state;
            let stays = match operation {
                FileOperation::Close { failed } => pull.is_whole() && !failed,
                _ => pull.is_whole() && !pull.asks_persist,
            };
            match stays {
                true => file.ask(FileOperation::Close { failed: false }, answer),
                false => file.discard(answer),
            }
        };
        match self.file.after_writes(close) {
            Ok(()) => Started::Pending,
            Err(error) => done(Err(error)),
        }
    }

    fn refuse(&self, verb: &str) -> Started {
        let text = format!("Unable to {verb} {}; it is copied from another server", self.file.path.text());
        done(Err(Error::new(ErrorKind::InvalidRequest, text)))
    }
}

impl Drop for CopiedFile {
    fn drop(&mut self) {
        if !self.file.flight().closing {
            self.part(FileOperation::Abandon, None);
        }
    }
}

impl OpenFile for CopiedFile {
    fn path(&self) -> &LogicalPath {
        &self.file.path
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        match operation {
            FileOperation::Sync => {
                let target: Arc<dyn CopyTarget> = self.file.clone();
                self.copy.sync(&target, reply)
            }
            FileOperation::Close { .. } | FileOperation::Abandon => self.part(operation, Some(reply)),
            FileOperation::Write { .. } => self.refuse("write"),
            FileOperation::Truncate { .. } => self.refuse("truncate"),
            FileOperation::Query { code, argument } if is_cancellation(code, &argument) => {
                self.copy.cancel();
                Started::Done(Answer::DONE)
            }
            other => self.file.file.start(other, reply),
        }
    }

    fn needs_this_server(&self) -> bool {
        true
    }

    fn interrupt(&self) {
        // The file behind goes on, because it is still to be emptied and removed.
        self.copy.cancel();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn is_cancellation(code: u16, argument: &[u8]) -> bool {
    code == QUERY_OPAQUE_HANDLE && argument == CANCEL_COPY
}

fn no_copy() -> Started {
    done(Err(Error::new(ErrorKind::FsError, "tpc operation not found")))
}
