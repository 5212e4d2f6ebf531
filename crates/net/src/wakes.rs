//! Wakers, kept so that nothing is borrowed or locked while one is cloned, dropped or called.
//!
//! A waker can run any code: a task's destructor, which closes a socket, which borrows the tables
//! of this thread. So the tables only collect wakers, and their caller calls the wakers after the
//! borrow has ended.

use crate::crew;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Tasks to wake when no table is borrowed.
#[derive(Default)]
pub(crate) struct Wakes {
    /// Numbers of tasks of an executor, each with the source that is ready for it.
    tasks: Vec<(usize, Option<usize>)>,
    others: Vec<Waker>,
}

impl Wakes {
    /// Adds the task of a waker. A waker of an executor's task stays, since it is only a number.
    /// Any other is moved out, and its task must register again.
    pub(crate) fn add(&mut self, waker: &mut Option<Waker>, source: Option<usize>) {
        match waker.as_ref().map(crew::task_number) {
            Some(Some(number)) => self.tasks.push((number, source)),
            Some(None) => self.others.extend(waker.take()),
            None => {}
        }
    }

    /// Wakes all tasks.
    pub(crate) fn wake(&mut self) {
        if !self.tasks.is_empty() {
            crew::wake_tasks(&self.tasks);
            self.tasks.clear();
        }
        self.others.drain(..).for_each(Waker::wake);
    }
}

/// The waker of one task, on the task's own thread.
#[derive(Default)]
pub(crate) struct LocalWaker(Cell<Option<Waker>>);

impl LocalWaker {
    /// Stores a waker. Reports whether the same one was stored before.
    pub(crate) fn set(&self, waker: &Waker) -> bool {
        let known = self.0.take();
        if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.0.set(known);
            return true;
        }
        self.0.set(Some(waker.clone()));
        false
    }

    /// Wakes the task, if there is a waker.
    pub(crate) fn wake(&self) {
        let Some(waker) = self.0.take() else { return };
        waker.wake_by_ref();
        // Another one may have been set meanwhile.
        let newer = self.0.take();
        self.0.set(newer.or(Some(waker)));
    }
}

/// The waker of one task, called from any thread.
#[derive(Default)]
pub(crate) struct SharedWaker(Mutex<Option<Arc<Waker>>>);

impl SharedWaker {
    /// Replaces the waker if it is another one.
    pub(crate) fn set(&self, waker: &Waker) {
        if self.get().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        let waker = Some(Arc::new(waker.clone()));
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker);
        drop(old);
    }

    /// Wakes the task, if there is a waker.
    pub(crate) fn wake(&self) {
        self.get().iter().for_each(|waker| waker.wake_by_ref());
    }

    fn get(&self) -> Option<Arc<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
