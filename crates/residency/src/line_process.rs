//! [`LineProcess`]: a program that runs for long, and answers lines with lines.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum length of an answer in bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// The interval between two looks for the end of a process that has closed its output.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// A program that runs. It is ended with all processes that it has started when this is dropped.
pub(crate) struct LineProcess {
    child: Child,
    /// What was read behind the last answer.
    rest: Vec<u8>,
}

impl LineProcess {
    /// Starts it, in a process group of its own.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let child = Self { child: command.spawn()?, rest: Vec::new() };
        let (input, output) = (child.child.stdin.as_ref(), child.child.stdout.as_ref());
        for pipe in [input.map(AsFd::as_fd), output.map(AsFd::as_fd)] {
            rustix::fs::fcntl_setfl(pipe.ok_or(io::ErrorKind::BrokenPipe)?, OFlags::NONBLOCK)?;
        }
        Ok(child)
    }

    /// Gives it a line with its end. The error is `BrokenPipe` if it has ended.
    pub(crate) fn write(&mut self, line: &[u8], deadline: Instant) -> io::Result<()> {
        let input = self.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut left = line;
        while !left.is_empty() {
            match rustix::io::write(input, left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN) => wait(input, PollFlags::OUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns its next line, without blanks around it. The error is `UnexpectedEof` if it has ended.
    pub(crate) fn read_line(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let behind = self.rest.split_off(end + 1);
                let answer = std::mem::replace(&mut self.rest, behind);
                return Ok(answer.trim_ascii().to_vec());
            }
            if self.rest.len() > ANSWER_BYTES_MAX {
                return Err(io::Error::other("its answer is too long"));
            }
            if self.receive(deadline)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended"));
            }
        }
    }

    /// Adds what it writes next to the rest. Returns the number of bytes, which is 0 at its end.
    fn receive(&mut self, deadline: Instant) -> io::Result<usize> {
        let output = self.child.stdout.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut buffer = [0; ANSWER_BYTES_MAX];
        loop {
            match rustix::io::read(output, &mut buffer) {
                Ok(length) => {
                    self.rest.extend_from_slice(buffer.get(..length).unwrap_or_default());
                    return Ok(length);
                }
                Err(Errno::AGAIN) => wait(output, PollFlags::IN, deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends its input.
    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Returns all that it still writes until its end, or as much as an answer may have.
    pub(crate) fn read_to_end(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        while self.rest.len() < ANSWER_BYTES_MAX && self.receive(deadline)? > 0 {}
        Ok(std::mem::take(&mut self.rest))
    }

    /// Returns all that it still writes until its end, which must not be more than `most` bytes, and comes before the
    /// deadline. Each pause is shorter than `silence`.
    pub(crate) fn read_all(
        &mut self,
        most: usize,
        silence: Duration,
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        while self.receive(deadline.min(Instant::now() + silence))? > 0 {
            if self.rest.len() > most {
                return Err(io::Error::other("its answer is too long"));
            }
        }
        Ok(std::mem::take(&mut self.rest))
    }

    /// Waits for its end, and fails if that is another one than status 0.
    pub(crate) fn check_end(&mut self, deadline: Instant) -> io::Result<()> {
        // It is not stopped by what nobody reads.
        self.child.stdin = None;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(io::Error::other(format!("it has answered, but {status}"))),
                None if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::sleep(END_INTERVAL),
            }
        }
    }

    /// Returns whether it has written something that was not read yet. Does not block.
    pub(crate) fn unread(&mut self) -> UnreadOutput {
        if !self.rest.is_empty() {
            return UnreadOutput::Bytes;
        }
        let Some(output) = self.child.stdout.as_ref() else { return UnreadOutput::End };
        loop {
            match rustix::io::read(output, &mut [0; 1]) {
                Ok(1..) => return UnreadOutput::Bytes,
                Err(Errno::AGAIN) => return UnreadOutput::Nothing,
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return UnreadOutput::End,
            }
        }
    }
}

/// What a process has written behind its last answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnreadOutput {
    /// Nothing.
    Nothing,
    /// Something that nobody has asked for. The process must not be used again.
    Bytes,
    /// Nothing, and it has ended.
    End,
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.child.wait().ok();
    }
}

/// Waits until a pipe can be used. The error is that no time is left.
fn wait(pipe: &impl AsFd, flags: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(pipe, flags)], Some(&time)) {
        Ok(0) => Err(io::Error::other("it gives no answer in time")),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
