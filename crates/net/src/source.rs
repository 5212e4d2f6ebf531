//! One watched descriptor of the reactor: its flags, and the task that waits for it.
//!
//! Its methods call no foreign code, because that could use the table of the reactor while it is
//! borrowed: wakers are compared, moved and returned, but never cloned, dropped or called.

use crate::wake_list::WakeList;
use rustix::event::epoll::EventFlags;
use rustix::fd::RawFd;
use std::ops::BitOr;
use std::task::Waker;

/// State of a source: a set of flags in 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SourceFlags(u16);

impl SourceFlags {
    /// No flags.
    pub(crate) const NONE: Self = Self(0);
    /// There may be data to read.
    pub(crate) const READABLE: Self = Self(1 << 0);
    /// There may be room to write.
    pub(crate) const WRITABLE: Self = Self(1 << 1);
    /// The peer has closed its end, or the connection is broken; reads do not block.
    pub(crate) const ENDED: Self = Self(1 << 2);
    /// A task waits for data.
    pub(crate) const WANTS_READ: Self = Self(1 << 3);
    /// A task waits for room to write.
    pub(crate) const WANTS_WRITE: Self = Self(1 << 4);
    /// Incoming data may be received before the task runs.
    pub(crate) const FETCH: Self = Self(1 << 5);
    /// A batched send is in progress.
    pub(crate) const SENDING: Self = Self(1 << 6);
    /// The source has failed.
    pub(crate) const FAILED: Self = Self(1 << 7);
    /// Received data was not consumed in time and is kept in a separate buffer.
    pub(crate) const LEFT: Self = Self(1 << 8);
    /// A batched send was incomplete and must be taken back.
    pub(crate) const RETURNED: Self = Self(1 << 9);
    /// Data to fetch has arrived, and the task was woken for it.
    pub(crate) const ARRIVED: Self = Self(1 << 10);
    /// A task waits for the end of the peer, even if unread data remains.
    pub(crate) const WANTS_END: Self = Self(1 << 11);

    /// Reports whether any flag of `other` is set.
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Sets the flags of `other`.
    pub(crate) const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the flags of `other`.
    pub(crate) const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl BitOr for SourceFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One watched descriptor.
pub(crate) struct IoSource {
    pub(crate) fd: RawFd,
    pub(crate) flags: SourceFlags,
    /// Data received before the task requested it.
    pub(crate) fetched: Option<ReceivedAhead>,
    pub(crate) waker: Option<Waker>,
}

/// Position of received data in a place.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedAhead {
    pub(crate) place: u16,
    pub(crate) from: u16,
    pub(crate) length: u16,
}

impl ReceivedAhead {
    /// Returns the rest after `taken` bytes, if there is any.
    pub(crate) fn without(mut self, taken: usize) -> Option<Self> {
        let taken = u16::try_from(taken).unwrap_or(u16::MAX).min(self.length);
        self.from += taken;
        self.length -= taken;
        (self.length > 0).then_some(self)
    }
}

impl IoSource {
    pub(crate) fn is(&self, flag: SourceFlags) -> bool {
        self.flags.intersects(flag)
    }

    /// Clears a readiness flag until the kernel reports it again.
    pub(crate) fn used_up(&mut self, flag: SourceFlags) {
        if flag != SourceFlags::READABLE || !self.is(SourceFlags::ENDED) {
            self.flags.remove(flag);
        }
    }

    /// Records that the task waits for this readiness. One task at a time uses a source.
    pub(crate) fn wait(&mut self, flag: SourceFlags, fetch: bool) {
        self.flags.insert(match flag {
            SourceFlags::READABLE => SourceFlags::WANTS_READ,
            SourceFlags::ENDED => SourceFlags::WANTS_END,
            _ => SourceFlags::WANTS_WRITE,
        });
        if flag == SourceFlags::READABLE {
            if fetch {
                self.flags.insert(SourceFlags::FETCH);
            } else {
                self.flags.remove(SourceFlags::FETCH);
            }
        }
    }

    /// Applies a readiness report. Adds the waker of a task that waits for it to `wakes`.
    pub(crate) fn set_ready(&mut self, key: usize, events: EventFlags, wakes: &mut WakeList) {
        let broken = events.intersects(EventFlags::ERR | EventFlags::HUP);
        let ended = broken || events.contains(EventFlags::RDHUP);
        if ended || events.contains(EventFlags::IN) {
            self.flags.insert(SourceFlags::READABLE);
        }
        if ended {
            self.flags.insert(SourceFlags::ENDED);
        }
        if broken || events.contains(EventFlags::OUT) {
            self.flags.insert(SourceFlags::WRITABLE);
        }
        let reads = self.is(SourceFlags::READABLE) && self.is(SourceFlags::WANTS_READ);
        let writes = self.is(SourceFlags::WRITABLE) && self.is(SourceFlags::WANTS_WRITE);
        let ends = self.is(SourceFlags::ENDED) && self.is(SourceFlags::WANTS_END);
        if !reads && !writes && !ends {
            return;
        }
        let fetch = reads && self.is(SourceFlags::FETCH);
        self.flags.remove(
            SourceFlags::WANTS_READ | SourceFlags::WANTS_WRITE | SourceFlags::WANTS_END | SourceFlags::FETCH,
        );
        if fetch {
            self.flags.insert(SourceFlags::ARRIVED);
        }
        wakes.add(&mut self.waker, fetch.then_some(key));
    }

    /// Adds the task of the source to `wakes`.
    pub(crate) fn wake(&mut self, wakes: &mut WakeList) {
        wakes.add(&mut self.waker, None);
    }
}
