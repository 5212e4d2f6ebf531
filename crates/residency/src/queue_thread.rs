//! The thread of the queue: executes commands in transactions, and starts and ends copies.

use crate::entry::{
    CopyFailure, EntryKey, EntryState, FailureReason, RequestId, TransferDirection, TransferEntry,
};
use crate::migration::Migration;
use crate::migration_search::{FAILED_MAX, MIGRATION_OWNER, QUEUED_MAX};
use crate::notification::{NoticedEnd, Notifier, RequestNotice};
use crate::outlived::QueueRun;
use crate::ports::StopSignal;
use crate::queue::{
    CopyOutcome, NO_PLACE, QueueAction, QueueError, QueueLimits, Submission, SubmissionOutcome, TransferQueue,
};
use crate::service::{REQUEST_FAILURES_LISTED, REQUEST_FILES_COUNTED, RequestStatus, StageError, StageReply};
use crate::sqlite_store::{SqliteStore, StoreError};
use crate::stage_processes::EarlierPrograms;
use crate::staging::Staging;
use crate::store::EntryStore as _;
use crate::tape_load::{self, TapePermit};
use crate::tape_pins::TapePins;
use crate::tape_requests::{self, TapeChange, TapeOutcome};
use crate::waiting::{Waiter, WaitingClients};
use base::{Clock, LogicalPath};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, UNIX_EPOCH};
use storage::DirectoryLock;

/// Number of commands, or of their files, after which a transaction gets no other one.
const BATCH_MAX: usize = 1024;

/// Maximum time between two looks at the queue, in seconds.
const LOOK_SECONDS_MAX: u64 = 60;

/// The interval between two looks for clients that have left.
const LEFT_INTERVAL: Duration = Duration::from_secs(5);

/// The time after which the end of a copy is recorded again, if the database failed.
const RETRY: Duration = Duration::from_secs(1);

/// A command for the thread.
pub(crate) enum Command {
    Fetch(Submission, Waiter),
    /// With the notifications that the request wants.
    Submit(Vec<Submission>, Option<RequestNotice>, StageReply<()>),
    /// As `Submit`, also if the transfer failed a short time ago.
    Retry(Submission, StageReply<()>),
    Cancel(RequestId, StageReply<()>),
    Query(RequestId, StageReply<RequestStatus>),
    Tape(TapeChange, TapePermit, StageReply<TapeOutcome>),
    /// Adds migrations that find a place and did not fail lately. The answer is the number of migrations
    /// that wait or run, or [`QUEUED_MAX`] if too many have failed.
    Migrate(Vec<Submission>, Sender<u64>),
    Ended(EntryKey, CopyOutcome),
    /// Asks whether a transfer is in the queue and was not cancelled.
    IsWanted(EntryKey, Sender<bool>),
    /// Another process has changed the queue.
    Wake,
    /// Ends all copies.
    End(Box<dyn FnOnce() + Send>),
}

/// The result of a command in a transaction that is not durable yet.
pub(crate) enum AppliedCommand {
    Fetch(SubmissionOutcome),
    Done,
    /// None of the submissions was recorded.
    Refused(CopyFailure),
    Query(RequestStatus),
    IsWanted(bool),
    Migrate(u64),
    /// With the file, if requests keep it on disk.
    Ended(Option<NoticedEnd>, Option<LogicalPath>),
    /// With the files whose time on disk has changed.
    Tape(TapeOutcome, Vec<LogicalPath>),
}

impl Command {
    /// Returns the number of files, 1 at least.
    fn files(&self) -> usize {
        match self {
            Self::Submit(submissions, ..) | Self::Migrate(submissions, _) => submissions.len().max(1),
            _ => 1,
        }
    }

