//! The files that a [`crate::StageAgent`] is asked for, and which of them the next line is for.
//!
//! A process that ends has several files, and nothing shows at which of them it has ended. All of them are suspects then. The
//! next process gets half as many at once, and so on, until it has one alone; only that one is charged. Files that came later
//! wait until no suspect is left.

use crate::entry::{CopyFailure, FailureReason};
use crate::queue::CopyOutcome;
use crate::wake_event::WakeEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of processes that end with a file alone, before it has failed.
const DEATHS_MAX: u32 = 3;

/// Number of files that fail so without a report in between, after which the program is taken for broken.
const FAILED_MAX: u32 = 3;

/// Multiple of the time limit that a file may take, if others are reported meanwhile.
const LIMITS_MAX: u32 = 8;

/// Number of files that have failed although a process could still write them, after which it is replaced.
const ABANDONED_MAX: usize = 10_000;

/// The state that the threads of copies share with that of the program.
pub(crate) struct AgentState {
    /// Wakes the thread of the program. Each change after which it may have another line sets it.
    wake: Arc<WakeEvent>,
    /// Requests by the path of their file. There is one copy of a file at most.
    requests: BTreeMap<Vec<u8>, AgentFile>,
    /// The thread runs.
    pub(crate) has_thread: bool,
    /// The server ends.
    pub(crate) is_ending: bool,
    /// Called when the thread has ended, and with it the program.
    pub(crate) on_end: Vec<Box<dyn FnOnce() + Send>>,
    /// The number of the process that runs, and the number of processes so far.
    run: Option<u64>,
    runs: u64,
    /// The number of lines so far.
    lines: u64,
    /// The last end of a file that the present process has completed or reported.
    reported: Option<Instant>,
    /// The start of the present process.
    begun: Option<Instant>,
    /// The file whose time limit ends the present process.
    late: Option<Vec<u8>>,
    /// Files that have failed although the present process could still write them.
    abandoned: BTreeSet<Vec<u8>>,
    /// The present process is ended, because one of those is wanted again.
    is_replaced: bool,
    /// Number of suspects that a process gets at once.
    suspects_max: usize,
    /// Number of files that have failed because of processes that ended, since the last report.
    failed: u32,
}

/// A file that the program is asked for.
pub(crate) struct AgentFile {
    /// The parts of its line. Between them is the word.
    line: Vec<Vec<u8>>,
    /// The word of the last line.
    word: Vec<u8>,
    /// Where the program writes it.
    destination: PathBuf,
    /// Since when the present process has the line.
    given: Option<Instant>,
    /// The time for which earlier processes had it that ended by themselves.
    taken: Duration,
    /// The process for which nothing is at its destination any more.
    cleaned: Option<u64>,
    /// A process that had it has ended.
    is_suspect: bool,
    /// Number of processes that have ended with it alone.
    deaths: u32,
    /// Nobody wants the file any more.
    is_cancelled: bool,
    sign: EndSign,
    end: Arc<RequestEnd>,
}

/// What shows that the work of the program for a file has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndSign {
    /// A report of the program.
    Report,
    /// The file itself, at which its copy looks.
    File,
}

/// The end of a request.
pub(crate) struct RequestEnd {
    outcome: Mutex<Option<CopyOutcome>>,
    /// Set when its thread has something to do.
    pub(crate) event: WakeEvent,
}

