//! The executor of a loop: the tasks of connections, thousands of which are mostly idle.
//!
//! It exists to save memory and time. A task of the runtime takes at least 256 bytes. A task here
//! takes its future and a slot in a table, and its waker is a number that costs nothing to keep.
//! The main future of the loop runs all tasks, without the queues of the runtime: all sockets that
//! one epoll wait reported as ready are served in one round.

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

/// Maximum number of tasks that run before the runtime gets its turn.
const ROUND_TASKS: usize = 128;

/// The lower half of a waker's number is the slot, the upper half the executor.
const SLOT_BITS: u32 = usize::BITS / 2;

const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The executor: all tasks of one loop.
pub(crate) struct Crew {
    /// Unique in the process.
    id: usize,
    tasks: Tasks,
    /// Set if the runtime will run the executor, or is running it.
    called: Cell<bool>,
    /// Waker that runs the executor.
    waker: LocalWaker,
    /// Buffer for the sources of one batch.
    arrived: Cell<Vec<usize>>,
    remote: Arc<Remote>,
}

/// The part of an executor that other threads use. They rarely wake a connection.
#[derive(Default)]
struct Remote {
    /// Set if `woken` has entries.
    any: AtomicBool,
    woken: Mutex<Vec<usize>>,
    /// Waker that runs the executor.
    waker: SharedWaker,
}

/// Hooks that a loop calls before and after it runs ready tasks.
#[derive(Clone, Copy)]
struct Around {
    before: fn(),
    after: fn(),
}

thread_local! {
    static AROUND: Cell<Option<Around>> = const { Cell::new(None) };
    /// Accessed only by [`current`], which takes and restores it.
    static CREW: Cell<Option<Rc<Crew>>> = const { Cell::new(None) };
}

static CREWS_EVER: AtomicUsize = AtomicUsize::new(0);
static REMOTES: Mutex<BTreeMap<usize, Arc<Remote>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the executor of this thread, or `None` if the thread is ending and its thread-local data
/// is destroyed.
fn current() -> Option<Rc<Crew>> {
    let crew = CREW.try_with(|place| {
        let crew = place.take();
        place.set(crew.clone());
        crew
    });
    crew.ok().flatten()
}

/// Spawns `task` on the current loop, with less memory than a local task of the runtime. A panic in
/// it ends only this task.
///
/// # Panics
/// Outside of a loop, like [`tokio::task::spawn_local`].
pub fn attend(task: impl Future<Output = ()> + 'static) {
    match current() {
        Some(crew) => crew.take_on(Box::pin(task)),
        None => drop(tokio::task::spawn_local(task)),
    }
}

/// Registers hooks of the current loop: `before` is called each time it starts to run ready tasks,
/// and `after` when they have run, so that their operations can be batched. The hooks must not
/// panic.
pub fn around_rounds(before: fn(), after: fn()) {
    AROUND.set(Some(Around { before, after }));
}

impl Crew {
    /// Creates the executor of this thread, which lives until the result is dropped.
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

    /// Queues a task, perhaps because data arrived on a source. A stale waker of a reused slot
    /// polls the new task without need, which futures permit.
    fn wake(&self, slot: usize, source: Option<usize>) {
        if self.tasks.make_ready(slot, source) && !self.called.replace(true) {
            // Without a waker the executor has not run yet, and will run.
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
            Err(_) => tracing::error!("the task of a connection panicked; closing the connection"),
        }
        // The task was taken out to run, so its slot is empty.
        let nothing = self.tasks.remove(slot);
        if catch_unwind(AssertUnwindSafe(|| drop((task, nothing)))).is_err() {
            tracing::error!("the task of a connection panicked while it was dropped");
        }
    }

    fn take_remote(&self) {
        if self.remote.any.load(Ordering::Relaxed) && self.remote.any.swap(false, Ordering::Acquire) {
            let woken = std::mem::take(&mut *lock(&self.remote.woken));
            woken.into_iter().for_each(|slot| self.wake(slot, None));
        }
    }
}

/// Runs the executor while its loop lives.
pub(crate) struct Running(Rc<Crew>);

impl Running {
    /// Sets the waker for tasks that are woken while the executor does not run.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        if !self.0.waker.set(waker) {
            self.0.remote.waker.set(waker);
        }
    }

    /// Records whether the executor is running and needs no wake-up.
    pub(crate) fn set_called(&self, called: bool) {
        self.0.called.set(called);
    }

    /// Reports whether a task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        self.0.tasks.ready_count() > 0
            || self.0.tasks.has_yielded()
            || self.0.remote.any.load(Ordering::Relaxed)
    }

    /// Runs one round: the ready tasks, up to a limit for fairness. Tasks woken meanwhile run in
    /// the next round. Of the busy tasks, which yielded because they have much work or did so the
    /// last time, one runs before the sockets are polled again. A connection with one request
    /// therefore waits for at most one of them.
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
        // Later wake-ups have no effect.
        self.0.called.set(true);
        // If the thread is ending and its thread-local data is destroyed, the executor is not
        // needed anymore.
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
        // Dropped tasks may wake others.
        drop(self.0.tasks.take_all());
    }
}

/// Returns a waker that consists of the number of a task.
fn waker(crew: usize, slot: usize) -> Waker {
    let number = (crew << SLOT_BITS) | (slot & SLOT_MASK);
    let raw = RawWaker::new(std::ptr::without_provenance(number), &TABLE);
    // SAFETY: the functions of the table take any number, never follow it as a pointer, own
    // nothing, and may be called on any thread.
    unsafe { Waker::from_raw(raw) }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |number| RawWaker::new(number, &TABLE),
    |number| wake(number.addr()),
    |number| wake(number.addr()),
    |_| {},
);

/// Wakes a task by its number. A number too large for its half would name another task, which is
/// then polled without need. No loop has that many connections, and no process that many loops.
fn wake(number: usize) {
    wake_tasks(&[(number, None)]);
}

/// Wakes tasks by their numbers, each with the source that is ready for it.
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

/// Wakes a task of another thread's executor.
fn wake_elsewhere(id: usize, slot: usize) {
    let Some(remote) = lock(&REMOTES).get(&id).cloned() else { return };
    lock(&remote.woken).push(slot);
    remote.any.store(true, Ordering::Release);
    remote.waker.wake();
}

/// Returns the number of the task if this is the waker of an executor's task. Calls no function of
/// the waker.
pub(crate) fn task_number(waker: &Waker) -> Option<usize> {
    std::ptr::eq(waker.vtable(), &raw const TABLE).then(|| waker.data().addr())
}

#[cfg(test)]
mod tests;
