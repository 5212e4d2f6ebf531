//! A thread pool for file operations that may block, so that the network does not wait for a disk.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::settings::Settings;

/// Maximum number of threads by default: a disk does not serve more at once, and memory needs no
/// more.
const THREADS_MAX: usize = 4;
/// Maximum number of threads if `WorkerThreads` is set.
const THREADS_SET_MAX: u64 = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The thread pool. The threads end when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct DiskThreads {
    work: Sender<Work>,
}

impl DiskThreads {
    /// Returns the number of threads; `WorkerThreads` overrides the default.
    pub(crate) fn threads(settings: &Settings) -> usize {
        if settings.is_set("WorkerThreads") {
            return usize::try_from(settings.worker_threads.clamp(1, THREADS_SET_MAX)).unwrap_or(1);
        }
        std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
    }

    /// Starts `threads` threads.
    pub(crate) fn start(threads: usize) -> Self {
        let (work, queue) = mpsc::channel::<Work>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let queue = queue.clone();
            let serve = move || {
                loop {
                    // The lock is held while waiting and released before the work starts.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(work) = next else { break };
                    work();
                }
            };
            // Without any thread the work is refused, and the copy fails with that error.
            std::thread::Builder::new().name(format!("disk-{number}")).spawn(serve).ok();
        }
        Self { work }
    }

    /// Queues work. Returns `false` if there is no thread to do it.
    pub(crate) fn post(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.work.send(Box::new(work)).is_ok()
    }

    /// Queues work and waits for its result; `None` if there is no thread to do it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, result) = oneshot::channel();
        self.post(move || {
            let _ = answer.send(work());
        });
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn posted_work_is_done() {
        let mut settings = Settings::default();
        assert!((1..=THREADS_MAX).contains(&DiskThreads::threads(&settings)));
        for (set, threads) in [("0", 1), ("7", 7), ("1000000", 64)] {
            settings.set("WorkerThreads", set, crate::settings::Source::Option).unwrap();
            assert_eq!(DiskThreads::threads(&settings), threads);
        }
        let disk = DiskThreads::start(1);
        let here = std::thread::current().id();
        let there = disk.run(move || std::thread::current().id() != here).await;
        assert_eq!(there, Some(true));
    }
}