impl RequestEnd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { outcome: Mutex::default(), event: WakeEvent::new()? })
    }

    /// Returns the outcome if there is one, and forgets the event.
    pub(crate) fn take(&self) -> Option<CopyOutcome> {
        self.event.take();
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AgentFile {
    pub(crate) fn new(line: Vec<Vec<u8>>, destination: PathBuf, sign: EndSign, end: Arc<RequestEnd>) -> Self {
        Self {
            line,
            word: Vec::new(),
            destination,
            given: None,
            taken: Duration::ZERO,
            cleaned: None,
            is_suspect: false,
            deaths: 0,
            is_cancelled: false,
            sign,
            end,
        }
    }

    fn finish(self, outcome: CopyOutcome) {
        *self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.end.event.set();
    }

    /// Returns the time at which its process is ended, because it has not reported the end.
    fn deadline(&self, reported: Option<Instant>, limit: Duration) -> Option<Instant> {
        let given = self.given.filter(|_| self.sign == EndSign::Report)?;
        let last = reported.map_or(given, |reported| reported.max(given));
        last.checked_add(limit)?.min(given.checked_add(limit.saturating_mul(LIMITS_MAX))?).into()
    }
}

impl AgentState {
    /// Creates the state without requests. `wake` wakes the thread of the program.
    pub(crate) fn new(wake: Arc<WakeEvent>) -> Self {
        Self {
            wake,
            requests: BTreeMap::new(),
            has_thread: false,
            is_ending: false,
            on_end: Vec::new(),
            run: None,
            runs: 0,
            lines: 0,
            reported: None,
            begun: None,
            late: None,
            abandoned: BTreeSet::new(),
            is_replaced: false,
            suspects_max: 0,
            failed: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn add(&mut self, key: Vec<u8>, request: AgentFile) {
        if let Some(other) = self.requests.insert(key, request) {
            // Never, but it must not wait for ever.
            other.finish(CopyOutcome::Stopped);
        }
        self.wake.set();
    }

    /// Ends a request that nobody wants any more, unless the program has it: it could still write the file.
    pub(crate) fn cancel(&mut self, key: &[u8]) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if request.given.is_some() {
            request.is_cancelled = true;
        } else {
            self.finish(key, CopyOutcome::Stopped);
        }
    }

    /// A process is about to start, and has reported nothing.
    pub(crate) fn expect_process(&mut self) {
        self.reported = None;
    }

    /// Notes that a process runs. Each copy has to remove the part that an earlier process may have left.
    pub(crate) fn begin_process(&mut self) {
        self.runs += 1;
        (self.run, self.begun) = (Some(self.runs), Some(Instant::now()));
        self.requests.values().for_each(|request| request.end.event.set());
    }

    /// Returns the place of a file at which something may be left, and the process that needs it.
    pub(crate) fn to_be_cleaned(&self, key: &[u8]) -> Option<(PathBuf, u64)> {
        let (run, request) = (self.run?, self.requests.get(key)?);
        (request.cleaned != Some(run)).then(|| (request.destination.clone(), run))
    }

    /// Nothing is left at the place of a file.
    pub(crate) fn is_cleaned(&mut self, key: &[u8], run: u64) {
        if let Some(request) = self.requests.get_mut(key) {
            request.cleaned = Some(run);
        }
        self.wake.set();
    }

    /// Returns the next line for the present process. Its word is another one than that of all lines before: a report of an
    /// earlier try of the same file, which arrives late, is none of this one.
    pub(crate) fn next_line(&mut self, prefix: &str) -> Option<Vec<u8>> {
        let run = self.run.filter(|_| !self.is_replaced)?;
        // Each turn looks at a thousand at most, because that is the number of copies.
        let has_suspects = self.requests.values().any(|request| request.is_suspect);
        if has_suspects && self.number_given() >= self.suspects_max {
            return None;
        }
        let request = self.requests.values_mut().find(|request| {
            request.given.is_none() && request.cleaned == Some(run) && request.is_suspect == has_suspects
        })?;
        self.lines += 1;
        request.given = Some(Instant::now());
        request.word = format!("{prefix}.{}", self.lines).into_bytes();
        Some(request.line.join(request.word.as_slice()))
    }

    fn number_given(&self) -> usize {
        self.requests.values().filter(|request| request.given.is_some()).count()
    }

    /// Reports whether the present process has a line with this word.
    pub(crate) fn is_asked(&self, word: &[u8]) -> bool {
        self.key_of(word).is_some()
    }

    fn key_of(&self, word: &[u8]) -> Option<&Vec<u8>> {
        let mut requests = self.requests.iter();
        requests.find(|(_, request)| request.given.is_some() && request.word == word).map(|(key, _)| key)
    }

    /// The present process has reported the end of the file whose line had this word.
    pub(crate) fn report(&mut self, word: &[u8], outcome: CopyOutcome) {
        if let Some(key) = self.key_of(word).cloned() {
            (self.reported, self.failed) = (Some(Instant::now()), 0);
            self.finish(&key, outcome);
        }
    }

    /// Returns the present process if it has the line of a file.
    pub(crate) fn process_of(&self, key: &[u8]) -> Option<u64> {
        self.run.filter(|_| self.requests.get(key).is_some_and(|request| request.given.is_some()))
    }

    /// The file is complete that a process had. The result of a look at a file of an earlier process has no effect.
    pub(crate) fn complete(&mut self, key: &[u8], run: u64) {
        if self.process_of(key) == Some(run) {
            (self.reported, self.failed) = (Some(Instant::now()), 0);
            self.finish(key, CopyOutcome::Done);
        }
    }

    /// A file has failed that a process has and could still write. No further try of it begins before the end of that process.
    /// With a limit, the file is late, and a process that has completed nothing for that time, since its start or the last file,
    /// is replaced, because it may hang.
    pub(crate) fn abandon(&mut self, key: &[u8], run: u64, failure: CopyFailure, limit: Option<Duration>) {
        if self.process_of(key) == Some(run) {
            self.abandoned.insert(key.to_vec());
            let worked = self.reported.max(self.begun);
            let hangs = limit.is_some_and(|limit| worked.is_none_or(|worked| worked.elapsed() >= limit));
            self.is_replaced |= hangs || self.abandoned.len() >= ABANDONED_MAX;
            self.finish(key, CopyOutcome::Failed(failure));
        }
    }

    /// Reports whether a file cannot be staged before the end of the present process, which has other files. Without
    /// those, it is replaced.
    pub(crate) fn is_blocked(&mut self, key: &[u8]) -> bool {
        let is_abandoned = self.abandoned.contains(key);
        self.is_replaced |= is_abandoned && self.number_given() == 0;
        is_abandoned && !self.is_replaced
    }

    /// Reports whether the present process is to be replaced, because it could still write files that have failed.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Reports whether a file is late at which its copy looks: processes have had it for the time limit. The time for which it
    /// waits for a line does not count.
    pub(crate) fn is_late(&self, key: &[u8], limit: Duration) -> bool {
        let late = |request: &AgentFile| {
            request.given.is_some_and(|given| request.taken.saturating_add(given.elapsed()) >= limit)
        };
        self.requests.get(key).is_some_and(late)
    }

    /// Reports whether the last process has reported the end of a file.
    pub(crate) fn has_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Ends the request of a file.
    pub(crate) fn finish(&mut self, key: &[u8], outcome: CopyOutcome) {
        if let Some(request) = self.requests.remove(key) {
            request.finish(outcome);
        }
        // Others may have waited for it, and the process may have to be replaced.
        self.wake.set();
    }

    pub(crate) fn finish_all(&mut self, outcome: impl Fn() -> CopyOutcome) {
        for request in std::mem::take(&mut self.requests).into_values() {
            request.finish(outcome());
        }
    }

    /// Returns the time left until the first file has failed. If it is over, the process has to be replaced, because it could
    /// still write that file; its request ends after the process.
    pub(crate) fn time_left(&mut self, limit: Duration) -> Option<Duration> {
        // Of several that are late together, the one that has waited longest is charged.
        let files = self.requests.iter().filter_map(|(key, request)| {
            Some((request.deadline(self.reported, limit)?, request.given?, key))
        });
        let (deadline, _, key) = files.min()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.late = Some(key.clone());
        }
        Some(left)
    }

    /// The process has ended. Its requests are for the next one, except for those that nobody wants, and the one that is known
    /// to be the reason.
    pub(crate) fn take_back(&mut self, name: &str, how: &str, limit: Duration) {
        self.run = None;
        self.abandoned.clear();
        let late = self.late.take();
        // Its end is no sign that a file is the reason.
        let has_reason = std::mem::take(&mut self.is_replaced) || late.is_some();
        let number = self.number_given();
        let is_charged = !has_reason && number == 1 && self.reported.is_none();
        if !has_reason && number > 0 {
            self.suspects_max = (number / 2).max(1);
        }
        for (key, mut request) in std::mem::take(&mut self.requests) {
            let Some(given) = request.given.take() else {
                self.requests.insert(key, request);
                continue;
            };
            // What a process has done for it is lost if another file is the reason of the end, and that is none of its own.
            request.taken =
                if has_reason { Duration::ZERO } else { request.taken.saturating_add(given.elapsed()) };
            request.is_suspect |= !has_reason;
            request.deaths += u32::from(is_charged);
            if request.is_cancelled {
                request.finish(CopyOutcome::Stopped);
            } else if late.as_ref() == Some(&key) {
                let limit = limit.as_secs();
                let text = format!("{name} has not reported the end of the file within {limit} s (stage OK)");
                request.finish(CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)));
            } else if request.deaths >= DEATHS_MAX {
                self.failed += 1;
                let text = format!("{name} has ended with this file {DEATHS_MAX} times ({how})");
                request.finish(CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)));
            } else {
                self.requests.insert(key, request);
            }
        }
        if self.failed >= FAILED_MAX {
            self.failed = 0;
            let text = format!("{name} ends with each file ({how})");
            self.finish_all(|| CopyOutcome::Failed(CopyFailure::new(FailureReason::Site, text.clone())));
        }
    }
}

#[cfg(test)]
mod tests;
