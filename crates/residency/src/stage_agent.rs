//! [`StageAgent`]: a program of the site that is started once, and reads a line for each file that is to be staged
//! (`oss.stagecmd |PROGRAM`).
//!
//! The thread of a copy registers its request and waits. The thread of the program gives it the lines, and reads its
//! reports. The program writes each file at a temporary name, so nothing that it leaves behind is taken for a file. If it
//! ends, its requests are given to the next process.

use crate::copy_command::StageMessage;
use crate::copy_program::CopyPrograms;
use crate::entry::{CopyFailure, FailureReason};
use crate::ports::{CopyAgent, IncomingCopy, OutgoingCopy, StopSignal};
use crate::queue::CopyOutcome;
use crate::stage_agent_thread::AgentThread;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of processes to which one request is given, before it counts as failed. A file at which the program ends each
/// time must not keep it from all others.
const ASKED_MAX: u32 = 3;

/// The settings of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageAgentSettings {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The line for a file.
    pub message: StageMessage,
    /// The directory of the queue, for the lock of the program and its pipe.
    pub directory: PathBuf,
    /// The time in which the program has to report the end of a file.
    pub time_limit: Duration,
    /// The time between the end of a process and the start of the next one. It doubles up to [`Self::pause_max`], as long
    /// as no process reports anything.
    pub pause: Duration,
    /// See there.
    pub pause_max: Duration,
}

/// A program that reads requests, and what it does with them.
pub struct StageAgent {
    pub(crate) shared: Arc<SharedAgent>,
    /// The programs that copy files out.
    outgoing: CopyPrograms,
}

/// The state that the threads of copies share with that of the program.
pub(crate) struct SharedAgent {
    pub(crate) settings: StageAgentSettings,
    state: Mutex<AgentState>,
    /// Wakes the thread of the program.
    pub(crate) wake: OwnedFd,
}

#[derive(Default)]
pub(crate) struct AgentState {
    /// Requests by the path of their file. There is one copy of a file at most.
    pub(crate) requests: BTreeMap<Vec<u8>, AgentFile>,
    /// The thread runs.
    has_thread: bool,
    /// The server ends.
    pub(crate) is_ending: bool,
    /// A request has reached its time limit, so the process has to be replaced.
    pub(crate) is_hung: bool,
    /// Called when the thread has ended, and with it the program.
    on_end: Vec<Box<dyn FnOnce() + Send>>,
}

/// A file that the program is asked for.
pub(crate) struct AgentFile {
    pub(crate) line: Vec<u8>,
    /// Where the program writes it.
    pub(crate) destination: PathBuf,
    /// Number of processes that got the line.
    pub(crate) asked: u32,
    /// The present process has the line.
    pub(crate) is_sent: bool,
    /// Nobody wants the file any more.
    is_cancelled: bool,
    end: Arc<RequestEnd>,
}

/// The end of a request.
struct RequestEnd {
    outcome: Mutex<Option<CopyOutcome>>,
    /// Readable when there is an outcome.
    event: OwnedFd,
}

impl StageAgent {
    /// Creates a program that is started with the first request. `outgoing` are the programs that copy files out.
    pub fn new(settings: StageAgentSettings, outgoing: CopyPrograms) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shared: Arc::new(SharedAgent { settings, state: Mutex::default(), wake }), outgoing })
    }

    /// Waits for the end of a request.
    fn wait(&self, key: &[u8], end: &RequestEnd, stop: &StopSignal) -> CopyOutcome {
        let limit = self.shared.settings.time_limit;
        let deadline = Instant::now().checked_add(limit);
        let mut is_stopped = false;
        loop {
            if let Some(outcome) = end.take() {
                // What it has brought nobody wants any more.
                return if is_stopped { CopyOutcome::Stopped } else { outcome };
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.shared.give_up(key);
                let text = format!(
                    "{} has not reported the end of the file within {} s (stage OK NAME)",
                    self.shared.program_name(),
                    limit.as_secs()
                );
                return match is_stopped {
                    true => CopyOutcome::Stopped,
                    false => CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)),
                };
            }
            let time = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut descriptors = vec![PollFd::new(&end.event, PollFlags::IN)];
            descriptors.extend((!is_stopped).then(|| PollFd::new(stop, PollFlags::IN)));
            // An error shows at the next turn, at the latest by the time limit.
            let has_events = poll(&mut descriptors, time.as_ref()).is_ok_and(|ready| ready > 0);
            if has_events && !is_stopped && descriptors.get(1).is_some_and(|stop| !stop.revents().is_empty())
            {
                is_stopped = true;
                self.shared.cancel(key);
            }
        }
    }
}

impl CopyAgent for StageAgent {
    fn needs_file(&self, _remote: &OsStr) -> bool {
        // A program may write a file of its own, and rename it.
        false
    }

