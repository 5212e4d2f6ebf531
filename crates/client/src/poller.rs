//! Waits for many sockets at once.

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use std::fmt;
use std::io;
use std::time::Duration;

/// What to wait for on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// That, or room to write.
    ReadAndWrite,
}

/// What a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// The number the socket was added with.
    pub token: u64,
    /// There is something to read, the end, or an error that reading tells.
    pub readable: bool,
    /// There is room to write, or a connection was made.
    pub writable: bool,
}

/// Most sockets whose readiness one wait tells.
const BATCH: usize = 256;

/// Waits for many sockets at once; a socket that is closed leaves by itself.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    /// One without sockets.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(BATCH) })
    }

    /// Adds a socket; `token` says later which one it was.
    ///
    /// # Errors
    /// What the kernel says; adding a socket twice is an error.
    pub fn add(&self, socket: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Changes what to wait for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn modify(&self, socket: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), flags(interest))?)
    }

    /// Waits until a socket is ready or the time is over (`None`: for ever), and returns those that are ready. A signal
    /// ends the wait with none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> io::Result<impl ExactSizeIterator<Item = Readiness> + '_> {
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
            // Fields of a packed struct: copied, not referred to.
            let (data, flags) = (event.data, event.flags);
            Readiness {
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
