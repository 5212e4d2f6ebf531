//! The table of the reactor: readiness of each source, and the waiting task.
//!
//! Its methods call no foreign code, because that could use the table while it is borrowed: wakers
//! are compared, moved and returned, but never cloned, dropped or called.

use crate::gather::{Fetched, Gather};
use crate::wakes::Wakes;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use slab::Slab;
use std::io;
use std::mem::MaybeUninit;
use std::task::Waker;

/// There may be data to read.
pub(crate) const READABLE: u16 = 1;
/// There may be room to write.
pub(crate) const WRITABLE: u16 = 2;
/// The peer has closed its end, or the connection is broken; reads do not block.
pub(crate) const ENDED: u16 = 4;
/// A task waits for data.
const WANTS_READ: u16 = 8;
/// A task waits for room to write.
const WANTS_WRITE: u16 = 16;
/// Incoming data may be received before the task runs.
const FETCH: u16 = 32;
/// A batched send is in progress.
pub(crate) const SENDING: u16 = 64;
/// The source has failed.
pub(crate) const FAILED: u16 = 128;
/// Received data was not consumed in time and is kept in a separate buffer.
pub(crate) const LEFT: u16 = 256;
/// A batched send was incomplete and must be taken back.
pub(crate) const RETURNED: u16 = 512;
/// Data to fetch has arrived, and the task was woken for it.
pub(crate) const ARRIVED: u16 = 1024;
/// A task waits for the end of the peer, even if unread data remains.
const WANTS_END: u16 = 2048;

/// One watched descriptor.
pub(crate) struct Source {
    pub(crate) fd: RawFd,
    pub(crate) bits: u16,
    /// Data received before the task requested it.
    pub(crate) fetched: Option<Fetched>,
    waker: Option<Waker>,
}

/// Readiness of a source for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// Data or room is available; `fetched` if data was received already.
    Ready {
        /// Set if data was received already.
        fetched: bool,
    },
    /// The waker of the task will be called.
    Waits,
    /// Waits as well, but [`Sources::set_waker`] must first store the waker.
    WaitsWithoutWaker,
}

/// The sources of one loop.
pub(crate) struct Sources {
    epoll: OwnedFd,
    known: Slab<Source>,
    gather: Option<Gather>,
    /// Buffer for wakers, kept between two uses.
    room: Wakes,
}

impl Sources {
    pub(super) fn new(epoll: OwnedFd) -> Self {
        Self { epoll, known: Slab::new(), gather: None, room: Wakes::default() }
    }

