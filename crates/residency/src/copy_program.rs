//! Runs copy programs of the site.
//!
//! A program runs in a process group of its own, so that its time limit and a cancel end all
//! processes that it has started. It inherits the lock of the file that it writes.

use crate::copy_command::{CommandVariables, CopyCommand};
use crate::entry::{CopyFailure, FailureReason, TransferDirection};
use crate::outlived::MARK_VARIABLE;
use crate::ports::{CopyAgent, IncomingCopy, OutgoingCopy, StopSignal};
use crate::queue::CopyOutcome;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time between the signals TERM and KILL.
const ENDING: Duration = Duration::from_secs(5);

/// The interval between two looks at a process where the kernel cannot report its end.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum number of bytes kept of the last line of output.
const LINE_BYTES_MAX: usize = 1024;

/// The exit status for a file that does not exist.
const STATUS_NOT_FOUND: i32 = 2;

/// The copy programs of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyPrograms {
    /// The program for files whose remote name is a path.
    pub from_path: Option<CopyCommand>,
    /// The program for files whose remote name is a URL.
    pub from_url: Option<CopyCommand>,
    /// The program that copies files out to a path.
    pub to_path: Option<CopyCommand>,
    /// The program that copies files out to a URL.
    pub to_url: Option<CopyCommand>,
    /// The name of this instance of the server.
    pub instance: String,
}

impl CopyAgent for CopyPrograms {
    fn needs_file(&self, remote: &OsStr) -> bool {
        chosen(remote, [&self.from_path, &self.from_url]).is_ok_and(|program| !program.creates_file)
    }

    fn copy_in(&self, copy: IncomingCopy<'_>, stop: &StopSignal) -> CopyOutcome {
        let program = match chosen(&copy.remote, [&self.from_path, &self.from_url]) {
            Ok(program) => program,
            Err(outcome) => return outcome,
        };
        let mut command = program.command(&CommandVariables::incoming(&copy, &self.instance));
        command.env(MARK_VARIABLE, copy.run.mark(&copy.entry.key, program.time_limit));
        let lock = match copy.lock.try_clone() {
            Ok(lock) => lock,
            Err(error) => return site_failure(format!("too many open files: {error}")),
        };
        storage::inherit(&mut command, lock);
        program.outcome(command, TransferDirection::In, stop)
    }

    fn copy_out(&self, copy: OutgoingCopy<'_>, stop: &StopSignal) -> CopyOutcome {
        let program = match chosen(&copy.remote, [&self.to_path, &self.to_url]) {
            Ok(program) => program,
            Err(outcome) => return outcome,
        };
        let mut command = program.command(&CommandVariables::outgoing(&copy, &self.instance));
        command.env(MARK_VARIABLE, copy.run.mark(&copy.entry.key, program.time_limit));
        program.outcome(command, TransferDirection::Out, stop)
    }
}

fn site_failure(text: String) -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(FailureReason::Site, text))
}

/// Returns the program for a remote name, of one for paths and one for URLs.
fn chosen<'a>(
    remote: &OsStr,
    [of_path, of_url]: [&'a Option<CopyCommand>; 2],
) -> Result<&'a CopyCommand, CopyOutcome> {
    let is_url = !remote.as_encoded_bytes().starts_with(b"/");
    let (program, kind) = if is_url { (of_url, "URLs") } else { (of_path, "paths") };
    let text = || format!("no copy command for {kind}: set frm.xfr.copycmd");
    program.as_ref().ok_or_else(|| site_failure(text()))
}

impl CopyCommand {
    fn command(&self, variables: &CommandVariables<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments.iter().map(|template| variables.expand(template)));
        command
    }

    fn outcome(&self, command: Command, direction: TransferDirection, stop: &StopSignal) -> CopyOutcome {
        // Clients are not shown where the program is.
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        match run(command, self.time_limit, stop) {
            Ok(end) => outcome(&program, end, direction),
            Err(error) => site_failure(format!("cannot run {program}: {error}")),
        }
    }
}

/// The end of a program.
enum ProgramEnd {
    Exited(ExitStatus, String),
    TimeLimit(Duration),
    Stopped,
}

