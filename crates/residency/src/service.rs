//! [`Residency`]: the queue at work. One thread owns the database and decides; each copy that runs
//! has a thread of its own, the number of which the limits bound.
//!
//! A client that waits is a function in a table, and no thread. The commands that arrived together
//! become one transaction, and nothing follows from a command before it is durable.

use crate::entry::{CopyFailure, EntryKey, FailureReason, RequestId, TransferEntry};
use crate::ports::{ResidencyPaths, StopSignal};
use crate::queue::{
    CopyOutcome, QueueAction, QueueError, QueueLimits, Submission, SubmissionOutcome, TransferQueue,
};
use crate::sqlite_store::{SqliteStore, StoreError, StoreOpenError};
use crate::staging::Staging;
use crate::store::EntryStore as _;
use crate::sweep::remove_leftovers;
use base::{Clock, Supervisor};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, UNIX_EPOCH};
use storage::{DirectoryLock, PrivateDirectory};
use thiserror::Error;

/// The lock of the directory; its name is that of XRootD. The process that has it executes the
/// transfers.
const LOCK_FILE: &str = "frm_xfrd.lock";

/// Maximum number of commands in one transaction.
const BATCH_MAX: usize = 1024;

/// Maximum number of clients that wait. Those that have left count until their file has come.
const WAITING_MAX: usize = 1 << 18;

/// Maximum time between two looks at the queue, in seconds.
const LOOK_SECONDS_MAX: u64 = 60;

/// The time after which the end of a copy is recorded again, if the database failed.
const RETRY: Duration = Duration::from_secs(1);

/// The reason for which the queue cannot start.
#[derive(Debug, Error)]
pub enum ResidencyStartError {
    /// Another process has the lock.
    #[error("another process executes the transfers in {}: end it, or choose another directory with frm.xfr.qcheck", .0.display())]
    Locked(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use the directory of transfers {}: {error}", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The queue cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The queue cannot be read.
    #[error(transparent)]
    Read(#[from] StoreError),
    /// The thread cannot be started.
    #[error("cannot start the thread of transfers: {0}")]
    Thread(io::Error),
}

/// The reason for which a file did not come.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum StageError {
    /// The copy failed for good.
    #[error("{0}")]
    Failed(CopyFailure),
    /// The request could not be recorded.
    #[error("{0}")]
    Queue(String),
}

/// A function that is called once with the result of a command. It never blocks.
pub type StageReply<T> = Box<dyn FnOnce(Result<T, StageError>) + Send>;

/// The state of a request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestStatus {
    /// Number of files that have not come yet, counted up to [`REQUEST_FILES_COUNTED`].
    pub waiting: usize,
    /// The time of the first of them, in seconds since the epoch.
    pub added: u64,
    /// The priority of the first of them.
    pub priority: u8,
    /// The client that asked for the first of them.
    pub client: String,
}

/// Number of files of a request that a query counts.
pub const REQUEST_FILES_COUNTED: usize = 100_000;

enum Command {
    Fetch(Submission, StageReply<()>),
    Submit(Vec<Submission>, StageReply<()>),
    Cancel(RequestId, StageReply<()>),
    Query(RequestId, StageReply<RequestStatus>),
    Ended(EntryKey, CopyOutcome),
}

/// The result of a command in a transaction that is not durable yet.
enum AppliedCommand {
    Fetch(SubmissionOutcome),
    Done,
    /// None of the submissions was recorded.
    Refused(CopyFailure),
    Query(RequestStatus),
}

/// The queue at work.
pub struct Residency {
    commands: Sender<Command>,
    source: Arc<str>,
}

