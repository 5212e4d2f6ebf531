//! Brings one file in: copies it beside its name, and gives it the name when it is complete.

use crate::content_check::{CopyDifferences, attribute_of, check_content};
use crate::entry::{CopyFailure, EntryKey, FailureReason, TransferEntry};
use crate::outlived::QueueRun;
use crate::ports::{
    CopyAgent, EndedCopy, IncomingCopy, RemoteCatalog, RemoteStatus, ResidencyEvents, StopSignal,
};
use crate::queue::CopyOutcome;
use base::LogicalPath;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::{
    Backend, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, INCOMING_MODIFIED,
    IncomingFile, Metadata, ParentCreation,
};

/// Mode of a staged file, and of the missing directories above it.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// The age in seconds at which a modification time is over: a later write of the file gets a later
/// one. Times of copies are in whole seconds, and the clock of files lags by some milliseconds.
pub(crate) const SETTLED_SECONDS: i64 = 2;

/// The failure of a copy that something else than its program writes.
const WRITTEN: &str = "the copy was written or replaced after its program had ended";

/// The failure of a file whose name leads to nothing.
const DANGLING: &str =
    "its name is a link to data that is missing: mount its disk, or remove the link (frm_admin audit names)";

/// Returns the name of a file in mass storage, for a root that is a directory or the begin of a URL.
#[must_use]
pub fn remote_name(root: &str, path: &LogicalPath) -> OsString {
    let root = root.strip_suffix('/').filter(|_| root.starts_with('/')).unwrap_or(root);
    OsString::from_vec([root.as_bytes(), path.as_bytes()].concat())
}

/// Brings files in.
pub struct Staging {
    /// The storage.
    pub backend: Arc<dyn Backend>,
    /// The copies.
    pub agent: Arc<dyn CopyAgent>,
    /// The receiver of events.
    pub events: Arc<dyn ResidencyEvents>,
    /// The names in mass storage, if there is a program for them.
    pub catalog: Option<Arc<dyn RemoteCatalog>>,
    /// The begin of the names in mass storage (`oss.remoteroot`); without `/` at its begin it makes
    /// URLs.
    pub remote_root: String,
    /// The last copies that differ from their checksum in mass storage.
    pub differences: CopyDifferences,
}

/// Returns the host of the files behind this begin of remote names; empty if it is a path.
#[must_use]
pub fn source_of(remote_root: &str) -> &str {
    let Some((_, rest)) = remote_root.split_once("://") else { return "" };
    rest.split_once('/').map_or(rest, |(host, _)| host)
}

impl Staging {
    /// Returns the host of a file in mass storage; empty if its name is a path.
    #[must_use]
    pub fn source(&self) -> &str {
        source_of(&self.remote_root)
    }

    /// Brings the file of an entry in. Blocks until it has its name, or the copy has failed.
    pub(crate) fn stage(&self, entry: &TransferEntry, run: &QueueRun, stop: &StopSignal) -> CopyOutcome {
        let begun = SystemTime::now();
        let outcome = self.bring_in(entry, run, stop);
        self.report_failure(entry, begun, 0, &outcome);
        outcome
    }

    /// Reports a copy that has failed.
    pub(crate) fn report_failure(
        &self,
        entry: &TransferEntry,
        begun: SystemTime,
        bytes: u64,
        outcome: &CopyOutcome,
    ) {
        if let CopyOutcome::Failed(failure) = outcome
            && failure.reason != FailureReason::InUse
        {
            self.events.copied(&EndedCopy::new(entry, begun, bytes, Some(failure)));
        }
    }

