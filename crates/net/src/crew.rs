//! The tasks of connections: thousands, of which most sleep.
//!
//! A task of the runtime takes 256 bytes and more, whatever is in it. One here takes what its future has, and a slot in a
//! table; its waker is a number, so that keeping one costs nothing. The loop's main future runs them all, without the
//! runtime's queues: the sockets that one look at the kernel found ready are served in one go.

use crate::gather::{TOGETHER_MAX, TOGETHER_MIN};
use crate::poller;
use crate::wakes::{LocalWaker, SharedWaker};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use tasks::Tasks;

mod tasks;

/// Tasks that are run before the runtime looks after everything else.
const ROUND_TASKS: usize = 128;

/// The lower half of a waker's number is the slot, the upper one the crew.
const SLOT_BITS: u32 = usize::BITS / 2;

const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of one loop.
pub(crate) struct Crew {
    /// Never given twice.
    id: usize,
    tasks: Tasks,
    /// The runtime knows that there is something to run, or is running it.
    called: Cell<bool>,
    /// Runs the crew.
    waker: LocalWaker,
    /// Room for the sources of one call that gathers.
    arrived: Cell<Vec<usize>>,
    remote: Arc<Remote>,
}

/// What other threads see of a crew: they hardly ever wake a connection.
#[derive(Default)]
struct Remote {
    /// There is something in `woken`.
    any: AtomicBool,
    woken: Mutex<Vec<usize>>,
    /// Runs the crew.
    waker: SharedWaker,
}

/// What a loop does before and after it runs tasks that are ready.
#[derive(Clone, Copy)]
struct Around {
    before: fn(),
    after: fn(),
}

thread_local! {
    static AROUND: Cell<Option<Around>> = const { Cell::new(None) };
    /// Taken out and put back by [`current`] only.
    static CREW: Cell<Option<Rc<Crew>>> = const { Cell::new(None) };
}

static CREWS_EVER: AtomicUsize = AtomicUsize::new(0);
static REMOTES: Mutex<BTreeMap<usize, Arc<Remote>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The crew of this thread. Without the thread's own data left, the thread is ending, and there is none.
fn current() -> Option<Rc<Crew>> {
    let crew = CREW.try_with(|place| {
        let crew = place.take();
        place.set(crew.clone());
        crew
    });
    crew.ok().flatten()
}

/// Runs `task` on the current loop, as a local task of the runtime that takes less memory. A panic in it ends it alone.
///
/// # Panics
/// As [`tokio::task::spawn_local`]: outside of a loop.
pub fn attend(task: impl Future<Output = ()> + 'static) {
    match current() {
        Some(crew) => crew.take_on(Box::pin(task)),
        None => drop(tokio::task::spawn_local(task)),
    }
}

/// Has the current loop call `before` each time it begins to run connections that are ready, and `after` when they have been
/// run: what they begin can be gathered meanwhile. Neither may panic.
pub fn around_rounds(before: fn(), after: fn()) {
    AROUND.set(Some(Around { before, after }));
}

impl Crew {
    /// The crew of this thread, until the result is dropped.
    pub(crate) fn begin() -> Running {
        let id = CREWS_EVER.fetch_add(1, Ordering::Relaxed);
        let crew = Rc::new(Self {
            id,
            tasks: Tasks::default(),
            called: Cell::new(false),
            waker: LocalWaker::default(),
            arrived: Cell::default(),
            remote: Arc::default(),
        });
        lock(&REMOTES).insert(id, crew.remote.clone());
        drop(CREW.replace(Some(crew.clone())));
        Running(crew)
    }

    fn take_on(&self, task: Task) {
        let slot = self.tasks.insert(task);
        self.wake(slot, None);
    }

    /// A task is to be run, perhaps because something has come on a source. That of a slot that was given anew may be run
    /// once for nothing: futures allow that.
    fn wake(&self, slot: usize, source: Option<usize>) {
        if self.tasks.make_ready(slot, source) && !self.called.replace(true) {
            // Without a waker it was never run, and will be.
            self.waker.wake();
        }
    }

    /// Runs a task that was taken out of its slot.
    fn run(&self, next: Option<(usize, Task)>) {
        let Some((slot, mut task)) = next else { return };
        let waker = waker(self.id, slot);
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Pending) => {
                let surplus = self.tasks.put_back(slot, task);
                drop(surplus);
                return;
            }
            Ok(Poll::Ready(())) => {}
            Err(_) => tracing::error!("the task of a connection panicked; it ends"),
        }
        // It was taken out to be run: nothing is left in its slot.
        let nothing = self.tasks.remove(slot);
        if catch_unwind(AssertUnwindSafe(|| drop((task, nothing)))).is_err() {
            tracing::error!("the end of a connection's task panicked");
        }
    }

    fn take_remote(&self) {
        if self.remote.any.load(Ordering::Relaxed) && self.remote.any.swap(false, Ordering::Acquire) {
            let woken = std::mem::take(&mut *lock(&self.remote.woken));
            woken.into_iter().for_each(|slot| self.wake(slot, None));
        }
    }
}

