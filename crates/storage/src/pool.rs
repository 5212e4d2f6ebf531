//! An executor for work that may wait for a disk: a bounded number of threads per file system
//! (decision 006).
//!
//! One hung disk must not use up the threads of others, so each file system has its own pool. One
//! session must not use up a pool either. Every job belongs to an [`Owner`], owners are served in
//! turn ([`FairShareQueue`]), and one owner occupies at most a share of the threads. Back-pressure:
//! a job that exceeds the queue, or its owner's part of it, is returned to the caller, which
//! replies that the server is overloaded.
//!
//! A job keeps its thread until it ends, so it has to be short: a few system calls, one block of
//! data. Walking a list or copying data without a small bound is [`Work`] instead. It is done in
//! steps of at most a quota. Between steps the pool checks whether the result is still needed, and
//! the work goes to the back of its owner's queue. Steps occupy at most half of the threads, so that
//! short jobs do not wait for them.
//!
//! A job may find that its work belongs to another file system, because a link leads there. It
//! hands the rest of the work to that pool ([`Pool::take_over`]). If that pool has room, the thread
//! moves along and counts as one of its threads meanwhile, and its own pool may start a
//! replacement.

use crate::look_limit::LookLimit;
use crate::user::is_acting;
use base::{FairShareQueue, Owner};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A short piece of work for a pool.
pub type Job = Box<dyn FnOnce() + Send>;

/// Maximum number of jobs and works that wait in one pool; further ones are refused.
pub const QUEUED_JOBS_MAX: usize = 65_536;

/// Maximum number of jobs and works of one owner that wait in one pool; further ones are refused.
/// This limit does not apply to the server itself.
pub const QUEUED_JOBS_PER_OWNER_MAX: usize = QUEUED_JOBS_MAX / 8;

/// Maximum number of items (paths, names) in one step.
pub const STEP_ITEMS_MAX: usize = 1024;

/// Maximum number of bytes copied or read in one step.
pub const STEP_BYTES_MAX: u64 = 64 << 20;

/// Long work that is done in steps.
pub trait Work: Send {
    /// Does the next step: at most [`STEP_ITEMS_MAX`] items or [`STEP_BYTES_MAX`] bytes. May block.
    /// The last step also delivers the result.
    fn step(&mut self) -> StepProgress;

    /// Reports whether the result is no longer needed. Called before each step.
    fn is_cancelled(&self) -> bool;

    /// Ends the work early and answers its caller.
    fn end(self: Box<Self>, reason: WorkEnd);
}

/// The result of a step.
pub enum StepProgress {
    /// More steps follow.
    More,
    /// More steps follow in this pool, because the next one waits for another file system.
    MoveTo(Arc<Pool>),
    /// The work is complete.
    Done,
}

/// The reason for ending work early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkEnd {
    /// [`Work::is_cancelled`] returned `true`.
    Cancelled,
    /// The queue of a pool is full.
    Refused,
}

/// The threads that serve one file system. They are started on demand and live as long as the pool.
pub struct Pool {
    shared: Arc<PoolShared>,
    looks: Arc<LookLimit>,
}

struct PoolShared {
    name: String,
    threads_max: usize,
    /// Maximum number of threads that run steps of long work at once.
    steps_max: usize,
    state: Mutex<PoolState>,
    work: Condvar,
}

/// What the threads of a pool have done and do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolFigures {
    /// Jobs and steps of works that threads have begun.
    pub begun: u64,
    /// Jobs and works that wait.
    pub waiting: usize,
    /// Maximum number of them that waited at one time.
    pub waiting_most: usize,
    /// Threads.
    pub threads: usize,
    /// Threads among them that wait for jobs.
    pub idle: usize,
}

struct PoolState {
    jobs: FairShareQueue<Job>,
    works: FairShareQueue<Box<dyn Work>>,
    /// The next thread prefers a step to a job, so that neither kind starves the other.
    prefers_work: bool,
    /// Threads that run jobs of this pool: its own that are not lent to another pool, and those
    /// lent to it.
    threads: usize,
    idle: usize,
    begun: u64,
    waiting_most: usize,
    closed: bool,
}