/// The parts of a queue.
pub struct ResidencyParts {
    /// The directory of the database.
    pub directory: PathBuf,
    /// The limits.
    pub limits: QueueLimits,
    /// The copies.
    pub staging: Staging,
    /// The exports.
    pub paths: Arc<dyn ResidencyPaths>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Residency {
    /// Opens the queue, and continues the transfers of an earlier run. Blocks; for the start of the
    /// server.
    pub fn start(parts: ResidencyParts, supervisor: &Supervisor) -> Result<Self, ResidencyStartError> {
        let ResidencyParts { directory, limits, staging, paths, clock } = parts;
        let fail = |error| ResidencyStartError::Directory { directory: directory.clone(), error };
        // It holds the arguments of programs, so nobody else may have put anything there.
        let place = PrivateDirectory::create(&directory).map_err(fail)?;
        let lock = DirectoryLock::claim(&place, LOCK_FILE)
            .map_err(fail)?
            .ok_or_else(|| ResidencyStartError::Locked(directory.clone()))?;
        let mut store = SqliteStore::open(&place)?;
        let begun = QueueTime::new(clock);
        let deny = limits.deny;
        store.transaction(|store| store.recover(begun.now(), deny))?;
        let source = staging.source().into();
        let backend = staging.backend.clone();
        let sweep = move || remove_leftovers(backend.as_ref(), paths.as_ref());
        std::thread::Builder::new()
            .name("staging-sweep".to_owned())
            .spawn(sweep)
            .map_err(ResidencyStartError::Thread)?;
        let (commands, inbox) = channel();
        let thread = QueueThread {
            store,
            queue: TransferQueue::new(limits),
            staging: Arc::new(staging),
            time: begun,
            inbox,
            ended: commands.clone(),
            unsaved: Vec::new(),
            waiting: HashMap::new(),
            waiting_count: 0,
            copies: BTreeMap::new(),
            _lock: lock,
        };
        let run = move || thread.run();
        supervisor.spawn("residency", "the queue of transfers", run).map_err(ResidencyStartError::Thread)?;
        Ok(Self { commands, source })
    }

    /// Returns the host that files come from, for [`Submission::source`].
    #[must_use]
    pub fn source(&self) -> Arc<str> {
        self.source.clone()
    }

    /// Brings a file in. `reply` is called when it has its name, or has failed for good.
    pub fn fetch(&self, submission: Submission, reply: StageReply<()>) {
        self.send(Command::Fetch(submission, reply));
    }

    /// Records requests. `reply` is called when they are durable. If one of the transfers is refused
    /// because it failed a short time ago, none is recorded.
    pub fn submit(&self, submissions: Vec<Submission>, reply: StageReply<()>) {
        self.send(Command::Submit(submissions, reply));
    }

    /// Cancels a request. Transfers that nobody else wants end.
    pub fn cancel(&self, request: RequestId, reply: StageReply<()>) {
        self.send(Command::Cancel(request, reply));
    }

    /// Returns the state of a request. One without a file that is still to come is like one that
    /// never existed.
    pub fn query(&self, request: RequestId, reply: StageReply<RequestStatus>) {
        self.send(Command::Query(request, reply));
    }

    fn send(&self, command: Command) {
        if let Err(refused) = self.commands.send(command) {
            refused.0.fail(&StageError::Queue("the queue of transfers has ended".to_owned()));
        }
    }
}

impl Command {
    fn fail(self, error: &StageError) {
        match self {
            Self::Fetch(_, reply) | Self::Submit(_, reply) | Self::Cancel(_, reply) => {
                reply(Err(error.clone()));
            }
            Self::Query(_, reply) => reply(Err(error.clone())),
            Self::Ended(..) => {}
        }
    }
}

/// The time of the queue: that of the wall clock at the start, and then of one that is never set, so
/// that no entry waits until a clock that was set back is there again.
struct QueueTime {
    clock: Arc<dyn Clock>,
    begun: Duration,
    today: Duration,
}

impl QueueTime {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let today = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { begun: clock.now(), today, clock }
    }

    /// Returns the seconds since the epoch.
    fn now(&self) -> u64 {
        (self.today + self.clock.now().saturating_sub(self.begun)).as_secs()
    }
}

