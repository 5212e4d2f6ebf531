//! The task table of the executor.
//!
//! Its methods take and return plain values and call no waker, task or destructor. The borrow
//! inside therefore ends before any other code can use the table again.

use slab::Slab;
#[expect(clippy::disallowed_types, reason = "no method calls out while it is borrowed")]
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

/// The future of a connection.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One task.
struct TaskSlot {
    /// `None` while the task runs.
    task: Option<Task>,
    /// Set if the task is queued.
    is_queued: bool,
    /// The ready source for which the task waited.
    arrived: Option<u32>,
    /// Set if the task yielded since it was woken, because it had more work.
    gave_way: bool,
    /// Set if the task yielded the last time that it was woken. It probably has much work again.
    is_busy: bool,
}

#[derive(Default)]
struct TaskTable {
    slots: Slab<TaskSlot>,
    /// Queued tasks, in order.
    ready: VecDeque<usize>,
    /// Queued busy tasks, in order: those that yielded before their work was done, now or the last
    /// time.
    yielded: VecDeque<usize>,
}

/// Takes the first task of a queue out of its slot.
fn take(slots: &mut Slab<TaskSlot>, queue: &mut VecDeque<usize>) -> Option<(usize, Task)> {
    let slot = queue.pop_front()?;
    let found = slots.get_mut(slot)?;
    found.is_queued = false;
    found.arrived = None;
    Some((slot, found.task.take()?))
}

/// All tasks of one loop.
#[derive(Default)]
#[expect(clippy::disallowed_types, reason = "no method calls out while it is borrowed")]
pub(super) struct Tasks(RefCell<TaskTable>);

impl Tasks {
    /// Adds a task that is not ready. Returns its slot.
    pub(super) fn insert(&self, task: Task) -> usize {
        let slot =
            TaskSlot { task: Some(task), is_queued: false, arrived: None, gave_way: false, is_busy: false };
        self.0.borrow_mut().slots.insert(slot)
    }

    /// Queues the task of a slot. Reports whether it was queued now, and not missing or queued
    /// before. `source` is the source that is ready.
    pub(super) fn make_ready(&self, slot: usize, source: Option<usize>) -> bool {
        let TaskTable { slots, ready, yielded } = &mut *self.0.borrow_mut();
        let Some(found) = slots.get_mut(slot) else { return false };
        if let Some(source) = source {
            found.arrived = u32::try_from(source).ok();
        }
        if std::mem::replace(&mut found.is_queued, true) {
            return false;
        }
        // A task that wakes itself while it runs has yielded.
        found.gave_way |= found.task.is_none() && source.is_none();
        let queue = if found.gave_way || found.is_busy { yielded } else { ready };
        queue.push_back(slot);
        true
    }

    /// Returns the number of queued tasks, without the busy ones.
    pub(super) fn ready_count(&self) -> usize {
        self.0.borrow().ready.len()
    }

    /// Reports whether a busy task is queued.
    pub(super) fn has_yielded(&self) -> bool {
        !self.0.borrow().yielded.is_empty()
    }

    /// Takes the next ready task out of its slot, to run it.
    pub(super) fn take_next(&self) -> Option<(usize, Task)> {
        let TaskTable { slots, ready, .. } = &mut *self.0.borrow_mut();
        take(slots, ready)
    }

    /// Takes the next busy task.
    pub(super) fn take_yielded(&self) -> Option<(usize, Task)> {
        let TaskTable { slots, yielded, .. } = &mut *self.0.borrow_mut();
        take(slots, yielded)
    }

    /// Puts a task back that has run and waits now. Returns it if its slot is gone.
    pub(super) fn put_back(&self, slot: usize, task: Task) -> Option<Task> {
        match self.0.borrow_mut().slots.get_mut(slot) {
            Some(found) => {
                if !found.is_queued {
                    found.is_busy = std::mem::take(&mut found.gave_way);
                }
                found.task.replace(task)
            }
            None => Some(task),
        }
    }

    /// Frees a slot. Returns its task.
    pub(super) fn remove(&self, slot: usize) -> Option<Task> {
        self.0.borrow_mut().slots.try_remove(slot)?.task
    }

    /// Moves the ready sources of the first `count` ready tasks to `sources`.
    pub(super) fn take_arrived(&self, count: usize, sources: &mut Vec<usize>) {
        let TaskTable { slots, ready, .. } = &mut *self.0.borrow_mut();
        let arrived = ready.iter().take(count).filter_map(|slot| slots.get_mut(*slot)?.arrived.take());
        sources.extend(arrived.map(|source| source as usize));
    }

    /// Takes all tasks and empties the queues.
    pub(super) fn take_all(&self) -> Vec<Task> {
        let TaskTable { slots, .. } = std::mem::take(&mut *self.0.borrow_mut());
        slots.into_iter().filter_map(|(_, slot)| slot.task).collect()
    }
}
