//! One process of the program of a [`crate::StageAgent`].
//!
//! All processes of the program inherit a lock and a variable. The next one starts only when the lock is free and no process
//! has the variable, because an earlier one could still write a file. Processes that are left are ended. Both are needed:
//! many ways to start a process close its lock, and a program may remove its variables.

use crate::fed_process::{FedProcess, read_lines};
use crate::stage_agent::StageAgentSettings;
use crate::stage_event::{OutputLine, OutputLines};
use crate::stage_processes::{INTERVAL, LateWarning, MARK_VARIABLE, mark_of, none_is_left};
use crate::wake_event::WakeEvent;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;
use storage::PrivateDirectory;

/// The pipe for reports in the directory of the queue, and the variable with its name.
pub(crate) const PIPE: &str = "ofsEvents";
const PIPE_VARIABLE: &str = "XRDOFSEVENTS";

/// The lock that all processes of the program have.
const LOCK: &str = "stage-agent.lock";

/// A process of the program, with the pipe for its reports.
pub(crate) struct AgentProcess {
    process: FedProcess,
    /// The pipe for reports.
    pipe: OwnedFd,
    pipe_lines: OutputLines,
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
        let mut command = Command::new(&settings.program);
        command.args(&settings.arguments);
        command.env(MARK_VARIABLE, &mark).env(PIPE_VARIABLE, directory.path().join(PIPE));
        storage::inherit(&mut command, lock);
        // The command owns the lock, and does not outlive the start.
        let process = FedProcess::start(command)?;
        Ok(Some(Self { process, pipe, pipe_lines: OutputLines::default() }))
    }

    /// Waits for output, for room for the line, for the end of the process, or for `wake`, and reports whether that was it.
    pub(crate) fn wait(&self, wake: &WakeEvent, most: Option<Duration>) -> io::Result<bool> {
        self.process.wait(wake, Some(self.pipe.as_fd()), most)
    }

    /// Reads the lines that are there.
    pub(crate) fn read(&mut self, lines: &mut Vec<OutputLine>) {
        self.process.read(lines);
        // This process has the other end of it too, so it has no end.
        read_lines(&self.pipe, &mut self.pipe_lines, lines);
    }
}

impl Deref for AgentProcess {
    type Target = FedProcess;

    fn deref(&self) -> &FedProcess {
        &self.process
    }
}

impl DerefMut for AgentProcess {
    fn deref_mut(&mut self) -> &mut FedProcess {
        &mut self.process
    }
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