struct QueueThread {
    store: SqliteStore,
    queue: TransferQueue,
    staging: Arc<Staging>,
    time: QueueTime,
    inbox: Receiver<Command>,
    /// For the ends of copies.
    ended: Sender<Command>,
    /// Ends of copies that could not be recorded.
    unsaved: Vec<Command>,
    waiting: HashMap<EntryKey, Vec<StageReply<()>>>,
    /// Number of all clients in `waiting`.
    waiting_count: usize,
    copies: BTreeMap<EntryKey, StopSignal>,
    /// The lock of the directory.
    _lock: DirectoryLock,
}

impl QueueThread {
    fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            let mut batch = std::mem::take(&mut self.unsaved);
            match self.inbox.recv_timeout(wait) {
                Ok(command) => batch.push(command),
                Err(RecvTimeoutError::Timeout) => {}
                // Never, because this thread has a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while batch.len() < BATCH_MAX
                && let Ok(command) = self.inbox.try_recv()
            {
                batch.push(command);
            }
            wait = self.process(batch);
        }
    }

    /// Executes commands in one transaction, then starts what can start. Returns the time until the
    /// next call, if no command arrives before.
    fn process(&mut self, batch: Vec<Command>) -> Duration {
        let now = self.time.now();
        let before = self.queue.clone();
        let (queue, mut actions) = (&mut self.queue, Vec::new());
        let result: Result<_, StoreError> = self.store.transaction(|store| {
            let mut applied = Vec::with_capacity(batch.len());
            for command in &batch {
                applied.push(apply(queue, store, command, now, &mut actions)?);
            }
            actions.extend(handled(queue.start_ready(store, now))?);
            Ok((applied, handled(queue.next_time(store, now))?.unwrap_or(None)))
        });
        let (applied, next) = match result {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "cannot change the queue of transfers");
                self.queue = before;
                self.refuse(batch, &StageError::Queue(error.to_string()));
                return RETRY;
            }
        };
        for (command, result) in batch.into_iter().zip(applied) {
            self.answer(command, result);
        }
        for action in actions.into_iter().flatten() {
            self.act(action);
        }
        let seconds = next.map_or(LOOK_SECONDS_MAX, |time| time.saturating_sub(now));
        Duration::from_secs(seconds.clamp(1, LOOK_SECONDS_MAX))
    }

    fn refuse(&mut self, batch: Vec<Command>, error: &StageError) {
        for command in batch {
            match command {
                Command::Ended(..) => self.unsaved.push(command),
                other => other.fail(error),
            }
        }
    }

    fn answer(&mut self, command: Command, result: AppliedCommand) {
        match (command, result) {
            (Command::Fetch(_, reply), AppliedCommand::Fetch(SubmissionOutcome::Refused(failure))) => {
                reply(Err(StageError::Failed(failure)));
            }
            (Command::Fetch(_, reply), _) if self.waiting_count >= WAITING_MAX => {
                let text = "the file is being staged, and too many clients wait; try again later";
                reply(Err(StageError::Queue(text.to_owned())));
            }
            (Command::Fetch(submission, reply), _) => {
                self.waiting_count += 1;
                self.waiting.entry(submission.key).or_default().push(reply);
            }
            (Command::Submit(_, reply), AppliedCommand::Refused(failure)) => {
                reply(Err(StageError::Failed(failure)));
            }
            (Command::Submit(_, reply) | Command::Cancel(_, reply), _) => reply(Ok(())),
            (Command::Query(_, reply), AppliedCommand::Query(status)) => reply(Ok(status)),
            (Command::Query(_, reply), _) => reply(Ok(RequestStatus::default())),
            (Command::Ended(key, _), _) => drop(self.copies.remove(&key)),
        }
    }

    fn act(&mut self, action: QueueAction) {
        match action {
            QueueAction::Start(entry) => self.start(*entry),
            QueueAction::Stop(key) => {
                if let Some(stop) = self.copies.get(&key) {
                    stop.send();
                }
            }
            QueueAction::Finished(key, result) => {
                if let Err(failure) = &result {
                    tracing::warn!(path = %key.path.shown(), reason = %failure, "cannot stage a file");
                }
                let waiting = self.waiting.remove(&key).unwrap_or_default();
                self.waiting_count = self.waiting_count.saturating_sub(waiting.len());
                for reply in waiting {
                    reply(result.clone().map_err(StageError::Failed));
                }
            }
        }
    }

    /// Starts the thread of a copy.
    fn start(&mut self, entry: TransferEntry) {
        let (staging, ended, key) = (self.staging.clone(), self.ended.clone(), entry.key.clone());
        let started = StopSignal::new().and_then(|stop| {
            self.copies.insert(key.clone(), stop.clone());
            // Reports the end of the copy even after a panic.
            let report = EndReport { ended, key: Some(key.clone()) };
            let copy = move || report.send(staging.stage(&entry, &stop));
            std::thread::Builder::new().name("stage".to_owned()).spawn(copy)
        });
        if let Err(error) = started {
            // The report was dropped with its thread, unless there is none.
            tracing::warn!(%error, "cannot start the thread of a copy");
            if self.copies.remove(&key).is_none() {
                self.ended.send(Command::Ended(key, unexpected_end())).ok();
            }
        }
    }
}

