//! Threads for work that may wait for a disk, bounded for each file system.
//!
//! One hung disk must not use up what others need, so each file system has a pool of its own. Jobs wait in order; when
//! the queue is full the job comes back to the caller, who answers that the server is overloaded.
//!
//! A job may find that its work belongs to another file system: a link leads there. It hands over what is left of it, whole
//! ([`Pool::take_over`]): the thread goes along where it is welcome, and counts as one of the other pool's meanwhile, so that
//! this one may have another in its place.

use std::cell::{Cell, RefCell};
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
    /// Those that run its jobs: its own but for those that are with another pool, and others' that are here.
    threads: usize,
    idle: usize,
    closed: bool,
}

thread_local! {
    /// The pool whose thread this is, as long as it is not with another one.
    static HOME: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// The address of the pool whose jobs this thread runs.
    static AT: Cell<usize> = const { Cell::new(0) };
}

impl Shared {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A panicking job is caught before it could poison the lock; going on is right in any case.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread, if there may be one more.
    fn grow(self: &Arc<Self>, state: &mut State) {
        if state.threads < self.threads_max {
            let shared = self.clone();
            let started = std::thread::Builder::new().name(self.name.clone()).spawn(move || serve(&shared));
            // Without a thread, those that run will come to what waits.
            state.threads += usize::from(started.is_ok());
        }
    }

    /// A thread of its own goes to another pool. What waits is not to wait for its return.
    fn part(self: &Arc<Self>) {
        let mut state = self.lock();
        state.threads -= 1;
        if state.jobs.len() > state.idle {
            self.grow(&mut state);
        }
    }

    /// Runs a job on a thread of another pool that counts as one of these, and whatever else waits here by now: there may be no
    /// other thread to do it.
    fn host(&self, job: Job) {
        let before = AT.replace(self.address());
        let mut next = Some(job);
        while let Some(job) = next {
            self.guard(job);
            let mut state = self.lock();
            next = state.jobs.pop_front();
            if next.is_none() {
                state.threads -= 1;
            }
        }
        AT.set(before);
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
        self.queue(job, QUEUED_JOBS_MAX)
    }

    /// Queues a job that cannot be refused because it lets go of something: there is one for each open file at most.
    /// If no thread can be had, it is done here.
    pub fn run_surely(&self, job: Job) {
        if let Err(job) = self.queue(job, usize::MAX) {
            self.guard(job);
        }
    }

