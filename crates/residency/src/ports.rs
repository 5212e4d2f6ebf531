//! The ports of the crate: what it needs from outside.

use crate::entry::{CopyFailure, TransferDirection, TransferEntry};
use crate::outlived::QueueRun;
use crate::queue::CopyOutcome;
use base::LogicalPath;
use digest::{Algorithm, Checksum};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use storage::Metadata;

/// One copy from mass storage.
pub struct IncomingCopy<'a> {
    /// The entry.
    pub entry: &'a TransferEntry,
    /// The queue, for the mark of programs.
    pub run: &'a QueueRun,
    /// The name of the file in mass storage: a path, or a URL.
    pub remote: OsString,
    /// The local path of the temporary file to be written.
    pub destination: PathBuf,
    /// The local path that the file will have.
    pub target: PathBuf,
    /// The status of the file in mass storage, if there is a program that knows it.
    pub status: Option<RemoteStatus>,
    /// The descriptor that holds the lock of the temporary file. A program inherits it.
    pub lock: OwnedFd,
}

/// One copy to mass storage.
pub struct OutgoingCopy<'a> {
    /// The entry.
    pub entry: &'a TransferEntry,
    /// The queue, for the mark of programs.
    pub run: &'a QueueRun,
    /// The local path of the file itself, which is not a link.
    pub source: PathBuf,
    /// The local path of its name.
    pub name: PathBuf,
    /// The name of the file in mass storage: a path, or a URL.
    pub remote: OsString,
}

/// Copies files between this server and mass storage.
pub trait CopyAgent: Send + Sync {
    /// Reports whether the file at the destination of a copy in is created before, for this name in mass storage.
    fn needs_file(&self, remote: &OsStr) -> bool {
        let _ = remote;
        true
    }
    /// Copies one file in. Blocks until the copy has ended; `stop` ends it early.
    fn copy_in(&self, copy: IncomingCopy<'_>, stop: &StopSignal) -> CopyOutcome;
    /// Copies one file out. Blocks until the copy has ended; `stop` ends it early.
    fn copy_out(&self, copy: OutgoingCopy<'_>, stop: &StopSignal) -> CopyOutcome;
    /// The server ends, so what runs for several copies ends too. Does not block.
    fn end(&self) {}
    /// Calls a function when all that [`Self::end`] ends has ended. Does not block.
    fn when_ended(&self, report: Box<dyn FnOnce() + Send>) {
        report();
    }
}

/// The status of a file in mass storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteStatus {
    /// It is a directory.
    pub is_directory: bool,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last modification, in seconds since the epoch.
    pub modified: i64,
    /// The checksum of the content, if it is known.
    pub checksum: Result<Option<Checksum>, OddChecksum>,
}

/// A checksum in mass storage that cannot be read. It concerns one file: the program works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {algorithm} checksum that oss.rsscmd returns has {found} characters, which are not {} hexadecimal digits", algorithm.bytes() * 2)]
pub struct OddChecksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Number of its characters.
    pub found: usize,
}

/// The names in mass storage.
pub trait RemoteCatalog: Send + Sync {
    /// Returns the failure of each question for a file because of its name. It is [`crate::FailureReason::Permanent`].
    fn check_name(&self, path: &LogicalPath) -> Result<(), CopyFailure> {
        let _ = path;
        Ok(())
    }
    /// Returns the status of a file in mass storage; `None` if there is none. Copies and removals depend on it, so it must
    /// not be that of another file. Blocks.
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure>;
    /// Returns the status like [`Self::status`], for clients only. Blocks.
    fn shown_status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        self.status(path)
    }
    /// Changes a name in mass storage. Blocks.
    fn order(&self, order: NameOrder<'_>) -> Result<NameOutcome, CopyFailure> {
        let _ = order;
        Ok(NameOutcome::Unknown)
    }
    /// Returns the names in a directory of mass storage; `None` if the directory is missing. Blocks.
    fn list(&self, path: &LogicalPath) -> Result<Option<RemoteNames>, CopyFailure> {
        let _ = path;
        Ok(None)
    }
}

/// An order to change a name in mass storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOrder<'a> {
    /// Creates an empty file with these permission bits.
    Create(&'a LogicalPath, u32),
    /// Removes a file.
    Remove(&'a LogicalPath),
    /// Renames a file or directory.
    Rename(&'a LogicalPath, &'a LogicalPath),
}

/// The result of an order that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOutcome {
    /// It was executed.
    Done,
    /// The file is missing.
    Missing,
    /// The name exists.
    Exists,
    /// The program does not know such orders.
    Unknown,
}

