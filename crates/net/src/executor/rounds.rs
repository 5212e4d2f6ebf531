//! Rounds of the executor: each runs the ready tasks, in batches if many are ready.

use super::tasks::Tasks;
use super::{EXECUTOR, EXECUTORS_EVER, LocalExecutor, REMOTES, lock};
use crate::batch::{BATCH_MAX, BATCH_MIN};
use crate::reactor;
use crate::task_waker::LocalWaker;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// Maximum number of tasks that run before the runtime gets its turn.
pub(super) const ROUND_TASKS: usize = 128;

/// Hooks that a loop calls before and after it runs ready tasks.
#[derive(Clone, Copy)]
struct BatchHooks {
    before: fn(),
    after: fn(),
}

thread_local! {
    static HOOKS: Cell<Option<BatchHooks>> = const { Cell::new(None) };
}

/// Registers hooks of the current loop: `before` is called each time it starts to run ready tasks,
/// and `after` when they have run, so that their operations can be batched. The hooks must not
/// panic.
pub fn set_batch_hooks(before: fn(), after: fn()) {
    HOOKS.set(Some(BatchHooks { before, after }));
}

/// Runs the executor while its loop lives.
pub(crate) struct RunningExecutor(Rc<LocalExecutor>);

impl RunningExecutor {
    /// Creates the executor of this thread, which lives until the result is dropped.
    pub(crate) fn begin() -> Self {
        let id = EXECUTORS_EVER.fetch_add(1, Ordering::Relaxed);
        let executor = Rc::new(LocalExecutor {
            id,
            tasks: Tasks::default(),
            called: Cell::new(false),
            waker: LocalWaker::default(),
            arrived: Cell::default(),
            remote: Arc::default(),
        });
        lock(&REMOTES).insert(id, executor.remote.clone());
        drop(EXECUTOR.replace(Some(executor.clone())));
        Self(executor)
    }

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
        let executor = &self.0;
        executor.take_remote();
        let mut left = executor.tasks.ready_count().min(ROUND_TASKS);
        let yielded = executor.tasks.has_yielded();
        if left == 0 && !yielded {
            return;
        }
        let around = HOOKS.get();
        around.iter().for_each(|around| (around.before)());
        let together = left >= BATCH_MIN;
        while left > 0 {
            let count = left.min(BATCH_MAX);
            if together {
                let mut arrived = executor.arrived.take();
                executor.tasks.take_arrived(count, &mut arrived);
                reactor::begin_batch(&arrived);
                arrived.clear();
                executor.arrived.set(arrived);
            }
            (0..count).for_each(|_| executor.run(executor.tasks.take_next()));
            left -= count;
        }
        if yielded {
            executor.run(executor.tasks.take_yielded());
        }
        if together {
            reactor::end_batch();
        }
        around.iter().for_each(|around| (around.after)());
    }
}

impl Drop for RunningExecutor {
    fn drop(&mut self) {
        lock(&REMOTES).remove(&self.0.id);
        // Later wake-ups have no effect.
        self.0.called.set(true);
        // If the thread is ending and its thread-local data is destroyed, the executor is not
        // needed anymore.
        let known = EXECUTOR.try_with(|place| {
            let known = place.take();
            let (own, other) = match known {
                Some(executor) if executor.id == self.0.id => (Some(executor), None),
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