    fn queue(&self, job: Job, most: usize) -> Result<(), Job> {
        let mut state = self.shared.lock();
        if state.jobs.len() >= most {
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        self.shared.grow(&mut state);
        if state.threads == 0 {
            return state.jobs.pop_back().map_or(Ok(()), Err);
        }
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// The same for what a job of another pool found to belong here, its last act. The thread runs it itself if this pool may
    /// have one more and nothing waits, which saves waking another; else it waits its turn here, and the thread goes on with
    /// its own.
    pub fn take_over(&self, job: Job) -> Result<(), Job> {
        // Who is with another pool already stays there: nothing is nested any deeper.
        let Some(home) = HOME.take() else { return self.run(job) };
        if Arc::ptr_eq(&home, &self.shared) {
            HOME.set(Some(home));
            job();
            return Ok(());
        }
        {
            let mut state = self.shared.lock();
            if state.threads >= self.shared.threads_max || !state.jobs.is_empty() {
                drop(state);
                HOME.set(Some(home));
                return self.run(job);
            }
            state.threads += 1;
        }
        home.part();
        self.shared.host(job);
        home.lock().threads += 1;
        HOME.set(Some(home));
        Ok(())
    }

    /// Jobs that wait.
    pub fn queued(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Does this thread run one of its jobs? Then it is not to wait for another: all threads may be here.
    pub(crate) fn is_here(&self) -> bool {
        AT.get() == self.shared.address()
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

fn serve(shared: &Arc<Shared>) {
    HOME.set(Some(shared.clone()));
    AT.set(shared.address());
    let mut state = shared.lock();
    loop {
        if state.threads > shared.threads_max {
            // It was with another pool, and others have taken its place here.
            state.threads -= 1;
            return;
        }
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

    /// A job that says that it has begun, and waits.
    fn waiting(begun: &mpsc::Sender<&'static str>, name: &'static str, gate: &Arc<Mutex<()>>) -> Job {
        let (begun, gate) = (begun.clone(), gate.clone());
        Box::new(move || {
            begun.send(name).unwrap();
            drop(gate.lock());
        })
    }

    /// A job that hands another over.
    fn handing(to: &Arc<Pool>, job: Job) -> Job {
        let to = to.clone();
        Box::new(move || assert!(to.take_over(job).is_ok()))
    }

    #[test]
    fn what_is_handed_over_takes_no_thread_from_others() {
        let (own, other) = (Pool::new("own", 2), Pool::new("other", 2));
        let (begun, begins) = mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        for _ in 0..20 {
            assert!(own.run(handing(&other, waiting(&begun, "handed over", &gate))).is_ok());
        }
        assert_eq!([begins.recv(), begins.recv()], [Ok("handed over"); 2]);
        // Both threads are with the other pool, whose others wait there; this one has two more.
        let (other_gate, far) = (Arc::new(Mutex::new(())), other.clone());
        let own_closed = other_gate.lock().unwrap();
        for _ in 0..2 {
            assert!(own.run(waiting(&begun, "own", &other_gate)).is_ok());
        }
        assert_eq!([begins.recv(), begins.recv()], [Ok("own"); 2]);
        assert_eq!((far.queued(), own.queued()), (18, 0));
        assert_eq!((far.shared.lock().threads, own.shared.lock().threads), (2, 2));
        drop((closed, own_closed));
        assert_eq!(begins.iter().take(18).filter(|name| *name == "handed over").count(), 18);
        // Those that came back when others had taken their places are gone.
        let settled = |pool: &Pool, most| {
            while pool.shared.lock().threads > most {
                std::thread::yield_now();
            }
        };
        settled(&other, 0);
        settled(&own, 2);
    }

    #[test]
    fn a_thread_with_another_pool_goes_no_further() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Pool::new(name, 1));
        let (tell, told) = mpsc::channel();
        let name = move |tell: &mpsc::Sender<_>| {
            tell.send(std::thread::current().name().unwrap_or_default().to_owned()).unwrap();
        };
        let (first, second) = (tell.clone(), tell.clone());
        let last: Job = Box::new(move || name(&second));
        let there = handing(&c, last);
        let here: Job = Box::new(move || {
            name(&first);
            there();
        });
        assert!(a.run(handing(&b, here)).is_ok());
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["a", "c"]);
        // Nor does one that is of no pool.
        assert!(b.take_over(Box::new(move || name(&tell))).is_ok());
        assert_eq!(told.recv().unwrap(), "b");
    }

    #[test]
    fn a_thread_knows_whose_jobs_it_runs() {
        let (own, other) = (Pool::new("own", 1), Pool::new("other", 1));
        let (tell, told) = mpsc::channel();
        let here = |tell: &mpsc::Sender<_>| {
            let (tell, pools) = (tell.clone(), [own.clone(), other.clone()]);
            Box::new(move || tell.send(pools.each_ref().map(|pool| pool.is_here())).unwrap()) as Job
        };
        here(&tell)();
        assert!(own.run(handing(&other, here(&tell))).is_ok());
        let known = [told.recv().unwrap(), told.recv().unwrap()];
        // The same thread, or another in its place.
        assert!(own.run(here(&tell)).is_ok());
        assert_eq!((known, told.recv().unwrap()), ([[false, false], [false, true]], [true, false]));
    }

    #[test]
    fn what_lets_go_is_queued_however_full_a_pool_is() {
        let pool = Pool::new("test", 1);
        let (begun, begins) = mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        assert!(pool.run(waiting(&begun, "first", &gate)).is_ok());
        assert_eq!(begins.recv(), Ok("first"));
        while pool.run(Box::new(|| {})).is_ok() {}
        pool.run_surely(waiting(&begun, "last", &gate));
        assert_eq!((pool.queued(), begins.try_recv().is_err()), (QUEUED_JOBS_MAX + 1, true));
        drop(closed);
        assert_eq!(begins.recv(), Ok("last"));
    }

    #[test]
    fn a_panic_in_what_was_handed_over_brings_the_thread_back() {
        let (own, other) = (Pool::new("own", 1), Pool::new("other", 1));
        assert!(own.run(handing(&other, Box::new(|| panic!("injected")))).is_ok());
        let (tell, told) = mpsc::channel();
        let job: Job = Box::new(move || tell.send(7).unwrap());
        assert!(own.run(handing(&other, job)).is_ok());
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
