//! Operations of `vfs` as asynchronous calls, and open files.

use crate::host_shares::HeldShare;
use base::{Descriptor, Error, ErrorKind, Extent, Now, Owner, ReadPiece};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use vfs::{
    Answer, Caller, FileOperation, FileStat, FileSystem, Mailbox, OpenFile, Opened, Operation,
    RedirectAnswer, ReplyTo, ReplyToken, Started, Value,
};

/// Seconds after which a client may repeat a request whose answer is late.
const LATE_SECONDS: u32 = 5;

/// The reason why a call has no value.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The operation failed.
    Error(Error),
    /// Another server has the answer.
    Redirect(RedirectAnswer),
    /// There will be an answer after this time in seconds.
    Later(u32),
}

impl CallFailure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self::Error(Error::new(kind, text))
    }

    /// Returns the kind of an error.
    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Error(error) => Some(error.kind),
            Self::Redirect(_) | Self::Later(_) => None,
        }
    }
}

/// What a call receives.
enum CallLetter {
    Answer(Answer),
    /// A file that is closed if nobody takes it.
    Opened(Box<RequestFile>, Option<FileStat>),
    /// The answer is late.
    Later,
}

/// The receiver of the answer of one call.
struct CallMailbox {
    letters: mpsc::UnboundedSender<CallLetter>,
    owner: u64,
}

impl CallMailbox {
    fn letter(&self, answer: Answer) -> CallLetter {
        match answer {
            Answer::Value(Value::Opened(Opened { file, stat })) => {
                CallLetter::Opened(Box::new(RequestFile::new(file, self.owner)), stat)
            }
            answer => CallLetter::Answer(answer),
        }
    }
}

impl Mailbox for CallMailbox {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        // A file that nobody awaits any longer is closed with the letter.
        let _ = self.letters.send(self.letter(answer));
    }

    fn deliver_notice(&self, _: ReplyToken, _: u32) {
        let _ = self.letters.send(CallLetter::Later);
    }
}

/// The calls of a connection.
#[derive(Clone)]
pub(crate) struct Calls {
    files: Arc<dyn FileSystem>,
    owner: u64,
    delay_max: Duration,
}

impl Calls {
    pub(crate) fn new(files: Arc<dyn FileSystem>, delay_max: Duration) -> Self {
        Self { files, owner: Owner::unique().0, delay_max }
    }

    /// Runs an operation. `make` makes it again if the file system asks for a repetition.
    pub(crate) async fn run(
        &self,
        caller: &Arc<Caller>,
        make: impl Fn() -> Operation + Send,
    ) -> Result<Value, CallFailure> {
        match self.repeat(caller, make).await? {
            CallLetter::Answer(Answer::Value(value)) => Ok(value),
            _ => Err(CallFailure::new(
                ErrorKind::ServerError,
                "the operation has another answer than expected",
            )),
        }
    }

    /// Runs an operation that opens a file.
    pub(crate) async fn open(
        &self,
        caller: &Arc<Caller>,
        make: impl Fn() -> Operation + Send,
    ) -> Result<(RequestFile, Option<FileStat>), CallFailure> {
        match self.repeat(caller, make).await? {
            CallLetter::Opened(file, stat) => Ok((*file, stat)),
            _ => Err(CallFailure::new(ErrorKind::ServerError, "the operation has opened no file")),
        }
    }

    /// Runs an operation once, which cannot be repeated.
    pub(crate) async fn once(
        &self,
        caller: &Arc<Caller>,
        operation: Operation,
    ) -> Result<Value, CallFailure> {
        let until = Instant::now() + self.delay_max;
        match self.start(caller, operation, until).await {
            CallLetter::Answer(Answer::Value(value)) => Ok(value),
            CallLetter::Answer(Answer::Wait { seconds, .. }) => Err(CallFailure::Later(seconds)),
            CallLetter::Answer(Answer::Redirect(to)) => Err(CallFailure::Redirect(to)),
            CallLetter::Answer(Answer::Error(error)) => Err(CallFailure::Error(error)),
            CallLetter::Opened(..) | CallLetter::Later => Err(CallFailure::Later(LATE_SECONDS)),
        }
    }

    async fn repeat(
        &self,
        caller: &Arc<Caller>,
        make: impl Fn() -> Operation + Send,
    ) -> Result<CallLetter, CallFailure> {
        let until = Instant::now() + self.delay_max;
        loop {
            match self.start(caller, make(), until).await {
                CallLetter::Answer(Answer::Wait { seconds, .. }) => {
                    let pause = Duration::from_secs(u64::from(seconds.max(1)));
                    if Instant::now() + pause > until || caller.is_disconnected() {
                        return Err(CallFailure::Later(seconds));
                    }
                    sleep(pause).await;
                }
                CallLetter::Answer(Answer::Redirect(to)) => return Err(CallFailure::Redirect(to)),
                CallLetter::Answer(Answer::Error(error)) => return Err(CallFailure::Error(error)),
                CallLetter::Later => return Err(CallFailure::Later(LATE_SECONDS)),
                letter => return Ok(letter),
            }
        }
    }

    /// Starts an operation and waits for its answer. A late answer is awaited until `until`.
    async fn start(&self, caller: &Arc<Caller>, operation: Operation, until: Instant) -> CallLetter {
        let (letters, mut received) = mpsc::unbounded_channel();
        let mailbox = Arc::new(CallMailbox { letters, owner: self.owner });
        let reply = ReplyTo::new(mailbox.clone(), ReplyToken { owner: self.owner, call: 0 });
        let mut is_late = match self.files.start(caller, operation, &reply) {
            Started::Done(answer) => return mailbox.letter(answer),
            Started::Pending => false,
            Started::Later { .. } => true,
        };
        loop {
            let letter = match is_late {
                false => received.recv().await,
                true => match timeout_at(until, received.recv()).await {
                    Ok(letter) => letter,
                    Err(_) => return CallLetter::Later,
                },
            };
            match letter {
                Some(CallLetter::Later) => is_late = true,
                Some(letter) => return letter,
                None => return CallLetter::Later,
            }
        }
    }
}