    fn bring_in(&self, entry: &TransferEntry, run: &QueueRun, stop: &StopSignal) -> CopyOutcome {
        let path = &entry.key.path;
        match self.backend.stat(path) {
            // Another way was faster, or a crash came between the rename and the end of the entry.
            Ok(_) => return CopyOutcome::Done,
            Err(error) if storage::is_missing(&error) => {}
            Err(error) => return failed("look for the file", &error),
        }
        let wanted = match self.remote_file(path) {
            Ok(status) => status,
            Err(failure) => return CopyOutcome::Failed(failure),
        };
        let begun = SystemTime::now();
        let missing = self.missing_directories(path);
        let parents = ParentCreation::everywhere(DIRECTORY_MODE);
        let Some(transfers) = self.backend.transfers() else {
            return failed("stage", &io::ErrorKind::Unsupported.into());
        };
        let size = wanted.map(|status| status.size);
        let mut file = match transfers.receive(path, (FILE_MODE, size), Some(&parents)) {
            Ok(file) => file,
            Err(error) => return cannot_receive(path, &error),
        };
        let outcome = match self.copy(entry, run, (file.as_mut(), wanted), stop) {
            Err(error) => failed("start the copy", &error),
            Ok(CopyOutcome::Done) => match self.verified(&entry.key, file.as_mut(), wanted, stop) {
                Err(outcome) => outcome,
                Ok(bytes) => match file.publish() {
                    Ok(()) => {
                        let copy = EndedCopy::new(entry, begun, bytes, None);
                        log(&copy);
                        self.events.arrived(path);
                        self.events.copied(&copy);
                        return CopyOutcome::Done;
                    }
                    Err(error) if is_errno(&error, Errno::EXIST) => self.outcome_of_existing(path),
                    Err(error) => failed("give the copied file its name", &error),
                },
            },
            Ok(outcome) => outcome,
        };
        if let Err(error) = file.discard() {
            tracing::warn!(path = %path.shown(), %error, "cannot remove the temporary file of a failed copy");
        }
        // One that is used meanwhile is not empty, and those above it are not either.
        for directory in &missing {
            if self.backend.remove_directory(directory).is_err() {
                break;
            }
        }
        outcome
    }

    /// Returns the outcome of a copy whose name exists by now. A client has created the file meanwhile, except if the name
    /// leads to nothing: then each further copy would end in the same way.
    fn outcome_of_existing(&self, path: &LogicalPath) -> CopyOutcome {
        match self.backend.stat(path) {
            Err(error) if storage::is_missing(&error) => {
                CopyOutcome::Failed(CopyFailure::new(FailureReason::Permanent, DANGLING))
            }
            _ => CopyOutcome::Done,
        }
    }

    /// Returns the directories above a path that do not exist, the deepest first. A failed copy
    /// removes them: a client with the right to read must not create names.
    fn missing_directories(&self, path: &LogicalPath) -> Vec<LogicalPath> {
        let is_missing = |directory: &LogicalPath| {
            self.backend.stat(directory).is_err_and(|error| storage::is_missing(&error))
        };
        let parents = std::iter::successors(path.parent(), LogicalPath::parent);
        parents.take_while(is_missing).collect()
    }

    /// Returns the status of the file in mass storage; `None` if there is no program that knows it.
    fn remote_file(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let Some(catalog) = &self.catalog else { return Ok(None) };
        match catalog.status(path)? {
            Some(status) if !status.is_directory => match status.checksum {
                Ok(_) => Ok(Some(status)),
                Err(odd) => Err(CopyFailure::new(FailureReason::Temporary, odd.to_string())),
            },
            Some(_) => Err(CopyFailure::new(FailureReason::NotFound, "it is a directory in mass storage")),
            None => Err(CopyFailure::new(FailureReason::NotFound, "no such file in mass storage")),
        }
    }

    fn copy(
        &self,
        entry: &TransferEntry,
        run: &QueueRun,
        (file, status): (&mut dyn IncomingFile, Option<RemoteStatus>),
        stop: &StopSignal,
    ) -> io::Result<CopyOutcome> {
        let remote = remote_name(&self.remote_root, &entry.key.path);
        let creates_file = !self.agent.needs_file(&remote);
        let copy = IncomingCopy {
            entry,
            run,
            remote,
            destination: if creates_file { file.vacant_path()? } else { file.local_path()? },
            target: file.local_target()?,
            status,
            lock: file.lock()?,
        };
        let outcome = self.agent.copy_in(copy, stop);
        // Without a file, the one that was created before shows that nothing was written.
        if creates_file && outcome == CopyOutcome::Done {
            file.adopt()?;
        }
        Ok(outcome)
    }

