//! Wakers, kept so that nothing is borrowed or locked while one is cloned, dropped or called.
//!
//! A waker can run any code: a task's destructor, which closes a socket, which borrows the tables
//! of this thread. So the tables only collect wakers, and their caller calls the wakers after the
//! borrow has ended.

use crate::executor;
use std::task::Waker;

/// Tasks to wake when no table is borrowed.
#[derive(Default)]
pub(crate) struct WakeList {
    /// Numbers of tasks of an executor, each with the source that is ready for it.
    tasks: Vec<(usize, Option<usize>)>,
    others: Vec<Waker>,
}

impl WakeList {
    /// Adds the task of a waker. A waker of an executor's task stays, since it is only a number.
    /// Any other is moved out, and its task must register again.
    pub(crate) fn add(&mut self, waker: &mut Option<Waker>, source: Option<usize>) {
        match waker.as_ref().map(executor::task_number) {
            Some(Some(number)) => self.tasks.push((number, source)),
            Some(None) => self.others.extend(waker.take()),
            None => {}
        }
    }

    /// Wakes all tasks.
    pub(crate) fn wake(&mut self) {
        if !self.tasks.is_empty() {
            executor::wake_tasks(&self.tasks);
            self.tasks.clear();
        }
        self.others.drain(..).for_each(Waker::wake);
    }
}