fn outcome(program: &str, end: ProgramEnd, direction: TransferDirection) -> CopyOutcome {
    let (status, line) = match end {
        ProgramEnd::Stopped => return CopyOutcome::Stopped,
        ProgramEnd::TimeLimit(limit) => {
            let text = format!("{program} was ended by its time limit of {} s", limit.as_secs());
            return CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text));
        }
        ProgramEnd::Exited(status, line) => (status, line),
    };
    if status.success() {
        return CopyOutcome::Done;
    }
    let (reason, mut text) = match status.code() {
        Some(STATUS_NOT_FOUND) => match direction {
            TransferDirection::In => (FailureReason::NotFound, "no such file in mass storage".to_owned()),
            // The file is here, so another try may succeed, whatever the program means by that.
            TransferDirection::Out => {
                (FailureReason::Temporary, "the program ended with status 2".to_owned())
            }
        },
        Some(code) => (FailureReason::Temporary, format!("{program} failed with status {code}")),
        None => (FailureReason::Temporary, format!("{program} failed: {status}")),
    };
    if !line.is_empty() {
        text = format!("{text}: {line}");
    }
    CopyOutcome::Failed(CopyFailure::new(reason, text))
}

/// Runs a program until it ends, or is ended by its time limit or by `stop`. All processes of its
/// group have ended then.
fn run(mut command: Command, limit: Option<Duration>, stop: &StopSignal) -> io::Result<ProgramEnd> {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
    let deadline = limit.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
    let mut child = command.spawn()?;
    // The command owns the other end of the pipe.
    drop(command);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let end_of_process = group.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut line = LastLine::default();
    let mut running = RunningProgram { child: &mut child, group, end_of_process, output: Some(output) };
    loop {
        let left = deadline.map(|(_, at)| at.saturating_duration_since(Instant::now()));
        let is_stopped = running.wait(Some(stop), left, &mut line)?;
        if let Some(status) = running.status()? {
            return Ok(ProgramEnd::Exited(status, line.text()));
        }
        if is_stopped {
            running.end(&mut line)?;
            return Ok(ProgramEnd::Stopped);
        }
        if let Some((limit, at)) = deadline
            && Instant::now() >= at
        {
            running.end(&mut line)?;
            return Ok(ProgramEnd::TimeLimit(limit));
        }
    }
}

/// A program that runs.
struct RunningProgram<'a> {
    child: &'a mut Child,
    group: Option<Pid>,
    /// Readable when the process has ended; `None` where the kernel has no such descriptors.
    end_of_process: Option<OwnedFd>,
    /// `None` after its end.
    output: Option<std::os::fd::OwnedFd>,
}

impl RunningProgram<'_> {
    /// Waits for the end of the program, for `stop`, for output, or for this time. Reads output, and
    /// reports whether `stop` was sent.
    fn wait(
        &mut self,
        stop: Option<&StopSignal>,
        time: Option<Duration>,
        line: &mut LastLine,
    ) -> io::Result<bool> {
        let time = match (&self.end_of_process, time) {
            (Some(_), time) => time,
            (None, time) => Some(time.unwrap_or(LOOK).min(LOOK)),
        };
        let time = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let mut descriptors: Vec<_> = stop.iter().map(|stop| PollFd::new(*stop, PollFlags::IN)).collect();
        descriptors.extend(self.end_of_process.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        descriptors.extend(self.output.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut descriptors, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            other => other?,
        };
        let is_stopped = stop.is_some() && descriptors.first().is_some_and(|stop| !stop.revents().is_empty());
        self.read(line);
        Ok(is_stopped)
    }

    /// Reads the output that is there.
    fn read(&mut self, line: &mut LastLine) {
        let mut buffer = [0; 4096];
        while let Some(output) = &self.output {
            match rustix::io::read(output, &mut buffer) {
                Ok(0) => self.output = None,
                Ok(length) => line.add(buffer.get(..length).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.output = None,
            }
        }
    }

    /// Returns the status of the program if it has ended. Then no other process of its group runs:
    /// it could still write the file.
    fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(ended) = &self.end_of_process {
            let mut descriptors = [PollFd::new(ended, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut descriptors, Some(&now)) == Ok(0) {
                return Ok(None);
            }
            // As long as nobody has waited for the process, its number is not used again.
            self.kill(Signal::KILL);
        }
        let status = self.child.try_wait()?;
        if status.is_some() && self.end_of_process.is_none() {
            self.kill(Signal::KILL);
        }
        Ok(status)
    }

    fn kill(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails if the group has no process any more.
            kill_process_group(group, signal).ok();
        }
    }

    /// Ends all processes of the program: they get some time after the first signal.
    fn end(&mut self, line: &mut LastLine) -> io::Result<()> {
        self.kill(Signal::TERM);
        let until = Instant::now() + ENDING;
        while Instant::now() < until {
            self.wait(None, Some(until.saturating_duration_since(Instant::now())), line)?;
            if self.status()?.is_some() {
                return Ok(());
            }
        }
        self.kill(Signal::KILL);
        self.child.wait().map(drop)
    }
}

