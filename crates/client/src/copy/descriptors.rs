//! How many files of this machine copies have open at once: no more than the process may, however many copies there are.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::options::CopyJob;
use super::place::Place;

/// Descriptors that are left for connections and for whatever else the process does.
const OTHERS: u64 = 128;

/// Places for open files. Clones share them.
#[derive(Clone)]
pub(super) struct Descriptors(Arc<Semaphore>);

impl Descriptors {
    /// As many as the limit of the process allows at this moment.
    pub(super) fn of_process() -> Self {
        Self::within(getrlimit(Resource::Nofile).current)
    }

    fn within(limit: Option<u64>) -> Self {
        let files = limit.map_or(u64::MAX, |limit| limit - OTHERS.min(limit / 2));
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        // A copy may have both its ends here.
        Self(Arc::new(Semaphore::new(files.clamp(2, Semaphore::MAX_PERMITS))))
    }

    /// Waits for the places that a copy needs, all at once.
    pub(super) async fn of(&self, job: &CopyJob) -> Option<SemaphorePermit<'_>> {
        let local = [&job.source, &job.target].into_iter().filter(|place| matches!(place, Place::Local(_)));
        self.0.acquire_many(u32::try_from(local.count()).unwrap_or(2)).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_for_others() {
        let files = |limit| Descriptors::within(limit).0.available_permits();
        let table = [(Some(0), 2), (Some(80), 40), (Some(1024), 896), (None, Semaphore::MAX_PERMITS)];
        for (limit, expected) in table {
            assert_eq!(files(limit), expected, "{limit:?}");
        }
    }
}
