//! The waker of one task, replaced and called without a borrow or a lock.
//!
//! A waker can run any code, so none is cloned, dropped or called while another user of the same
//! place could be affected.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

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
