//! Limits the number of local files that copies have open at once.
//!
//! It exists because any number of copies may run, while the descriptors of the process are
//! limited.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::options::CopyJob;
use super::place::Place;

/// Number of descriptors reserved for connections and other uses.
const OTHERS: u64 = 128;

/// A semaphore of open files. Clones share it.
#[derive(Clone)]
pub(super) struct Descriptors(Arc<Semaphore>);

impl Descriptors {
    /// Creates it with the current descriptor limit of the process.
    pub(super) fn of_process() -> Self {
        Self::within(getrlimit(Resource::Nofile).current)
    }

    fn within(limit: Option<u64>) -> Self {
        let files = limit.map_or(u64::MAX, |limit| limit - OTHERS.min(limit / 2));
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        // Both files of a copy may be local.
        Self(Arc::new(Semaphore::new(files.clamp(2, Semaphore::MAX_PERMITS))))
    }

    /// Waits for all descriptors of a copy at once, so that copies cannot deadlock.
    pub(super) async fn of(&self, job: &CopyJob) -> Option<SemaphorePermit<'_>> {
        let local = [&job.source, &job.target].into_iter().filter(|place| matches!(place, Place::Local(_)));
        self.0.acquire_many(u32::try_from(local.count()).unwrap_or(2)).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_reserved_for_other_uses() {
        let files = |limit| Descriptors::within(limit).0.available_permits();
        let table = [(Some(0), 2), (Some(80), 40), (Some(1024), 896), (None, Semaphore::MAX_PERMITS)];
        for (limit, expected) in table {
            assert_eq!(files(limit), expected, "{limit:?}");
        }
    }
}