    /// Checks that a file has its size and its checksum in mass storage, as far as they are known, records the copy with it,
    /// and returns the size. The status of a program alone does not show that its file is complete.
    fn verified(
        &self,
        key: &EntryKey,
        file: &mut dyn IncomingFile,
        wanted: Option<RemoteStatus>,
        stop: &StopSignal,
    ) -> Result<u64, CopyOutcome> {
        let failed = |error| failed("read the copied file", &error);
        let incomplete =
            |text: String| Err(CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)));
        let mut metadata = file.stat().map_err(failed)?;
        if metadata.size == 0 && metadata.modified == INCOMING_MODIFIED {
            return incomplete("the copy program ended with status 0, but wrote nothing".to_owned());
        }
        if let Some(size) = wanted.map(|status| status.size).filter(|size| *size != metadata.size) {
            let text = format!("the copy has {} bytes, but the file in mass storage {size}", metadata.size);
            return incomplete(text);
        }
        let checksum = wanted.and_then(|status| status.checksum.ok()?);
        if let Some(checksum) = checksum {
            let check = check_content(checksum, &|piece, offset| file.read_at(piece, offset), stop);
            if let Some(outcome) = self.differences.outcome_of(key, check, checksum) {
                return Err(outcome);
            }
            // The time of the copy must not hide a write during the minutes of reading.
            let version = |file: &Metadata| {
                (file.device, file.inode, file.size, file.modified, file.modified_nanoseconds)
            };
            if version(&file.stat().map_err(failed)?) != version(&metadata) {
                return incomplete(WRITTEN.to_owned());
            }
        }
        // A write in the same second must not leave the time as it is, because it would look copied.
        let latest = seconds_since_epoch().saturating_sub(SETTLED_SECONDS);
        if metadata.modified > latest {
            file.set_modified(latest).map_err(failed)?;
            let set = file.stat().map_err(failed)?;
            if (set.inode, set.size, set.modified) != (metadata.inode, metadata.size, latest) {
                return incomplete(WRITTEN.to_owned());
            }
            metadata = set;
        }
        if let Some(checksum) = checksum {
            let (name, value) = attribute_of(checksum, &metadata);
            file.set_attribute(&name, &value).map_err(failed)?;
        }
        let (copied, record) = (CopyTime(metadata.modified), CopyRecord::new(&key.path, &metadata));
        file.set_attribute(COPY_RECORD_ATTRIBUTE, record.encode()).map_err(failed)?;
        file.set_attribute(COPY_TIME_ATTRIBUTE, &copied.encode()).map_err(failed)?;
        Ok(metadata.size)
    }
}

fn is_errno(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

/// Returns the present time in seconds since the epoch.
pub(crate) fn seconds_since_epoch() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

pub(crate) fn failed(what: &str, error: &io::Error) -> CopyOutcome {
    if is_errno(error, Errno::BUSY) {
        return CopyOutcome::Failed(CopyFailure::new(
            FailureReason::InUse,
            "a process of the copy still runs",
        ));
    }
    let text = format!("cannot {what}: {}", base::errno_text(error));
    let reason = if is_of_site(error) { FailureReason::Site } else { FailureReason::Temporary };
    CopyOutcome::Failed(CopyFailure::new(reason, text))
}

/// Reports whether an error says nothing about one file: the disk or the server has no room, or does
/// not work.
fn is_of_site(error: &io::Error) -> bool {
    const OF_SITE: [Errno; 10] = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::IO,
        Errno::STALE,
        Errno::ROFS,
        Errno::NOTCONN,
        Errno::TIMEDOUT,
    ];
    error.raw_os_error().is_some_and(|number| OF_SITE.contains(&Errno::from_raw_os_error(number)))
}

fn cannot_receive(path: &LogicalPath, error: &io::Error) -> CopyOutcome {
    let failure = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY) => {
            CopyFailure::new(FailureReason::InUse, "the copy program of an earlier try still runs")
        }
        Some(Errno::EXIST) => CopyFailure::new(
            FailureReason::Temporary,
            "a file of somebody else has the name of the temporary file; the administrator has to remove it",
        ),
        Some(Errno::NOLINK) => CopyFailure::new(FailureReason::Permanent, DANGLING),
        _ => return failed("create a temporary file", error),
    };
    tracing::warn!(path = %path.shown(), reason = %failure, "cannot start a copy");
    CopyOutcome::Failed(failure)
}

/// Logs a complete copy: bytes, seconds in the queue and seconds of the copy.
fn log(copy: &EndedCopy<'_>) {
    let (entry, bytes) = (copy.entry, copy.bytes);
    let (queued, copying) = (copy.queued(), copy.seconds());
    tracing::info!(path = %entry.key.path.shown(), client = %entry.client, bytes, queued, copying, "staged a file");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn a_remote_root_is_a_directory_or_the_begin_of_a_url() {
        let name = |root: &str| remote_name(root, &LogicalPath::parse(b"/store/f").unwrap());
        assert_eq!(name(""), "/store/f");
        assert_eq!(name("/hpss"), "/hpss/store/f");
        assert_eq!(name("/"), "/store/f");
        assert_eq!(name("root://far.example.org/"), "root://far.example.org//store/f");
    }
}
