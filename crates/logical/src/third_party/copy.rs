//! A third-party copy at a destination, from the first sync of its client to its result.
//!
//! The first sync prepares the copy. The second one starts it and waits for the result, as does
//! every further one. When a copy is cancelled, its clients get the answer at once; the file is
//! released only after the last write to it. Writes to a server behind are ended then, because it may
//! take any time.

use super::delegation::SourceAccess;
use super::fetcher::{
    Bytes, RunningTransfer, TransferCompletion, TransferRequest, TransferResult, TransferSink, Written,
};
use super::jobs::{EnqueueOutcome, JobNumber};
use super::observer::EndedPull;
use super::pull_state::PullState;
use super::request::PullRequest;
use super::target::{CopyTarget, HeldTarget};
use super::{LATER_SECONDS, ThirdPartyCopies};
use crate::errno::{self, unable};
use crate::job;
use crate::open_file::OpenFileState;
use base::{ClientHost, Error, ErrorKind, LogicalPath, Owner};
use digest::{Algorithm, Checksum, RunningChecksum};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use vfs::{Answer, Caller, DeferredReply, ReplyTo, Started};

/// Maximum number of syncs of one copy that wait for its result.
const WAITING_MAX: usize = 64;
/// Timeout of a copy that receives no data.
const STALL: Duration = Duration::from_secs(120);
/// Time that a copy may take in addition to the transfer: connecting, checksums, waiting for the
/// disk of the source.
const TIME_BESIDE_BYTES: Duration = Duration::from_secs(1800);
/// Minimum average rate of a source in bytes per second; a slower one would occupy a place that
/// others need.
const RATE_MIN: u64 = 64 * 1024;
/// Maximum duration of any copy.
const TIME_MAX: Duration = Duration::from_secs(48 * 3600);
/// Bytes per read when a file is verified.
const READ_BYTES: usize = 1 << 20;

/// The result of a copy.
type Outcome = Result<(), (ErrorKind, String)>;

/// A third-party copy.
pub(crate) struct RunningCopy {
    third: Arc<ThirdPartyCopies>,
    pull: PullRequest,
    access: SourceAccess,
    caller: Arc<Caller>,
    /// The state shared with the destination file.
    pub(crate) pull_state: Arc<PullState>,
    state: Mutex<CopyState>,
    /// Time at which data was last received, in milliseconds of the clock.
    moved: AtomicU64,
    /// Time of the start, in milliseconds of the clock.
    started: AtomicU64,
    /// Number of bytes received.
    bytes: AtomicU64,
}

struct CopyState {
    stage: CopyStage,
    /// The session that started the copy, to which its work is accounted.
    owner: Owner,
    waiting: Vec<DeferredReply>,
    /// The file of the copy.
    target: Weak<dyn CopyTarget>,
}

enum CopyStage {
    /// There was no sync yet.
    Idle,
    /// The next sync starts the copy.
    Armed,
    /// The copy waits for its turn.
    Queued(JobNumber, HeldTarget),
    /// The transfer is in progress; the fetch is present once it was started.
    Running(JobNumber, Option<Box<dyn RunningTransfer>>),
    /// The copy is ending for this reason.
    Stopping(JobNumber, ErrorKind, String),
    /// The copy has ended.
    Over(Outcome),
}

