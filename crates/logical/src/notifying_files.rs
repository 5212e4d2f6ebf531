//! [`NotifyingFiles`]: reports what clients do with files, for a program of the site (`ofs.notify`).
//!
//! It wraps the files of a server behind authorization, so it sees the operations of all front ends. An operation
//! is reported after it has succeeded and before its client gets the answer, so two operations of one client are
//! reported in their order. A file is reported as closed in any case: by its client, after an error, or because the
//! client has left.

use base::{Cgi, LogicalPath};
use config::NotifyEvent;
use std::any::Any;
use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{
    Answer, Caller, FileOperation, FileSystem, Now, OpenFile, Opened, Operation, RedirectAnswer, ReplyTo,
    Started, Target, Value,
};

/// Maximum length of opaque text in bytes that an event has. An open file keeps it until its close.
const CGI_BYTES_MAX: usize = 4096;

/// The values of an event.
#[derive(Clone, Copy, Debug)]
pub struct NotifyValues<'a> {
    /// The client.
    pub caller: &'a Caller,
    /// The number of its session.
    pub session: u64,
    /// The path, with its opaque text.
    pub target: &'a Target,
    /// The new path of `mv`.
    pub new_target: Option<&'a Target>,
    /// Permission bits.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
}

/// A receiver of events.
pub trait NotifyReceiver: Send + Sync {
    /// Receives an event. It is called on event loops and threads of pools, so it must not block.
    fn notify(&self, event: NotifyEvent, values: NotifyValues<'_>);

    /// Reports whether it needs the opaque text of paths.
    fn needs_cgi(&self) -> bool {
        true
    }

    /// Learns that a file is open whose close will be reported, if that is an event.
    fn close_follows(&self) {}

    /// Learns that such a close was reported.
    fn close_reported(&self) {}
}

/// A file system that reports what clients do.
pub struct NotifyingFiles {
    behind: Arc<dyn FileSystem>,
    reports: Arc<Reports>,
}

/// The events that are reported, and their receiver.
struct Reports {
    events: BTreeSet<NotifyEvent>,
    receiver: Arc<dyn NotifyReceiver>,
}

impl Reports {
    fn has(&self, event: NotifyEvent) -> bool {
        self.events.contains(&event)
    }

    fn send(&self, event: NotifyEvent, values: NotifyValues<'_>) {
        if self.has(event) {
            self.receiver.notify(event, values);
        }
    }
}

/// An operation that is to be reported.
#[derive(Clone)]
struct Subject {
    reports: Arc<Reports>,
    caller: Arc<Caller>,
    session: u64,
    target: Target,
}

impl Subject {
    fn values(&self) -> NotifyValues<'_> {
        let Self { caller, session, target, .. } = self;
        NotifyValues { caller, session: *session, target, new_target: None, mode: 0, size: 0 }
    }
}

/// The opening of a file.
#[derive(Clone, Copy)]
struct Opening {
    creates: bool,
    writes: bool,
    mode: u32,
}

impl NotifyingFiles {
    /// Returns the files of `behind`, whose events go to `receiver`.
    pub fn before(
        behind: Arc<dyn FileSystem>,
        events: BTreeSet<NotifyEvent>,
        receiver: Arc<dyn NotifyReceiver>,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { behind, reports: Arc::new(Reports { events, receiver }) })
    }

    fn subject(&self, caller: &Arc<Caller>, target: &Target, reply: &ReplyTo) -> Subject {
        let (reports, session) = (self.reports.clone(), reply.owner().0);
        let is_kept = target.cgi.as_bytes().len() <= CGI_BYTES_MAX && reports.receiver.needs_cgi();
        let cgi = if is_kept { target.cgi.clone() } else { Cgi::default() };
        Subject {
            reports,
            caller: caller.clone(),
            session,
            target: Target { path: target.path.clone(), cgi },
        }
    }

    fn open(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let Operation::Open(target, request) = &operation else {
            return self.behind.start(caller, operation, reply);
        };
        let creates = request.new || request.delete;
        let opening =
            Opening { creates, writes: creates || request.write || request.append, mode: request.mode };
        let subject = self.subject(caller, target, reply);
        answered(
            reply,
            move |answer| opened(answer, &subject, opening),
            |reply| self.behind.start(caller, operation, reply),
        )
    }
}

impl FileSystem for NotifyingFiles {
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started {
        let (event, target, new_target, mode, size) = match &operation {
            Operation::Open(..) => return self.open(caller, operation, reply),
            Operation::MakeDirectory { target, mode, .. } => (NotifyEvent::Mkdir, target, None, *mode, 0),
            Operation::RemoveDirectory(target) => (NotifyEvent::Rmdir, target, None, 0, 0),
            Operation::Remove(target) => (NotifyEvent::Rm, target, None, 0, 0),
            Operation::Rename { from, to, .. } => (NotifyEvent::Mv, from, Some(to.clone()), 0, 0),
            Operation::ChangeMode { target, mode } => (NotifyEvent::Chmod, target, None, *mode, 0),
            Operation::Truncate { target, size } => (NotifyEvent::Trunc, target, None, 0, *size),
            _ => return self.behind.start(caller, operation, reply),
        };
        if !self.reports.has(event) {
            return self.behind.start(caller, operation, reply);
        }
        let subject = self.subject(caller, target, reply);
        let report = move |answer| {
            if matches!(answer, Answer::Value(_)) {
                let new_target = new_target.as_ref();
                let values = NotifyValues { new_target, mode, size, ..subject.values() };
                subject.reports.send(event, values);
            }
            answer
        };
        answered(reply, report, |reply| self.behind.start(caller, operation, reply))
    }

    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        self.behind.read_redirect(caller, file)
    }
}

