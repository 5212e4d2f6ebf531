//! Tests of pools: threads, fairness between owners, steps of long work, and work that moves to
//! another pool.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

const ANYBODY: Owner = Owner::SERVER;
const GREEDY: Owner = Owner(1);
const POLITE: Owner = Owner(2);

#[test]
fn a_panicking_job_does_not_stop_the_pool() {
    let pool = Pool::new("test", 1);
    let (tell, told) = mpsc::channel();
    assert!(pool.run(ANYBODY, Box::new(|| panic!("injected"))).is_ok());
    assert!(pool.run(ANYBODY, Box::new(move || tell.send(7).unwrap())).is_ok());
    assert_eq!(told.recv(), Ok(7));
}

/// Returns a job that reports its start and waits for the gate.
fn waiting(begun: &mpsc::Sender<&'static str>, name: &'static str, gate: &Arc<Mutex<()>>) -> Job {
    let (begun, gate) = (begun.clone(), gate.clone());
    Box::new(move || {
        begun.send(name).unwrap();
        drop(gate.lock());
    })
}

/// Returns a job that hands another job to a pool.
fn handing(to: &Arc<Pool>, job: Job) -> Job {
    let to = to.clone();
    Box::new(move || assert!(to.take_over(job).is_ok()))
}

#[test]
fn a_job_handed_over_takes_no_thread_from_other_jobs() {
    let (own, other) = (Pool::new("own", 2), Pool::new("other", 2));
    let (begun, begins) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    for _ in 0..20 {
        assert!(own.run(ANYBODY, handing(&other, waiting(&begun, "handed over", &gate))).is_ok());
    }
    assert_eq!([begins.recv(), begins.recv()], [Ok("handed over"); 2]);
    // Both threads are lent to the other pool, where the other jobs wait. This pool starts two
    // more.
    let (other_gate, far) = (Arc::new(Mutex::new(())), other.clone());
    let own_closed = other_gate.lock().unwrap();
    for _ in 0..2 {
        assert!(own.run(ANYBODY, waiting(&begun, "own", &other_gate)).is_ok());
    }
    assert_eq!([begins.recv(), begins.recv()], [Ok("own"); 2]);
    assert_eq!((far.queued(), own.queued()), (18, 0));
    assert_eq!((far.shared.lock().threads, own.shared.lock().threads), (2, 2));
    drop((closed, own_closed));
    assert_eq!(begins.iter().take(18).filter(|name| *name == "handed over").count(), 18);
    // Threads that returned after others had taken their places have ended.
    wait_for_threads(&other, 0);
    wait_for_threads(&own, 2);
}

#[test]
fn figures_count_jobs_begun_and_those_that_wait() {
    let pool = Pool::new("figures", 2);
    assert_eq!(pool.figures(), PoolFigures::default());
    let (begun, begins) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    for _ in 0..5 {
        assert!(pool.run(Owner::SERVER, waiting(&begun, "job", &gate)).is_ok());
    }
    assert_eq!([begins.recv(), begins.recv()], [Ok("job"); 2]);
    let PoolFigures { begun: started, waiting, waiting_most, threads, idle } = pool.figures();
    assert_eq!((started, waiting, threads, idle), (2, 3, 2, 0));
    // A thread may have taken its job before the last one was queued.
    assert!((3..=5).contains(&waiting_most), "{waiting_most}");
    drop(closed);
    assert_eq!(begins.iter().take(3).count(), 3);
    assert_eq!((pool.figures().begun, pool.figures().waiting), (5, 0));
}

/// Waits until a pool has at most `most` threads.
fn wait_for_threads(pool: &Pool, most: usize) {
    while pool.shared.lock().threads > most {
        std::thread::yield_now();
    }
}

#[test]
fn a_lent_thread_is_not_lent_again() {
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
    assert!(a.run(ANYBODY, handing(&b, here)).is_ok());
    assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["a", "c"]);
    // The lent thread runs the next job as well while it is there.
    wait_for_threads(&b, 0);
    // A thread of no pool is not lent either.
    assert!(b.take_over(Box::new(move || name(&tell))).is_ok());
    assert_eq!(told.recv().unwrap(), "b");
}