enum PoolTask {
    Job(Job),
    Work(Box<dyn Work>),
}

thread_local! {
    /// The home pool of this thread; `None` while the thread is lent to another pool.
    static HOME: RefCell<Option<Arc<PoolShared>>> = const { RefCell::new(None) };
    /// Address of the pool whose jobs this thread runs.
    static AT: Cell<usize> = const { Cell::new(0) };
    /// Owner of the job that this thread runs.
    static OWNER: Cell<Owner> = const { Cell::new(Owner::SERVER) };
}

impl PoolState {
    fn new(threads_max: usize, steps_max: usize) -> Self {
        // One owner may use at most three quarters of the threads. Where jobs and steps share
        // threads, its steps may use a quarter of the threads for steps.
        let share = threads_max - threads_max / 4;
        let steps_share = if steps_max == threads_max { share } else { steps_max.div_ceil(4) };
        Self {
            jobs: FairShareQueue::new(share),
            works: FairShareQueue::new(steps_share),
            prefers_work: false,
            threads: 0,
            idle: 0,
            begun: 0,
            waiting_most: 0,
            closed: false,
        }
    }

    fn waiting(&self) -> usize {
        self.jobs.waiting() + self.works.waiting()
    }

    fn waiting_of(&self, owner: Owner) -> usize {
        self.jobs.waiting_of(owner) + self.works.waiting_of(owner)
    }

    /// Records the number of waiting jobs after one was added.
    fn note_waiting(&mut self) {
        self.waiting_most = self.waiting_most.max(self.waiting());
    }

    fn has_room(&self, owner: Owner) -> bool {
        self.waiting() < QUEUED_JOBS_MAX
            && (owner.is_server() || self.waiting_of(owner) < QUEUED_JOBS_PER_OWNER_MAX)
    }

    fn may_step(&self, steps_max: usize) -> bool {
        self.works.is_ready() && self.works.running() < steps_max
    }

    /// Reports whether a waiting task may start on a thread now.
    fn is_ready(&self, steps_max: usize) -> bool {
        self.jobs.is_ready() || self.may_step(steps_max)
    }

    /// Takes the next task for a thread.
    fn take(&mut self, steps_max: usize) -> Option<(Owner, PoolTask)> {
        let steps = self.may_step(steps_max) && (self.prefers_work || !self.jobs.is_ready());
        self.prefers_work = !steps;
        let task = if steps {
            self.works.pop().map(|(owner, work)| (owner, PoolTask::Work(work)))
        } else {
            self.jobs.pop().map(|(owner, job)| (owner, PoolTask::Job(job)))
        };
        self.begun += u64::from(task.is_some());
        task
    }
}

impl PoolShared {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Locks the state. A job's panic is caught before it could poison the lock, so poisoning is
    /// ignored.
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another thread if the limit allows it.
    fn grow(self: &Arc<Self>, state: &mut PoolState) {
        // A new thread inherits the rights of this one. A thread with the rights of a user therefore
        // leaves it to the running threads, which take the waiting tasks later.
        if state.threads < self.threads_max && !is_acting() {
            let shared = self.clone();
            let started = std::thread::Builder::new().name(self.name.clone()).spawn(move || serve(&shared));
            // If no thread can be started, the running ones take the waiting tasks later.
            state.threads += usize::from(started.is_ok());
        }
    }

    /// Records that a thread of this pool is lent to another pool with a job of this owner. Queued
    /// jobs must not wait for its return.
    fn part(self: &Arc<Self>, owner: Owner) {
        let mut state = self.lock();
        state.threads -= 1;
        state.jobs.record_end(owner);
        if state.waiting() > state.idle {
            self.grow(&mut state);
        }
        self.wake_for_ready(&state);
    }

    /// Records the return of a lent thread.
    fn rejoin(&self, owner: Owner) {
        let mut state = self.lock();
        state.threads += 1;
        state.jobs.record_start(owner);
    }