/// The names in a directory of mass storage.
pub type RemoteNames = BTreeSet<Vec<u8>>;

/// The export attributes of a path, as far as they concern residency.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathResidency {
    /// Missing files are staged.
    pub stage: bool,
    /// New and changed files are copied to mass storage.
    pub migrate: bool,
    /// Files with a copy in mass storage may be removed.
    pub purge: bool,
}

impl PathResidency {
    /// Returns the option of exports that a transfer needs and the path does not have; `None` if it has all of them.
    /// `removes`: the file is removed after its copy.
    #[must_use]
    pub const fn missing_option(self, direction: TransferDirection, removes: bool) -> Option<&'static str> {
        match direction {
            TransferDirection::In if !self.stage => Some("stage"),
            TransferDirection::Out if !self.migrate => Some("mig"),
            _ if removes && !self.purge => Some("purge"),
            _ => None,
        }
    }
}

/// The exports of a server.
pub trait ResidencyPaths: Send + Sync {
    /// Returns the paths of all exports.
    fn roots(&self) -> Vec<LogicalPath>;
    /// Returns the attributes of a path. A path outside of all exports has none.
    fn of(&self, path: &LogicalPath) -> PathResidency;
    /// Reports whether a client has a file open for writing, or renames it. A rename of a file that may
    /// have a copy is reported here before the attribute of the copy is reset.
    fn has_writer(&self, path: &LogicalPath, metadata: &Metadata) -> bool {
        let _ = (path, metadata);
        false
    }
    /// Returns a function that reports whether a client opened the file for writing or renamed it
    /// since. Nobody may have it open for writing now.
    fn watch_writers(&self, metadata: &Metadata) -> WriterWatch {
        let _ = metadata;
        Box::new(|| false)
    }
}

/// See [`ResidencyPaths::watch_writers`].
pub type WriterWatch = Box<dyn Fn() -> bool + Send>;

/// A receiver of events about files that come and go.
pub trait ResidencyEvents: Send + Sync {
    /// Reports that a file came from mass storage and has its name. Must not block.
    fn arrived(&self, path: &LogicalPath);
    /// Reports that a file was purged. Must not block.
    fn removed(&self, path: &LogicalPath);
    /// Reports the status that a purged file had, beside [`Self::removed`]. Must not block.
    fn purged(&self, path: &LogicalPath, metadata: &Metadata) {
        let _ = (path, metadata);
    }
    /// Reports that a copy has ended, also with a failure. Must not block.
    fn copied(&self, copy: &EndedCopy<'_>) {
        let _ = copy;
    }
}

/// A copy that has ended.
#[derive(Clone, Debug)]
pub struct EndedCopy<'a> {
    /// The entry.
    pub entry: &'a TransferEntry,
    /// Bytes of the file; 0 if a copy in has failed.
    pub bytes: u64,
    /// Begin and end, in seconds since the epoch.
    pub begun: u64,
    /// See `begun`.
    pub ended: u64,
    /// The reason of a failure.
    pub failure: Option<&'a CopyFailure>,
}

impl<'a> EndedCopy<'a> {
    /// Returns a copy that began at a time, and ends now.
    pub(crate) fn new(
        entry: &'a TransferEntry,
        begun: SystemTime,
        bytes: u64,
        failure: Option<&'a CopyFailure>,
    ) -> Self {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { entry, bytes, begun: seconds(begun), ended: seconds(SystemTime::now()), failure }
    }

    /// Returns the seconds that it waited in the queue.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.begun.saturating_sub(self.entry.added)
    }

    /// Returns the seconds that it took.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.ended.saturating_sub(self.begun)
    }
}

/// Tells a copy to end. All clones are one signal.
#[derive(Clone)]
pub struct StopSignal(Arc<OwnedFd>);

impl StopSignal {
    /// Creates a signal that was not sent.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Sends it.
    pub fn send(&self) {
        // It fails only if the signal was sent very often.
        rustix::io::write(&*self.0, &1u64.to_ne_bytes()).ok();
    }

    /// Waits until the signal was sent, at most for this time, and reports whether it was.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut descriptors = [PollFd::new(&*self.0, PollFlags::IN)];
        poll(&mut descriptors, Some(&time)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
