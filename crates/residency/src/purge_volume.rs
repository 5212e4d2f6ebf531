//! [`VolumePurge`]: the purge of one file system.
//!
//! The free space does not show how much is still to be removed. Some file systems free it many seconds
//! after a removal, and others only at the end of a snapshot. So a purge ends when it has removed as many
//! bytes as were missing at its beginning.

use crate::purge::{PurgeOutcome, PurgedVolume, Purger};
use crate::purge_candidates::Candidates;
use crate::purge_policy::{KeptReason, last_access};
use base::LogicalPath;
use std::io;
use storage::Metadata;

/// Number of kept files that are named in the log of one purge.
const NAMED_MAX: usize = 10;

/// Number of successive failures of the program that knows the names in mass storage after which a purge
/// ends.
const CATALOG_FAILURES_MAX: usize = 5;

/// Bytes that a removed file counts for at least, for its entry and its inode.
const FILE_BYTES_MIN: u64 = 512;

/// The part of the missing bytes by which more candidates are kept, because some stay.
const SPARE_PART: u64 = 4;

/// The purge of one file system.
pub(crate) struct VolumePurge {
    number: u64,
    volume: PurgedVolume,
    /// Bytes that are still to be removed.
    missing: u64,
    pub(crate) candidates: Candidates,
    /// With it, files that were accessed last before this time are removed in any order.
    removal_age: Option<i64>,
    is_free: bool,
    has_failed: bool,
    is_stopped: bool,
    named: usize,
    catalog_failures: usize,
}

impl VolumePurge {
    /// Begins a purge of a file system with this number.
    pub(crate) fn new(number: u64, volume: PurgedVolume) -> Self {
        let missing = volume.high.saturating_sub(volume.free);
        Self {
            number,
            volume,
            missing,
            candidates: Candidates::new(missing.saturating_add(missing / SPARE_PART)),
            removal_age: None,
            is_free: false,
            has_failed: false,
            is_stopped: false,
            named: 0,
            catalog_failures: 0,
        }
    }

    /// Returns the export that names the file system.
    pub(crate) fn into_export(self) -> LogicalPath {
        self.volume.export
    }

    /// Reports whether enough bytes were removed.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.is_free || self.missing == 0
    }

    /// Reports whether an administrator stopped the purge.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn is_over(&self) -> bool {
        self.is_stopped || self.has_failed || self.has_succeeded()
    }

    /// Removes the candidates until it is over.
    pub(crate) fn remove_candidates(&mut self, purger: &Purger, outcome: &mut PurgeOutcome) {
        for candidate in self.candidates.take() {
            self.remove(purger, &candidate.path, outcome);
            if self.is_over() {
                return;
            }
        }
    }

    /// Begins a round of removals in any order, and reports whether that is needed.
    pub(crate) fn begin_round(&mut self, purger: &Purger, round: u32) -> bool {
        self.is_stopped |= !self.is_over() && purger.is_stopped();
        let age = self.candidates.removal_age(round).filter(|_| !self.is_over());
        let is_new = age.is_some() && age != self.removal_age;
        self.removal_age = age;
        is_new
    }

    /// Reports whether files are removed in any order now.
    pub(crate) fn removes_directly(&self) -> bool {
        self.removal_age.is_some() && !self.is_over()
    }

    /// Reports whether space is missing in a space.
    pub(crate) fn has_space(&self, space: &str) -> bool {
        self.volume.spaces.contains_key(space)
    }

    /// Reports whether a file with this status is looked for.
    pub(crate) fn wants(&self, metadata: &Metadata) -> bool {
        !self.is_over() && self.removal_age.is_none_or(|age| last_access(metadata) < age)
    }

    /// Removes a file if it may be removed, and if space is needed.
    pub(crate) fn remove(&mut self, purger: &Purger, path: &LogicalPath, outcome: &mut PurgeOutcome) {
        self.is_stopped |= purger.is_stopped();
        match self.free_bytes(purger) {
            Ok(free) if free < self.volume.high => {}
            Ok(_) => self.is_free = true,
            Err(error) => {
                let export = self.volume.export.shown();
                tracing::warn!(%export, %error, "the free space is not known, so the purge ends");
                self.has_failed = true;
            }
        }
        if self.is_over() {
            return;
        }
        match purger.remove(path) {
            Ok(removed) => {
                outcome.files += 1;
                outcome.bytes += removed.size;
                self.catalog_failures = 0;
                self.missing = self.missing.saturating_sub(removed.allocated.max(FILE_BYTES_MIN));
                tracing::info!(path = %path.shown(), bytes = removed.size, "purged a file");
            }
            Err(reason) => self.keep(path, &reason),
        }
    }

    fn keep(&mut self, path: &LogicalPath, reason: &KeptReason) {
        if self.named < NAMED_MAX {
            self.named += 1;
            tracing::info!(path = %path.shown(), %reason, "a file is not purged");
        }
        match reason {
            KeptReason::CatalogFailed(_) => self.catalog_failures += 1,
            // The program has answered.
            KeptReason::NotConfirmed(_) => self.catalog_failures = 0,
            _ => {}
        }
        // The same holds for all other files.
        let is_last = matches!(reason, KeptReason::NoLeases | KeptReason::ProgramEnds(_));
        if self.catalog_failures == CATALOG_FAILURES_MAX || is_last {
            let export = self.volume.export.shown();
            tracing::warn!(%export, %reason, "the purge of this file system ends, because all other files stay");
            self.has_failed = true;
        }
    }

    /// Returns the free bytes. Fails if another file system is at the export by now.
    fn free_bytes(&self, purger: &Purger) -> io::Result<u64> {
        let own = purger.backend.file_system(&self.volume.export, self.number)?;
        let other = || io::Error::other("another file system is there");
        own.map(|usage| usage.free).ok_or_else(other)
    }
}
