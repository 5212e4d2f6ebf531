//! Concurrent copies of many files.
//!
//! The number of concurrent copies and their memory are limited: many small files, few large ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use wire::xroot::ErrorCode;

use super::Copier;
use super::failure::{CopyError, Side};
use super::options::{CopyJob, CopyOptions, Watch};
use super::tree::CopyListener;

/// Memory for the chunks of all concurrent copies.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// Unit of that memory.
const PERMIT_BYTES: usize = 64 * 1024;

/// The numbers of copied and failed files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Number of files copied.
    pub copied: u64,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Number of files and directories that failed.
    pub failed: u64,
}

impl Tally {
    fn count(&mut self, ended: Option<Option<u64>>) {
        match ended.flatten() {
            Some(bytes) => {
                self.copied += 1;
                self.bytes += bytes;
            }
            None => self.failed += 1,
        }
    }
}

/// Copies files as they are found, several at the same time.
pub(super) struct ParallelCopies {
    copier: Copier,
    options: CopyOptions,
    listener: Arc<dyn CopyListener>,
    watch: Watch,
    memory: Semaphore,
    full: FullServers,
}

impl ParallelCopies {
    /// Prepares copies with the same options.
    pub(super) fn new(
        copier: &Copier,
        options: &CopyOptions,
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Self {
        Self {
            copier: copier.clone(),
            options: options.clone(),
            listener,
            watch: watch.clone(),
            memory: Semaphore::new(MEMORY_BYTES / PERMIT_BYTES),
            full: FullServers::default(),
        }
    }

    /// Copies all files from `jobs`, at most `parallel` of them at the same time.
    pub(super) async fn run(
        self,
        mut jobs: mpsc::Receiver<CopyJob>,
        parallel: usize,
    ) -> Result<Tally, CopyError> {
        let copies = Arc::new(self);
        let mut running = JoinSet::new();
        let mut tally = Tally::default();
        loop {
            let room = running.len() < parallel.max(1);
            tokio::select! {
                biased;
                () = copies.watch.cancelled() => break,
                Some(ended) = running.join_next(), if !running.is_empty() => tally.count(ended.ok()),
                job = jobs.recv(), if room => match job {
                    Some(job) => match copies.full.refusal(&job) {
                        Some(error) => {
                            copies.listener.ended(&job, &Err(error));
                            tally.count(None);
                        }
                        None => {
                            running.spawn(copies.clone().copy(job));
                        }
                    },
                    None => break,
                },
            }
        }
        while let Some(ended) = running.join_next().await {
            tally.count(ended.ok());
        }
        if copies.watch.is_cancelled() { Err(CopyError::Cancelled) } else { Ok(tally) }
    }

    /// Copies one file once there is memory for it. Returns the number of its copied bytes.
    async fn copy(self: Arc<Self>, job: CopyJob) -> Option<u64> {
        let most = self.options.chunk_bytes * self.options.chunks;
        let bytes = job.size.and_then(|size| usize::try_from(size).ok()).map_or(most, |size| size.min(most));
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, MEMORY_BYTES / PERMIT_BYTES);
        let _memory = tokio::select! {
            permits = self.memory.acquire_many(u32::try_from(permits).unwrap_or(1)) => permits.ok()?,
            () = self.watch.cancelled() => return None,
        };
        self.listener.began(&job);
        let told = {
            let (listener, job) = (self.listener.clone(), job.clone());
            self.watch.child(move |progress| listener.progress(&job, progress))
        };
        let result = self.copier.copy(&job, &self.options, &told).await;
        if let Err(error) = &result {
            self.full.note(&job, error);
        }
        self.listener.ended(&job, &result);
        result.ok().map(|done| done.copied)
    }
}

/// Servers without space for the uploads of one command: the smallest size that each had no space
/// for. A file of that size or more is not begun there. Servers of a cluster do not count, because
/// its manager may choose another one for the next file.
#[derive(Default)]
struct FullServers(Mutex<HashMap<String, u64>>);

impl FullServers {
    /// Returns the error of a copy that would find no space.
    fn refusal(&self, job: &CopyJob) -> Option<CopyError> {
        let server = job.target.url()?.authority();
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let too_large = sizes.get(&server).is_some_and(|least| job.size.is_some_and(|size| size >= *least));
        too_large.then(|| CopyError::Full { target: job.target.to_string(), server })
    }

    /// Records a failed copy.
    fn note(&self, job: &CopyJob, error: &CopyError) {
        let CopyError::Remote { side: Side::Target, error } = error else { return };
        let (Some(url), Some(size)) = (job.target.url(), job.size) else { return };
        let server = url.authority();
        let is_full = matches!(error.code(), Some(ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA));
        if is_full && error.failure().server.as_ref().is_none_or(|at| *at == server) {
            let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let least = sizes.entry(server).or_insert(size);
            *least = size.min(*least);
        }
    }
}