    /// Wakes an idle thread if a task is ready. This is needed when the end of a task made another
    /// one ready, because nothing was queued that would wake a thread.
    fn wake_for_ready(&self, state: &PoolState) {
        if state.idle > 0 && state.is_ready(self.steps_max) {
            self.work.notify_one();
        }
    }

    /// Runs a job on a thread lent by another pool, and then all waiting tasks, because this pool
    /// may have no other thread for them.
    fn host(&self, owner: Owner, job: Job) {
        let before = (AT.replace(self.address()), OWNER.get());
        let mut next = Some((owner, PoolTask::Job(job)));
        while let Some((owner, task)) = next {
            let mut state = self.perform(owner, task);
            next = state.take(self.steps_max);
            match next {
                None => state.threads -= 1,
                Some(_) => self.wake_for_ready(&state),
            }
        }
        AT.set(before.0);
        OWNER.set(before.1);
    }

    /// Runs a job, or one step of a work, and records its end.
    fn perform(&self, owner: Owner, task: PoolTask) -> MutexGuard<'_, PoolState> {
        OWNER.set(owner);
        match task {
            PoolTask::Job(job) => {
                self.guard(job);
                let mut state = self.lock();
                state.jobs.record_end(owner);
                state
            }
            PoolTask::Work(work) => {
                let rest = self.step(owner, work);
                let mut state = self.lock();
                if let Some(work) = rest {
                    // Accepted work is not refused later, so no limit is checked.
                    state.works.push(owner, work);
                }
                state.works.record_end(owner);
                state
            }
        }
    }

    /// Runs one step; returns the work if this pool has more steps to run.
    fn step(&self, owner: Owner, mut work: Box<dyn Work>) -> Option<Box<dyn Work>> {
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            if work.is_cancelled() {
                work.end(WorkEnd::Cancelled);
                return None;
            }
            match work.step() {
                StepProgress::More => Some(work),
                StepProgress::Done => None,
                StepProgress::MoveTo(pool) if self.address() == pool.shared.address() => Some(work),
                StepProgress::MoveTo(pool) => {
                    pool.start(owner, work);
                    None
                }
            }
        }));
        stepped.unwrap_or_else(|_| {
            self.log_panic();
            None
        })
    }

    /// Runs a job and catches a panic. The panic ends the job, whose reply object answers the
    /// caller when it is dropped; the thread continues.
    fn guard(&self, job: Job) {
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            self.log_panic();
        }
    }

    fn log_panic(&self) {
        tracing::error!(pool = %self.name, "a job panicked; its caller gets an error; please report this");
    }
}

impl Pool {
    /// Returns a pool of at most `threads_max` threads; `name` appears in logs and thread lists.
    pub fn new(name: &str, threads_max: usize) -> Arc<Self> {
        Self::with_steps(name, threads_max, threads_max.div_ceil(2))
    }

    /// Returns a pool whose threads may all run steps of long work at once, because the pool does
    /// nothing else.
    pub fn for_long_work(name: &str, threads_max: usize) -> Arc<Self> {
        Self::with_steps(name, threads_max, threads_max)
    }

    fn with_steps(name: &str, threads_max: usize, steps_max: usize) -> Arc<Self> {
        let (threads_max, steps_max) = (threads_max.max(1), steps_max.max(1));
        let shared = PoolShared {
            name: name.to_owned(),
            threads_max,
            steps_max,
            state: Mutex::new(PoolState::new(threads_max, steps_max)),
            work: Condvar::new(),
        };
        Arc::new(Self { shared: Arc::new(shared), looks: Arc::default() })
    }

    /// Returns the limit of the lookups that wait for this pool.
    pub fn looks(&self) -> &Arc<LookLimit> {
        &self.looks
    }

    /// Returns the owner of the job that this thread runs; outside of pools the server itself.
    pub fn current_owner() -> Owner {
        OWNER.get()
    }

    /// Queues a job of this owner; returns the job if the queue is full or no thread can be
    /// started.
    pub fn run(&self, owner: Owner, job: Job) -> Result<(), Job> {
        let mut state = self.shared.lock();
        if !state.has_room(owner) || !self.provide_thread(&mut state) {
            return Err(job);
        }
        self.push_job(state, owner, job);
        Ok(())
    }

