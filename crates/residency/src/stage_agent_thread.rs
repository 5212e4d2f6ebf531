//! The thread of a [`crate::StageAgent`]: starts the program, gives it lines, reads its reports, and ends it.

use crate::fed_process::{LoggedOutput, timespec};
use crate::stage_agent::{SharedAgent, site_failure};
use crate::stage_agent_process::AgentProcess;
use crate::stage_event::{self, OutputLine};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct AgentThread {
    shared: Arc<SharedAgent>,
    pause: Duration,
    /// The lines that are not reports.
    output: LoggedOutput,
}

impl AgentThread {
    pub(crate) fn new(shared: Arc<SharedAgent>) -> Self {
        let pause = shared.settings.pause;
        Self { shared, pause, output: LoggedOutput::of("oss.stagecmd") }
    }

    pub(crate) fn run(mut self) {
        // Whatever ends this thread, nobody waits for ever.
        let _end = EndAll(self.shared.clone());
        while self.wait_for_request() {
            self.shared.state().expect_process();
            let started = AgentProcess::start(&self.shared.settings, || self.shared.state().is_ending);
            let mut process = match started {
                Ok(Some(process)) => process,
                Ok(None) => return,
                Err(error) => {
                    let text =
                        format!("cannot run {}: {}", self.shared.program_name(), base::errno_text(&error));
                    tracing::warn!(reason = text, "no file is staged");
                    self.shared.state().finish_all(|| site_failure(text.clone()));
                    self.rest();
                    continue;
                }
            };
            tracing::info!(program = self.shared.program_name(), "started the program of oss.stagecmd");
            self.output.begin();
            self.shared.state().begin_process();
            let end = self.serve(&mut process);
            self.read(&mut process);
            let how = process.end(self.shared.state().is_ending);
            drop(process);
            if self.shared.state().is_ending {
                return;
            }
            let name = self.shared.program_name();
            let why = end.err().map(|error| base::errno_text(&error)).unwrap_or_default();
            // Its output may be about any file, so clients do not get it.
            tracing::warn!(
                name,
                how,
                why,
                last = self.output.last(),
                "the program of oss.stagecmd is started again"
            );
            if self.shared.state().is_replaced() {
                // It has not ended by itself.
                self.pause = self.shared.settings.pause;
            }
            self.shared.state().take_back(&name, &how, self.shared.settings.time_limit);
            self.rest();
        }
    }

    /// Waits until there is a request. Returns `false` if the server ends.
    fn wait_for_request(&self) -> bool {
        loop {
            {
                let state = self.shared.state();
                if state.is_ending {
                    return false;
                }
                if !state.is_empty() {
                    return true;
                }
            }
            self.sleep(None);
        }
    }

    /// Waits before the next start, longer each time as long as no process reports anything.
    fn rest(&mut self) {
        let settings = &self.shared.settings;
        let has_reported = self.shared.state().has_reported();
        let pause = if has_reported { settings.pause } else { self.pause };
        self.pause = (pause * 2).min(settings.pause_max);
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.state().is_ending {
                return;
            }
            self.sleep(Some(left));
        }
    }

    /// Sleeps until it is woken.
    fn sleep(&self, time: Option<Duration>) {
        let time = time.map(timespec);
        // An error ends the sleep early.
        poll(&mut [PollFd::new(&*self.shared.wake, PollFlags::IN)], time.as_ref()).ok();
        self.shared.wake.take();
    }

    /// Works until the process has ended, must be replaced, or the server ends.
    fn serve(&mut self, process: &mut AgentProcess) -> io::Result<()> {
        loop {
            self.give_lines(process)?;
            let left = {
                let mut state = self.shared.state();
                if state.is_ending {
                    return Ok(());
                }
                if state.is_replaced() {
                    return Err(io::Error::other("it could still write files that have failed"));
                }
                state.time_left(self.shared.settings.time_limit)
            };
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::Error::other("it does not report the ends of files"));
            }
            let is_woken = process.wait(&self.shared.wake, left)?;
            if is_woken {
                self.shared.wake.take();
            }
            self.read(process);
            if process.has_ended() {
                return Ok(());
            }
        }
    }

    /// Gives the process as many lines as it takes now.
    fn give_lines(&self, process: &mut AgentProcess) -> io::Result<()> {
        loop {
            process.write()?;
            if !process.is_idle() {
                return Ok(());
            }
            let Some(line) = self.shared.state().next_line(&self.shared.prefix) else { return Ok(()) };
            process.give(line);
        }
    }

    /// Reads the output of the process.
    fn read(&mut self, process: &mut AgentProcess) {
        let mut lines = Vec::new();
        process.read(&mut lines);
        for line in lines {
            self.take_line(&line);
        }
    }

    fn take_line(&mut self, line: &OutputLine) {
        let mut state = self.shared.state();
        let event = match line.is_cut {
            true => None,
            false => stage_event::parse(&line.text, |word| state.is_asked(word)),
        };
        if let Some((word, outcome)) = event {
            state.report(word, outcome);
            return;
        }
        drop(state);
        self.output.log(&line.text);
    }
}

/// Ends all requests when the thread ends.
struct EndAll(Arc<SharedAgent>);

impl Drop for EndAll {
    fn drop(&mut self) {
        self.0.thread_has_ended();
    }
}
