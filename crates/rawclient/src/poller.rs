//! Waits for many sockets at once.
//!
//! It exists for programs that run their own event loop over
//! [`PolledConnection`](crate::PolledConnection)s.

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use std::fmt;
use std::io;
use std::time::Duration;

/// The events to wait for on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Bytes to read, or the end.
    Read,
    /// Bytes to read, the end, or space to write.
    ReadAndWrite,
}

/// The events of a ready socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketReadiness {
    /// Token with which the socket was added.
    pub token: u64,
    /// Set for bytes to read, the end, or an error that a read returns.
    pub readable: bool,
    /// Set for space to write, or an established connection.
    pub writable: bool,
}

/// Maximum number of sockets returned by one wait.
const BATCH: usize = 256;

/// An epoll instance. A closed socket is removed automatically.
pub struct SocketPoller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl fmt::Debug for SocketPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketPoller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl SocketPoller {
    /// Creates a poller without sockets.
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(BATCH) })
    }

    /// Adds a socket; `token` identifies it in the results.
    ///
    /// # Errors
    /// The error of the kernel; adding a socket twice is an error.
    pub fn add(&self, socket: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Changes the events to wait for.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn modify(&self, socket: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Waits until a socket is ready or the timeout expires (`None`: no timeout), and returns the
    /// ready sockets. A signal ends the wait without sockets.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl ExactSizeIterator<Item = SocketReadiness> + '_> {
        self.events.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.iter().map(|event| {
            // Fields of a packed struct are copied because references to them are invalid.
            let (data, flags) = (event.data, event.flags);
            SocketReadiness {
                token: data.u64(),
                readable: flags.intersects(
                    epoll::EventFlags::IN
                        | epoll::EventFlags::HUP
                        | epoll::EventFlags::ERR
                        | epoll::EventFlags::RDHUP,
                ),
                writable: flags.contains(epoll::EventFlags::OUT),
            }
        }))
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN,
        Interest::ReadAndWrite => epoll::EventFlags::IN | epoll::EventFlags::OUT,
    }
}
