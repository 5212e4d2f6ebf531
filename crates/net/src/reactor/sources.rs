//! The table of the reactor: readiness of each source, and the waiting task.
//!
//! Its methods call no foreign code, because that could use the table while it is borrowed: wakers
//! are compared, moved and returned, but never cloned, dropped or called.

use crate::batch::IoBatch;
use crate::source::{IoSource, SourceFlags};
use crate::wake_list::WakeList;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use slab::Slab;
use std::io;
use std::mem::MaybeUninit;
use std::task::Waker;

/// SourceReadiness of a source for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceReadiness {
    /// Data or room is available; `fetched` if data was received already.
    Ready {
        /// Set if data was received already.
        fetched: bool,
    },
    /// The waker of the task will be called.
    Waits,
    /// Waits as well, but [`SourceTable::set_waker`] must first store the waker.
    WaitsWithoutWaker,
}

/// The sources of one loop.
pub(crate) struct SourceTable {
    epoll: OwnedFd,
    known: Slab<IoSource>,
    batch: Option<IoBatch>,
    /// Buffer for wakers, kept between two uses.
    room: WakeList,
}

impl SourceTable {
    pub(super) fn new(epoll: OwnedFd) -> Self {
        Self { epoll, known: Slab::new(), batch: None, room: WakeList::default() }
    }

    /// Returns the epoll instance that watches the sources.
    pub(super) fn epoll(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches a non-blocking descriptor. Returns its key.
    pub(super) fn add(&mut self, fd: BorrowedFd<'_>, flags: SourceFlags) -> io::Result<usize> {
        let entry = self.known.vacant_entry();
        let key = entry.key();
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), events)?;
        entry.insert(IoSource { fd: fd.as_raw_fd(), flags, fetched: None, waker: None });
        Ok(key)
    }

    /// Removes a descriptor from the epoll instance.
    pub(super) fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Removes a source and returns it.
    pub(super) fn forget(&mut self, key: usize) -> Option<IoSource> {
        let known = self.known.try_remove(key);
        if let (Some(source), Some(batch)) = (&known, &mut self.batch)
            && source.flags.intersects(SourceFlags::LEFT | SourceFlags::RETURNED)
        {
            batch.forget(key);
        }
        known
    }

    /// Returns the flags of a source, or none if it is unknown.
    pub(super) fn flags(&self, key: usize) -> SourceFlags {
        self.known.get(key).map_or(SourceFlags::NONE, |source| source.flags)
    }

    /// Clears a readiness flag until the kernel reports it again.
    pub(super) fn used_up(&mut self, key: usize, flag: SourceFlags) {
        if let Some(source) = self.known.get_mut(key) {
            source.used_up(flag);
        }
    }

    /// Records that a read found nothing, so that earlier reports of readiness no longer count.
    pub(super) fn clear_readiness(&mut self, key: usize) {
        if let Some(source) = self.known.get_mut(key) {
            source.flags.remove(SourceFlags::READABLE | SourceFlags::ENDED);
        }
    }

    /// Reports whether the source has the readiness named by the flag. If not, the waker's task is
    /// woken when it may have; data may be received before the task runs.
    pub(super) fn readiness(
        &mut self,
        key: usize,
        flag: SourceFlags,
        fetch: bool,
        waker: &Waker,
    ) -> Result<SourceReadiness, Errno> {
        let source = self.known.get_mut(key).ok_or(Errno::BADF)?;
        if source.is(SourceFlags::FAILED) {
            return Err(Errno::CONNRESET);
        }
        let fetched =
            flag == SourceFlags::READABLE && (source.fetched.is_some() || source.is(SourceFlags::LEFT));
        if fetched || source.is(flag) {
            return Ok(SourceReadiness::Ready { fetched });
        }
        source.wait(flag, fetch);
        Ok(match &source.waker {
            Some(known) if known.will_wake(waker) => SourceReadiness::Waits,
            _ => SourceReadiness::WaitsWithoutWaker,
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
    pub(super) fn set_ready(&mut self, key: usize, events: EventFlags, wakes: &mut WakeList) {
        if let Some(source) = self.known.get_mut(key) {
            source.set_ready(key, events, wakes);
        }
    }

    /// Copies data that was received ahead for a source. Returns its length.
    pub(super) fn take_fetched(&mut self, key: usize, into: &mut [MaybeUninit<u8>]) -> usize {
        match (&mut self.batch, self.known.get_mut(key)) {
            (Some(batch), Some(source)) => batch.take(key, source, into),
            _ => 0,
        }
    }

    /// Sets the batch. Returns the previous one.
    pub(super) fn set_batch(&mut self, batch: IoBatch) -> Option<IoBatch> {
        self.batch.replace(batch)
    }

    /// Reports whether sends of other connections are batched.
    pub(super) fn has_sends(&self) -> bool {
        self.batch.as_ref().is_some_and(IoBatch::has_sends)
    }

    /// Adds a buffer to the batch, or returns it.
    pub(super) fn send(&mut self, key: usize, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        match (&mut self.batch, self.known.get_mut(key)) {
            (Some(batch), Some(source)) => batch.send(key, source, buffer),
            _ => Err(buffer),
        }
    }

    /// Takes back a batched send that was incomplete.
    pub(super) fn take_returned(&mut self, key: usize) -> Option<(Vec<u8>, usize)> {
        self.batch.as_mut()?.take_returned(key, self.known.get_mut(key)?)
    }

    /// Adds receives from these sources to the next batch. `is_open` decides whether later sends
    /// are batched.
    pub(super) fn prepare_batch(&mut self, arrived: &[usize], is_open: bool) {
        if let Some(batch) = &mut self.batch {
            batch.set_aside_unread(&mut self.known);
            arrived.iter().for_each(|key| batch.receive(*key, &mut self.known));
            batch.is_open = is_open;
        }
    }

    /// Executes the batched sends and receives.
    ///
    /// # Errors
    /// The ring has failed. From now on each connection makes its own system calls.
    pub(super) fn exchange(&mut self, wakes: &mut WakeList) -> io::Result<()> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let done = batch.exchange(&mut self.known, wakes);
        if done.is_err() {
            batch.fail(&mut self.known, wakes);
            // Leaked because the kernel may still use its memory.
            std::mem::forget(self.batch.take());
        }
        done
    }

    /// Returns the number of sources.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// Takes the buffer for wakers.
    pub(super) fn take_room(&mut self) -> WakeList {
        std::mem::take(&mut self.room)
    }

    /// Keeps the buffer for the next use. Returns the previous one.
    pub(super) fn keep_room(&mut self, room: WakeList) -> WakeList {
        std::mem::replace(&mut self.room, room)
    }
}
