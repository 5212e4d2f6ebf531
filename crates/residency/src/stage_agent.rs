//! [`StageAgent`]: a program of the site that is started once, and reads a line for each file that is to be staged
//! (`oss.stagecmd |PROGRAM`).
//!
//! The thread of a copy registers its request and waits. The thread of the program gives it the lines, and reads its
//! reports. The program writes each file at a temporary name, so nothing that it leaves behind is taken for a file. If it
//! ends, its requests are given to the next process. If it does not report the ends of files, the thread of each copy looks
//! at its file.

use crate::copy_command::StageMessage;
use crate::copy_program::CopyPrograms;
use crate::entry::{CopyFailure, FailureReason};
use crate::fed_process::timespec;
use crate::ports::{CopyAgent, IncomingCopy, OutgoingCopy, StopSignal};
use crate::queue::CopyOutcome;
use crate::stage_agent_thread::AgentThread;
use crate::stage_requests::{AgentFile, AgentState, EndSign, RequestEnd};
use crate::stage_watch::{FileLook, FileWatch};
use crate::wake_event::WakeEvent;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// The time in which the program has to report the end of a file after its line, or that of another one.
    pub time_limit: Duration,
    /// The time between the end of a process and the start of the next one. It doubles up to [`Self::pause_max`], as long
    /// as no process reports anything.
    pub pause: Duration,
    /// See there.
    pub pause_max: Duration,
    /// The interval in which the server looks whether files are complete, for a program that does not report it.
    pub look_interval: Option<Duration>,
}

/// A program that reads requests, and the requests that it has.
pub struct StageAgent {
    pub(crate) shared: Arc<SharedAgent>,
    /// The programs that copy files out.
    outgoing: CopyPrograms,
}

/// The state that the threads of copies share with the thread of the program.
pub(crate) struct SharedAgent {
    pub(crate) settings: StageAgentSettings,
    /// The begin of the words of this run of the server.
    pub(crate) prefix: String,
    state: Mutex<AgentState>,
    /// Wakes the thread of the program.
    pub(crate) wake: Arc<WakeEvent>,
}

impl StageAgent {
    /// Creates a program that is started with the first request. `outgoing` are the programs that copy files out.
    pub fn new(settings: StageAgentSettings, outgoing: CopyPrograms) -> io::Result<Self> {
        let wake = Arc::new(WakeEvent::new()?);
        let now = clock_gettime(ClockId::Boottime);
        let prefix = format!("{:x}.{:x}.{:x}", std::process::id(), now.tv_sec, now.tv_nsec);
        let state = Mutex::new(AgentState::new(wake.clone()));
        let shared = SharedAgent { settings, prefix, state, wake };
        Ok(Self { shared: Arc::new(shared), outgoing })
    }

    /// Waits for the end of a request. A file that arrives after its copy was stopped is complete and kept.
    fn wait(
        &self,
        key: &[u8],
        end: &RequestEnd,
        mut watch: Option<FileWatch>,
        stop: &StopSignal,
    ) -> CopyOutcome {
        let mut is_stopped = false;
        loop {
            if let Some(outcome) = end.take() {
                return outcome;
            }
            self.shared.clean(key);
            let mut descriptors = vec![PollFd::new(&end.event, PollFlags::IN)];
            descriptors.extend((!is_stopped).then(|| PollFd::new(stop, PollFlags::IN)));
            let time = watch.as_ref().map(|watch| timespec(watch.time_left()));
            if poll(&mut descriptors, time.as_ref()).is_err() {
                continue;
            }
            if descriptors.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
                is_stopped = true;
                self.shared.state().cancel(key);
            }
            if let Some(watch) = &mut watch
                && watch.is_due()
            {
                self.shared.look(key, watch);
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
        let watch = self
            .shared
            .settings
            .look_interval
            .map(|interval| FileWatch::new(copy.destination.clone(), copy.status.as_ref(), interval));
        let watch = match watch.transpose() {
            Ok(watch) => watch,
            Err(failure) => return CopyOutcome::Failed(failure),
        };
        let sign = if watch.is_some() { EndSign::File } else { EndSign::Report };
        let end = match RequestEnd::new() {
            Ok(end) => Arc::new(end),
            Err(error) => return site_failure(format!("too many open files: {error}")),
        };
        let key = copy.entry.key.path.as_bytes().to_vec();
        let request = AgentFile::new(line, copy.destination.clone(), sign, end.clone());
        if let Some(outcome) = self.shared.submit(key.clone(), request) {
            return outcome;
        }
        self.wait(&key, &end, watch, stop)
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

    /// Adds a request, and starts the thread if it does not run. Returns the outcome of a request that is not added.
    fn submit(self: &Arc<Self>, key: Vec<u8>, request: AgentFile) -> Option<CopyOutcome> {
        let mut state = self.state();
        if state.is_ending {
            return Some(CopyOutcome::Stopped);
        }
        if state.is_blocked(&key) {
            let text = format!(
                "{} could still write the file of an earlier try, which has failed; it can be tried again when that has no other file",
                self.program_name()
            );
            return Some(CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)));
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
        state.add(key, request);
        None
    }

    /// Looks at a file that the program has, and ends its request if the file is complete, late, or none that the server can
    /// judge. Blocks.
    fn look(&self, key: &[u8], watch: &mut FileWatch) {
        let limit = self.settings.time_limit;
        let Some(run) = self.state().process_of(key) else { return };
        let look = watch.look(&|| self.state().process_of(key) != Some(run));
        let mut state = self.state();
        match look {
            FileLook::Complete => state.complete(key, run),
            FileLook::Incomplete if !state.is_late(key, limit) => {}
            FileLook::Incomplete => {
                let (name, seconds, found) = (self.program_name(), limit.as_secs(), watch.last_found());
                let text = format!("{name} has not completed the file within {seconds} s: {found}");
                let failure = CopyFailure::new(FailureReason::Temporary, text);
                state.abandon(key, run, failure, Some(limit));
            }
            FileLook::Unjudged(reason) => {
                let text = format!("the server cannot see whether it is complete: {reason}");
                state.abandon(key, run, CopyFailure::new(FailureReason::Permanent, text), None);
            }
        }
    }

    /// Removes a part of a file that an earlier process has left. A disk that hangs delays this copy only. Blocks.
    fn clean(&self, key: &[u8]) {
        let Some((destination, run)) = self.state().to_be_cleaned(key) else { return };
        match rustix::fs::unlink(&destination) {
            Ok(()) | Err(Errno::NOENT) => {
                self.state().is_cleaned(key, run);
            }
            // A directory is there, for example.
            Err(error) => {
                let reason = base::errno_text(&error.into());
                let text = format!("what an earlier try has left cannot be removed: {reason}");
                let failure = CopyFailure::new(FailureReason::Temporary, text);
                self.state().finish(key, CopyOutcome::Failed(failure));
            }
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
        self.wake.set();
    }
}