#[test]
fn a_thread_reports_the_pool_whose_job_it_runs() {
    let (own, other) = (Pool::new("own", 1), Pool::new("other", 1));
    let (tell, told) = mpsc::channel();
    let here = |tell: &mpsc::Sender<_>| {
        let (tell, pools) = (tell.clone(), [own.clone(), other.clone()]);
        Box::new(move || tell.send(pools.each_ref().map(|pool| pool.is_here())).unwrap()) as Job
    };
    here(&tell)();
    assert!(own.run(ANYBODY, handing(&other, here(&tell))).is_ok());
    let known = [told.recv().unwrap(), told.recv().unwrap()];
    // The same thread, or its replacement.
    assert!(own.run(ANYBODY, here(&tell)).is_ok());
    assert_eq!((known, told.recv().unwrap()), ([[false, false], [false, true]], [true, false]));
}

#[test]
fn a_job_that_releases_is_queued_in_a_full_pool() {
    let pool = Pool::new("test", 1);
    let (begun, begins) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    assert!(pool.run(ANYBODY, waiting(&begun, "first", &gate)).is_ok());
    assert_eq!(begins.recv(), Ok("first"));
    while pool.run(ANYBODY, Box::new(|| {})).is_ok() {}
    pool.run_surely(Owner::SERVER, waiting(&begun, "last", &gate));
    assert_eq!((pool.queued(), begins.try_recv().is_err()), (QUEUED_JOBS_MAX + 1, true));
    drop(closed);
    assert_eq!(begins.recv(), Ok("last"));
}

#[test]
fn a_panic_in_a_job_handed_over_returns_the_thread() {
    let (own, other) = (Pool::new("own", 1), Pool::new("other", 1));
    assert!(own.run(ANYBODY, handing(&other, Box::new(|| panic!("injected")))).is_ok());
    let (tell, told) = mpsc::channel();
    let job: Job = Box::new(move || tell.send(7).unwrap());
    assert!(own.run(ANYBODY, handing(&other, job)).is_ok());
    assert_eq!(told.recv(), Ok(7));
}

#[test]
fn the_number_of_threads_is_limited() {
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
        assert!(pool.run(ANYBODY, Box::new(job)).is_ok());
    }
    // Two threads take the first two jobs; either may report first.
    let mut first = [entered.recv().unwrap(), entered.recv().unwrap()];
    first.sort_unstable();
    assert_eq!(first, [0, 1]);
    assert_eq!(pool.queued(), 3);
    drop(closed);
    assert_eq!(entered.iter().take(3).collect::<Vec<_>>().len(), 3);
}

/// Work that counts its steps and can be cancelled from outside.
struct Steps {
    left: usize,
    made: Arc<AtomicUsize>,
    cancelled: Arc<AtomicBool>,
    tell: mpsc::Sender<&'static str>,
    then: Option<Arc<Pool>>,
}

