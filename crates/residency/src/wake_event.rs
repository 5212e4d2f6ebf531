//! [`WakeEvent`]: wakes a thread that waits in `poll`.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable from [`Self::set`] to [`Self::take`].
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Creates an event that is not set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread, now or when it begins to wait.
    pub fn set(&self) {
        // It fails only if the event was set before, very often.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }

    /// Forgets the event, and reports whether it was set.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
