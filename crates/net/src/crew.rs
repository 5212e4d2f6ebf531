//! The tasks of connections: thousands, of which most sleep.
//!
//! A task of the runtime takes 256 bytes and more, whatever is in it. One here takes what its future has, and a slot in a
//! table; its waker is a number, so that keeping one costs nothing. The loop's main future runs them all, without the
//! runtime's queues: the sockets that one look at the kernel found ready are served in one go.

use crate::gather::{TOGETHER_MAX, TOGETHER_MIN};
use crate::poller;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Tasks that are run before the runtime looks after everything else.
const ROUND_TASKS: usize = 128;

/// The lower half of a waker's number is the slot, the upper one the crew.
const SLOT_BITS: u32 = usize::BITS / 2;

const SLOT_MASK: usize = (1 << SLOT_BITS) - 1;

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    /// `None` while it runs.
    task: Option<Task>,
    /// It waits to be run.
    queued: bool,
    /// The source that something has come on, for which it waited.
    arrived: Option<u32>,
}

/// All tasks of one loop.
pub(crate) struct Crew {
    /// Never given twice.
    id: usize,
    slots: RefCell<Slab<Slot>>,
    ready: RefCell<VecDeque<usize>>,
    /// The runtime knows that there is something to run, or is running it.
    called: Cell<bool>,
    /// Runs the crew.
    waker: RefCell<Option<Waker>>,
    remote: Arc<Remote>,
}

/// What other threads see of a crew: they hardly ever wake a connection.
#[derive(Default)]
struct Remote {
    /// There is something in `woken`.
    any: AtomicBool,
    woken: Mutex<Vec<usize>>,
    /// Runs the crew.
    waker: Mutex<Option<Waker>>,
}

/// What a loop does before and after it runs tasks that are ready.
#[derive(Clone, Copy)]
struct Around {
    before: fn(),
    after: fn(),
}

thread_local! {
    static AROUND: Cell<Option<Around>> = const { Cell::new(None) };
    static CREW: RefCell<Option<Rc<Crew>>> = const { RefCell::new(None) };
}

static CREWS_EVER: AtomicUsize = AtomicUsize::new(0);
static REMOTES: Mutex<BTreeMap<usize, Arc<Remote>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `task` on the current loop, as a local task of the runtime that takes less memory. A panic in it ends it alone.
///
/// # Panics
/// As [`tokio::task::spawn_local`]: outside of a loop.
pub fn attend(task: impl Future<Output = ()> + 'static) {
    match CREW.with_borrow(Clone::clone) {
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
            slots: RefCell::default(),
            ready: RefCell::default(),
            called: Cell::new(false),
            waker: RefCell::default(),
            remote: Arc::default(),
        });
        lock(&REMOTES).insert(id, crew.remote.clone());
        CREW.set(Some(crew.clone()));
        Running(crew)
    }

    fn take_on(&self, task: Task) {
        let slot = self.slots.borrow_mut().insert(Slot { task: Some(task), queued: false, arrived: None });
        self.wake(slot);
    }

    /// A task is to be run. That of a slot that was given anew may be run once for nothing: futures allow that.
    fn wake(&self, slot: usize) {
        self.wake_for(slot, None);
    }

    /// The same, because something has come on this source.
    fn wake_for(&self, slot: usize, source: Option<usize>) {
        match self.slots.borrow_mut().get_mut(slot) {
            Some(found) => {
                if let Some(source) = source {
                    found.arrived = u32::try_from(source).ok();
                }
                if std::mem::replace(&mut found.queued, true) {
                    return;
                }
            }
            None => return,
        }
        self.ready.borrow_mut().push_back(slot);
        if !self.called.replace(true) {
            // Without a waker it was never run, and will be.
            self.waker.borrow().iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Runs the next task that is ready.
    fn run_next(&self) {
        let Some(slot) = self.ready.borrow_mut().pop_front() else { return };
        let task = self.slots.borrow_mut().get_mut(slot).and_then(|found| {
            found.queued = false;
            found.arrived = None;
            found.task.take()
        });
        let Some(mut task) = task else { return };
        let waker = waker(self.id, slot);
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Pending) => {
                if let Some(found) = self.slots.borrow_mut().get_mut(slot) {
                    found.task = Some(task);
                }
                return;
            }
            Ok(Poll::Ready(())) => {}
            Err(_) => tracing::error!("the task of a connection panicked; it ends"),
        }
        self.slots.borrow_mut().try_remove(slot);
        if catch_unwind(AssertUnwindSafe(|| drop(task))).is_err() {
            tracing::error!("the end of a connection's task panicked");
        }
    }

    fn take_remote(&self) {
        if self.remote.any.load(Ordering::Relaxed) && self.remote.any.swap(false, Ordering::Acquire) {
            let woken = std::mem::take(&mut *lock(&self.remote.woken));
            woken.into_iter().for_each(|slot| self.wake(slot));
        }
    }
}

