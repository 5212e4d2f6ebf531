//! The files that a [`crate::StageAgent`] is asked for, and which of them the next line is for.
//!
//! A process that ends has several files, and nothing shows at which of them it has ended. All of them are suspects then. The
//! next process gets half as many at once, and so on, until it has one alone; only that one is charged. Files that came later
//! wait until no suspect is left.

use crate::entry::{CopyFailure, FailureReason};
use crate::queue::CopyOutcome;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of processes that end with a file alone, before it has failed.
const DEATHS_MAX: u32 = 3;

/// Number of files that fail so without a report in between, after which the program is taken for broken.
const FAILED_MAX: u32 = 3;

/// Multiple of the time limit that a file may take, if others are reported meanwhile.
const LIMITS_MAX: u32 = 8;

/// The state that the threads of copies share with that of the program.
#[derive(Default)]
pub(crate) struct AgentState {
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
    /// The last report of the present process.
    reported: Option<Instant>,
    /// The file whose time limit ends the present process.
    late: Option<Vec<u8>>,
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
    /// The process for which nothing is at its destination any more.
    cleaned: Option<u64>,
    /// A process that had it has ended.
    is_suspect: bool,
    /// Number of processes that have ended with it alone.
    deaths: u32,
    /// Nobody wants the file any more.
    is_cancelled: bool,
    end: Arc<RequestEnd>,
}

/// The end of a request.
pub(crate) struct RequestEnd {
    outcome: Mutex<Option<CopyOutcome>>,
    /// Readable when its thread has something to do.
    pub(crate) event: OwnedFd,
}

impl RequestEnd {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { outcome: Mutex::default(), event })
    }

    /// Returns the outcome if there is one, and forgets the event.
    pub(crate) fn take(&self) -> Option<CopyOutcome> {
        // It fails if there was none.
        rustix::io::read(&self.event, &mut [0; 8]).ok();
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wake(&self) {
        // It fails only if the event was set before.
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).ok();
    }
}

impl AgentFile {
    pub(crate) fn new(line: Vec<Vec<u8>>, destination: PathBuf, end: Arc<RequestEnd>) -> Self {
        Self {
            line,
            word: Vec::new(),
            destination,
            given: None,
            cleaned: None,
            is_suspect: false,
            deaths: 0,
            is_cancelled: false,
            end,
        }
    }

    fn finish(self, outcome: CopyOutcome) {
        *self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.end.wake();
    }

    /// Returns the time at which it has failed.
    fn deadline(&self, reported: Option<Instant>, limit: Duration) -> Option<Instant> {
        let given = self.given?;
        let last = reported.map_or(given, |reported| reported.max(given));
        last.checked_add(limit)?.min(given.checked_add(limit.saturating_mul(LIMITS_MAX))?).into()
    }
}

impl AgentState {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn add(&mut self, key: Vec<u8>, request: AgentFile) {
        if let Some(other) = self.requests.insert(key, request) {
            // Never, but it must not wait for ever.
            other.finish(CopyOutcome::Stopped);
        }
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
        self.run = Some(self.runs);
        self.requests.values().for_each(|request| request.end.wake());
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
    }

