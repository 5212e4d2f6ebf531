//! Threads for work that may wait for a disk, bounded for each file system.
//!
//! One hung disk must not use up what others need, so each file system has a pool of its own. Jobs wait in order; when
//! the queue is full the job comes back to the caller, who answers that the server is overloaded.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Work for a pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait in one pool before further ones are refused.
pub const QUEUED_JOBS_MAX: usize = 65_536;

/// Threads that serve one file system. Threads start when needed and live as long as the pool.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    threads_max: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    /// A panicking job is caught before it could poison the lock; going on is right in any case.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic ends the job, whose reply answers when it is dropped; the thread goes on.
    fn guard(&self, job: Job) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!(pool = %self.name, "a job panicked; its caller was told");
        }
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads, named for logs and thread lists.
    pub fn new(name: &str, threads_max: usize) -> Arc<Self> {
        let shared = Shared {
            name: name.to_owned(),
            threads_max: threads_max.max(1),
            state: Mutex::default(),
            work: Condvar::new(),
        };
        Arc::new(Self { shared: Arc::new(shared) })
    }

    /// Queues a job; gives it back when the queue is full or no thread can be had.
    pub fn run(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= QUEUED_JOBS_MAX {
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        if state.threads < self.shared.threads_max {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name(shared.name.clone()).spawn(move || serve(&shared));
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return state.jobs.pop_back().map_or(Ok(()), Err),
                Err(_) => {} // those that run will come to it
            }
        }
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Jobs that wait.
    pub fn queued(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Would a job be given back?
    pub(crate) fn is_full(&self) -> bool {
        self.queued() >= QUEUED_JOBS_MAX
    }

    /// Runs a job that is part of another: if it panics, the rest goes on.
    pub(crate) fn guard(&self, job: Job) {
        self.shared.guard(job);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

fn serve(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            shared.guard(job);
            state = shared.lock();
        } else if state.closed {
            state.threads -= 1;
            return;
        } else {
            state.idle += 1;
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_panicking_job_does_not_take_the_pool_along() {
        let pool = Pool::new("test", 1);
        let (tell, told) = mpsc::channel();
        assert!(pool.run(Box::new(|| panic!("injected"))).is_ok());
        assert!(pool.run(Box::new(move || tell.send(7).unwrap())).is_ok());
        assert_eq!(told.recv(), Ok(7));
    }

    #[test]
    fn no_more_threads_than_allowed() {
        let pool = Pool::new("test", 2);
        let (enter, entered) = mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        for n in 0..5 {
            let (enter, gate) = (enter.clone(), gate.clone());
            let job = move || {
                enter.send(n).unwrap();
                drop(gate.lock());
            };
            assert!(pool.run(Box::new(job)).is_ok());
        }
        // Two threads take the first two; which of them says so first is theirs.
        let mut first = [entered.recv().unwrap(), entered.recv().unwrap()];
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        assert_eq!(pool.queued(), 3);
        drop(closed);
        assert_eq!(entered.iter().take(3).collect::<Vec<_>>().len(), 3);
    }
}