impl RunningCopy {
    pub(crate) fn new(
        third: &Arc<ThirdPartyCopies>,
        pull: PullRequest,
        access: SourceAccess,
        caller: &Arc<Caller>,
        asks_persist: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            third: third.clone(),
            pull,
            access,
            caller: caller.clone(),
            pull_state: Arc::new(PullState::new(asks_persist)),
            state: Mutex::new(CopyState {
                stage: CopyStage::Idle,
                owner: Owner::SERVER,
                waiting: Vec::new(),
                target: Weak::<OpenFileState>::new(),
            }),
            moved: AtomicU64::new(0),
            started: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, CopyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> Owner {
        self.state().owner
    }

    /// Handles a sync of the client.
    pub(crate) fn sync(self: &Arc<Self>, target: &Arc<dyn CopyTarget>, reply: &ReplyTo) -> Started {
        let mut state = self.state();
        match &state.stage {
            CopyStage::Idle => {
                state.stage = CopyStage::Armed;
                return Started::Done(Answer::DONE);
            }
            CopyStage::Over(outcome) => return Started::Done(answer(outcome)),
            CopyStage::Stopping(_, kind, text) => return Started::Done(Answer::error(*kind, text.clone())),
            CopyStage::Queued(..) | CopyStage::Running(..) => {
                if state.waiting.len() >= WAITING_MAX {
                    return Started::Done(job::overloaded());
                }
                state.waiting.push(reply.defer());
            }
            CopyStage::Armed => {
                let Some(held) = target.clone().hold() else {
                    let error = unable("sync", target.path(), errno::BAD_DESCRIPTOR);
                    return Started::Done(Answer::Error(error));
                };
                let client = ClientHost::from(self.caller.identity.address);
                state.owner = reply.owner();
                state.target = Arc::downgrade(target);
                match self.third.jobs().enter(self.clone(), client) {
                    EnqueueOutcome::Full => return Started::Done(job::overloaded()),
                    EnqueueOutcome::Waits(number) => state.stage = CopyStage::Queued(number, held),
                    EnqueueOutcome::Start(number) => {
                        state.stage = CopyStage::Running(number, None);
                        state.waiting.push(reply.defer());
                        drop(state);
                        self.begin(held);
                        return Started::Later { seconds: LATER_SECONDS, text: "" };
                    }
                }
                state.waiting.push(reply.defer());
            }
        }
        Started::Later { seconds: LATER_SECONDS, text: "" }
    }

    /// Starts the copy, because its turn has come.
    fn take_turn(self: &Arc<Self>) {
        let mut state = self.state();
        match std::mem::replace(&mut state.stage, CopyStage::Idle) {
            CopyStage::Queued(number, held) => {
                state.stage = CopyStage::Running(number, None);
                drop(state);
                self.begin(held);
            }
            other => state.stage = other,
        }
    }

    /// Starts the transfer.
    fn begin(self: &Arc<Self>, held: HeldTarget) {
        self.note_move(0);
        self.started.store(self.moved.load(Ordering::Acquire), Ordering::Release);
        let copy = self.clone();
        let watch = CopyGuard(self.clone(), Some(held));
        let start = move || copy.fetch(watch);
        // If no thread is available, the watch is dropped, which ends the copy.
        drop(self.third.starts.run(self.owner(), Box::new(start)));
    }

    fn fetch(self: &Arc<Self>, mut watch: CopyGuard) {
        let Some(held) = watch.1.take() else { return };
        let target = held.target().clone();
        let settings = &self.third.settings;
        let SourceAccess { source, encrypted, credentials, key } = &self.access;
        let origins = key.as_ref().map(|_| self.third.origins(&self.caller.identity));
        let fetch = TransferRequest {
            source: source.clone(),
            encrypted: *encrypted,
            path: self.pull.path.clone(),
            cgi: self.pull.cgi.clone(),
            key: key.clone(),
            origins: origins.unwrap_or_default(),
            credentials: credentials.clone(),
            streams: settings.streams_for(self.pull.streams),
            size: self.pull.size,
            checksum: self.pull.checksum.or(settings.checksum),
            destination: target.path().text().into_owned(),
            client: self.caller.identity.to_string(),
            client_address: self.caller.identity.address.map(|address| address.to_canonical()),
        };
        let wanted = fetch.checksum;
        let sink = Arc::new(CopySink { target, copy: self.clone() });
        let copy = self.clone();
        let finish = TransferCompletion::new(move |result| copy.fetched(held, wanted, result));
        drop(watch);
        let running = self.third.fetcher.start(fetch, sink, finish);
        let mut state = self.state();
        match &mut state.stage {
            CopyStage::Running(_, slot) => *slot = Some(running),
            // The copy was cancelled meanwhile, or has ended already.
            _ => {
                drop(state);
                running.cancel();
            }
        }
    }

    /// Handles the end of the transfer. Verification runs on a pool, because reading may wait for a
    /// disk.
    fn fetched(
        self: &Arc<Self>,
        held: HeldTarget,
        wanted: Option<Algorithm>,
        result: Result<TransferResult, Error>,
    ) {
        let fetched = match result {
            Ok(fetched) => fetched,
            Err(error) => return self.end(held, Err((error.kind, error.text))),
        };
        let target = held.target().clone();
        let mut watch = CopyGuard(self.clone(), Some(held));
        let check = move || {
            let copy = watch.0.clone();
            let outcome = copy.check(target.as_ref(), wanted, &fetched);
            if let Some(held) = watch.1.take() {
                let outcome = outcome.map(|()| fetched.bytes).map_err(|error| (error.kind, error.text));
                copy.end(held, outcome);
            }
        };
        drop(self.third.checks.run(self.owner(), Box::new(check)));
    }

    /// Verifies the size and checksum of the copied file. Blocks.
    fn check(
        &self,
        target: &dyn CopyTarget,
        wanted: Option<Algorithm>,
        fetched: &TransferResult,
    ) -> Result<(), Error> {
        let size = target.size()?;
        if size != fetched.bytes {
            let text = format!("{} bytes were sent, and {size} are here", fetched.bytes);
            return Err(Error::new(ErrorKind::FsError, text));
        }
        if let Some(algorithm) = wanted.filter(|_| !fetched.verified) {
            let Some(theirs) = fetched.checksum else {
                let text = format!("the source did not send the {} checksum", algorithm.name());
                return Err(Error::new(ErrorKind::ChecksumError, text));
            };
            let ours = self.checksum(target, algorithm)?;
            if ours != theirs {
                let text = format!(
                    "the {} checksum of the source is {}, that of the copy {}",
                    algorithm.name(),
                    theirs.hex(),
                    ours.hex()
                );
                return Err(Error::new(ErrorKind::ChecksumError, text));
            }
        }
        target.settle()
    }

    fn checksum(&self, target: &dyn CopyTarget, algorithm: Algorithm) -> Result<Checksum, Error> {
        let mut running = RunningChecksum::new(algorithm);
        let mut buffer = vec![0; READ_BYTES];
        let mut offset = 0;
        loop {
            if self.is_stopping() {
                return Err(Error::new(ErrorKind::Cancelled, PREMATURE));
            }
            let read = target.read_back(offset, &mut buffer)?;
            running.update(buffer.get(..read).unwrap_or_default());
            offset += read as u64;
            self.note_move(0);
            if read < buffer.len() {
                return Ok(running.finish());
            }
        }
    }

    /// Ends the copy: answers the waiting syncs, and starts the next copy.
    fn end(self: &Arc<Self>, held: HeldTarget, result: Result<u64, (ErrorKind, String)>) {
        let mut state = self.state();
        let (number, outcome) = match std::mem::replace(&mut state.stage, CopyStage::Idle) {
            CopyStage::Running(number, _) => (number, result.map_err(|(kind, why)| self.failure(kind, &why))),
            CopyStage::Stopping(number, kind, text) => (number, Err((kind, text))),
            other => {
                state.stage = other;
                return;
            }
        };
        self.third.counters.failed.add(usize::from(outcome.is_err()));
        self.log(held.target().path(), &outcome);
        self.observe(held.target().path(), &outcome);
        let outcome = outcome.map(|_| ());
        self.pull_state.set_whole(outcome.is_ok());
        let waiting = std::mem::take(&mut state.waiting);
        state.stage = CopyStage::Over(outcome.clone());
        drop(state);
        drop(held);
        for reply in waiting {
            reply.send(answer(&outcome));
        }
        start_next(&self.third, number);
    }

    /// Returns the error for clients, with the source and the reason.
    fn failure(&self, kind: ErrorKind, why: &str) -> (ErrorKind, String) {
        // These kinds tell a client what to do. All others become a file system error, as on real
        // servers.
        let kind = match kind {
            ErrorKind::NoSpace | ErrorKind::OverQuota | ErrorKind::ChecksumError | ErrorKind::Cancelled => {
                kind
            }
            _ => ErrorKind::FsError,
        };
        (kind, format!("Unable to copy {}; {why}", self.access.url(&self.pull.path)))
    }

    fn log(&self, path: &LogicalPath, outcome: &Result<u64, (ErrorKind, String)>) {
        let client = &self.caller.identity;
        let source = self.access.url(&self.pull.path);
        match outcome {
            Ok(bytes) if self.third.settings.log_success => {
                tracing::info!(path = %path.shown(), %client, bytes, "third-party copy of {source} completed");
            }
            Ok(_) => {}
            Err((_, text)) => {
                tracing::warn!(path = %path.shown(), %client, "third-party copy of {source} failed: {text}");
            }
        }
    }

    /// Passes the end of the copy to the observer.
    fn observe(&self, path: &LogicalPath, outcome: &Result<u64, (ErrorKind, String)>) {
        let Some(observer) = &self.third.observer else { return };
        let started = Duration::from_millis(self.started.load(Ordering::Acquire));
        let (ended, took) = (SystemTime::now(), self.third.clock.now().saturating_sub(started));
        let arrived = self.bytes.load(Ordering::Relaxed);
        observer.ended(&EndedPull {
            client: &self.caller.identity,
            begun: ended.checked_sub(took).unwrap_or(ended),
            ended,
            failure: outcome.as_ref().err().map(|(kind, _)| *kind),
            streams: self.third.settings.streams_for(self.pull.streams).max(1),
            source: &self.access.source,
            source_path: &self.pull.path,
            path,
            bytes: outcome.as_ref().map_or(arrived, |bytes| *bytes),
        });
    }

    /// Cancels the copy, because its client cancelled it, closed the file or disconnected.
    pub(crate) fn cancel(&self) {
        self.stop(ErrorKind::Cancelled, PREMATURE.to_owned());
    }

    fn stop(&self, kind: ErrorKind, text: String) {
        let mut state = self.state();
        let (mut leaves, mut stopped) = (None, None);
        state.stage = match std::mem::replace(&mut state.stage, CopyStage::Idle) {
            CopyStage::Idle | CopyStage::Armed => CopyStage::Over(Err((kind, text.clone()))),
            CopyStage::Queued(number, held) => {
                leaves = Some((number, held));
                CopyStage::Over(Err((kind, text.clone())))
            }
            CopyStage::Running(number, running) => {
                if let Some(running) = running {
                    running.cancel();
                }
                stopped = state.target.upgrade();
                CopyStage::Stopping(number, kind, text.clone())
            }
            other => other,
        };
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if let Some(target) = stopped {
            // Otherwise the copy would keep its place until the last write is answered.
            target.give_up();
        }
        for reply in waiting {
            reply.send(Answer::error(kind, text.clone()));
        }
        if let Some((number, held)) = leaves {
            drop(held);
            start_next(&self.third, number);
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.state().stage, CopyStage::Stopping(..) | CopyStage::Over(_))
    }

    fn note_move(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = u64::try_from(self.third.clock.now().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Release);
    }

    /// Ends the copy if it received no data, or too little, for too long.
    pub(crate) fn check_progress(&self, now: Duration) {
        let since = |at: &AtomicU64| now.saturating_sub(Duration::from_millis(at.load(Ordering::Acquire)));
        let bytes = self.bytes.load(Ordering::Relaxed);
        let time = (TIME_BESIDE_BYTES + Duration::from_secs(bytes / RATE_MIN)).min(TIME_MAX);
        let why = if since(&self.moved) >= STALL {
            format!("nothing came for {} seconds", STALL.as_secs())
        } else if since(&self.started) >= time {
            format!("only {bytes} bytes came within {} seconds", time.as_secs())
        } else {
            return;
        };
        if matches!(self.state().stage, CopyStage::Running(..)) {
            let (kind, text) = self.failure(ErrorKind::FsError, &why);
            self.stop(kind, text);
        }
    }
}

/// The error of syncs that wait for a copy that its client cancelled, as real servers send it.
const PREMATURE: &str = "destination file prematurely closed";

fn answer(outcome: &Outcome) -> Answer {
    match outcome {
        Ok(()) => Answer::DONE,
        Err((kind, text)) => Answer::error(*kind, text.clone()),
    }
}

/// Removes an ended copy and starts the next ones.
fn start_next(copies: &ThirdPartyCopies, number: JobNumber) {
    let next = copies.jobs().leave(number);
    for copy in next {
        copy.take_turn();
    }
}

/// Guards a part of a copy: if it is dropped early, the copy fails.
struct CopyGuard(Arc<RunningCopy>, Option<HeldTarget>);

impl Drop for CopyGuard {
    fn drop(&mut self) {
        if let Some(held) = self.1.take() {
            let why = "internal error; see the destination's log".to_owned();
            self.0.end(held, Err((ErrorKind::ServerError, why)));
        }
    }
}

/// The destination of the received data.
struct CopySink {
    target: Arc<dyn CopyTarget>,
    copy: Arc<RunningCopy>,
}

impl TransferSink for CopySink {
    fn write(&self, offset: u64, bytes: Bytes, then: Written) {
        if self.copy.is_stopping() {
            return then(Err(Error::new(ErrorKind::Cancelled, PREMATURE)));
        }
        let (copy, length) = (self.copy.clone(), (*bytes).as_ref().len() as u64);
        let written: Written = Box::new(move |result| {
            copy.note_move(length);
            then(result);
        });
        self.target.clone().receive(offset, bytes, written);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.target.descriptor()
    }

    fn moved(&self, bytes: u64) {
        self.copy.note_move(bytes);
    }
}
