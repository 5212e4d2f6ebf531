//! One process of the program of a [`crate::StageAgent`].
//!
//! All processes of the program inherit a lock and a variable. The next one starts only when the lock is free and no process
//! has the variable, because an earlier one could still write a file. Processes that are left are ended. Both are needed:
//! many ways to start a process close its lock, and a program may remove its variables.

use crate::stage_agent::StageAgentSettings;
use crate::stage_agent_thread::timespec;
use crate::stage_event::{OutputLine, OutputLines};
use crate::stage_processes::{INTERVAL, LateWarning, MARK_VARIABLE, mark_of, none_is_left};
use crate::wake_event::WakeEvent;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use storage::PrivateDirectory;

/// The pipe for reports in the directory of the queue, and the variable with its name.
pub(crate) const PIPE: &str = "ofsEvents";
const PIPE_VARIABLE: &str = "XRDOFSEVENTS";

/// The lock that all processes of the program have.
const LOCK: &str = "stage-agent.lock";

/// The time between the signals TERM and KILL.
const ENDING: Duration = Duration::from_secs(5);

/// The interval between two looks where the kernel reports nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum number of bytes that are read from each pipe at once.
const READ_BYTES_MAX: usize = 128 << 10;

pub(crate) struct AgentProcess {
    child: Child,
    pid: Option<Pid>,
    /// Readable when the process has ended; `None` where the kernel has no such descriptors.
    end_of_process: Option<OwnedFd>,
    /// Its output, `None` after the end of that.
    output: Option<OwnedFd>,
    output_lines: OutputLines,
    /// The pipe for reports.
    pipe: OwnedFd,
    pipe_lines: OutputLines,
    /// A line that it does not have completely, and how much of it.
    line: Vec<u8>,
    written: usize,
}

impl AgentProcess {
    /// Starts a process, in a process group of its own, when all earlier ones have ended. `None` if the server ends before.
    pub(crate) fn start(
        settings: &StageAgentSettings,
        is_ending: impl Fn() -> bool,
    ) -> io::Result<Option<Self>> {
        let directory = PrivateDirectory::create(&settings.directory)?;
        let mark = mark_of(directory.path())?;
        let Some(lock) = free_lock(&directory, &mark, is_ending)? else { return Ok(None) };
        let pipe = make_pipe(&directory)?;
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let mut command = Command::new(&settings.program);
        command.args(&settings.arguments).process_group(0);
        command.env(MARK_VARIABLE, &mark).env(PIPE_VARIABLE, directory.path().join(PIPE));
        command.stdin(Stdio::piped()).stdout(input.try_clone()?).stderr(input);
        storage::inherit(&mut command, lock);
        let child = command.spawn()?;
        // It owns the other end of the pipe, and the lock.
        drop(command);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = Self {
            end_of_process: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            child,
            pid,
            output: Some(output),
            output_lines: OutputLines::default(),
            pipe,
            pipe_lines: OutputLines::default(),
            line: Vec::new(),
            written: 0,
        };
        let stdin = process.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::fs::fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        Ok(Some(process))
    }

    /// Reports whether it has all lines.
    pub(crate) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// Gives it a line, after all others.
    pub(crate) fn give(&mut self, line: Vec<u8>) {
        (self.line, self.written) = (line, 0);
    }

    /// Writes as much of the line as it takes now.
    pub(crate) fn write(&mut self) -> io::Result<()> {
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

    /// Waits for output, for room for the line, for the end of the process, or for `wake`, and reports whether that was it.
    pub(crate) fn wait(&self, wake: &WakeEvent, most: Option<Duration>) -> io::Result<bool> {
        let look = self.end_of_process.is_none().then_some(LOOK);
        let time = look.into_iter().chain(most).min().map(timespec);
        let mut descriptors = vec![PollFd::new(wake, PollFlags::IN), PollFd::new(&self.pipe, PollFlags::IN)];
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
    pub(crate) fn read(&mut self, lines: &mut Vec<OutputLine>) {
        if let Some(output) = &self.output
            && read_lines(output, &mut self.output_lines, lines)
        {
            self.output = None;
        }
        // This process has the other end of it too, so it has no end.
        read_lines(&self.pipe, &mut self.pipe_lines, lines);
    }

    /// Reports whether it has ended. Its number still means no other process.
    pub(crate) fn has_ended(&self) -> bool {
        let Some(pid) = self.pid else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(Errno::INTR))
    }

    /// Ends it with its process group, and returns how it has ended. With `is_orderly` it may end by itself before, because
    /// its input ends.
    pub(crate) fn end(&mut self, is_orderly: bool) -> String {
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

impl Drop for AgentProcess {
    /// No process is left, whatever failed.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill(Signal::KILL);
            self.child.wait().ok();
        }
    }
}

/// Reads the lines that are there, as far as they are not too many, and reports whether the output has ended.
fn read_lines(from: &OwnedFd, partial: &mut OutputLines, lines: &mut Vec<OutputLine>) -> bool {
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

/// Makes a new pipe, so that no process of an earlier program can write to it, and opens it.
fn make_pipe(directory: &PrivateDirectory) -> io::Result<OwnedFd> {
    match directory.remove_unsynced(PIPE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let path = directory.path().join(PIPE);
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0)?;
    // With the other end of its own, it does not end with its writers.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(&path, flags, Mode::empty())?)
}

/// Returns the lock of the program when no process of it is left. `None` if the server ends before.
fn free_lock(
    directory: &PrivateDirectory,
    mark: &str,
    is_ending: impl Fn() -> bool,
) -> io::Result<Option<OwnedFd>> {
    let file = directory.open_or_create(LOCK)?;
    let mut warning = LateWarning::new();
    let mut is_locked = false;
    loop {
        is_locked = is_locked || storage::lock_file(file.as_fd())?;
        if none_is_left(mark) && is_locked {
            return Ok(Some(file.into()));
        }
        if is_ending() {
            return Ok(None);
        }
        warning.check();
        std::thread::sleep(INTERVAL);
    }
}
