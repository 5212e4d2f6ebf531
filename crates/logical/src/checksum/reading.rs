//! Reads a file for its checksum, in steps.
//!
//! The file is opened again for each step, so that checksums that wait for their next step hold no
//! descriptors. A file that changed since the previous step is read again from its beginning.

use super::service::{ChecksumGuard, ChecksumJob, ChecksumService, check};
use super::stored;
use crate::errno::{self, unable};
use crate::job;
use crate::writers::{FileKey, WriterTicket};
use base::Error;
use digest::{Checksum, RunningChecksum};
use std::io;
use std::sync::Arc;
use storage::{Metadata, OpenMode, STEP_BYTES_MAX, StepProgress, StoredFile, Work, WorkEnd};

/// Maximum number of times that a file is read because it changed meanwhile.
const ATTEMPTS: usize = 3;

/// Computes one checksum for all clients that wait for it. It ends when all of them have left.
pub(super) struct ChecksumReading {
    watch: ChecksumGuard,
    attempts: usize,
    position: Option<ReadPosition>,
}

/// The part of a file that was read.
struct ReadPosition {
    /// Status of the file when its first byte was read.
    before: Metadata,
    /// Detects writers of the file during the read.
    observer: WriterTicket,
    running: RunningChecksum,
    offset: u64,
}

impl ChecksumReading {
    pub(super) fn new(checksums: &Arc<ChecksumService>, job: &Arc<ChecksumJob>) -> Self {
        Self { watch: ChecksumGuard::new(checksums, job), attempts: 0, position: None }
    }

    /// Reads the next part; returns the checksum at the end of the file.
    fn advance(&mut self) -> Result<Option<Checksum>, Error> {
        let (checksums, job) = (&self.watch.checksums, &self.watch.job);
        let services = &checksums.services;
        let fail = |error: io::Error| Error::unable("checksum", &job.path, error);
        let (path, algorithm) = &job.key;
        let file = services.backend.open(path, &OpenMode::default()).map_err(fail)?;
        let found = file.stat().map_err(fail)?;
        let opened = (FileKey::from(&found), file.as_ref());
        services.checkpoints.blocked().check_open(path, opened, false).map_err(fail)?;
        let known = self.position.take().filter(|known| known.is_of(&found));
        let mut position = match known {
            Some(position) => position,
            None if self.attempts == ATTEMPTS => return Err(unable("checksum", &job.path, errno::TEXT_BUSY)),
            None => {
                check(services, job, &found)?;
                self.attempts += 1;
                let observer = services.open_table.writers.observe(FileKey::from(&found));
                ReadPosition { before: found, observer, running: RunningChecksum::new(*algorithm), offset: 0 }
            }
        };
        let at_end = position.read(file.as_ref(), services.config.read_bytes).map_err(fail)?;
        if at_end {
            let after = file.stat().map_err(fail)?;
            if !position.is_of(&after) || position.offset != after.size {
                return Ok(None);
            }
            let checksum = position.running.finish();
            let observer = position.observer;
            // While a client writes, a stored checksum could be stale within the resolution of file
            // times.
            if !services.open_table.has_writer(path, &after) && !observer.was_disturbed() {
                stored::store(
                    (&checksums.memory, services.clock.as_ref()),
                    path,
                    file.as_ref(),
                    &after,
                    checksum,
                );
                if observer.was_disturbed() {
                    // A writer came meanwhile, and may have found no checksum to remove.
                    stored::drop_all(&checksums.memory, file.as_ref(), path, observer.key());
                }
            }
            return Ok(Some(checksum));
        }
        self.position = Some(position);
        Ok(None)
    }
}

impl ReadPosition {
    /// Reports whether a file is the one that was read, and unchanged.
    fn is_of(&self, found: &Metadata) -> bool {
        self.observer.key() == FileKey::from(found) && stored::is_unchanged(&self.before, found)
    }

    /// Reads at most [`STEP_BYTES_MAX`] bytes; `true` at the end of the file.
    fn read(&mut self, file: &dyn StoredFile, read_bytes: usize) -> io::Result<bool> {
        let mut buffer = vec![0; read_bytes.max(4096)];
        let mut left = STEP_BYTES_MAX;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let wanted = buffer.get_mut(..wanted).unwrap_or_default();
            let read = file.read(self.offset, wanted)?;
            self.running.update(wanted.get(..read).unwrap_or_default());
            self.offset += read as u64;
            left -= read as u64;
            if read < wanted.len() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Work for ChecksumReading {
    fn step(&mut self) -> StepProgress {
        match self.advance() {
            Ok(None) => return StepProgress::More,
            Ok(Some(checksum)) => self.watch.finish(&Ok(checksum)),
            Err(error) => self.watch.finish(&Err(error)),
        }
        StepProgress::Done
    }

    fn is_cancelled(&self) -> bool {
        self.watch.is_unwanted()
    }

    fn end(mut self: Box<Self>, reason: WorkEnd) {
        let error = match reason {
            WorkEnd::Cancelled => unable("checksum", &self.watch.job.path, errno::CANCELLED),
            WorkEnd::Refused => job::overload(),
        };
        self.watch.finish(&Err(error));
    }
}
