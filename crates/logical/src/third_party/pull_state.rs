//! The state of a third-party copy that its destination file needs on release.
//!
//! It is separate because the copy has a reference to the open file, which therefore cannot refer
//! to the copy.

use std::sync::atomic::{AtomicBool, Ordering};

/// The state that decides whether the destination of a copy persists.
pub(crate) struct PullState {
    /// The client requested persist on successful close. The file is then unfinished until the
    /// close, even if all data was received.
    pub(crate) asks_persist: bool,
    is_whole: AtomicBool,
}

impl PullState {
    pub(super) fn new(asks_persist: bool) -> Self {
        Self { asks_persist, is_whole: AtomicBool::new(false) }
    }

    /// Reports whether all data was received and verified.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    pub(super) fn set_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Release);
    }
}