/// Starts an operation, and passes its answer through `change` before the client gets it.
fn answered(
    reply: &ReplyTo,
    change: impl Fn(Answer) -> Answer + Send + Sync + 'static,
    start: impl FnOnce(&ReplyTo) -> Started,
) -> Started {
    let (client, change) = (reply.clone(), Arc::new(change));
    let late = change.clone();
    let detour = reply.intercept(move |answer| client.defer().send(late(answer)));
    match start(&detour) {
        Started::Done(answer) => Started::Done(change(answer)),
        started => started,
    }
}

/// Reports an open that has succeeded, and returns the answer with a file that reports further events.
fn opened(answer: Answer, subject: &Subject, opening: Opening) -> Answer {
    let Answer::Value(Value::Opened(Opened { file, stat })) = answer else { return answer };
    let reports = &subject.reports;
    if opening.creates {
        reports.send(NotifyEvent::Create, NotifyValues { mode: opening.mode, ..subject.values() });
    }
    let (open, close) = match opening.writes {
        true => (NotifyEvent::OpenWriter, NotifyEvent::CloseWriter),
        false => (NotifyEvent::OpenReader, NotifyEvent::CloseReader),
    };
    reports.send(open, subject.values());
    let follows = [close, NotifyEvent::FirstWrite, NotifyEvent::Trunc];
    let follows = if opening.writes { &follows[..] } else { &follows[..1] };
    let file = match follows.iter().any(|event| reports.has(*event)) {
        true => {
            let is_written = AtomicBool::new(!opening.writes || !reports.has(NotifyEvent::FirstWrite));
            let life =
                OpenLife { subject: subject.clone(), close, is_written, is_closed: AtomicBool::new(false) };
            reports.receiver.close_follows();
            Arc::new(NotifyingFile { file, life: Arc::new(life) }) as Arc<dyn OpenFile>
        }
        false => file,
    };
    Answer::Value(Value::Opened(Opened { file, stat }))
}

/// What happens to an open file.
struct OpenLife {
    subject: Subject,
    close: NotifyEvent,
    /// The first write was reported, or is not to be.
    is_written: AtomicBool,
    /// The end was reported, or will be.
    is_closed: AtomicBool,
}

impl OpenLife {
    fn report_write(&self) {
        if !self.is_written.swap(true, Ordering::Relaxed) {
            self.subject.reports.send(NotifyEvent::FirstWrite, self.subject.values());
        }
    }

    fn report_close(&self, size: u64) {
        self.subject.reports.send(self.close, NotifyValues { size, ..self.subject.values() });
        self.subject.reports.receiver.close_reported();
    }
}

/// An open file that reports its first write, changes of its size, and its close.
struct NotifyingFile {
    file: Arc<dyn OpenFile>,
    life: Arc<OpenLife>,
}

impl NotifyingFile {
    fn close(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        if self.life.is_closed.swap(true, Ordering::Relaxed) {
            return self.file.start(operation, reply);
        }
        let (file, life) = (self.file.clone(), self.life.clone());
        // Some files have no size after their close.
        let before = file.size_now();
        let report = move |answer| {
            life.report_close(file.size_now().or(before).unwrap_or_default());
            answer
        };
        answered(reply, report, |reply| self.file.start(operation, reply))
    }

    fn change(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let truncated = match &operation {
            FileOperation::Truncate { size, .. } => Some(*size),
            _ => None,
        };
        let life = self.life.clone();
        let report = move |answer| {
            if matches!(answer, Answer::Value(_)) {
                match truncated {
                    Some(size) => {
                        let values = NotifyValues { size, ..life.subject.values() };
                        life.subject.reports.send(NotifyEvent::Trunc, values);
                    }
                    None => life.report_write(),
                }
            }
            answer
        };
        answered(reply, report, |reply| self.file.start(operation, reply))
    }
}

impl Drop for NotifyingFile {
    /// A file that is dropped without a close is abandoned.
    fn drop(&mut self) {
        if !self.life.is_closed.swap(true, Ordering::Relaxed) {
            self.life.report_close(self.file.size_now().unwrap_or_default());
        }
    }
}

impl OpenFile for NotifyingFile {
    fn path(&self) -> &LogicalPath {
        self.file.path()
    }

    fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        self.file.read_now(offset, into)
    }

    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        self.file.append_now(offset, length, out)
    }

    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        self.file.read_scattered_now(offset, into)
    }

    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        let result = self.file.write_now(offset, from);
        if matches!(result, Now::Done(Ok(()))) {
            self.life.report_write();
        }
        result
    }

    fn lend(&self) -> Option<BorrowedFd<'_>> {
        self.file.lend()
    }

    fn is_resident(&self, offset: u64, length: usize) -> bool {
        self.file.is_resident(offset, length)
    }

    fn size_now(&self) -> Option<u64> {
        self.file.size_now()
    }

    fn give_up(&self) {
        self.file.give_up();
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.file.prefetch(offset, length);
    }

    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started {
        let is_reported = match &operation {
            FileOperation::Close { .. } | FileOperation::Abandon => return self.close(operation, reply),
            FileOperation::Write { .. } | FileOperation::CloneFrom(_) => {
                !self.life.is_written.load(Ordering::Relaxed)
            }
            FileOperation::Truncate { .. } => self.life.subject.reports.has(NotifyEvent::Trunc),
            _ => false,
        };
        match is_reported {
            true => self.change(operation, reply),
            false => self.file.start(operation, reply),
        }
    }

    fn needs_this_server(&self) -> bool {
        self.file.needs_this_server()
    }

    fn interrupt(&self) {
        self.file.interrupt();
    }

    fn as_any(&self) -> &dyn Any {
        self.file.as_any()
    }
}