/// Runs the crew as long as its loop lives.
pub(crate) struct Running(Rc<Crew>);

impl Running {
    /// Whom to wake when a task is woken while nobody runs the crew.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if !self.0.waker.set(waker) {
            self.0.remote.waker.set(waker);
        }
    }

    /// The crew is run, and needs no waking; or it is not any more.
    pub(crate) fn set_called(&self, called: bool) {
        self.0.called.set(called);
    }

    /// Is there a task that is to be run?
    pub(crate) fn has_ready(&self) -> bool {
        self.0.tasks.ready_count() > 0
            || self.0.tasks.has_yielded()
            || self.0.remote.any.load(Ordering::Relaxed)
    }

    /// Runs the tasks that are ready, so many at most that others have their turn: what woken tasks wake is for the next
    /// round. Of those that gave way because they have much to do one is run, and the sockets are looked at before the next:
    /// a connection with one request waits for one of them, however many there are.
    pub(crate) fn round(&self) {
        let crew = &self.0;
        crew.take_remote();
        let mut left = crew.tasks.ready_count().min(ROUND_TASKS);
        let yielded = crew.tasks.has_yielded();
        if left == 0 && !yielded {
            return;
        }
        let around = AROUND.get();
        around.iter().for_each(|around| (around.before)());
        let together = left >= TOGETHER_MIN;
        while left > 0 {
            let count = left.min(TOGETHER_MAX);
            if together {
                let mut arrived = crew.arrived.take();
                crew.tasks.take_arrived(count, &mut arrived);
                poller::gather(&arrived);
                arrived.clear();
                crew.arrived.set(arrived);
            }
            (0..count).for_each(|_| crew.run(crew.tasks.take_next()));
            left -= count;
        }
        if yielded {
            crew.run(crew.tasks.take_yielded());
        }
        if together {
            poller::end_gathering();
        }
        around.iter().for_each(|around| (around.after)());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&REMOTES).remove(&self.0.id);
        // Nobody runs what still comes.
        self.0.called.set(true);
        // Without the thread's own data left, the thread is ending, and nobody asks for the crew any more.
        let known = CREW.try_with(|place| {
            let known = place.take();
            let (own, other) = match known {
                Some(crew) if crew.id == self.0.id => (Some(crew), None),
                other => (None, other),
            };
            place.set(other);
            own
        });
        drop(known);
        // What is dropped may wake others.
        drop(self.0.tasks.take_all());
    }
}

/// The number of a task, as its waker.
fn waker(crew: usize, slot: usize) -> Waker {
    let number = (crew << SLOT_BITS) | (slot & SLOT_MASK);
    let raw = RawWaker::new(std::ptr::without_provenance(number), &TABLE);
    // SAFETY: the functions of the table take any number, never follow it as a pointer, own nothing, and may be called on
    // any thread.
    unsafe { Waker::from_raw(raw) }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |number| RawWaker::new(number, &TABLE),
    |number| wake(number.addr()),
    |number| wake(number.addr()),
    |_| {},
);

/// A number too large for its half names another task, which is then run for nothing; a loop with so many connections, or a
/// process with so many loops, there is not.
fn wake(number: usize) {
    wake_tasks(&[(number, None)]);
}

/// Wakes tasks by their numbers, each with the source that has something for it.
pub(crate) fn wake_tasks(tasks: &[(usize, Option<usize>)]) {
    let here = current();
    for (number, source) in tasks {
        let (id, slot) = (number >> SLOT_BITS, number & SLOT_MASK);
        match &here {
            Some(crew) if crew.id == id => crew.wake(slot, *source),
            _ => wake_elsewhere(id, slot),
        }
    }
}

/// Wakes a task of another thread's crew.
fn wake_elsewhere(id: usize, slot: usize) {
    let Some(remote) = lock(&REMOTES).get(&id).cloned() else { return };
    lock(&remote.woken).push(slot);
    remote.any.store(true, Ordering::Release);
    remote.waker.wake();
}

/// Returns the task's number if this is the waker of a crew's task. Calls no function of the waker.
pub(crate) fn task_number(waker: &Waker) -> Option<usize> {
    std::ptr::eq(waker.vtable(), &raw const TABLE).then(|| waker.data().addr())
}

#[cfg(test)]
mod tests;
