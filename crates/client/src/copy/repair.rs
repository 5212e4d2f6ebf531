//! Replaces wrong bytes of a file that came from several sources, and finds their origin.
//!
//! The steps are:
//!
//! 1. Bytes of sources that are known to be wrong are replaced.
//! 2. If the checksum is still wrong, each part is compared with another source. With three sources
//!    the majority of two decides.
//! 3. With two sources only, each is excluded in turn, and the checksum decides.
//!
//! The file is read at most twice more from each source (decision 034).

use bytes::Bytes;
use tokio::task::JoinSet;

use super::Copier;
use super::checks::{Checks, same};
use super::failure::CopyError;
use super::multi_source::MultiSource;
use super::place::Place;
use super::target::WrittenTarget;
use crate::answers::FileChecksum;

/// Number of blocks that are replaced at once.
const LANES: usize = 8;
/// Reason for giving up a source.
const BAD_DATA: &str = "what it gave is not what the file holds";

/// A block on which two sources disagree without a third one to decide.
#[derive(Clone, Copy)]
struct Mismatch {
    at: u64,
    length: usize,
    /// The source of the block, and the source that disagrees.
    sides: [usize; 2],
}

/// The repair of one file.
pub(super) struct Repair<'a> {
    pub(super) copier: &'a Copier,
    pub(super) sources: &'a MultiSource,
    pub(super) checks: &'a Checks,
    pub(super) source: &'a Place,
    /// Size of the file.
    pub(super) size: u64,
    pub(super) chunk_bytes: usize,
}

