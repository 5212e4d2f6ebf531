//! Copy programs that outlived the server: they keep their time limit, and end when nobody wants their
//! file any more.
//!
//! A program and all processes that it starts have a variable in their environment, which names the
//! queue, the run of the server, the time limit and the file. So a program is found however the
//! server ended, also between its start and the next write of the database. A signal is sent through
//! a descriptor of the process, and after the variable was read again. So it never reaches another
//! process that has got the same number.

use crate::entry::{EntryKey, TransferDirection};
use base::LogicalPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

/// The variable in the environment of copy programs.
pub(crate) const MARK_VARIABLE: &str = "SCALLA_COPY";

/// Maximum number of bytes of an environment that are searched.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Identifies a queue, and a run of the server that executes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRun {
    /// Device and inode of the directory of the queue.
    queue: String,
    /// Process number and time since the boot.
    run: String,
}

/// The mark of the programs of one copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProgramMark {
    pub(crate) key: EntryKey,
    /// Seconds since the boot at which its time limit ends.
    pub(crate) deadline: Option<u64>,
    run: QueueRun,
}

/// A process with a mark.
pub(crate) struct MarkedProcess {
    pub(crate) mark: ProgramMark,
    descriptor: OwnedFd,
}

impl QueueRun {
    /// Returns the run of this process on the queue in a directory.
    pub fn of(directory: &Path) -> std::io::Result<Self> {
        let status = rustix::fs::stat(directory)?;
        let now = clock_gettime(ClockId::Boottime);
        Ok(Self {
            queue: format!("{}:{}", status.st_dev, status.st_ino),
            run: format!("{}.{}.{}", std::process::id(), now.tv_sec, now.tv_nsec),
        })
    }

    /// Returns the value of the mark for a program that is about to start.
    pub(crate) fn mark(&self, key: &EntryKey, limit: Option<Duration>) -> OsString {
        let deadline = limit.map(|limit| seconds_since_boot().saturating_add(limit.as_secs().max(1)));
        let deadline = deadline.map_or_else(|| "-".to_owned(), |deadline| deadline.to_string());
        let direction = match key.direction {
            TransferDirection::In => "in",
            TransferDirection::Out => "out",
        };
        let head = format!("1 {} {} {deadline} {direction} ", self.queue, self.run);
        OsString::from_vec([head.as_bytes(), key.path.as_bytes()].concat())
    }

    /// Parses the value of a mark; `None` if it belongs to another queue.
    pub(crate) fn parse(&self, value: &[u8]) -> Option<ProgramMark> {
        let mut parts = value.splitn(6, |&byte| byte == b' ');
        let mut word = || parts.next().and_then(|part| std::str::from_utf8(part).ok().map(str::to_owned));
        if word()? != "1" || word()? != self.queue {
            return None;
        }
        let (run, deadline, direction) = (word()?, word()?, word()?);
        let direction = match direction.as_str() {
            "in" => TransferDirection::In,
            "out" => TransferDirection::Out,
            _ => return None,
        };
        let path = LogicalPath::parse(parts.next()?).ok()?;
        let run = Self { queue: self.queue.clone(), run };
        Some(ProgramMark { key: EntryKey { direction, path }, deadline: deadline.parse().ok(), run })
    }

    /// Returns the processes of copies of earlier runs. One that has left the process group of its
    /// program as the leader of a session is not among them, as it is not while the server runs.
    pub(crate) fn outlived(&self) -> Vec<MarkedProcess> {
        storage::process_numbers().into_iter().filter_map(|number| self.marked(number)).collect()
    }

    /// Returns a process if it has the mark of an earlier run.
    fn marked(&self, number: i32) -> Option<MarkedProcess> {
        if storage::process_owner(number)? != rustix::process::geteuid().as_raw() {
            return None;
        }
        self.mark_of(number)?;
        let descriptor = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        let process = MarkedProcess { mark: self.mark_of(number)?, descriptor };
        // As long as the process runs, its number means no other one.
        process.is_running().then_some(process)
    }

    fn mark_of(&self, number: i32) -> Option<ProgramMark> {
        if storage::is_in_group_of_session(number)? {
            return None;
        }
        let environment = storage::process_environment(number, ENVIRONMENT_BYTES_MAX)?;
        let mut variables = environment.split(|&byte| byte == 0);
        let value = variables.find_map(|variable| {
            variable.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
        })?;
        self.parse(&value).filter(|mark| mark.run != *self)
    }
}

impl MarkedProcess {
    pub(crate) fn is_running(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }

    pub(crate) fn send(&self, signal: Signal) {
        // It fails if the process has ended.
        pidfd_send_signal(&self.descriptor, signal).ok();
    }
}

pub(crate) fn seconds_since_boot() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default()
}
