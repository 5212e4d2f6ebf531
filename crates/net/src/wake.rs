//! A descriptor that wakes a loop when it becomes readable: an eventfd of something that works beside it.

use crate::poller::{self, READABLE};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;

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
        let added = poller::with(|poller| poller.add(fd.as_fd(), 0));
        let key = added.unwrap_or_else(|| Err(io::Error::other("there is no loop on this thread")))?;
        Ok(Self { key, fd })
    }

    /// Is there a loop on this thread?
    pub(crate) fn is_possible() -> bool {
        poller::with(|_| ()).is_some()
    }

    /// Returns when it has become readable since the last time; `false` when the loop ends.
    pub async fn arrived(&self) -> bool {
        poll_fn(|context| {
            let arrived = poller::with(|poller| {
                let source = poller.sources.get_mut(self.key)?;
                if source.is(READABLE) {
                    source.used_up(READABLE);
                    return Some(true);
                }
                source.wait(READABLE, false, context);
                None
            });
            match arrived {
                Some(Some(arrived)) => Poll::Ready(arrived),
                Some(None) => Poll::Pending,
                None => Poll::Ready(false),
            }
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
        let known = poller::with(|poller| {
            let _ = poller.delete(self.fd.as_fd());
            poller.forget(self.key)
        });
        drop(known);
    }
}
