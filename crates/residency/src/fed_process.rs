//! [`FedProcess`]: one process of a program that is started once and reads lines, and [`LoggedOutput`], what it writes.
//!
//! Nothing here blocks except [`FedProcess::wait`] and [`FedProcess::end`], so one thread gives lines to a process, reads
//! its output, and sees its end.

use crate::stage_event::{OutputLine, OutputLines};
use crate::wake_event::WakeEvent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time between the signals TERM and KILL.
const ENDING: Duration = Duration::from_secs(5);

/// The interval between two looks where the kernel reports nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum number of bytes that are read from each pipe at once.
const READ_BYTES_MAX: usize = 128 << 10;

/// Number of lines of a program in the log in each minute.
const LOGGED_MAX: u32 = 100;
const LOGGED_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of characters of a line in the log.
const LOGGED_CHARACTERS: usize = 500;

/// A process that reads lines. It is ended with all processes of its group when this is dropped.
pub struct FedProcess {
    child: Child,
    pid: Option<Pid>,
    /// Readable when the process has ended; `None` where the kernel has no such descriptors.
    end_of_process: Option<OwnedFd>,
    /// Its output, `None` after the end of that.
    output: Option<OwnedFd>,
    output_lines: OutputLines,
    /// A line that it does not have completely, and how much of it.
    line: Vec<u8>,
    written: usize,
}

impl FedProcess {
    /// Starts a process in a process group of its own.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
        command.stdin(Stdio::piped()).stdout(input.try_clone()?).stderr(input).process_group(0);
        let child = command.spawn()?;
        // It owns the other end of the pipe.
        drop(command);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = Self {
            end_of_process: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            child,
            pid,
            output: Some(output),
            output_lines: OutputLines::default(),
            line: Vec::new(),
            written: 0,
        };
        let stdin = process.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::fs::fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        Ok(process)
    }

    /// Reports whether it has all lines.
    pub fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// Gives it a line, after all others.
    pub fn give(&mut self, line: Vec<u8>) {
        (self.line, self.written) = (line, 0);
    }

    /// Returns the line that it does not have completely.
    pub fn take_line(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }

    /// Writes as much of the line as it takes now.
    pub fn write(&mut self) -> io::Result<()> {
        while !self.line.is_empty() {
            let stdin = self.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            match rustix::io::write(stdin, self.line.get(self.written..).unwrap_or_default()) {
                Ok(written) => self.written += written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                // The reason is its end, which has a status.
                Err(Errno::PIPE) if self.has_ended() => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if self.written >= self.line.len() {
                self.line.clear();
            }
        }
        Ok(())
    }

    /// Waits for output, for room for the line, for the end of the process, for `other`, or for `wake`, and reports whether
    /// that was it.
    pub fn wait(
        &self,
        wake: &WakeEvent,
        other: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> io::Result<bool> {
        let look = self.end_of_process.is_none().then_some(LOOK);
        let time = look.into_iter().chain(most).min().map(timespec);
        let mut descriptors = vec![PollFd::new(wake, PollFlags::IN)];
        descriptors.extend(other.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        descriptors.extend(self.output.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        descriptors.extend(self.end_of_process.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let stdin = self.child.stdin.as_ref().filter(|_| !self.is_idle());
        descriptors.extend(stdin.map(|fd| PollFd::new(fd, PollFlags::OUT)));
        match poll(&mut descriptors, time.as_ref()) {
            Err(Errno::INTR) => return Ok(false),
            other => other?,
        };
        Ok(descriptors.first().is_some_and(|wake| !wake.revents().is_empty()))
    }

    /// Reads the lines that are there.
    pub fn read(&mut self, lines: &mut Vec<OutputLine>) {
        if let Some(output) = &self.output
            && read_lines(output, &mut self.output_lines, lines)
        {
            self.output = None;
        }
    }

    /// Reports whether it has ended. Its number still means no other process.
    pub fn has_ended(&self) -> bool {
        let Some(pid) = self.pid else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(Errno::INTR))
    }

    /// Ends its input. Its end follows, if it reads to the end.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Ends it with its process group, and returns how it has ended. With `is_orderly` it may end by itself before, because
    /// its input ends.
    pub fn end(&mut self, is_orderly: bool) -> String {
        drop(self.child.stdin.take());
        if !self.has_ended() {
            self.kill(Signal::TERM);
            let until = Instant::now() + if is_orderly { ENDING } else { LOOK };
            while !self.has_ended() && Instant::now() < until {
                std::thread::sleep(LOOK / 10);
            }
        }
        self.kill(Signal::KILL);
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => base::errno_text(&error),
        }
    }

    fn kill(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It fails if the group has no process any more.
            kill_process_group(pid, signal).ok();
        }
    }
}

impl Drop for FedProcess {
    /// No process is left, whatever failed.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

/// Reads the lines that are there, as far as they are not too many, and reports whether the output has ended.
pub(crate) fn read_lines(from: &OwnedFd, partial: &mut OutputLines, lines: &mut Vec<OutputLine>) -> bool {
    let mut buffer = [0; 8192];
    let mut left = READ_BYTES_MAX;
    while left > 0 {
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => return true,
            Ok(length) => {
                left = left.saturating_sub(length);
                partial.add(buffer.get(..length).unwrap_or_default(), |line| lines.push(line));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

/// The output of a program in the log, a limited number of lines in each minute.
pub struct LoggedOutput {
    directive: &'static str,
    /// The last line of the present process.
    last: String,
    logged: (Instant, u32),
}

impl LoggedOutput {
    /// Returns the output of the program of a directive.
    pub fn of(directive: &'static str) -> Self {
        Self { directive, last: String::new(), logged: (Instant::now(), 0) }
    }

    /// Forgets the last line, because another process begins.
    pub fn begin(&mut self) {
        self.last = String::new();
    }

    /// Returns the last line of the present process.
    pub fn last(&self) -> &str {
        &self.last
    }

    /// Logs a line.
    pub fn log(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text =
            text.trim().chars().filter(|c| !c.is_control()).take(LOGGED_CHARACTERS).collect::<String>();
        if text.is_empty() {
            return;
        }
        if self.logged.0.elapsed() >= LOGGED_INTERVAL {
            self.logged = (Instant::now(), 0);
        }
        self.logged.1 = self.logged.1.saturating_add(1);
        let directive = self.directive;
        match self.logged.1 {
            ..LOGGED_MAX => tracing::info!(text, "output of the program of {directive}"),
            LOGGED_MAX => {
                tracing::warn!(text, "more output of the program of {directive} is not logged for a minute")
            }
            _ => {}
        }
        self.last = text;
    }
}

/// Returns a time as the system takes it.
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
