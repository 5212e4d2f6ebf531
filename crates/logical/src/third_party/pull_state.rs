//! The state of a copy that its destination file needs when it is let go.
//!
//! An open file does not know the copy that writes it, because the copy knows the open file.

use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a copy that decides whether its destination persists.
pub(crate) struct PullState {
    /// The client asked for persist on successful close: the file is not whole before that, even when all of it came.
    pub(crate) asks_persist: bool,
    is_whole: AtomicBool,
}

impl PullState {
    pub(super) fn new(asks_persist: bool) -> Self {
        Self { asks_persist, is_whole: AtomicBool::new(false) }
    }

    /// Reports whether all of it came, and was checked.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    pub(super) fn set_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Release);
    }
}