impl Work for Steps {
    fn step(&mut self) -> StepProgress {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.left -= 1;
        match self.left {
            0 => {
                self.tell.send("done").unwrap();
                StepProgress::Done
            }
            _ => self.then.take().map_or(StepProgress::More, StepProgress::MoveTo),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn end(self: Box<Self>, reason: WorkEnd) {
        self.tell.send(if reason == WorkEnd::Cancelled { "cancelled" } else { "refused" }).unwrap();
    }
}

fn steps(left: usize, tell: &mpsc::Sender<&'static str>) -> Steps {
    let (made, cancelled) = (Arc::default(), Arc::default());
    Steps { left, made, cancelled, tell: tell.clone(), then: None }
}

#[test]
fn a_job_of_a_polite_owner_waits_for_one_round_only() {
    let pool = Pool::new("test", 1);
    let (begun, begins) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    assert!(pool.run(GREEDY, waiting(&begun, "greedy", &gate)).is_ok());
    // The thread has taken it, so it does not count as queued.
    assert_eq!(begins.recv(), Ok("greedy"));
    let taken = (0..10_000).take_while(|_| pool.run(GREEDY, waiting(&begun, "greedy", &gate)).is_ok());
    assert_eq!(taken.count(), QUEUED_JOBS_PER_OWNER_MAX, "the limit of one owner");
    assert!(pool.run(POLITE, waiting(&begun, "polite", &gate)).is_ok());
    drop(closed);
    let order: Vec<_> = begins.iter().take(3).collect();
    // The greedy owner may have the next turn.
    assert!(order[..2].contains(&"polite"), "{order:?}");
}

#[test]
fn one_owner_leaves_threads_to_others() {
    let pool = Pool::new("test", 8);
    let (begun, begins) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    for _ in 0..100 {
        assert!(pool.run(GREEDY, waiting(&begun, "greedy", &gate)).is_ok());
    }
    for _ in 0..2 {
        assert!(pool.run(POLITE, waiting(&begun, "polite", &gate)).is_ok());
    }
    // None of the running jobs ends, and yet the polite ones start.
    let first: Vec<_> = begins.iter().take(8).collect();
    assert_eq!(first.iter().filter(|name| **name == "polite").count(), 2, "{first:?}");
    drop(closed);
    assert_eq!(begins.iter().take(94).count(), 94);
}

#[test]
fn jobs_run_between_the_steps_of_long_work() {
    let pool = Pool::new("test", 1);
    let (tell, told) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    assert!(pool.run(GREEDY, waiting(&tell, "begun", &gate)).is_ok());
    assert_eq!(told.recv(), Ok("begun"));
    let work = steps(10_000, &tell);
    let made = work.made.clone();
    pool.start(GREEDY, Box::new(work));
    let (seen, sees) = (made.clone(), tell.clone());
    let job = move || {
        assert!(seen.load(Ordering::Relaxed) <= 1, "more than one step ran before the job");
        sees.send("job").unwrap();
    };
    assert!(pool.run(GREEDY, Box::new(job)).is_ok());
    drop(closed);
    assert_eq!([told.recv(), told.recv()], [Ok("job"), Ok("done")]);
    assert_eq!(made.load(Ordering::Relaxed), 10_000);
}

#[test]
fn cancelled_long_work_ends_between_two_steps() {
    let pool = Pool::new("test", 2);
    let (tell, told) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let mut all: Vec<_> = (0..32).map(|_| steps(usize::MAX, &tell)).collect();
    let cancelled: Vec<_> = all.iter().map(|work| work.cancelled.clone()).collect();
    all.drain(..).for_each(|work| pool.start(GREEDY, Box::new(work)));
    assert!(pool.run(POLITE, waiting(&tell, "polite", &gate)).is_ok());
    assert_eq!(told.recv(), Ok("polite"), "although endless work occupies the pool");
    drop(closed);
    cancelled.iter().for_each(|cancelled| cancelled.store(true, Ordering::Relaxed));
    assert_eq!(told.iter().take(32).filter(|name| *name == "cancelled").count(), 32);
    assert_eq!(pool.queued(), 0);
}

#[test]
fn long_work_moves_to_another_pool_and_is_refused_when_that_is_full() {
    let (one, other) = (Pool::new("one", 1), Pool::new("other", 1));
    let (tell, told) = mpsc::channel();
    let mut work = steps(3, &tell);
    work.then = Some(other.clone());
    let made = work.made.clone();
    one.start(GREEDY, Box::new(work));
    assert_eq!((told.recv(), made.load(Ordering::Relaxed)), (Ok("done"), 3));
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    assert!(other.run(GREEDY, waiting(&tell, "begun", &gate)).is_ok());
    assert_eq!(told.recv(), Ok("begun"));
    while other.run(GREEDY, Box::new(|| {})).is_ok() {}
    let mut work = steps(3, &tell);
    work.then = Some(other.clone());
    one.start(GREEDY, Box::new(work));
    assert_eq!(told.recv(), Ok("refused"));
    other.start(POLITE, Box::new(steps(1, &tell)));
    drop(closed);
    assert_eq!(told.recv(), Ok("done"), "each owner has its own limit");
}

#[test]
fn a_panic_in_a_step_ends_only_that_work() {
    let pool = Pool::new("test", 1);
    let (tell, told) = mpsc::channel();
    pool.start(GREEDY, Box::new(steps(0, &tell)));
    pool.start(GREEDY, Box::new(steps(1, &tell)));
    assert_eq!(told.recv(), Ok("done"));
}

#[test]
fn a_job_handed_over_keeps_its_owner() {
    let (own, other) = (Pool::new("own", 4), Pool::new("other", 16));
    let (tell, told) = mpsc::channel();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    for _ in 0..8 {
        let (tell, gate) = (tell.clone(), gate.clone());
        let there: Job = Box::new(move || {
            tell.send(Pool::current_owner()).unwrap();
            drop(gate.lock());
        });
        assert!(own.run(GREEDY, handing(&other, there)).is_ok());
    }
    // The owner's share here is three threads. Its jobs in the other pool do not count against it.
    assert_eq!(told.iter().take(8).collect::<Vec<_>>(), [GREEDY; 8]);
    drop(closed);
}
