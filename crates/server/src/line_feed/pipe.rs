//! [`PipeReceiver`]: a named pipe that a program of the site reads.

use super::WaitingLines;
use residency::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, lstat, mknodat, open, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval between two attempts to write a line, and between two looks whether the path is still that of the pipe.
const INTERVAL: Duration = Duration::from_secs(1);

/// What happens to lines while nobody reads a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PipeReaders {
    /// Lines are lost.
    Optional,
    /// Lines wait in memory.
    Required,
    /// Lines wait in the pipe, which this process keeps open for reading too, and then in memory. A pipe that is missing is
    /// created.
    Served,
}

/// A named pipe.
pub(crate) struct PipeReceiver {
    path: PathBuf,
    readers: PipeReaders,
    pipe: Option<OwnedFd>,
    looked: Instant,
    /// The log has the present fault.
    is_logged: bool,
}

impl PipeReceiver {
    pub(crate) fn new(path: PathBuf, readers: PipeReaders) -> Self {
        Self { path, readers, pipe: None, looked: Instant::now(), is_logged: false }
    }

    /// Writes lines until the server ends.
    pub(crate) fn run(mut self, lines: &WaitingLines) {
        while let Some(line) = lines.wait_for_line() {
            if !self.deliver(&line, lines) {
                return lines.put_back(line);
            }
        }
    }

    /// Writes a line, or drops it if nobody must read it. Returns `false` if the server ends before.
    fn deliver(&mut self, line: &[u8], lines: &WaitingLines) -> bool {
        loop {
            match self.write(line) {
                Ok(()) => {
                    self.is_logged = false;
                    if self.readers != PipeReaders::Served {
                        // Its reader sees the end after each line.
                        self.pipe = None;
                    }
                    return true;
                }
                Err(Errno::INTR) => {}
                // Someone reads, but not now.
                Err(Errno::AGAIN) => {
                    if lines.time_left().is_some_and(|left| left.is_zero()) || !self.wait_for_room(lines) {
                        return false;
                    }
                }
                Err(error) if self.readers == PipeReaders::Optional => {
                    tracing::debug!(%error, "nobody reads {}", self.path.display());
                    return true;
                }
                Err(error) => {
                    self.pipe = None;
                    if !std::mem::replace(&mut self.is_logged, true) {
                        let (reason, path) = (base::errno_text(&error.into()), self.path.display());
                        tracing::warn!(reason, "cannot write {path}; events for {} wait", lines.name);
                    }
                    if !lines.rest(INTERVAL) {
                        return false;
                    }
                }
            }
        }
    }

    /// Waits until the pipe takes a line, or for a time. Returns `false` if the server ends and nothing is read.
    fn wait_for_room(&mut self, lines: &WaitingLines) -> bool {
        let Some(pipe) = &self.pipe else { return lines.rest(INTERVAL) };
        let time = timespec(lines.time_left().unwrap_or(INTERVAL).min(INTERVAL));
        let room = PollFd::new(pipe, PollFlags::OUT);
        let ready = match lines.is_ending() {
            true => poll(&mut [room], Some(&time)),
            false => poll(&mut [room, PollFd::new(&lines.wake, PollFlags::IN)], Some(&time)),
        };
        lines.wake.take();
        ready.is_ok_and(|ready| ready > 0) || !lines.is_ending()
    }

    /// Writes a line as a whole. `ENXIO` if nobody reads the pipe, `EAGAIN` if it is full.
    fn write(&mut self, line: &[u8]) -> Result<(), Errno> {
        let is_kept = self.readers == PipeReaders::Served;
        // One that was full may have lost its reader meanwhile.
        if !is_kept || self.is_replaced() {
            self.pipe = None;
        }
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None if is_kept => prepare_pipe(&self.path)?,
            None => open_pipe(&self.path, OFlags::WRONLY)?,
        };
        rustix::io::write(self.pipe.insert(pipe), line).map(|_| ())
    }

    /// Reports whether the path is no longer that of the pipe. It looks once in each interval.
    fn is_replaced(&mut self) -> bool {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.looked.elapsed() >= INTERVAL) else {
            return false;
        };
        self.looked = Instant::now();
        let identity = |status: rustix::fs::Stat| (status.st_dev, status.st_ino);
        let found = stat(&self.path).map(identity);
        found.is_err() || found != fstat(pipe).map(identity)
    }
}

/// Opens a pipe for writing and reading, so that lines wait in it while nobody reads. Creates it if it is missing.
///
/// # Errors
/// `EINVAL` if something else is there.
pub(crate) fn prepare_pipe(path: &Path) -> Result<OwnedFd, Errno> {
    match mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR | Mode::RGRP, 0) {
        Ok(()) | Err(Errno::EXIST) => open_pipe(path, OFlags::RDWR),
        Err(error) => Err(error),
    }
}

fn open_pipe(path: &Path, access: OFlags) -> Result<OwnedFd, Errno> {
    // To open a device can have effects, so the kind is looked at before, too.
    if FileType::from_raw_mode(lstat(path)?.st_mode) != FileType::Fifo {
        return Err(Errno::INVAL);
    }
    let flags = access | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let pipe = match open(path, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Err(Errno::INVAL),
        other => other?,
    };
    match FileType::from_raw_mode(fstat(&pipe)?.st_mode) {
        FileType::Fifo => Ok(pipe),
        _ => Err(Errno::INVAL),
    }
}
