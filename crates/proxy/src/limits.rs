//! Limits of one origin: requests that are made at once, and those that wait for a turn.
//!
//! Each origin has its own, so a slow origin delays only its own readers. Requests about names have
//! a limit of their own, because an open can wait for a tape while open files are read.

use crate::place::RequestFailure;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of requests about names, and of requests about open files, that one origin has at
/// once.
pub(crate) const REQUESTS_MAX: usize = 512;
/// Maximum number of requests of each kind that wait for a turn.
pub(crate) const QUEUE_MAX: usize = 8192;
/// Maximum number of origins of a forwarding proxy.
pub(crate) const ORIGINS_MAX: usize = 1024;
/// Number of origins of a forwarding proxy above which unused ones are forgotten, because each keeps
/// memory for data.
pub(crate) const UNUSED_ORIGINS_MAX: usize = 64;
/// Maximum number of servers behind one origin whose state is known.
pub(crate) const PLACES_MAX: usize = 4096;

/// A limit of requests with a bounded queue.
pub(crate) struct RequestLane {
    permits: Semaphore,
    queued: AtomicUsize,
    queue_max: usize,
}

/// A request in the queue.
struct QueuedTurn<'a>(&'a AtomicUsize);

impl Drop for QueuedTurn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestLane {
    /// Creates a lane for `requests` at once and `queue_max` more that wait.
    pub(crate) fn new(requests: usize, queue_max: usize) -> Self {
        Self { permits: Semaphore::new(requests), queued: AtomicUsize::new(0), queue_max }
    }

    /// Waits for a turn.
    pub(crate) async fn enter(&self) -> Result<SemaphorePermit<'_>, RequestFailure> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        let before = self.queued.fetch_add(1, Ordering::AcqRel);
        let _queued = QueuedTurn(&self.queued);
        if before >= self.queue_max {
            return Err(RequestFailure::Busy);
        }
        self.permits.acquire().await.map_err(|_| RequestFailure::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_free_turn_is_taken() {
        let lane = RequestLane::new(1, 1);
        let first = lane.enter().await.unwrap();
        let second = lane.enter();
        tokio::pin!(second);
        assert!(is_pending(&mut second).await);
        assert!(matches!(lane.enter().await, Err(RequestFailure::Busy)));
        drop(first);
        drop(second.await.unwrap());
        drop(lane.enter().await.unwrap());
        assert_eq!(lane.queued.load(Ordering::Relaxed), 0);
    }

    /// Polls a future once and reports whether it is pending.
    async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = std::future::ready(()) => true,
        }
    }
}
