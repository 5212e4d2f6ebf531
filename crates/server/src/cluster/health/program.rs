//! An external program that measures the load instead of the node (`cms.perf pgm`).
//!
//! The program is started, its lines are read, and it is restarted after a pause when it ends,
//! writes an invalid line, or writes nothing for too long. Each line is `runq cpu mem pag net`,
//! five numbers of 0 to 100. Source: cms protocol 3, section metric program.

use cluster::tree::LoadReport;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The backoff between the end of a program and its restart.
pub(super) const PAUSE: Duration = Duration::from_secs(30);
/// A program that writes nothing for this many intervals is restarted.
pub(super) const SILENT_INTERVALS_MAX: u32 = 2;
/// A longer line is invalid.
const LINE_BYTES_MAX: u64 = 256;

/// An event of a run of the program, sent with the number of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProgramOutput {
    /// A line with a load.
    Load(LoadReport),
    /// The program ended, or wrote an invalid line.
    End,
}

/// The program, running or waiting for its start.
#[derive(Debug)]
pub(super) struct LoadProgram {
    command: Vec<String>,
    interval: Duration,
    run: Option<LoadProgramRun>,
    number: u64,
    start_at: Instant,
    /// Set after a failed start was logged, so that it is logged once.
    warned: bool,
}

#[derive(Debug)]
struct LoadProgramRun {
    child: Child,
    heard: Instant,
}

impl LoadProgram {
    /// Creates the record of a program. `command` is the program and its arguments; `interval` is
    /// the expected time between two lines.
    pub(super) fn new(command: Vec<String>, interval: Duration, now: Instant) -> Self {
        Self { command, interval, run: None, number: 0, start_at: now, warned: false }
    }

    /// Returns the time at which [`Self::tick`] has to be called.
    pub(super) fn deadline(&self) -> Instant {
        match &self.run {
            Some(run) => run.heard + self.interval * SILENT_INTERVALS_MAX,
            None => self.start_at,
        }
    }

    /// Starts the program if it is due, and ends it if it was silent for too long. `say` is called
    /// on another thread with the number of the run and each of its events, including its end.
    pub(super) fn tick(&mut self, now: Instant, say: impl Fn(u64, ProgramOutput) + Send + 'static) {
        if now < self.deadline() {
            return;
        }
        if self.run.is_some() {
            tracing::warn!(program = %self.name(), "the program that measures the load is silent and is restarted");
            self.end(now);
        } else {
            self.start(now, say);
        }
    }

    /// Handles an event of a run. Returns the load if the event has one and the run is the current
    /// one.
    pub(super) fn apply_output(
        &mut self,
        number: u64,
        said: ProgramOutput,
        now: Instant,
    ) -> Option<LoadReport> {
        if number != self.number {
            return None;
        }
        let run = self.run.as_mut()?;
        match said {
            ProgramOutput::Load(load) => {
                run.heard = now;
                self.warned = false;
                Some(load)
            }
            ProgramOutput::End => {
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        program = %self.name(),
                        "the program that measures the load ended or wrote an invalid line; it is restarted every {} s",
                        PAUSE.as_secs()
                    );
                }
                self.end(now);
                None
            }
        }
    }

    fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn start(&mut self, now: Instant, say: impl Fn(u64, ProgramOutput) + Send + 'static) {
        self.number += 1;
        self.start_at = now + PAUSE;
        let Some((program, arguments)) = self.command.split_first() else { return };
        let mut command = Command::new(program);
        // The program gets its own process group, so that the processes it starts are ended with
        // it.
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        let started = command.spawn().and_then(|mut child| {
            let number = self.number;
            let output = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
            let read = move || {
                lines(output, |load| say(number, ProgramOutput::Load(load)));
                say(number, ProgramOutput::End);
            };
            std::thread::Builder::new().name("load-program".into()).spawn(read)?;
            Ok(child)
        });
        match started {
            Ok(child) => self.run = Some(LoadProgramRun { child, heard: now }),
            Err(error) if !std::mem::replace(&mut self.warned, true) => {
                tracing::warn!(program = %self.name(), %error, "the program that measures the load cannot be started");
            }
            Err(_) => {}
        }
    }

    fn end(&mut self, now: Instant) {
        self.start_at = now + PAUSE;
        if let Some(mut run) = self.run.take() {
            if let Ok(id) = i32::try_from(run.child.id())
                && let Some(group) = Pid::from_raw(id)
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // After the kill signal the wait is short.
            let _ = run.child.kill();
            let _ = run.child.wait();
        }
    }
}

impl Drop for LoadProgram {
    fn drop(&mut self) {
        self.end(Instant::now());
    }
}

