//! [`SlowSources`]: figures that need another thread or a disk.
//!
//! They are looked at once a second at most. While one request waits for them, others get those that were
//! found last.

use super::process_status::ProcessStatus;
use crate::cluster::{ClusterView, NodeStatus};
use residency::QueueCounts;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time from one look to the next.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum time for the answer of the thread of the cluster.
const CLUSTER_TIME_MAX: Duration = Duration::from_secs(1);

/// The figures.
#[derive(Default)]
pub(super) struct SlowFigures {
    pub(super) process: ProcessStatus,
    /// The node of a cluster, if there is one; `Some(None)` if its thread does not answer.
    pub(super) cluster: Option<Option<NodeStatus>>,
    /// The queue of transfers, if there is one that can be read.
    pub(super) queue: Option<QueueCounts>,
}

/// Where the figures come from.
pub(super) struct SlowSources {
    cluster: Option<ClusterView>,
    queue: Option<PathBuf>,
    found: Mutex<Option<Arc<SlowFigures>>>,
    /// The time of the last look. It is locked during a look.
    looked: Mutex<Option<Instant>>,
}

impl SlowSources {
    pub(super) fn new(cluster: Option<ClusterView>, queue: Option<PathBuf>) -> Self {
        Self { cluster, queue, found: Mutex::default(), looked: Mutex::default() }
    }

    /// Returns the figures.
    pub(super) fn figures(&self) -> Arc<SlowFigures> {
        refreshed(&self.found, &self.looked, || self.look())
    }

    fn look(&self) -> SlowFigures {
        let cluster = self.cluster.as_ref();
        SlowFigures {
            process: ProcessStatus::read(),
            cluster: cluster.map(|cluster| cluster.look(CLUSTER_TIME_MAX, |engine| engine.status())),
            queue: self.queue.as_ref().and_then(|directory| residency::count_queue(directory).ok()),
        }
    }
}

/// Returns what was found last, after another look if it is too old and nobody else looks. Only the first
/// look is waited for.
fn refreshed<T>(
    found: &Mutex<Option<Arc<T>>>,
    looked: &Mutex<Option<Instant>>,
    look: impl FnOnce() -> T,
) -> Arc<T> {
    let last = || found.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut looked = match (looked.try_lock(), last()) {
        (Ok(looked), _) => looked,
        (Err(TryLockError::WouldBlock), Some(last)) => return last,
        (Err(TryLockError::WouldBlock), None) => looked.lock().unwrap_or_else(PoisonError::into_inner),
        (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
    };
    if let (Some(at), Some(last)) = (*looked, last())
        && at.elapsed() < AGE_MAX
    {
        return last;
    }
    let new = Arc::new(look());
    *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(new.clone());
    *looked = Some(Instant::now());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_hangs_delays_only_the_first_requests() {
        let (found, looked) = (Mutex::new(None), Mutex::new(None));
        assert_eq!(*refreshed(&found, &looked, || 1), 1);
        // It is not old yet.
        assert_eq!(*refreshed(&found, &looked, || 2), 1);
        let early = Instant::now().checked_sub(2 * AGE_MAX);
        *looked.lock().unwrap() = early;
        // During the look of another request.
        let nested = refreshed(&found, &looked, || *refreshed(&found, &looked, || 9) + 10);
        assert_eq!(*nested, 11);
        assert_eq!(*refreshed(&found, &looked, || 3), 11);
    }
}