    /// Returns the epoll instance that watches the sources.
    pub(super) fn epoll(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches a non-blocking descriptor. Returns its key.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>, bits: u16) -> io::Result<usize> {
        let entry = self.known.vacant_entry();
        let key = entry.key();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), flags)?;
        entry.insert(Source { fd: fd.as_raw_fd(), bits, fetched: None, waker: None });
        Ok(key)
    }

    /// Removes a descriptor from the epoll instance.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Removes a source and returns it.
    pub(super) fn forget(&mut self, key: usize) -> Option<Source> {
        let known = self.known.try_remove(key);
        if let (Some(source), Some(gather)) = (&known, &mut self.gather)
            && source.bits & (LEFT | RETURNED) != 0
        {
            gather.forget(key);
        }
        known
    }

    /// Returns the bits of a source, or 0 if it is unknown.
    pub(super) fn bits(&self, key: usize) -> u16 {
        self.known.get(key).map_or(0, |source| source.bits)
    }

    /// Clears a readiness bit until the kernel reports it again.
    pub(super) fn used_up(&mut self, key: usize, bit: u16) {
        if let Some(source) = self.known.get_mut(key) {
            source.used_up(bit);
        }
    }

    /// Records that a read found nothing, so that earlier reports of readiness no longer count.
    pub(super) fn nothing_there(&mut self, key: usize) {
        if let Some(source) = self.known.get_mut(key) {
            source.bits &= !(READABLE | ENDED);
        }
    }

    /// Reports whether the source has the readiness named by the bit. If not, the waker's task is
    /// woken when it may have; data may be received before the task runs.
    pub(super) fn readiness(
        &mut self,
        key: usize,
        bit: u16,
        fetch: bool,
        waker: &Waker,
    ) -> Result<Readiness, Errno> {
        let source = self.known.get_mut(key).ok_or(Errno::BADF)?;
        if source.is(FAILED) {
            return Err(Errno::CONNRESET);
        }
        let fetched = bit == READABLE && (source.fetched.is_some() || source.is(LEFT));
        if fetched || source.is(bit) {
            return Ok(Readiness::Ready { fetched });
        }
        source.wait(bit, fetch);
        Ok(match &source.waker {
            Some(known) if known.will_wake(waker) => Readiness::Waits,
            _ => Readiness::WaitsWithoutWaker,
        })
    }

    /// Sets the waker. Returns the waker that is no longer needed.
    pub(super) fn set_waker(&mut self, key: usize, waker: Waker) -> Option<Waker> {
        match self.known.get_mut(key) {
            Some(source) => source.waker.replace(waker),
            None => Some(waker),
        }
    }

    /// Applies a readiness report of the kernel to a source.
    pub(super) fn tell(&mut self, key: usize, flags: EventFlags, wakes: &mut Wakes) {
        if let Some(source) = self.known.get_mut(key) {
            source.tell(key, flags, wakes);
        }
    }

    /// Copies data that was received ahead for a source. Returns its length.
    pub(super) fn take_fetched(&mut self, key: usize, into: &mut [MaybeUninit<u8>]) -> usize {
        match (&mut self.gather, self.known.get_mut(key)) {
            (Some(gather), Some(source)) => gather.take(key, source, into),
            _ => 0,
        }
    }

    /// Sets the batch. Returns the previous one.
    pub(super) fn set_gather(&mut self, gather: Gather) -> Option<Gather> {
        self.gather.replace(gather)
    }

    /// Reports whether sends of other connections are batched.
    pub(super) fn has_sends(&self) -> bool {
        self.gather.as_ref().is_some_and(Gather::has_sends)
    }

    /// Adds a buffer to the batch, or returns it.
    pub(super) fn send(&mut self, key: usize, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        match (&mut self.gather, self.known.get_mut(key)) {
            (Some(gather), Some(source)) => gather.send(key, source, buffer),
            _ => Err(buffer),
        }
    }

    /// Takes back a batched send that was incomplete.
    pub(super) fn take_returned(&mut self, key: usize) -> Option<(Vec<u8>, usize)> {
        self.gather.as_mut()?.take_returned(key, self.known.get_mut(key)?)
    }

    /// Adds receives from these sources to the next batch. `is_open` decides whether later sends
    /// are batched.
    pub(super) fn gather(&mut self, arrived: &[usize], is_open: bool) {
        if let Some(gather) = &mut self.gather {
            gather.put_apart(&mut self.known);
            arrived.iter().for_each(|key| gather.receive(*key, &mut self.known));
            gather.is_open = is_open;
        }
    }

    /// Executes the batched sends and receives.
    ///
    /// # Errors
    /// The ring has failed. From now on each connection makes its own system calls.
    pub(super) fn exchange(&mut self, wakes: &mut Wakes) -> io::Result<()> {
        let Some(gather) = &mut self.gather else { return Ok(()) };
        let done = gather.exchange(&mut self.known, wakes);
        if done.is_err() {
            gather.fail(&mut self.known, wakes);
            // Leaked because the kernel may still use its memory.
            std::mem::forget(self.gather.take());
        }
        done
    }

    /// Returns the number of sources.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Takes the buffer for wakers.
    pub(super) fn take_room(&mut self) -> Wakes {
        std::mem::take(&mut self.room)
    }

    /// Keeps the buffer for the next use. Returns the previous one.
    pub(super) fn keep_room(&mut self, room: Wakes) -> Wakes {
        std::mem::replace(&mut self.room, room)
    }
}

impl Source {
    pub(crate) fn is(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    /// Clears a readiness bit until the kernel reports it again.
    pub(crate) fn used_up(&mut self, bit: u16) {
        if bit != READABLE || !self.is(ENDED) {
            self.bits &= !bit;
        }
    }

    /// Records that the task waits for this readiness. One task at a time uses a source.
    fn wait(&mut self, bit: u16, fetch: bool) {
        self.bits |= match bit {
            READABLE => WANTS_READ,
            ENDED => WANTS_END,
            _ => WANTS_WRITE,
        };
        if bit == READABLE {
            self.bits = if fetch { self.bits | FETCH } else { self.bits & !FETCH };
        }
    }

    /// Applies a readiness report. Adds the waker of a task that waits for it to `wakes`.
    fn tell(&mut self, key: usize, flags: EventFlags, wakes: &mut Wakes) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let ended = broken || flags.contains(EventFlags::RDHUP);
        if ended || flags.contains(EventFlags::IN) {
            self.bits |= READABLE;
        }
        if ended {
            self.bits |= ENDED;
        }
        if broken || flags.contains(EventFlags::OUT) {
            self.bits |= WRITABLE;
        }
        let reads = self.is(READABLE) && self.is(WANTS_READ);
        let writes = self.is(WRITABLE) && self.is(WANTS_WRITE);
        let ends = self.is(ENDED) && self.is(WANTS_END);
        if !reads && !writes && !ends {
            return;
        }
        let fetch = reads && self.is(FETCH);
        self.bits &= !(WANTS_READ | WANTS_WRITE | WANTS_END | FETCH);
        if fetch {
            self.bits |= ARRIVED;
        }
        wakes.add(&mut self.waker, fetch.then_some(key));
    }

    /// Adds the task of the source to `wakes`.
    pub(crate) fn wake(&mut self, wakes: &mut Wakes) {
        wakes.add(&mut self.waker, None);
    }
}
