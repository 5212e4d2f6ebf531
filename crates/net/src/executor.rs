//! The executor of a loop: the tasks of connections, thousands of which are mostly idle.
//!
//! It exists to save memory and time. A task of the runtime takes at least 256 bytes. A task here
//! takes its future and a slot in a table, and its waker is a number that costs nothing to keep.
//! The main future of the loop runs all tasks, without the queues of the runtime: all sockets that
//! one epoll wait reported as ready are served in one round.

use crate::task_waker::{LocalWaker, SharedWaker};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use tasks::{Task, Tasks};

pub(crate) mod rounds;
mod tasks;

/// The lower half of a waker's number is the slot, the upper half the executor.
const SLOT_BITS: u32 = usize::BITS / 2;

const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;

/// The executor: all tasks of one loop.
pub(crate) struct LocalExecutor {
    /// Unique in the process.
    id: usize,
    tasks: Tasks,
    /// Set if the runtime will run the executor, or is running it.
    called: Cell<bool>,
    /// Waker that runs the executor.
    waker: LocalWaker,
    /// Buffer for the sources of one batch.
    arrived: Cell<Vec<usize>>,
    remote: Arc<RemoteWakes>,
}

/// The part of an executor that other threads use. They rarely wake a connection.
#[derive(Default)]
struct RemoteWakes {
    /// Set if `woken` has entries.
    any: AtomicBool,
    woken: Mutex<Vec<usize>>,
    /// Waker that runs the executor.
    waker: SharedWaker,
}

thread_local! {
    /// Accessed only by [`current`], which takes and restores it.
    static EXECUTOR: Cell<Option<Rc<LocalExecutor>>> = const { Cell::new(None) };
}

static EXECUTORS_EVER: AtomicUsize = AtomicUsize::new(0);
static REMOTES: Mutex<BTreeMap<usize, Arc<RemoteWakes>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the executor of this thread, or `None` if the thread is ending and its thread-local data
/// is destroyed.
fn current() -> Option<Rc<LocalExecutor>> {
    let executor = EXECUTOR.try_with(|place| {
        let executor = place.take();
        place.set(executor.clone());
        executor
    });
    executor.ok().flatten()
}

/// Spawns `task` on the current loop, with less memory than a local task of the runtime. A panic in
/// it ends only this task.
///
/// # Panics
/// Outside of a loop, like [`tokio::task::spawn_local`].
pub fn spawn_local(task: impl Future<Output = ()> + 'static) {
    match current() {
        Some(executor) => executor.spawn(Box::pin(task)),
        None => drop(tokio::task::spawn_local(task)),
    }
}

impl LocalExecutor {
    fn spawn(&self, task: Task) {
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

/// Returns a waker that consists of the number of a task.
fn waker(executor: usize, slot: usize) -> Waker {
    let number = (executor << SLOT_BITS) | (slot & SLOT_MASK);
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
            Some(executor) if executor.id == id => executor.wake(slot, *source),
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
