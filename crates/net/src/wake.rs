//! A descriptor that wakes a loop when it becomes readable: an eventfd of something that works beside it.

use crate::poller::{self, READABLE};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Waits for a descriptor on the current loop.
pub struct Wake {
    key: usize,
    fd: OwnedFd,
}

impl Wake {
    /// Registers the descriptor, which must be non-blocking, with the current loop.
    ///
    /// # Errors
    /// What the system says to watching it; outside of a loop.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let key = poller::add(fd.as_fd(), 0)?;
        Ok(Self { key, fd })
    }

    /// Is there a loop on this thread?
    pub(crate) fn is_possible() -> bool {
        poller::is_here()
    }

    /// Returns when it has become readable since the last time; `false` when the loop ends.
    pub async fn arrived(&self) -> bool {
        poll_fn(|context| {
            poller::poll_ready(self.key, READABLE, false, context).map(|ready| {
                poller::used_up(self.key, READABLE);
                ready.is_ok()
            })
        })
        .await
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // It may be open elsewhere, too: closing it does not take it off. Nor does it matter if that fails: nobody is woken.
        let _ = poller::delete(self.fd.as_fd());
        poller::forget(self.key);
    }
}
