//! A descriptor that wakes a loop when it becomes readable, such as the eventfd of an io_uring.
//!
//! It exists so that other crates can wait for events on a loop without access to the reactor.

use crate::reactor;
use crate::source::SourceFlags;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A non-blocking descriptor, registered with the current loop.
pub struct LoopWaker {
    key: usize,
    fd: OwnedFd,
}

impl LoopWaker {
    /// Registers the descriptor, which must be non-blocking, with the current loop.
    ///
    /// # Errors
    /// The error of the registration; an error outside of a loop.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let key = reactor::add(fd.as_fd(), SourceFlags::NONE)?;
        Ok(Self { key, fd })
    }

    /// Reports whether there is a loop on this thread.
    pub(crate) fn is_possible() -> bool {
        reactor::has_loop()
    }

    /// Waits until the descriptor has become readable since the last call. Returns `false` when the
    /// loop ends.
    pub async fn arrived(&self) -> bool {
        poll_fn(|context| {
            reactor::poll_ready(self.key, SourceFlags::READABLE, false, context).map(|ready| {
                reactor::used_up(self.key, SourceFlags::READABLE);
                ready.is_ok()
            })
        })
        .await
    }
}

impl AsFd for LoopWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LoopWaker {
    fn drop(&mut self) {
        // The descriptor may be open elsewhere too, so closing it does not remove it from the
        // instance. An error is harmless, because no task would be woken.
        let _ = reactor::delete(self.fd.as_fd());
        reactor::forget(self.key);
    }
}