fn unexpected_end() -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(FailureReason::Site, "the server could not run the copy"))
}

/// The duty to report the end of a copy.
struct EndReport {
    ended: Sender<Command>,
    key: Option<EntryKey>,
}

impl EndReport {
    fn send(mut self, outcome: CopyOutcome) {
        if let Some(key) = self.key.take() {
            self.ended.send(Command::Ended(key, outcome)).ok();
        }
    }
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.ended.send(Command::Ended(key, unexpected_end())).ok();
        }
    }
}

/// Applies a command to the queue and its database.
fn apply(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    command: &Command,
    now: u64,
    actions: &mut Vec<Vec<QueueAction>>,
) -> Result<AppliedCommand, StoreError> {
    match command {
        Command::Fetch(submission, _) => {
            let outcome = handled(queue.submit(store, submission, now))?;
            return Ok(outcome.map_or(AppliedCommand::Done, AppliedCommand::Fetch));
        }
        Command::Submit(submissions, _) => {
            // All or nothing, because a client that has an id believes that its files come.
            for submission in submissions {
                let key = &submission.key;
                if let Some(failure) = handled(queue.refusal(store, key, now))?.flatten() {
                    let text = format!("{}: {failure}; nothing of the request was recorded", key.path.text());
                    return Ok(AppliedCommand::Refused(CopyFailure::new(failure.reason, text)));
                }
            }
            for submission in submissions {
                handled(queue.submit(store, submission, now))?;
            }
        }
        Command::Cancel(request, _) => {
            while let Some((stops, is_more)) = handled(queue.cancel(store, request))? {
                actions.push(stops);
                if !is_more {
                    break;
                }
            }
        }
        Command::Query(request, _) => return Ok(AppliedCommand::Query(status(store, request)?)),
        Command::Ended(key, outcome) => {
            let finished = handled(queue.finish(store, key, outcome.clone(), now))?;
            actions.push(finished.flatten().into_iter().collect());
        }
    }
    Ok(AppliedCommand::Done)
}

/// Returns the result of a step of the queue; `None` if it concerned a copy that does not run, which
/// changes nothing.
fn handled<T>(result: Result<T, QueueError<StoreError>>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(QueueError::Store(error)) => Err(error),
        Err(error @ QueueError::NotRunning(_)) => {
            tracing::error!(%error, "the queue of transfers and its copies disagree");
            Ok(None)
        }
    }
}

fn status(store: &mut SqliteStore, request: &RequestId) -> Result<RequestStatus, StoreError> {
    let keys = store.keys_of_request(request, None, 1)?;
    let waiting = store.files_of_request(request, REQUEST_FILES_COUNTED)?;
    let first = match keys.first() {
        Some(key) => store.find(key)?,
        None => None,
    };
    Ok(first.map_or_else(RequestStatus::default, |entry| RequestStatus {
        waiting,
        added: entry.added,
        priority: entry.priority.number(),
        client: entry.client.to_string(),
    }))
}