/// The receiver of an answer that nobody needs.
struct Ignored;

impl Mailbox for Ignored {
    fn deliver(&self, _: ReplyToken, _: Answer) {}
}

/// The receiver of the answer of an operation on a file.
struct FileMailbox(Mutex<Option<tokio::sync::oneshot::Sender<Answer>>>);

impl Mailbox for FileMailbox {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(to) = to {
            // The runtime may be ending.
            let _ = to.send(answer);
        }
    }
}

/// An open file. Dropping it closes it; a file that was written is then removed as incomplete. No
/// operation may be in progress then, so all of them run in tasks that are not cancelled.
pub(crate) struct RequestFile {
    file: Arc<dyn OpenFile>,
    owner: u64,
    is_closed: bool,
    descriptor: Descriptor,
    share: Option<HeldShare>,
}

impl RequestFile {
    fn new(file: Arc<dyn OpenFile>, owner: u64) -> Self {
        Self { file, owner, is_closed: false, descriptor: Descriptor::NONE, share: None }
    }

    /// Accounts a descriptor to the file, and to its host.
    pub(crate) fn hold(&mut self, descriptor: Descriptor, share: HeldShare) {
        self.descriptor = descriptor;
        self.share = Some(share);
    }

    async fn run(&self, operation: FileOperation) -> Result<Value, Error> {
        let (to, answer) = tokio::sync::oneshot::channel();
        let mailbox = Arc::new(FileMailbox(Mutex::new(Some(to))));
        let reply = ReplyTo::new(mailbox, ReplyToken { owner: self.owner, call: 0 });
        let answer = match self.file.start(operation, &reply) {
            Started::Done(answer) => answer,
            Started::Pending | Started::Later { .. } => answer.await.unwrap_or_else(|_| {
                Answer::error(ErrorKind::ServerError, "the operation on the file has ended without an answer")
            }),
        };
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Error(error) => Err(error),
            Answer::Wait { .. } | Answer::Redirect(_) => {
                Err(Error::new(ErrorKind::Overloaded, "the file is busy; try again later"))
            }
        }
    }

    /// Returns the status.
    pub(crate) async fn stat(&self) -> Result<FileStat, Error> {
        match self.run(FileOperation::Stat).await? {
            Value::Stat(stat) => Ok(stat),
            _ => Err(Error::new(ErrorKind::ServerError, "the file has no status")),
        }
    }

    /// Returns the descriptor for `sendfile`, if there is one.
    pub(crate) fn lend(&self) -> Option<BorrowedFd<'_>> {
        self.file.lend().filter(|_| !self.file.is_writable())
    }

    /// Reports whether it is known which bytes are in memory.
    pub(crate) fn knows_memory(&self) -> bool {
        self.file.is_resident(0, 0)
    }

    /// Reports whether these bytes are known to be in memory, the last one complete: pages that are being read count as
    /// there otherwise.
    pub(crate) fn is_in_memory(&self, offset: u64, length: usize) -> bool {
        let last = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX).saturating_sub(1));
        let mut byte = [0];
        self.file.is_resident(offset, length)
            && matches!(self.file.read_now(last, &mut byte), Now::Done(Ok(_)))
    }

    /// Appends bytes to `into`. Fewer than `length` mean the end of the file.
    pub(crate) async fn read(&self, offset: u64, length: usize, into: &mut Vec<u8>) -> Result<usize, Error> {
        match self.file.append_now(offset, length, into) {
            Now::Done(read) => return read,
            Now::WouldBlock => {}
        }
        let begin = into.len();
        let piece = ReadPiece { extent: Extent { offset, length }, at: begin };
        let mut buffer = std::mem::take(into);
        buffer.resize(begin + length, 0);
        match self.run(FileOperation::Read { buffer, pieces: vec![piece] }).await? {
            Value::Data { buffer, lengths } => {
                let read = lengths.first().copied().unwrap_or_default().min(length);
                *into = buffer;
                into.truncate(begin + read);
                Ok(read)
            }
            _ => Err(Error::new(ErrorKind::ServerError, "the file has no data")),
        }
    }

    /// Writes all bytes at `offset`.
    pub(crate) async fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match self.file.write_now(offset, bytes) {
            Now::Done(written) => written,
            Now::WouldBlock => {
                let operation = FileOperation::Write { buffer: bytes.to_vec(), offset, checkpoint: false };
                self.run(operation).await.map(drop)
            }
        }
    }

    /// Closes the file. What was written then persists.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.is_closed = true;
        self.run(FileOperation::Close { failed: false }).await.map(drop)
    }

    /// Closes the file, which is removed if it was written, and waits for that.
    pub(crate) async fn discard(mut self) {
        self.is_closed = true;
        let failed = self.file.is_writable();
        // The client learns of the first error.
        let _ = self.run(FileOperation::Close { failed }).await;
    }
}

impl Drop for RequestFile {
    fn drop(&mut self) {
        if !self.is_closed {
            let reply = ReplyTo::new(Arc::new(Ignored), ReplyToken { owner: self.owner, call: 0 });
            let failed = self.file.is_writable();
            // The answer is of no use.
            let _ = self.file.start(FileOperation::Close { failed }, &reply);
        }
    }
}
