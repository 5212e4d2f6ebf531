//! [`ProgramReceiver`]: a program that is started once and reads lines.

use super::WaitingLines;
use config::CopyProgram;
use residency::{FedProcess, LoggedOutput};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between the end of a process and the start of the next one, at first and at most. It doubles with each process
/// that ends within the greatest pause.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The time in which a program reads the rest of its input at the end of the server.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// A program that reads lines. It is started again when it ends.
pub(crate) struct ProgramReceiver {
    program: CopyProgram,
    /// The directive that names it, for the log.
    directive: &'static str,
    output: LoggedOutput,
    pause: Duration,
}

impl ProgramReceiver {
    pub(crate) fn new(program: CopyProgram, directive: &'static str) -> Self {
        Self { program, directive, output: LoggedOutput::of(directive), pause: PAUSE }
    }

    /// Runs the program until the server ends.
    pub(crate) fn run(mut self, lines: &WaitingLines) {
        let directive = self.directive;
        let name = self.program.path.display().to_string();
        loop {
            let begin = Instant::now();
            let mut command = Command::new(&self.program.path);
            command.args(&self.program.arguments);
            match FedProcess::start(command) {
                Err(error) => {
                    let reason = base::errno_text(&error);
                    tracing::warn!(reason, "cannot run {name}; the events of {directive} wait");
                }
                Ok(mut process) => {
                    tracing::info!("started {name}, the program of {directive}");
                    self.output.begin();
                    let failure = self.serve(&mut process, lines).err();
                    if lines.is_ending() {
                        self.finish(&mut process, lines);
                    }
                    self.read(&mut process);
                    let how = process.end(false);
                    let rest = process.take_line();
                    if !rest.is_empty() {
                        lines.put_back(rest);
                    }
                    if lines.is_ending() {
                        return;
                    }
                    let why = failure.map(|error| base::errno_text(&error)).unwrap_or_default();
                    let last = self.output.last();
                    tracing::warn!(how, why, last, "{name}, the program of {directive}, is started again");
                }
            }
            if begin.elapsed() >= PAUSE_MAX {
                self.pause = PAUSE;
            }
            if !lines.rest(self.pause) {
                return;
            }
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Gives lines to a process until it ends, or the server does.
    fn serve(&mut self, process: &mut FedProcess, lines: &WaitingLines) -> std::io::Result<()> {
        loop {
            let has_all = give_lines(process, lines)?;
            let left = lines.time_left();
            if left.is_some_and(|left| has_all || left.is_zero()) {
                return Ok(());
            }
            if process.wait(&lines.wake, None, left)? {
                lines.wake.take();
            }
            self.read(process);
            if process.has_ended() {
                return Ok(());
            }
        }
    }

    /// Lets a process read the rest of its input and end, for a limited time. Its output is read meanwhile: a process whose
    /// output is full stops reading.
    fn finish(&mut self, process: &mut FedProcess, lines: &WaitingLines) {
        process.end_input();
        let until = Instant::now() + FINISH_TIME;
        loop {
            self.read(process);
            let left = until.saturating_duration_since(Instant::now());
            if process.has_ended() || left.is_zero() || process.wait(&lines.wake, None, Some(left)).is_err() {
                return;
            }
            lines.wake.take();
        }
    }

    fn read(&mut self, process: &mut FedProcess) {
        let mut read = Vec::new();
        process.read(&mut read);
        for line in read {
            self.output.log(&line.text);
        }
    }
}

/// Gives a process as many lines as it takes now. Returns whether it has all.
fn give_lines(process: &mut FedProcess, lines: &WaitingLines) -> std::io::Result<bool> {
    loop {
        process.write()?;
        if !process.is_idle() {
            return Ok(false);
        }
        let Some(line) = lines.next() else { return Ok(true) };
        process.give(line);
    }
}
