//! The table of a loop's sources: the readiness that the kernel reported for each, and the waiting task.
//!
//! No method calls anything unknown: wakers are compared, moved and returned, never cloned, dropped or called.

use crate::gather::{Fetched, Gather};
use crate::wakes::Wakes;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use slab::Slab;
use std::io;
use std::mem::MaybeUninit;
use std::task::Waker;

/// There may be something to read.
pub(crate) const READABLE: u16 = 1;
/// There may be room to write.
pub(crate) const WRITABLE: u16 = 2;
/// The peer has ended, or the connection is broken: reading does not wait any more.
pub(crate) const ENDED: u16 = 4;
/// A task waits for something to read.
const WANTS_READ: u16 = 8;
/// A task waits for room to write.
const WANTS_WRITE: u16 = 16;
/// Incoming data may be received before the task runs.
const FETCH: u16 = 32;
/// A send that was gathered has not ended.
pub(crate) const SENDING: u16 = 64;
/// It cannot go on.
pub(crate) const FAILED: u16 = 128;
/// Received data was not taken at once and is kept in a separate buffer.
pub(crate) const LEFT: u16 = 256;
/// A gathered send has not left and must be taken back.
pub(crate) const RETURNED: u16 = 512;
/// Something has come that may be fetched, and the task has been woken for it.
pub(crate) const ARRIVED: u16 = 1024;
/// A task waits for the end of the peer, also while unread data is left.
const WANTS_END: u16 = 2048;

/// One watched descriptor.
pub(crate) struct Source {
    pub(crate) fd: RawFd,
    pub(crate) bits: u16,
    /// Data received before the task asked for it.
    pub(crate) fetched: Option<Fetched>,
    waker: Option<Waker>,
}

/// Whether a task can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// Data or room is there; `fetched` if data was received already.
    Ready {
        /// Received already.
        fetched: bool,
    },
    /// Its waker is called later.
    Waits,
    /// The same, once [`Sources::set_waker`] has its waker.
    WaitsWithoutWaker,
}

/// The sources of one loop.
pub(crate) struct Sources {
    epoll: OwnedFd,
    known: Slab<Source>,
    gather: Option<Gather>,
    /// Room for those to be woken, between two uses.
    room: Wakes,
}

impl Sources {
    pub(super) fn new(epoll: OwnedFd) -> Self {
        Self { epoll, known: Slab::new(), gather: None, room: Wakes::default() }
    }

    /// The instance that watches all of them.
    pub(super) fn epoll(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches a descriptor that does not block: its key.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>, bits: u16) -> io::Result<usize> {
        let entry = self.known.vacant_entry();
        let key = entry.key();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), flags)?;
        entry.insert(Source { fd: fd.as_raw_fd(), bits, fetched: None, waker: None });
        Ok(key)
    }

    /// Takes a descriptor off the instance.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Forgets a source, and returns it.
    pub(super) fn forget(&mut self, key: usize) -> Option<Source> {
        let known = self.known.try_remove(key);
        if let (Some(source), Some(gather)) = (&known, &mut self.gather)
            && source.bits & (LEFT | RETURNED) != 0
        {
            gather.forget(key);
        }
        known
    }

    /// The bits of a source; none if it is not known.
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

    /// Reports whether the source has data or room, as the bit asks. If not, the waker's task is woken when it may have; data may
    /// be received before the task runs.
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

    /// Sets whom to wake; returns the waker that is not needed any more.
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

    /// Copies data that was received ahead for a source; returns the number of bytes.
    pub(super) fn take_fetched(&mut self, key: usize, into: &mut [MaybeUninit<u8>]) -> usize {
        match (&mut self.gather, self.known.get_mut(key)) {
            (Some(gather), Some(source)) => gather.take(key, source, into),
            _ => 0,
        }
    }

    /// Sets what gathers calls; returns what did before.
    pub(super) fn set_gather(&mut self, gather: Gather) -> Option<Gather> {
        self.gather.replace(gather)
    }

    /// Is there something gathered that others wait for?
    pub(super) fn has_sends(&self) -> bool {
        self.gather.as_ref().is_some_and(Gather::has_sends)
    }

    /// Gathers a buffer, or gives it back.
    pub(super) fn send(&mut self, key: usize, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        match (&mut self.gather, self.known.get_mut(key)) {
            (Some(gather), Some(source)) => gather.send(key, source, buffer),
            _ => Err(buffer),
        }
    }

    /// Takes back a gathered send that has not left.
    pub(super) fn take_returned(&mut self, key: usize) -> Option<(Vec<u8>, usize)> {
        self.gather.as_mut()?.take_returned(key, self.known.get_mut(key)?)
    }

    /// Adds receives from these sources to the next exchange. `is_open` decides whether later sends are gathered.
    pub(super) fn gather(&mut self, arrived: &[usize], is_open: bool) {
        if let Some(gather) = &mut self.gather {
            gather.put_apart(&mut self.known);
            arrived.iter().for_each(|key| gather.receive(*key, &mut self.known));
            gather.is_open = is_open;
        }
    }

    /// Executes the gathered sends and receives.
    ///
    /// # Errors
    /// The ring works no more; from now on each connection has its own system calls again.
    pub(super) fn exchange(&mut self, wakes: &mut Wakes) -> io::Result<()> {
        let Some(gather) = &mut self.gather else { return Ok(()) };
        let done = gather.exchange(&mut self.known, wakes);
        if done.is_err() {
            gather.fail(&mut self.known, wakes);
            // The kernel may still use its memory.
            std::mem::forget(self.gather.take());
        }
        done
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Room for those to be woken.
    pub(super) fn take_room(&mut self) -> Wakes {
        std::mem::take(&mut self.room)
    }

    /// Keeps the buffer for the next time; returns the previous one.
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

    /// A task waits until this is so. One task at a time uses a source.
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

    /// Applies a readiness report; adds the waker of a task that waits for it to `wakes`.
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

    /// The task that uses it is to be woken.
    pub(crate) fn wake(&mut self, wakes: &mut Wakes) {
        wakes.add(&mut self.waker, None);
    }
}