impl Repair<'_> {
    /// Compares the file with its checksums after the necessary replacements.
    pub(super) async fn verify(
        &self,
        written: &mut WrittenTarget,
    ) -> Result<Vec<(Place, FileChecksum)>, CopyError> {
        if !written.is_repairable() {
            if !self.sources.suspects().is_empty() {
                let (place, reason) = (self.source.to_string(), BAD_DATA.to_owned());
                return Err(CopyError::NoSource { place, reasons: vec![reason] });
            }
            return self.checks.verify_source(self.source, &written.sums);
        }
        self.replace_and_sum_up(written).await?;
        let error = match self.checks.verify_source(self.source, &written.sums) {
            Err(error @ CopyError::Checksum { .. }) => error,
            verified => return verified,
        };
        if self.is_another_file(written).await {
            return Err(error);
        }
        self.replace_and_sum_up(written).await?;
        if let Ok(told) = self.checks.verify_source(self.source, &written.sums) {
            return Ok(told);
        }
        let mismatches = self.audit(written).await?;
        self.replace(written).await?;
        self.sum_up(written).await?;
        match self.checks.verify_source(self.source, &written.sums) {
            Ok(told) => Ok(told),
            Err(_) => self.settle(written, &mismatches).await,
        }
    }

    /// Reports whether the sources agree on the received bytes, so that the file itself differs
    /// from the requested one.
    async fn is_another_file(&self, written: &WrittenTarget) -> bool {
        let Some((algorithm, value, computed)) = self.checks.wrong_value(&written.sums) else { return false };
        let said = self.sources.ask_sums(algorithm, Some(value)).await;
        said.is_ok_and(|said| !same(algorithm, &said.value, value) && same(algorithm, &said.value, &computed))
    }

    async fn sum_up(&self, written: &mut WrittenTarget) -> Result<(), CopyError> {
        written.sum_up_again(self.copier, self.size, self.checks.sums()).await
    }

    async fn replace_and_sum_up(&self, written: &mut WrittenTarget) -> Result<(), CopyError> {
        if self.replace(written).await? { self.sum_up(written).await } else { Ok(()) }
    }

    /// Replaces the bytes of untrusted sources. Reports whether there were any.
    async fn replace(&self, written: &mut WrittenTarget) -> Result<bool, CopyError> {
        let mut any = false;
        loop {
            // A source that becomes untrusted during the replacement may have delivered blocks too.
            let blocks: Vec<_> =
                self.sources.suspects().into_iter().flat_map(|part| self.blocks(part)).collect();
            if blocks.is_empty() {
                return Ok(any);
            }
            any = true;
            let mut left = blocks.into_iter();
            let mut reading = JoinSet::new();
            loop {
                while reading.len() < LANES
                    && let Some((at, length)) = left.next()
                {
                    let sources = self.sources.clone();
                    reading.spawn(async move { (at, sources.read(at, length).await) });
                }
                let Some(read) = reading.join_next().await else { break };
                let (at, data) = read.map_err(|_| CopyError::Cancelled)?;
                written.rewrite(self.copier, at, data?).await?;
            }
        }
    }

    fn blocks(&self, part: std::ops::Range<u64>) -> impl Iterator<Item = (u64, usize)> {
        let chunk = self.chunk_bytes.max(1);
        let starts = (part.start..part.end).step_by(chunk);
        starts.map(move |at| (at, usize::try_from(part.end - at).unwrap_or(chunk).min(chunk)))
    }

    /// Compares each block with another source and returns the undecided ones.
    async fn audit(&self, written: &mut WrittenTarget) -> Result<Vec<Mismatch>, CopyError> {
        let mut mismatches = Vec::new();
        for (part, supplier) in self.sources.given() {
            for (at, length) in self.blocks(part) {
                let have = written.read_back(self.copier, at, length).await?;
                let mut theirs: Option<(usize, Bytes)> = None;
                let mut decided = false;
                for (other, _) in self.sources.present() {
                    if other == supplier {
                        continue;
                    }
                    let Some(data) = self.sources.read_of(other, at, length).await else { continue };
                    if data == have {
                        // The source with the other bytes is in the minority.
                        if let Some((untrusted, _)) = theirs {
                            self.sources.mark_untrusted(untrusted, BAD_DATA.to_owned());
                        }
                        decided = true;
                        break;
                    }
                    match theirs.take() {
                        Some((_, same)) if same == data => {
                            self.confirm_untrusted(supplier, at, length, &data).await;
                            written.rewrite(self.copier, at, data).await?;
                            self.sources.record(at..at + length as u64, other);
                            decided = true;
                            break;
                        }
                        Some(before) => theirs = Some(before),
                        None => theirs = Some((other, data)),
                    }
                }
                if let (false, Some((other, _))) = (decided, theirs) {
                    mismatches.push(Mismatch { at, length, sides: [supplier, other] });
                }
            }
        }
        Ok(mismatches)
    }

    /// Marks the source of a wrong block as untrusted, unless its block is right now: then the
    /// block was damaged in transfer.
    async fn confirm_untrusted(&self, supplier: usize, at: u64, length: usize, right: &Bytes) {
        let again = self.sources.read_of(supplier, at, length).await;
        if again.is_some_and(|again| again != *right) {
            self.sources.mark_untrusted(supplier, BAD_DATA.to_owned());
        }
    }

    /// Excludes one source after the other until the checksum is right.
    async fn settle(
        &self,
        written: &mut WrittenTarget,
        mismatches: &[Mismatch],
    ) -> Result<Vec<(Place, FileChecksum)>, CopyError> {
        let mut sources: Vec<usize> = mismatches.iter().flat_map(|mismatch| mismatch.sides).collect();
        sources.sort_unstable();
        sources.dedup();
        let mut result = self.checks.verify_source(self.source, &written.sums);
        for untrusted in sources {
            for Mismatch { at, length, sides: [supplier, other] } in mismatches.iter().copied() {
                let right = if supplier == untrusted { other } else { supplier };
                let Some(data) = self.sources.read_of(right, at, length).await else { return result };
                written.rewrite(self.copier, at, data).await?;
                self.sources.record(at..at + length as u64, right);
            }
            self.sum_up(written).await?;
            result = self.checks.verify_source(self.source, &written.sums);
            if result.is_ok() {
                self.sources.mark_untrusted(untrusted, BAD_DATA.to_owned());
                break;
            }
        }
        result
    }
}