impl Drop for RunningProgram<'_> {
    /// No program is left, whatever failed here.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

/// The last line of an output that is not empty, without control characters.
#[derive(Default)]
struct LastLine {
    current: Vec<u8>,
    last: Vec<u8>,
}

impl LastLine {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => self.end(),
                _ if self.current.len() < LINE_BYTES_MAX => self.current.push(*byte),
                _ => {}
            }
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.current);
        if !line.trim_ascii().is_empty() {
            self.last = line;
        }
    }

    fn text(mut self) -> String {
        self.end();
        let text = String::from_utf8_lossy(&self.last);
        text.trim().chars().filter(|c| !c.is_control()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn result(script: &str) -> Result<(), (FailureReason, String)> {
        let stop = StopSignal::new().unwrap();
        match outcome("sh", run(shell(script), None, &stop).unwrap(), TransferDirection::In) {
            CopyOutcome::Done => Ok(()),
            CopyOutcome::Failed(failure) => Err((failure.reason, failure.text.to_string())),
            CopyOutcome::Stopped | CopyOutcome::NotNeeded => panic!("it was not stopped"),
        }
    }

    #[test]
    fn the_status_and_the_last_line_are_the_reason() {
        assert_eq!(result("echo copied"), Ok(()));
        let failed = |reason, text: &str| Err((reason, text.to_owned()));
        assert_eq!(
            result("echo first; echo 'no drive' >&2; exit 7"),
            failed(FailureReason::Temporary, "sh failed with status 7: no drive")
        );
        assert_eq!(result("exit 2"), failed(FailureReason::NotFound, "no such file in mass storage"));
        let (reason, text) = result("kill -9 $$").unwrap_err();
        assert!(reason == FailureReason::Temporary && text.contains("signal: 9"), "{text}");
        let (_, text) =
            result("head -c 100000 /dev/zero | tr '\\0' x; echo; printf '\\033[1m'; exit 1").unwrap_err();
        assert_eq!(text, "sh failed with status 1: [1m");
    }

    /// Runs a script whose background process holds the writing end of a pipe. Returns the end of the
    /// program, after the end of that process.
    fn ended(script: &str, limit: Option<Duration>, stop: &StopSignal) -> ProgramEnd {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut command = shell(script);
        storage::inherit(&mut command, writer);
        let end = run(command, limit, stop).unwrap();
        assert_eq!(File::from(reader).read_to_end(&mut Vec::new()).unwrap(), 0);
        end
    }

    #[test]
    fn the_time_limit_and_a_stop_end_the_whole_group() {
        let stop = StopSignal::new().unwrap();
        let hangs = "sleep 600 & sleep 600";
        let end = ended(hangs, Some(Duration::from_millis(50)), &stop);
        assert!(matches!(end, ProgramEnd::TimeLimit(_)));
        stop.send();
        assert!(matches!(ended(hangs, None, &stop), ProgramEnd::Stopped));
    }

    /// For example if no descriptor is left at the time limit.
    #[test]
    fn a_fault_of_the_server_leaves_no_program() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut command = shell("sleep 600 & sleep 600");
        storage::inherit(&mut command, writer);
        let mut child = command.process_group(0).spawn().unwrap();
        drop(command);
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        drop(RunningProgram { child: &mut child, group, end_of_process: None, output: None });
        assert_eq!(File::from(reader).read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    /// Otherwise it could write the file when that has its name already.
    #[test]
    fn no_process_of_the_group_outlives_the_program() {
        let stop = StopSignal::new().unwrap();
        let end = ended("sleep 600 & exit 0", None, &stop);
        assert!(matches!(end, ProgramEnd::Exited(status, _) if status.success()));
    }
}