/// Reads lines until the end or the first invalid line.
fn lines(output: impl std::io::Read, mut take: impl FnMut(LoadReport)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match parse(&line) {
            Some(load) => take(load),
            None => return,
        }
    }
}

/// Parses `runq cpu mem pag net`. A number above 100 is invalid.
fn parse(line: &[u8]) -> Option<LoadReport> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u8>().ok().filter(|n| *n <= 100));
    let mut next = || numbers.next().flatten();
    let (run_queue, cpu, memory, paging, net) = (next()?, next()?, next()?, next()?, next()?);
    numbers.next().is_none().then_some(LoadReport { cpu, net, run_queue, memory, paging, disk: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const INTERVAL: Duration = Duration::from_secs(180);

    struct Stage {
        program: LoadProgram,
        sender: Sender<(u64, ProgramOutput)>,
        said: Receiver<(u64, ProgramOutput)>,
        now: Instant,
    }

    impl Stage {
        fn new(script: &str) -> Self {
            let now = Instant::now();
            let command = ["sh", "-c", script].map(str::to_owned).to_vec();
            let (sender, said) = channel();
            let mut stage = Self { program: LoadProgram::new(command, INTERVAL, now), sender, said, now };
            stage.tick(Duration::ZERO);
            stage
        }

        fn tick(&mut self, later: Duration) {
            self.now += later;
            let sender = self.sender.clone();
            self.program.tick(self.now, move |number, said| {
                let _ = sender.send((number, said));
            });
        }

        /// Waits for the next event and its result.
        fn next(&mut self) -> (ProgramOutput, Option<LoadReport>) {
            let (number, said) = self.said.recv().unwrap();
            (said, self.program.apply_output(number, said, self.now))
        }
    }

    #[test]
    fn lines_are_loads_and_the_program_is_restarted_after_its_end() {
        let mut stage = Stage::new("echo 1 2 3 4 5; echo ' 100 0 0 0 0 '");
        let first = LoadReport { run_queue: 1, cpu: 2, memory: 3, paging: 4, net: 5, disk: 0 };
        assert_eq!(stage.next().1, Some(first));
        assert_eq!(stage.next().1, Some(LoadReport { run_queue: 100, ..LoadReport::default() }));
        assert_eq!(stage.next(), (ProgramOutput::End, None));
        stage.tick(PAUSE - Duration::from_millis(1));
        assert!(stage.program.run.is_none(), "not before the pause is over");
        stage.tick(Duration::from_millis(1));
        assert_eq!(stage.next().1, Some(first));
    }

    #[test]
    fn an_invalid_line_ends_the_program() {
        for nonsense in ["1 2 3 4", "1 2 3 4 5 6", "1 2 3 4 101", "-1 2 3 4 5", "load 1", ""] {
            let mut stage = Stage::new(&format!("echo 9 9 9 9 9; echo '{nonsense}'; exec sleep 1000"));
            assert!(stage.next().1.is_some());
            assert_eq!(stage.next(), (ProgramOutput::End, None), "{nonsense:?}");
            assert!(stage.program.run.is_none());
        }
        let mut stage = Stage::new("head -c 1000000 /dev/zero | tr '\\0' 1");
        assert_eq!(stage.next(), (ProgramOutput::End, None), "an endless line");
    }

    #[test]
    fn a_silent_program_is_ended_with_its_children() {
        let mut stage = Stage::new("sleep 1000 & echo 1 1 1 1 1; sleep 1000");
        assert!(stage.next().1.is_some());
        stage.tick(INTERVAL * SILENT_INTERVALS_MAX - Duration::from_millis(1));
        assert!(stage.program.run.is_some());
        stage.tick(Duration::from_millis(1));
        assert!(stage.program.run.is_none());
        // The pipe ends only after its last holder has closed it, so the background sleep has ended
        // too.
        let (number, said) = stage.said.recv().unwrap();
        assert_eq!((said, stage.program.apply_output(number, said, stage.now)), (ProgramOutput::End, None));
        stage.tick(PAUSE);
        assert!(stage.program.run.is_some(), "it runs again");
        assert!(stage.program.apply_output(number, ProgramOutput::End, stage.now).is_none());
        assert!(stage.program.run.is_some(), "the end of an earlier run is not the end of this one");
    }

    #[test]
    fn a_missing_program() {
        let now = Instant::now();
        let mut program = LoadProgram::new(vec!["/no/such/program".into()], INTERVAL, now);
        program.tick(now, |_, _| unreachable!("nothing runs"));
        assert_eq!(program.deadline(), now + PAUSE);
    }
}