    /// Returns the next line for the present process. Its word is another one than that of all lines before: a report of an
    /// earlier try of the same file, which arrives late, is none of this one.
    pub(crate) fn next_line(&mut self, prefix: &str) -> Option<Vec<u8>> {
        let run = self.run?;
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

    /// Reports whether the last process has reported the end of a file.
    pub(crate) fn has_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Ends the request of a file.
    pub(crate) fn finish(&mut self, key: &[u8], outcome: CopyOutcome) {
        if let Some(request) = self.requests.remove(key) {
            request.finish(outcome);
        }
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
        let late = self.late.take();
        let number = self.number_given();
        let is_charged = late.is_none() && number == 1 && self.reported.is_none();
        if late.is_none() && number > 0 {
            self.suspects_max = (number / 2).max(1);
        }
        for (key, mut request) in std::mem::take(&mut self.requests) {
            let Some(_) = request.given.take() else {
                self.requests.insert(key, request);
                continue;
            };
            request.is_suspect |= late.is_none();
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
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn add(state: &mut AgentState, name: &str) -> Arc<RequestEnd> {
        let end = Arc::new(RequestEnd::new().unwrap());
        let line = vec![Vec::new(), format!(" {name}").into_bytes()];
        state.add(name.into(), AgentFile::new(line, "/none".into(), end.clone()));
        end
    }

    /// Starts a process, and returns the words and names of the lines that it gets.
    fn lines(state: &mut AgentState) -> Vec<(String, String)> {
        state.expect_process();
        state.begin_process();
        more_lines(state)
    }

    fn more_lines(state: &mut AgentState) -> Vec<(String, String)> {
        let keys: Vec<Vec<u8>> = state.requests.keys().cloned().collect();
        for key in keys {
            if let Some((_, run)) = state.to_be_cleaned(&key) {
                state.is_cleaned(&key, run);
            }
        }
        let mut lines = Vec::new();
        while let Some(line) = state.next_line("p") {
            let line = String::from_utf8(line).unwrap();
            let (word, name) = line.split_once(' ').unwrap();
            lines.push((word.to_owned(), name.to_owned()));
        }
        lines
    }

    fn names(lines: Vec<(String, String)>) -> String {
        lines.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn only_the_file_at_which_processes_end_is_charged() {
        let mut state = AgentState::default();
        let ends: Vec<_> = ["a", "b", "c", "d"].map(|name| add(&mut state, name)).into();
        assert_eq!(names(lines(&mut state)), "abcd");
        state.take_back("agent", "how", HOUR);
        // It came later, and waits.
        let later = add(&mut state, "0");
        assert_eq!(names(lines(&mut state)), "ab");
        state.take_back("agent", "how", HOUR);
        for _ in 0..3 {
            let given = lines(&mut state);
            assert!(ends[0].take().is_none());
            assert_eq!(names(given), "a");
            state.take_back("agent", "how", HOUR);
        }
        assert!(matches!(ends[0].take(), Some(CopyOutcome::Failed(_))));
        let given = lines(&mut state);
        for (word, name) in [(&given[0].0, "c"), (&given[0].0, "")] {
            state.report(word.as_bytes(), CopyOutcome::Done);
            assert_eq!(names(more_lines(&mut state)), name);
        }
        assert_eq!(ends[1].take(), Some(CopyOutcome::Done));
        for name in ["d", "0"] {
            let word = state.requests.values().find(|request| request.given.is_some()).unwrap().word.clone();
            state.report(&word, CopyOutcome::Done);
            assert_eq!(names(more_lines(&mut state)), name);
        }
        assert!(ends[3].take().is_some() && later.take().is_none());
    }

    #[test]
    fn a_program_that_ends_with_each_file_is_an_outage_of_the_site() {
        let mut state = AgentState::default();
        let ends: Vec<_> = (0..8).map(|number| add(&mut state, &number.to_string())).collect();
        for _ in 0..3 + 3 * 3 {
            lines(&mut state);
            state.take_back("agent", "how", HOUR);
        }
        assert!(state.is_empty());
        let reasons = ends.iter().map(|end| match end.take() {
            Some(CopyOutcome::Failed(failure)) => failure.reason,
            other => panic!("{other:?}"),
        });
        assert_eq!(reasons.filter(|reason| *reason == FailureReason::Site).count(), 5);
    }

    #[test]
    fn the_time_of_a_file_begins_with_its_line_and_only_the_late_one_fails() {
        let mut state = AgentState::default();
        let first = add(&mut state, "b");
        assert_eq!(state.time_left(Duration::ZERO), None);
        assert_eq!(names(lines(&mut state)), "b");
        let second = add(&mut state, "a");
        assert_eq!(names(more_lines(&mut state)), "a");
        assert!(state.time_left(HOUR).unwrap() > Duration::ZERO);
        assert_eq!(state.time_left(Duration::ZERO), Some(Duration::ZERO));
        assert!(first.take().is_none(), "its process could still write it");
        state.take_back("agent", "how", Duration::ZERO);
        assert!(matches!(first.take(), Some(CopyOutcome::Failed(_))) && second.take().is_none());
        let later = add(&mut state, "c");
        assert_eq!(names(lines(&mut state)), "ac");
        assert!(later.take().is_none());
    }

    #[test]
    fn a_report_of_another_file_shows_that_the_program_works() {
        const LIMIT: Duration = Duration::from_secs(10);
        let mut state = AgentState::default();
        add(&mut state, "a");
        add(&mut state, "b");
        let given = lines(&mut state);
        let earlier = Instant::now().checked_sub(2 * LIMIT).unwrap();
        state.requests.values_mut().for_each(|request| request.given = Some(earlier));
        state.report(given[1].0.as_bytes(), CopyOutcome::Done);
        assert!(state.time_left(LIMIT).unwrap() > Duration::ZERO);
        let earliest = Instant::now().checked_sub(LIMITS_MAX * LIMIT).unwrap();
        state.requests.values_mut().for_each(|request| request.given = Some(earliest));
        assert_eq!(state.time_left(LIMIT), Some(Duration::ZERO), "a file that it has forgotten fails too");
    }

    #[test]
    fn a_late_report_of_an_earlier_line_ends_nothing() {
        let mut state = AgentState::default();
        add(&mut state, "a");
        let first = lines(&mut state);
        state.report(first[0].0.as_bytes(), CopyOutcome::Done);
        let end = add(&mut state, "a");
        let second = more_lines(&mut state);
        assert!(!state.is_asked(first[0].0.as_bytes()) && state.is_asked(second[0].0.as_bytes()));
        state.report(first[0].0.as_bytes(), CopyOutcome::Done);
        assert!(end.take().is_none());
    }
}