    fn copy_in(&self, copy: IncomingCopy<'_>, stop: &StopSignal) -> CopyOutcome {
        let line = match self.shared.settings.message.line(&copy, &self.outgoing.instance) {
            Ok(line) => line,
            Err(failure) => return CopyOutcome::Failed(failure),
        };
        let event = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => event,
            Err(error) => return site_failure(format!("too many open files: {error}")),
        };
        let end = Arc::new(RequestEnd { outcome: Mutex::default(), event });
        let key = copy.entry.key.path.as_bytes().to_vec();
        let request = AgentFile {
            line,
            destination: copy.destination.clone(),
            asked: 0,
            is_sent: false,
            is_cancelled: false,
            end: end.clone(),
        };
        if let Some(outcome) = self.shared.submit(key.clone(), request) {
            return outcome;
        }
        self.wait(&key, &end, stop)
    }

    fn copy_out(&self, copy: OutgoingCopy<'_>, stop: &StopSignal) -> CopyOutcome {
        self.outgoing.copy_out(copy, stop)
    }

    fn end(&self) {
        self.shared.end();
    }

    fn when_ended(&self, report: Box<dyn FnOnce() + Send>) {
        let mut state = self.shared.state();
        if state.has_thread {
            return state.on_end.push(report);
        }
        drop(state);
        report();
    }
}

impl Drop for StageAgent {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl RequestEnd {
    fn take(&self) -> Option<CopyOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AgentFile {
    fn finish(self, outcome: CopyOutcome) {
        *self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        // It fails only if the event was set before.
        rustix::io::write(&self.end.event, &1u64.to_ne_bytes()).ok();
    }
}

pub(crate) fn site_failure(text: String) -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(FailureReason::Site, text))
}

impl SharedAgent {
    pub(crate) fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the program, without its directory, which clients do not see.
    pub(crate) fn program_name(&self) -> String {
        self.settings.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn wake(&self) {
        // It fails only if the thread was woken very often.
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).ok();
    }

    /// Adds a request, and starts the thread if it does not run. Returns the outcome of a request that is not added.
    fn submit(self: &Arc<Self>, key: Vec<u8>, request: AgentFile) -> Option<CopyOutcome> {
        let mut state = self.state();
        if state.is_ending {
            return Some(CopyOutcome::Stopped);
        }
        if !state.has_thread {
            let thread = AgentThread::new(self.clone());
            let started = std::thread::Builder::new().name("stage-agent".to_owned());
            if let Err(error) = started.spawn(move || thread.run()) {
                return Some(site_failure(format!(
                    "cannot start the thread of {}: {error}",
                    self.program_name()
                )));
            }
            state.has_thread = true;
        }
        state.requests.insert(key, request);
        drop(state);
        self.wake();
        None
    }

    /// Ends a request that nobody wants any more, unless the program has it: it could still write the file.
    fn cancel(&self, key: &[u8]) {
        let mut state = self.state();
        let Some(request) = state.requests.get_mut(key) else { return };
        if request.is_sent {
            request.is_cancelled = true;
        } else if let Some(request) = state.requests.remove(key) {
            request.finish(CopyOutcome::Stopped);
        }
    }

    /// Forgets a request that has reached its time limit. A process that has it is replaced.
    fn give_up(&self, key: &[u8]) {
        let mut state = self.state();
        if state.requests.remove(key).is_some_and(|request| request.is_sent) {
            state.is_hung = true;
            drop(state);
            self.wake();
        }
    }

    /// Ends all requests, because their thread has ended.
    pub(crate) fn thread_has_ended(&self) {
        let mut state = self.state();
        // After a panic, the next request starts another one.
        state.has_thread = false;
        let is_ending = state.is_ending;
        state.finish_all(|| match is_ending {
            true => CopyOutcome::Stopped,
            false => site_failure("the server could not run the program of oss.stagecmd".to_owned()),
        });
        let reports = std::mem::take(&mut state.on_end);
        drop(state);
        reports.into_iter().for_each(|report| report());
    }

    /// Ends the program and all requests.
    fn end(&self) {
        let mut state = self.state();
        state.is_ending = true;
        if !state.has_thread {
            state.finish_all(|| CopyOutcome::Stopped);
        }
        drop(state);
        self.wake();
    }
}

impl AgentState {
    /// Returns the key, the destination and the line of a request that the present process does not have yet.
    pub(crate) fn next_line(&mut self) -> Option<(Vec<u8>, PathBuf, Vec<u8>)> {
        // Each turn looks at a thousand at most, because that is the number of copies.
        let (key, request) = self.requests.iter_mut().find(|(_, request)| !request.is_sent)?;
        request.is_sent = true;
        request.asked += 1;
        Some((key.clone(), request.destination.clone(), request.line.clone()))
    }

    /// Ends the request of a file, if the present process has it.
    pub(crate) fn finish(&mut self, key: &[u8], outcome: CopyOutcome) {
        if let Some(request) = self.requests.remove(key) {
            request.finish(outcome);
        }
    }

    /// Reports whether the present process has a request.
    pub(crate) fn is_asked(&self, key: &[u8]) -> bool {
        self.requests.get(key).is_some_and(|request| request.is_sent)
    }

    pub(crate) fn finish_all(&mut self, outcome: impl Fn() -> CopyOutcome) {
        for request in std::mem::take(&mut self.requests).into_values() {
            request.finish(outcome());
        }
    }

    /// The process has ended. Its requests are for the next one, except for those that nobody wants, and those that several
    /// processes have not survived.
    pub(crate) fn take_back(&mut self, failure: &CopyFailure) {
        self.is_hung = false;
        for (key, mut request) in std::mem::take(&mut self.requests) {
            if request.is_sent && request.is_cancelled {
                request.finish(CopyOutcome::Stopped);
            } else if request.is_sent && request.asked >= ASKED_MAX {
                request.finish(CopyOutcome::Failed(failure.clone()));
            } else {
                request.is_sent = false;
                self.requests.insert(key, request);
            }
        }
    }
}
