//! A descriptor that wakes a loop when it becomes readable: an eventfd of something that works beside it.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a descriptor on the current loop.
pub struct Wake(AsyncFd<OwnedFd>);

impl Wake {
    /// Registers the descriptor, which must be non-blocking, with the current loop.
    ///
    /// # Errors
    /// What the system says to watching it.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an owned descriptor is open, stays so, and is the same one until it is dropped, which the registration does.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        registered.map(Self).map_err(io::Error::from)
    }

    /// Returns when it has become readable since the last time; `false` when the loop ends.
    pub async fn arrived(&self) -> bool {
        match self.0.readable().await {
            Ok(mut ready) => {
                ready.clear_ready();
                true
            }
            Err(_) => false,
        }
    }
}