    /// Queues a job that must not be refused because it releases something; there is at most one
    /// for each open file. If no thread can be started, it runs on the calling thread.
    pub fn run_surely(&self, owner: Owner, job: Job) {
        let mut state = self.shared.lock();
        if self.provide_thread(&mut state) {
            self.push_job(state, owner, job);
        } else {
            drop(state);
            self.guard(job);
        }
    }

    /// Queues long work of this owner. If the queue is full or no thread can be started, the work
    /// ends with [`WorkEnd::Refused`].
    pub fn start(&self, owner: Owner, work: Box<dyn Work>) {
        let mut state = self.shared.lock();
        if !state.has_room(owner) || !self.provide_thread(&mut state) {
            drop(state);
            return work.end(WorkEnd::Refused);
        }
        state.works.push(owner, work);
        state.note_waiting();
        drop(state);
        self.shared.work.notify_one();
    }

    /// Ensures that a thread takes the next queued task; returns `false` if none can be started.
    fn provide_thread(&self, state: &mut PoolState) -> bool {
        if state.idle <= state.waiting() {
            self.shared.grow(state);
        }
        state.threads > 0
    }

    fn push_job(&self, mut state: MutexGuard<'_, PoolState>, owner: Owner, job: Job) {
        state.jobs.push(owner, job);
        state.note_waiting();
        drop(state);
        self.shared.work.notify_one();
    }

    /// Takes over the rest of a job that belongs to this pool; its owner stays the same.
    ///
    /// The calling thread runs it here if this pool may have one more thread and no task waits,
    /// which saves waking another thread. Otherwise the rest is queued here, and the thread returns
    /// to its own pool.
    pub fn take_over(&self, job: Job) -> Result<(), Job> {
        let owner = Self::current_owner();
        // A thread that is lent already is not lent again, so that lending never nests.
        let Some(home) = HOME.take() else { return self.run(owner, job) };
        if Arc::ptr_eq(&home, &self.shared) {
            HOME.set(Some(home));
            job();
            return Ok(());
        }
        {
            let mut state = self.shared.lock();
            let full = state.threads >= self.shared.threads_max;
            if full || state.is_ready(self.shared.steps_max) || !state.jobs.may_run(owner) {
                drop(state);
                HOME.set(Some(home));
                return self.run(owner, job);
            }
            state.threads += 1;
            state.jobs.record_start(owner);
        }
        home.part(owner);
        self.shared.host(owner, job);
        home.rejoin(owner);
        HOME.set(Some(home));
        Ok(())
    }

    /// Returns the number of waiting jobs and works.
    pub fn queued(&self) -> usize {
        self.shared.lock().waiting()
    }

    /// Returns what the threads have done and do.
    pub fn figures(&self) -> PoolFigures {
        let state = self.shared.lock();
        let PoolState { begun, waiting_most, threads, idle, .. } = *state;
        PoolFigures { begun, waiting: state.waiting(), waiting_most, threads, idle }
    }

    /// Reports whether this thread runs a job of this pool. Such a job must not wait for another
    /// job of the pool, because all threads may be waiting in the same way.
    pub(crate) fn is_here(&self) -> bool {
        AT.get() == self.shared.address()
    }

    /// Reports whether a job of this owner would be refused.
    pub(crate) fn is_full(&self, owner: Owner) -> bool {
        !self.shared.lock().has_room(owner)
    }

    /// Runs a job that is part of another one and catches a panic, so that the other parts still
    /// run.
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

fn serve(shared: &Arc<PoolShared>) {
    HOME.set(Some(shared.clone()));
    AT.set(shared.address());
    let mut state = shared.lock();
    loop {
        if state.threads > shared.threads_max {
            // This thread was lent to another pool, and others have taken its place here.
            state.threads -= 1;
            return shared.wake_for_ready(&state);
        }
        if let Some((owner, task)) = state.take(shared.steps_max) {
            shared.wake_for_ready(&state);
            drop(state);
            state = shared.perform(owner, task);
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
mod tests;