/// Runs the crew as long as its loop lives.
pub(crate) struct Running(Rc<Crew>);

impl Running {
    /// Whom to wake when a task is woken while nobody runs the crew.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let known = self.0.waker.borrow().as_ref().is_some_and(|known| known.will_wake(waker));
        if !known {
            *lock(&self.0.remote.waker) = Some(waker.clone());
            self.0.waker.replace(Some(waker.clone()));
        }
    }

    /// The crew is run, and needs no waking; or it is not any more.
    pub(crate) fn set_called(&self, called: bool) {
        self.0.called.set(called);
    }

    /// Is there a task that is to be run?
    pub(crate) fn has_ready(&self) -> bool {
        !self.0.ready.borrow().is_empty() || self.0.remote.any.load(Ordering::Relaxed)
    }

    /// Runs the tasks that are ready, so many at most that others have their turn: what woken tasks wake is for the next
    /// round.
    pub(crate) fn round(&self) {
        let crew = &self.0;
        crew.take_remote();
        let mut left = crew.ready.borrow().len().min(ROUND_TASKS);
        if left == 0 {
            return;
        }
        let around = AROUND.get();
        around.iter().for_each(|around| (around.before)());
        let together = left >= TOGETHER_MIN;
        while left > 0 {
            let count = left.min(TOGETHER_MAX);
            if together {
                let ready = crew.ready.borrow();
                let mut slots = crew.slots.borrow_mut();
                let arrived =
                    ready.iter().take(count).filter_map(|slot| slots.get_mut(*slot)?.arrived.take());
                poller::gather(arrived.map(|source| source as usize));
            }
            (0..count).for_each(|_| crew.run_next());
            left -= count;
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
        let _ = CREW.try_with(|crew| {
            crew.borrow_mut().take_if(|crew| crew.id == self.0.id);
        });
        // What is dropped may wake others.
        let slots = std::mem::take(&mut *self.0.slots.borrow_mut());
        drop(slots);
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
    let (id, slot) = (number >> SLOT_BITS, number & SLOT_MASK);
    let here = CREW.try_with(|crew| match &*crew.borrow() {
        Some(crew) if crew.id == id => {
            crew.wake(slot);
            true
        }
        _ => false,
    });
    if here == Ok(true) {
        return;
    }
    let Some(remote) = lock(&REMOTES).get(&id).cloned() else { return };
    lock(&remote.woken).push(slot);
    remote.any.store(true, Ordering::Release);
    let waker = lock(&remote.waker).clone();
    waker.iter().for_each(Waker::wake_by_ref);
}

/// Wakes a task of this thread's crew, of which `source` has something for it; `false` if it is none.
pub(crate) fn wake_own(waker: &Waker, source: Option<usize>) -> bool {
    if !std::ptr::eq(waker.vtable(), &raw const TABLE) {
        return false;
    }
    let number = waker.data().addr();
    CREW.with_borrow(|crew| match crew {
        Some(crew) if crew.id == number >> SLOT_BITS => {
            crew.wake_for(number & SLOT_MASK, source);
            true
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::sync::Notify;

    /// Runs `work` on a loop of its own, and gives what it tells.
    fn on_a_loop<T: Send + 'static>(work: impl FnOnce(mpsc::Sender<T>) + Send + 'static) -> Vec<T> {
        let loops = crate::Loops::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        loops.handles()[0].run(move || work(tell));
        let all = told.iter().collect();
        loops.stop();
        all
    }

    #[test]
    fn tasks_sleep_are_woken_and_end() {
        let told = on_a_loop(|tell| {
            let notify = Rc::new(Notify::new());
            for number in 0..1000 {
                let (notify, tell) = (notify.clone(), tell.clone());
                attend(async move {
                    notify.notified().await;
                    tokio::time::sleep(Duration::from_millis(number % 3)).await;
                    tell.send(number).unwrap();
                });
            }
            attend(async move {
                // All others wait by now.
                tokio::task::yield_now().await;
                notify.notify_waiters();
            });
        });
        let mut sorted = told.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        CREW.with_borrow(|crew| assert!(crew.is_none(), "a thread without tasks has no crew"));
    }

    #[test]
    fn what_stands_around_rounds_is_called_before_and_after_tasks() {
        thread_local! {
            static SEEN: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
        }
        let see = |what| SEEN.with_borrow_mut(|seen| seen.push(what));
        let told = on_a_loop(move |tell| {
            around_rounds(
                || SEEN.with_borrow_mut(|seen| seen.push("before")),
                || SEEN.with_borrow_mut(|seen| seen.push("after")),
            );
            attend(async move { see("one") });
            attend(async move {
                see("other");
                tokio::task::yield_now().await;
                SEEN.take().into_iter().for_each(|what| tell.send(what).unwrap());
            });
        });
        let first: Vec<_> = told.iter().copied().take(4).collect();
        assert_eq!(first, ["before", "one", "other", "after"]);
        // The task that told was in a round, too.
        assert_eq!(told.last(), Some(&"before"));
    }

    #[test]
    fn a_task_is_woken_from_another_thread() {
        let told = on_a_loop(|tell| {
            let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
            attend(async move {
                while let Some(number) = receive.recv().await {
                    tell.send(number).unwrap();
                }
            });
            std::thread::spawn(move || {
                for number in 0..100 {
                    send.send(number).unwrap();
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(told, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_ends_one_task_and_no_other() {
        let told = on_a_loop(|tell| {
            attend(async { panic!("one of them") });
            attend(async move { tell.send("the other").unwrap() });
        });
        assert_eq!(told, ["the other"]);
    }

    #[test]
    fn tasks_end_with_their_loop_and_late_wakers_do_no_harm() {
        struct Tells(mpsc::Sender<&'static str>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send("dropped").unwrap();
            }
        }
        let loops = crate::Loops::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        let (give, given) = mpsc::channel();
        loops.handles()[0].run(move || {
            let tells = Tells(tell);
            attend(std::future::poll_fn(move |context| {
                let _kept = &tells;
                give.send(context.waker().clone()).unwrap();
                Poll::<()>::Pending
            }));
        });
        let waker: Waker = given.recv().unwrap();
        waker.wake_by_ref();
        // Run again: a wake from afar arrives.
        given.recv().unwrap();
        loops.stop();
        assert_eq!(told.iter().collect::<Vec<_>>(), ["dropped"]);
        waker.wake();
    }

    #[test]
    fn more_tasks_than_a_round_has_all_get_their_turn() {
        let told = on_a_loop(|tell| {
            for number in 0..3 * ROUND_TASKS {
                let tell = tell.clone();
                attend(async move {
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    tell.send(number).unwrap();
                });
            }
        });
        assert_eq!(told.len(), 3 * ROUND_TASKS);
    }
}
