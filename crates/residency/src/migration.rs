//! Copies one file to mass storage, and records that it has a copy there.

use crate::content_check::{attribute_of, check_held};
use crate::copy_candidate::{CopyNeed, copy_need, has_foreign_copy, need_of_foreign};
use crate::entry::{CopyFailure, FailureReason, TransferEntry};
use crate::outlived::QueueRun;
use crate::ports::{EndedCopy, OddChecksum, OutgoingCopy, ResidencyPaths, StopSignal, WriterWatch};
use crate::purge::Purger;
use crate::purge_policy::KeptReason;
use crate::queue::CopyOutcome;
use crate::staging::{Staging, failed, remote_name, seconds_since_epoch};
use base::LogicalPath;
use digest::Checksum;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use storage::{COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, FileVersion, HeldFile};

/// Copies files to mass storage.
pub(crate) struct Migration {
    pub(crate) staging: Arc<Staging>,
    pub(crate) paths: Arc<dyn ResidencyPaths>,
    /// Removes files whose requests want that after the copy.
    pub(crate) purger: Purger,
}

/// A file at the begin of its copy.
struct FileAtBegin {
    version: FileVersion,
    /// Reports whether there was a writer since.
    was_written: WriterWatch,
}

/// The decision about the file of an entry.
enum CopyDecision {
    Copy(FileAtBegin),
    /// It changes at the moment, for this reason.
    Changes(&'static str),
    HasCopy,
    NotNeeded(&'static str),
}

/// The end of a copy, or the reason for which the entry ends without one.
enum Migrated {
    Copied(u64),
    /// It has one already.
    HasCopy,
    /// It changes at the moment, for this reason, and is tried later.
    Changes(&'static str),
    NotNeeded(&'static str),
}

impl Migration {
    /// Copies the file of an entry to mass storage. Blocks until it has a copy there, or the copy has
    /// failed. A copy during which the file was changed has failed, so that a file that always changes
    /// is not copied without end.
    pub(crate) fn migrate(&self, entry: &TransferEntry, run: &QueueRun, stop: &StopSignal) -> CopyOutcome {
        let begun = SystemTime::now();
        let path = entry.key.path.shown();
        match self.copy(entry, run, stop) {
            Err(outcome) => {
                let bytes = self.staging.backend.stat(&entry.key.path).map_or(0, |found| found.size);
                self.staging.report_failure(entry, begun, bytes, &outcome);
                outcome
            }
            Ok(Migrated::HasCopy) => self.remove(entry, stop).unwrap_or(CopyOutcome::NotNeeded),
            Ok(Migrated::Changes(reason)) => changed(reason),
            Ok(Migrated::NotNeeded(reason)) => {
                tracing::debug!(%path, reason, "a file is not migrated now");
                CopyOutcome::NotNeeded
            }
            Ok(Migrated::Copied(bytes)) => {
                let copy = EndedCopy::new(entry, begun, bytes, None);
                let copying = copy.seconds();
                tracing::info!(%path, bytes, copying, "migrated a file");
                self.staging.events.copied(&copy);
                self.remove(entry, stop).unwrap_or(CopyOutcome::Done)
            }
        }
    }

    /// Removes a file that has a copy from the disk, if its request wants that. A file that is used now is removed
    /// by a later try, and the copy is not repeated then: `Some` is the outcome of this one.
    fn remove(&self, entry: &TransferEntry, stop: &StopSignal) -> Option<CopyOutcome> {
        if !entry.removes {
            return None;
        }
        let path = entry.key.path.shown();
        if self.purger.is_stopped() {
            return Some(changed("it has a copy, and stays on disk as long as purges are stopped"));
        }
        match self.purger.release_unless(&entry.key.path, &|| stop.wait(Duration::ZERO)) {
            Ok(bytes) => tracing::info!(%path, bytes, "removed a file from the disk after its copy"),
            Err(KeptReason::Stopped) if stop.wait(Duration::ZERO) => return Some(CopyOutcome::Stopped),
            Err(
                reason @ (KeptReason::InUse
                | KeptReason::Stopped
                | KeptReason::Changed
                | KeptReason::CatalogFailed(_)
                | KeptReason::Failed(_)),
            ) => return Some(changed(&format!("it has a copy, and stays on disk now: {reason}"))),
            Err(reason) if self.needs_copy(&entry.key.path) => {
                tracing::info!(%path, %reason, "a file was changed after its copy, and is migrated again");
                return Some(changed("it was changed after its copy"));
            }
            Err(reason) => tracing::warn!(%path, %reason, "a file stays on disk after its copy"),
        }
        None
    }

    /// Reports whether a file needs a copy now or soon.
    fn needs_copy(&self, path: &LogicalPath) -> bool {
        let Some(transfers) = self.staging.backend.transfers() else { return false };
        let read = || -> io::Result<CopyNeed> {
            let file = transfers.hold(path)?;
            let attribute = file.attribute(COPY_TIME_ATTRIBUTE)?;
            Ok(copy_need(attribute.as_deref(), &file.stat()?, seconds_since_epoch(), 0))
        };
        matches!(read(), Ok(CopyNeed::Now | CopyNeed::NotBefore(_)))
    }

    fn copy(
        &self,
        entry: &TransferEntry,
        run: &QueueRun,
        stop: &StopSignal,
    ) -> Result<Migrated, CopyOutcome> {
        let path = &entry.key.path;
        if !self.paths.of(path).migrate {
            return Ok(Migrated::NotNeeded("its export does not migrate"));
        }
        // The copy could not be verified.
        if let Some(catalog) = &self.staging.catalog {
            catalog.check_name(path).map_err(CopyOutcome::Failed)?;
        }
        let Some(transfers) = self.staging.backend.transfers() else {
            return Err(failed("migrate", &io::ErrorKind::Unsupported.into()));
        };
        let file = match transfers.hold(path) {
            Ok(file) => file,
            Err(error) if is_no_file(&error) => return Ok(Migrated::NotNeeded("there is no such file")),
            Err(error) => return Err(failed("open the file", &error)),
        };
        let begun = match self.begin(entry, file.as_ref()).map_err(|error| failed("read the file", &error))? {
            CopyDecision::Copy(begun) => begun,
            CopyDecision::HasCopy => return Ok(Migrated::HasCopy),
            // The number of tries must not begin again, as it does with a new entry. And a later search, which does find
            // the file, knows nothing of its removal.
            CopyDecision::Changes(reason) if entry.tries > 1 || entry.removes => {
                return Ok(Migrated::Changes(reason));
            }
            CopyDecision::Changes(reason) | CopyDecision::NotNeeded(reason) => {
                return Ok(Migrated::NotNeeded(reason));
            }
        };
        if run.outlived().iter().any(|process| process.mark.key == entry.key) {
            let text = "the copy program of an earlier run of the server still runs";
            return Err(CopyOutcome::Failed(CopyFailure::new(FailureReason::InUse, text)));
        }
        let copy = OutgoingCopy {
            entry,
            run,
            source: file.data_path().map_err(|error| failed("open the file", &error))?,
            name: file.local_path().map_err(|error| failed("open the file", &error))?,
            remote: remote_name(&self.staging.remote_root, path),
        };
        match self.staging.agent.copy_out(copy, stop) {
            CopyOutcome::Done => {}
            other => return Err(other),
        }
        let checksum = self.verify(entry, file.as_ref(), &begun, stop)?;
        let is_recorded = self.record(entry, file.as_ref(), &begun, checksum);
        if is_recorded.map_err(|error| failed("record the copy", &error))? {
            Ok(Migrated::Copied(begun.version.size))
        } else {
            tracing::info!(path = %path.shown(), "a file was changed during its copy, and is migrated again");
            Err(changed("it was changed during its copy"))
        }
    }

    /// Decides whether a file is copied. Its content is on stable storage then: the copy must not have
    /// bytes that a power failure takes from the file.
    fn begin(&self, entry: &TransferEntry, file: &dyn HeldFile) -> io::Result<CopyDecision> {
        let metadata = file.stat()?;
        let attribute = file.attribute(COPY_TIME_ATTRIBUTE)?;
        let now = seconds_since_epoch();
        let (of, record) = ((&entry.key.path, &metadata), || file.attribute(COPY_RECORD_ATTRIBUTE));
        let need = match copy_need(attribute.as_deref(), &metadata, now, 0) {
            CopyNeed::Never if has_foreign_copy(&*self.paths, of, attribute.as_deref(), record)? => {
                need_of_foreign(&metadata, now, 0)
            }
            need => need,
        };
        match need {
            CopyNeed::Now => {}
            CopyNeed::NotBefore(_) => return Ok(CopyDecision::Changes("it was changed a moment ago")),
            CopyNeed::Impossible => return Ok(CopyDecision::NotNeeded("it has no modification time")),
            CopyNeed::Never => return Ok(CopyDecision::HasCopy),
        }
        let was_written = self.paths.watch_writers(&metadata);
        if self.paths.has_writer(&entry.key.path, &metadata) {
            return Ok(CopyDecision::Changes("it is open for writing"));
        }
        // If the copy cannot be recorded, this fails before it is made.
        file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode())?;
        let version = file.version()?;
        file.sync()?;
        Ok(CopyDecision::Copy(FileAtBegin { version, was_written }))
    }

    /// Checks the size and the checksum of the copy, if there is a program that knows them. Returns the checksum of the
    /// file if it was compared.
    fn verify(
        &self,
        entry: &TransferEntry,
        file: &dyn HeldFile,
        begun: &FileAtBegin,
        stop: &StopSignal,
    ) -> Result<Option<Checksum>, CopyOutcome> {
        let Some(catalog) = &self.staging.catalog else { return Ok(None) };
        let size = begun.version.size;
        let text = match catalog.status(&entry.key.path).map_err(CopyOutcome::Failed)? {
            Some(status) if !status.is_directory && status.size == size => {
                let odd = |odd: OddChecksum| {
                    CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, odd.to_string()))
                };
                let Some(checksum) = status.checksum.map_err(odd)? else { return Ok(None) };
                let check = check_held(checksum, file, &|| stop.wait(Duration::ZERO));
                let Some(outcome) = self.staging.differences.outcome_of(&entry.key, check, checksum) else {
                    return Ok(Some(checksum));
                };
                // A file that was changed meanwhile has another one.
                let is_same = file.version().is_ok_and(|version| version.has_content_of(&begun.version));
                return Err(if is_same { outcome } else { changed("it was changed during its copy") });
            }
            Some(status) => {
                format!("the copy in mass storage has {} bytes, but the file {size}", status.size)
            }
            None => "the copy program ended with status 0, but the copy is not in mass storage".to_owned(),
        };
        Err(CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, text)))
    }

    /// Records that mass storage has this content of a file. Returns `false` if the file was changed
    /// or renamed since.
    fn record(
        &self,
        entry: &TransferEntry,
        file: &dyn HeldFile,
        begun: &FileAtBegin,
        checksum: Option<Checksum>,
    ) -> io::Result<bool> {
        let is_unchanged = || -> io::Result<bool> {
            let has_writer = (begun.was_written)() || self.paths.has_writer(&entry.key.path, &file.stat()?);
            Ok(!has_writer && file.has_name()? && file.version()?.has_content_of(&begun.version))
        };
        if !is_unchanged()? {
            return Ok(false);
        }
        let status = file.stat()?;
        let modified = (status.modified, u64::from(status.modified_nanoseconds));
        // A local program may have written it since.
        if (status.size, modified) != (begun.version.size, begun.version.modified) {
            return Ok(false);
        }
        let checksum = checksum.map(|checksum| attribute_of(checksum, &status));
        if let Some((name, value)) = &checksum {
            // Without it, a purge reads the file once more.
            file.set_attribute(name, value).ok();
        }
        let record = CopyRecord::new(&entry.key.path, &status);
        file.set_attribute(COPY_RECORD_ATTRIBUTE, record.encode())?;
        file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime(begun.version.modified.0).encode())?;
        // A rename is registered as a writer before it resets the attribute. So one that did so before
        // the line above is noticed here, and a later one resets what this has set.
        if !is_unchanged()? {
            file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode())?;
            if let Some((name, _)) = &checksum {
                file.remove_attribute(name)?;
            }
            return Ok(false);
        }
        file.sync()?;
        Ok(true)
    }
}

fn changed(reason: &str) -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(FailureReason::Changed, reason))
}

/// Reports whether an error means that the path does not lead to a file that could be migrated.
fn is_no_file(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    storage::is_missing(error)
        || matches!(number, Some(Errno::LOOP | Errno::ISDIR | Errno::NOTBLK | Errno::NXIO))
}