    pub(crate) fn fail(self, error: &StageError) {
        match self {
            Self::Fetch(_, waiter) => (waiter.reply)(Err(error.clone())),
            Self::Submit(_, _, reply) | Self::Retry(_, reply) | Self::Cancel(_, reply) => {
                reply(Err(error.clone()));
            }
            Self::Query(_, reply) => reply(Err(error.clone())),
            Self::Tape(_, _, reply) => reply(Err(error.clone())),
            // The question is asked again.
            Self::IsWanted(_, reply) => drop(reply.send(true)),
            // The next search finds the files again.
            Self::Migrate(_, reply) => drop(reply.send(0)),
            Self::Ended(..) | Self::Wake => {}
            Self::End(reply) => reply(),
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

/// The mark of the programs of this run, and the programs of earlier runs.
type ProgramsOfRuns = (QueueRun, Arc<EarlierPrograms>);

/// The thread and its state.
pub(crate) struct QueueThread {
    store: SqliteStore,
    queue: TransferQueue,
    staging: Arc<Staging>,
    migration: Arc<Migration>,
    time: QueueTime,
    inbox: Receiver<Command>,
    /// For the ends of copies.
    ended: Sender<Command>,
    /// Ends of copies that could not be recorded.
    unsaved: Vec<Command>,
    /// Tape changes, which let all other commands pass.
    tapes: VecDeque<Command>,
    waiting: WaitingClients,
    /// Files for which nobody waits any more, until that is recorded.
    abandoned: Vec<EntryKey>,
    /// The time of the last look for clients that have left.
    looked: Instant,
    copies: BTreeMap<EntryKey, StopSignal>,
    run: QueueRun,
    earlier: Arc<EarlierPrograms>,
    pins: TapePins,
    notifier: Notifier,
    /// Set when the server ends: to be called after the end of all copies.
    ending: Option<Vec<Box<dyn FnOnce() + Send>>>,
    /// The lock of the directory.
    _lock: DirectoryLock,
}

impl QueueThread {
    /// Continues the transfers of an earlier run.
    pub(crate) fn recovered(
        mut store: SqliteStore,
        (limits, (staging, migration), programs, pins): (
            QueueLimits,
            (Arc<Staging>, Migration),
            ProgramsOfRuns,
            TapePins,
        ),
        clock: Arc<dyn Clock>,
        (ended, inbox): (Sender<Command>, Receiver<Command>),
        lock: DirectoryLock,
    ) -> Result<Self, StoreError> {
        let (time, (run, earlier)) = (QueueTime::new(clock), programs);
        let deny = limits.deny;
        store.transaction(|store| {
            store.recover(time.now(), deny)?;
            store.forget_notices(None)
        })?;
        Ok(Self {
            store,
            queue: TransferQueue::new(limits),
            staging,
            migration: Arc::new(migration),
            time,
            inbox,
            ended,
            unsaved: Vec::new(),
            tapes: VecDeque::new(),
            waiting: WaitingClients::default(),
            abandoned: Vec::new(),
            looked: Instant::now(),
            copies: BTreeMap::new(),
            run,
            earlier,
            pins,
            notifier: Notifier::start(),
            ending: None,
            _lock: lock,
        })
    }

    pub(crate) fn run(mut self) {
        let mut wait = Duration::ZERO;
        loop {
            let mut batch = std::mem::take(&mut self.unsaved);
            let mut next = match self.inbox.recv_timeout(wait) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                // Never, because this thread has a sender.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut size = 0;
            while let Some(command) = next {
                match command {
                    Command::Tape(..) => self.tapes.push_back(command),
                    command => {
                        size += command.files();
                        batch.push(command);
                    }
                }
                next = (size < BATCH_MAX).then(|| self.inbox.try_recv().ok()).flatten();
            }
            tape_load::take(&mut self.tapes, &mut batch);
            wait = self.process(batch);
            if !self.tapes.is_empty() {
                wait = Duration::ZERO;
            }
        }
    }

    /// Executes commands in one transaction, then starts what can start. Returns the time until the
    /// next call, if no command arrives before.
    fn process(&mut self, batch: Vec<Command>) -> Duration {
        let now = self.time.now();
        let ends = self.ending.is_some() || batch.iter().any(|command| matches!(command, Command::End(_)));
        let before = self.queue.clone();
        if self.looked.elapsed() >= LEFT_INTERVAL {
            self.looked = Instant::now();
            self.abandoned.extend(self.waiting.remove_those_that_left());
        }
        let abandoned = &self.abandoned;
        let (queue, mut actions) = (&mut self.queue, Vec::new());
        let result: Result<_, StoreError> = self.store.transaction(|store| {
            let mut applied = Vec::with_capacity(batch.len());
            for key in abandoned {
                handled(queue.abandon(store, key))?;
            }
            for command in &batch {
                applied.push(apply(queue, store, command, now, &mut actions)?);
            }
            if !ends {
                actions.extend(handled(queue.start_ready(store, now))?);
            }
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
        self.abandoned.clear();
        report_pause(before.pause_reason(), self.queue.pause_reason());
        for (command, result) in batch.into_iter().zip(applied) {
            self.answer(command, result);
        }
        for action in actions.into_iter().flatten() {
            self.act(action);
        }
        if self.copies.is_empty() {
            for reply in self.ending.iter_mut().flat_map(std::mem::take) {
                self.staging.agent.when_ended(reply);
            }
        }
        if self.pins.has_rest() {
            self.pins.change(Vec::new());
        }
        let seconds = next.map_or(LOOK_SECONDS_MAX, |time| time.saturating_sub(now));
        let wait = Duration::from_secs(seconds.clamp(1, LOOK_SECONDS_MAX));
        let wait = if self.waiting.is_empty() { wait } else { wait.min(LEFT_INTERVAL) };
        if self.pins.has_rest() { wait.min(RETRY) } else { wait }
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
            (Command::Fetch(_, waiter), AppliedCommand::Fetch(SubmissionOutcome::Refused(failure))) => {
                (waiter.reply)(Err(StageError::Failed(failure)));
            }
            (Command::Fetch(submission, waiter), _) => self.waiting.add(submission.key, waiter),
            (Command::Submit(_, _, reply) | Command::Retry(_, reply), AppliedCommand::Refused(failure)) => {
                reply(Err(StageError::Failed(failure)));
            }
            (Command::Submit(_, _, reply) | Command::Retry(_, reply) | Command::Cancel(_, reply), _) => {
                reply(Ok(()));
            }
            (Command::Query(_, reply), AppliedCommand::Query(status)) => reply(Ok(status)),
            (Command::Query(_, reply), _) => reply(Ok(RequestStatus::default())),
            (Command::Tape(_, permit, reply), AppliedCommand::Tape(outcome, kept)) => {
                drop(permit);
                self.pins.change(kept);
                reply(Ok(outcome));
            }
            (Command::Tape(_, _, reply), _) => {
                reply(Err(StageError::Queue("the queue of transfers has lost a request".to_owned())));
            }
            (Command::Migrate(_, reply), result) => {
                let number = if let AppliedCommand::Migrate(number) = result { number } else { 0 };
                // It fails if the search has ended.
                reply.send(number).ok();
            }
            (Command::Ended(key, _), result) => {
                self.copies.remove(&key);
                if let AppliedCommand::Ended(end, kept) = result {
                    end.into_iter().for_each(|end| self.notifier.send(end));
                    self.pins.change(kept.into_iter().collect());
                }
            }
            (Command::IsWanted(_, reply), result) => {
                // It fails if nobody waits for the answer any more.
                reply.send(matches!(result, AppliedCommand::IsWanted(true))).ok();
            }
            (Command::Wake, _) => self.end_cancelled_copies(),
            (Command::End(reply), _) => {
                self.ending.get_or_insert_default().push(reply);
                self.copies.values().for_each(StopSignal::send);
                self.staging.agent.end();
            }
        }
    }

    /// Ends copies whose last request another process has cancelled.
    fn end_cancelled_copies(&mut self) {
        for (key, stop) in &self.copies {
            // What cannot be read now is read at the end of the copy.
            if let Ok(Some(entry)) = self.store.find(key)
                && entry.state == EntryState::Stopping
            {
                stop.send();
            }
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
                    let path = key.path.shown();
                    match key.direction {
                        TransferDirection::In => {
                            tracing::warn!(%path, reason = %failure, "cannot stage a file")
                        }
                        TransferDirection::Out => tracing::warn!(
                            %path, reason = %failure, "cannot migrate a file; it is tried again after oss.xfr deny"
                        ),
                    }
                }
                for waiter in self.waiting.take(&key) {
                    (waiter.reply)(result.clone().map_err(StageError::Failed));
                }
            }
        }
    }

    /// Starts the thread of a copy.
    fn start(&mut self, entry: TransferEntry) {
        let (staging, migration) = (self.staging.clone(), self.migration.clone());
        let (ended, key) = (self.ended.clone(), entry.key.clone());
        let (run, earlier) = (self.run.clone(), self.earlier.clone());
        let started = StopSignal::new().and_then(|stop| {
            self.copies.insert(key.clone(), stop.clone());
            // Reports the end of the copy even after a panic.
            let report = EndReport { ended, key: Some(key.clone()) };
            let name = if key.direction == TransferDirection::In { "stage" } else { "migrate" };
            let copy = move || {
                report.send(match entry.key.direction {
                    TransferDirection::In if !earlier.wait(Some(&stop)) => CopyOutcome::Stopped,
                    TransferDirection::In => staging.stage(&entry, &run, &stop),
                    TransferDirection::Out => migration.migrate(&entry, &run, &stop),
                });
            };
            std::thread::Builder::new().name(name.to_owned()).spawn(copy)
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

/// Reports the begin or the end of a pause of migration.
fn report_pause(before: Option<&Arc<str>>, after: Option<&Arc<str>>) {
    match (before, after) {
        (None, Some(reason)) => tracing::warn!(
            %reason, "migration is slow now, because many files have failed in succession: it tries one every few seconds"
        ),
        (Some(_), None) => tracing::warn!("migration is as fast as before, because a file was copied again"),
        _ => {}
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
pub(crate) fn apply(
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
        Command::Submit(submissions, notice, _) => {
            return apply_request(queue, store, (submissions, notice.as_ref()), now);
        }
        Command::Retry(submission, _) => {
            handled(queue.forget_failure(store, &submission.key, now))?;
            let outcome = handled(queue.submit(store, submission, now))?;
            if let Some(SubmissionOutcome::Refused(failure)) = outcome {
                return Ok(AppliedCommand::Refused(failure));
            }
        }
        Command::Cancel(request, _) => {
            while let Some((stops, is_more)) = handled(queue.cancel(store, request))? {
                actions.push(stops);
                if !is_more {
                    break;
                }
            }
            store.forget_notices(Some(request))?;
        }
        Command::Migrate(submissions, _) => {
            for submission in submissions {
                // One that is refused is found again.
                handled(queue.submit(store, submission, now))?;
            }
            let own = store.places(MIGRATION_OWNER)?.own;
            let has_room = store.failed_migrations(FAILED_MAX)? < FAILED_MAX;
            return Ok(AppliedCommand::Migrate(if has_room { own } else { own.max(QUEUED_MAX) }));
        }
        Command::IsWanted(key, _) => {
            let state = store.find(key)?.map(|entry| entry.state);
            let is_wanted = matches!(state, Some(EntryState::Queued { .. } | EntryState::Active));
            return Ok(AppliedCommand::IsWanted(is_wanted));
        }
        Command::End(_) | Command::Wake => {}
        Command::Tape(change, ..) => {
            let applied = handled(tape_requests::apply(queue, store, change, now, actions))?;
            return Ok(
                applied.map_or(AppliedCommand::Done, |(outcome, kept)| AppliedCommand::Tape(outcome, kept))
            );
        }
        Command::Query(request, _) => return Ok(AppliedCommand::Query(status(store, request)?)),
        Command::Ended(key, outcome) => {
            let keeps = tape_requests::keeps(store, key)?;
            let (finished, end) = end_copy(queue, store, (key, outcome), now)?;
            let is_here = matches!(&finished, Some(QueueAction::Finished(_, Ok(()))));
            actions.push(finished.into_iter().collect());
            return Ok(AppliedCommand::Ended(end, (is_here && keeps).then(|| key.path.clone())));
        }
    }
    Ok(AppliedCommand::Done)
}

/// Records the transfers of a request, all or none, because a client that has an id believes that its files come.
fn apply_request(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    (submissions, notice): (&[Submission], Option<&RequestNotice>),
    now: u64,
) -> Result<AppliedCommand, StoreError> {
    let mut new = 0;
    for submission in submissions {
        let key = &submission.key;
        if let Some(failure) = handled(queue.refusal(store, key, now))?.flatten() {
            let text = format!("{}: {failure}; nothing of the request was recorded", key.path.text());
            return Ok(AppliedCommand::Refused(CopyFailure::new(failure.reason, text)));
        }
        // One that is there twice counts twice.
        new += u64::from(handled(queue.needs_place(store, key))?.unwrap_or(true));
    }
    let owner = submissions.first().map(|submission| &*submission.owner).unwrap_or_default();
    if !handled(queue.has_places(store, owner, new))?.unwrap_or(true) {
        return Ok(AppliedCommand::Refused(CopyFailure::new(FailureReason::Site, NO_PLACE)));
    }
    let request = submissions.first().and_then(|submission| submission.request.as_ref());
    if let Some((request, notice)) = request.zip(notice) {
        store.add_notice(request, notice)?;
    }
    for submission in submissions {
        // None of them can be refused any more.
        queue.adopt(store, submission, now)?;
    }
    Ok(AppliedCommand::Done)
}

/// Records the end of a copy. Returns what follows, and the requests that are notified.
fn end_copy(
    queue: &mut TransferQueue,
    store: &mut SqliteStore,
    (key, outcome): (&EntryKey, &CopyOutcome),
    now: u64,
) -> Result<(Option<QueueAction>, Option<NoticedEnd>), StoreError> {
    let mut notices = store.notices_of_entry(key)?;
    let finished = handled(queue.finish(store, key, outcome.clone(), now))?.flatten();
    let end = match &finished {
        Some(QueueAction::Finished(key, result)) if !notices.is_empty() => {
            // Those that are still there wait for another try.
            let waiting = store.notices_of_entry(key)?;
            notices.retain(|notice| !waiting.contains(notice));
            for (request, _) in &notices {
                store.forget_notices(Some(request))?;
            }
            Some(NoticedEnd { notices, key: key.clone(), result: result.clone() })
        }
        _ => None,
    };
    Ok((finished, end))
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
    let failed = store.failures_of_request(request, REQUEST_FAILURES_LISTED)?;
    let first = match keys.first() {
        Some(key) => store.find(key)?,
        None => None,
    };
    let (added, priority, client) = match (&first, failed.first()) {
        (Some(entry), _) => (entry.added, entry.priority.number(), entry.client.to_string()),
        (None, Some(file)) => (file.added, file.priority, file.client.clone()),
        (None, None) => return Ok(RequestStatus::default()),
    };
    Ok(RequestStatus { waiting, added, priority, client, failed })
}
