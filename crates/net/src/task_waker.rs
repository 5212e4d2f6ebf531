//! The waker of one task, replaced and called without a borrow or a lock.
//!
//! A waker can run any code, so none is cloned, dropped or called while another user of the same
//! place could be affected.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{RawWakerVTable, Waker};

/// A clone of a waker, and the original's table of functions. [`Waker::will_wake`] would often not
/// recognize the original, because the compiler may give the clone another copy of the table.
struct ClonedWaker {
    waker: Waker,
    original: &'static RawWakerVTable,
}

impl ClonedWaker {
    fn new(waker: &Waker) -> Self {
        Self { waker: waker.clone(), original: waker.vtable() }
    }

    /// Reports whether `waker` is the original. The clone keeps the data of both, so no other waker
    /// can have its address.
    fn is_of(&self, waker: &Waker) -> bool {
        self.waker.data() == waker.data() && ptr::eq(self.original, waker.vtable())
    }
}

/// The waker of one task, on the task's own thread.
#[derive(Default)]
pub(crate) struct LocalWaker(Cell<Option<ClonedWaker>>);

impl LocalWaker {
    /// Stores a waker. Reports whether the same one was stored before.
    pub(crate) fn set(&self, waker: &Waker) -> bool {
        let known = self.0.take();
        if known.as_ref().is_some_and(|known| known.is_of(waker)) {
            self.0.set(known);
            return true;
        }
        self.0.set(Some(ClonedWaker::new(waker)));
        false
    }

    /// Wakes the task, if there is a waker.
    pub(crate) fn wake(&self) {
        let Some(known) = self.0.take() else { return };
        known.waker.wake_by_ref();
        // Another one may have been set meanwhile.
        let newer = self.0.take();
        self.0.set(newer.or(Some(known)));
    }
}

/// The waker of one task, called from any thread.
#[derive(Default)]
pub(crate) struct SharedWaker(Mutex<Option<Arc<ClonedWaker>>>);

impl SharedWaker {
    /// Replaces the waker if it is another one.
    pub(crate) fn set(&self, waker: &Waker) {
        if self.get().is_some_and(|known| known.is_of(waker)) {
            return;
        }
        let waker = Some(Arc::new(ClonedWaker::new(waker)));
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker);
        drop(old);
    }

    /// Wakes the task, if there is a waker.
    pub(crate) fn wake(&self) {
        self.get().iter().for_each(|known| known.waker.wake_by_ref());
    }

    fn get(&self) -> Option<Arc<ClonedWaker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::RawWaker;

    static ORIGINAL: RawWakerVTable = RawWakerVTable::new(clone, ignore, ignore, ignore);
    static OF_CLONES: RawWakerVTable = RawWakerVTable::new(clone, ignore, ignore, ignore);

    fn clone(data: *const ()) -> RawWaker {
        RawWaker::new(data, &OF_CLONES)
    }

    fn ignore(_: *const ()) {}

    #[test]
    fn a_waker_is_recognized_although_its_clone_has_another_table() {
        let waker_of = |data: &'static u8| {
            // SAFETY: the functions use nothing.
            unsafe { Waker::new(ptr::from_ref(data).cast(), &ORIGINAL) }
        };
        static TASKS: [u8; 2] = [0; 2];
        let [first, second] = [waker_of(&TASKS[0]), waker_of(&TASKS[1])];
        assert!(!first.clone().will_wake(&first));
        let local = LocalWaker::default();
        assert_eq!(
            [&first, &first, &second, &first].map(|waker| local.set(waker)),
            [false, true, false, false]
        );

        let shared = SharedWaker::default();
        shared.set(&first);
        let stored = shared.get().unwrap();
        shared.set(&first);
        assert!(Arc::ptr_eq(&stored, &shared.get().unwrap()));
        shared.set(&second);
        assert!(!Arc::ptr_eq(&stored, &shared.get().unwrap()));
    }
}
