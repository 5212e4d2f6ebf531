//! Which sockets of a loop are ready: one epoll instance of its own, beside that of the runtime.
//!
//! The runtime would do it, too, but takes a thousand instructions more for each request. Each socket has an entry here; what
//! the kernel tells of it is kept until a call finds it used up (edge-triggered), so that a connection that waits costs
//! nothing. The runtime's own instance is watched by this one, so that one wait is for both.

use crate::alarm::Alarm;
use crate::crew;
use crate::gather::{Fetched, Gather};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use slab::Slab;
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Events taken with one look.
const EVENTS_MAX: usize = 256;

/// Stands for the runtime's instance among the events.
const RUNTIME: u64 = u64::MAX;

/// Stands for the alarm.
const ALARM: u64 = u64::MAX - 1;

/// There may be something to read.
pub(crate) const READABLE: u16 = 1;
/// There may be room to write.
pub(crate) const WRITABLE: u16 = 2;
/// The peer has ended, or the connection is broken: reading does not wait any more.
const ENDED: u16 = 4;
/// A task waits for something to read.
const WANTS_READ: u16 = 8;
/// A task waits for room to write.
const WANTS_WRITE: u16 = 16;
/// What comes may be fetched before the task runs.
const FETCH: u16 = 32;
/// A send that was gathered has not ended.
pub(crate) const SENDING: u16 = 64;
/// It cannot go on.
pub(crate) const FAILED: u16 = 128;
/// What was fetched was not taken at once, and is kept apart.
pub(crate) const LEFT: u16 = 256;
/// What was gathered to be sent has not left, and is to be taken back.
pub(crate) const RETURNED: u16 = 512;
/// Something has come that may be fetched, and the task has been woken for it.
pub(crate) const ARRIVED: u16 = 1024;

/// One watched descriptor.
pub(crate) struct Source {
    pub(crate) fd: RawFd,
    pub(crate) bits: u16,
    /// What was received before the task asks for it.
    pub(crate) fetched: Option<Fetched>,
    waker: Option<Waker>,
}

/// The sources of one loop.
pub(crate) struct Poller {
    epoll: OwnedFd,
    pub(crate) sources: Slab<Source>,
    gather: Option<Gather>,
    /// For the runtime's sake, where the loop waits at its own instance.
    alarm: Option<Alarm>,
}

/// How a loop waits.
pub(crate) enum Waiting {
    /// At its own instance, which watches the runtime's.
    Own,
    /// At the runtime's, which watches its own.
    Runtime(AsyncFd<OwnedFd>),
}

/// What a wait has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// Nothing within its time.
    Nothing,
    /// Sources have become ready.
    Sources,
    /// The runtime has something to do, or the alarm has gone off, and sources may have become ready.
    Runtime,
}

thread_local! {
    static POLLER: RefCell<Option<Poller>> = const { RefCell::new(None) };
}

/// Gives `work` the poller of this thread; `None` outside of a loop.
pub(crate) fn with<T>(work: impl FnOnce(&mut Poller) -> T) -> Option<T> {
    // Without the thread's own data left, the thread is ending.
    POLLER.try_with(|place| place.borrow_mut().as_mut().map(work)).ok().flatten()
}

impl Poller {
    /// To be called inside the runtime.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn new(own: bool) -> io::Result<(Self, Waiting)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waiting = match runtime_epoll(&epoll)? {
            Some(runtime) if own => {
                // SAFETY: the runtime has the descriptor open as long as it lives, which is longer than its loop waits.
                let runtime = unsafe { BorrowedFd::borrow_raw(runtime) };
                epoll::add(&epoll, runtime, EventData::new_u64(RUNTIME), EventFlags::IN)?;
                Waiting::Own
            }
            _ => {
                // SAFETY: an owned descriptor is open, stays so, and is the same one until it is dropped, which the
                // registration does.
                let watched = unsafe { AsyncFd::register(epoll.try_clone()?) };
                Waiting::Runtime(watched.map_err(io::Error::from)?)
            }
        };
        // Without one each wait has a limit.
        let alarm = Alarm::new().and_then(|alarm| {
            epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
            Ok(alarm)
        });
        Ok((Self { epoll, sources: Slab::new(), gather: None, alarm: alarm.ok() }, waiting))
    }

    /// Makes it that of this thread.
    pub(crate) fn install(self) {
        POLLER.set(Some(self));
    }

    /// Takes it off this thread.
    pub(crate) fn remove() {
        let poller = POLLER.take();
        drop(poller);
    }

    /// Watches a descriptor that does not block: its key.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, bits: u16) -> io::Result<usize> {
        let entry = self.sources.vacant_entry();
        let key = entry.key();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(key as u64), flags)?;
        entry.insert(Source { fd: fd.as_raw_fd(), bits, fetched: None, waker: None });
        Ok(key)
    }

    /// Forgets a descriptor. If it goes on living elsewhere, it must also be taken off the instance. What was kept of it is to
    /// be dropped when the poller is not borrowed any more.
    pub(crate) fn forget(&mut self, key: usize) -> Option<Source> {
        let known = self.sources.try_remove(key);
        if let (Some(source), Some(gather)) = (&known, &mut self.gather)
            && source.bits & (LEFT | RETURNED) != 0
        {
            gather.forget(key);
        }
        known
    }

    /// Is there what the bit says, or room for it? If not, the task is woken when there may be; what comes may be fetched before
    /// it runs. Ready with `true` means that something was fetched already.
    pub(crate) fn poll_ready(
        &mut self,
        key: usize,
        bit: u16,
        fetch: bool,
        context: &Context<'_>,
    ) -> Result<Poll<bool>, Errno> {
        let source = self.sources.get_mut(key).ok_or(Errno::BADF)?;
        if source.is(FAILED) {
            return Err(Errno::CONNRESET);
        }
        let fetched = bit == READABLE && (source.fetched.is_some() || source.is(LEFT));
        if fetched || source.is(bit) {
            return Ok(Poll::Ready(fetched));
        }
        source.wait(bit, fetch, context);
        Ok(Poll::Pending)
    }

    /// Copies what was fetched for a source, and tells how much; none means that the source is to be asked itself.
    pub(crate) fn poll_receive(
        &mut self,
        key: usize,
        into: &mut [MaybeUninit<u8>],
        fetch: bool,
        context: &Context<'_>,
    ) -> Result<Poll<usize>, Errno> {
        Ok(self.poll_ready(key, READABLE, fetch, context)?.map(|fetched| match fetched {
            true => self.take_fetched(key, into),
            false => 0,
        }))
    }

    /// Copies what was fetched for a source: how much.
    pub(crate) fn take_fetched(&mut self, key: usize, into: &mut [MaybeUninit<u8>]) -> usize {
        let (Some(gather), Some(source)) = (&mut self.gather, self.sources.get_mut(key)) else { return 0 };
        gather.take(key, source, |bytes| {
            let taken = into.len().min(bytes.len());
            let (Some(place), Some(bytes)) = (into.get_mut(..taken), bytes.get(..taken)) else { return 0 };
            place.write_copy_of_slice(bytes);
            taken
        })
    }

    /// A read has found nothing, whatever was told before.
    pub(crate) fn nothing_there(&mut self, key: usize) {
        if let Some(source) = self.sources.get_mut(key) {
            source.bits &= !(READABLE | ENDED);
        }
    }

    /// Gathers a buffer, or gives it back.
    pub(crate) fn send(&mut self, key: usize, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        match (&mut self.gather, self.sources.get_mut(key)) {
            (Some(gather), Some(source)) => gather.send(key, source, buffer),
            _ => Err(buffer),
        }
    }

    /// Takes back what was gathered and has not left.
    pub(crate) fn take_returned(&mut self, key: usize) -> Option<(Vec<u8>, usize)> {
        self.gather.as_mut()?.take_returned(key, self.sources.get_mut(key)?)
    }

    /// Does what was gathered. The wakers are to be woken by the caller, who has nothing of the poller borrowed then.
    fn exchange(&mut self) -> Vec<Waker> {
        let mut wake = Vec::new();
        let Some(gather) = &mut self.gather else { return wake };
        if let Err(error) = gather.exchange(&mut self.sources, &mut wake) {
            tracing::error!(
                "io_uring works no more ({error}); each connection has its own system calls again"
            );
            gather.fail(&mut self.sources, &mut wake);
            // The kernel may still use its memory.
            std::mem::forget(self.gather.take());
        }
        wake
    }

    /// Takes a descriptor off.
    pub(crate) fn delete(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }
}

impl Source {
    pub(crate) fn is(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }

    /// Nothing is to be had, or there is no room, until the kernel tells again.
    pub(crate) fn used_up(&mut self, bit: u16) {
        if bit != READABLE || !self.is(ENDED) {
            self.bits &= !bit;
        }
    }

    /// Has the task woken when this is so. One task at a time uses a source.
    pub(crate) fn wait(&mut self, bit: u16, fetch: bool, context: &Context<'_>) {
        self.bits |= if bit == READABLE { WANTS_READ } else { WANTS_WRITE };
        if bit == READABLE {
            self.bits = if fetch { self.bits | FETCH } else { self.bits & !FETCH };
        }
        match &mut self.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            waker => *waker = Some(context.waker().clone()),
        }
    }

    /// Takes what the kernel tells; the waker of the task that waits for it, and whether more may be fetched for it.
    fn tell(&mut self, flags: EventFlags) -> Option<(&Waker, bool)> {
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
        if !reads && !writes {
            return None;
        }
        let fetch = reads && self.is(FETCH);
        self.bits &= !(WANTS_READ | WANTS_WRITE | FETCH);
        if fetch {
            self.bits |= ARRIVED;
        }
        self.waker.as_ref().map(|waker| (waker, fetch))
    }

    /// Wakes whoever uses it.
    pub(crate) fn waker(&self) -> Option<&Waker> {
        self.waker.as_ref()
    }
}

/// Has waits end at this moment; the limit that they need for it, if any.
pub(crate) fn wake_at(moment: Instant, now: Instant) -> Option<Duration> {
    let left = moment.saturating_duration_since(now);
    if left.is_zero() {
        return Some(left);
    }
    let set = with(|poller| poller.alarm.as_mut().is_some_and(|alarm| alarm.set(moment, now).is_ok()));
    (set != Some(true)).then_some(left)
}

/// Waits until sources of this thread are ready, and wakes their tasks. No time is no limit.
pub(crate) fn wait(limit: Option<Duration>) -> io::Result<Woken> {
    let mut room = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
    let Some(epoll) = with(|poller| poller.epoll.as_raw_fd()) else { return Ok(Woken::Nothing) };
    // SAFETY: the thread's poller has it open, and only this thread takes the poller away: not while it waits.
    let epoll = unsafe { BorrowedFd::borrow_raw(epoll) };
    let limit = limit.map(|limit| {
        // In whole milliseconds the older call does it.
        let milliseconds = limit.as_micros().div_ceil(1000);
        rustix::event::Timespec {
            tv_sec: i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(milliseconds % 1000).unwrap_or(0) * 1_000_000,
        }
    });
    let events = match epoll::wait(epoll, &mut room, limit.as_ref()) {
        Ok((events, _)) => events,
        Err(rustix::io::Errno::INTR) => return Ok(Woken::Nothing),
        Err(error) => return Err(error.into()),
    };
    let mut woken = if events.is_empty() { Woken::Nothing } else { Woken::Sources };
    let mut others = Vec::new();
    with(|poller| {
        for event in &*events {
            let (data, flags) = (event.data, event.flags);
            if data.u64() == RUNTIME || data.u64() == ALARM {
                woken = Woken::Runtime;
                continue;
            }
            let key = usize::try_from(data.u64()).unwrap_or(usize::MAX);
            let Some((waker, fetch)) = poller.sources.get_mut(key).and_then(|source| source.tell(flags))
            else {
                continue;
            };
            if !crew::wake_own(waker, fetch.then_some(key)) {
                // Others may do anything when they are woken.
                others.push(waker.clone());
            }
        }
    });
    others.into_iter().for_each(Waker::wake);
    Ok(woken)
}

/// Has the current loop receive from, and send to, many sockets with one system call, by io_uring. Where it is refused each
/// has its own.
///
/// # Errors
/// What the kernel says: `ENOSYS`, `EPERM`, `ENOMEM`; `EOPNOTSUPP` before Linux 5.6; outside of a loop.
pub fn gather_calls() -> io::Result<()> {
    let gather = Gather::new()?;
    with(|poller| poller.gather = Some(gather))
        .ok_or_else(|| io::Error::other("there is no loop on this thread"))
}

/// Is there something gathered that others wait for?
pub(crate) fn has_sends() -> bool {
    with(|poller| poller.gather.as_ref().is_some_and(Gather::has_sends)) == Some(true)
}

/// Does what was gathered, and wakes those whose sends did not end well.
pub(crate) fn exchange() {
    with(Poller::exchange).into_iter().flatten().for_each(Waker::wake);
}

/// Receives from these sources, and sends what was gathered before; what their tasks send from now on is gathered.
pub(crate) fn gather(arrived: impl Iterator<Item = usize>) {
    let wake = with(|poller| {
        let gather = poller.gather.as_mut()?;
        gather.put_apart(&mut poller.sources);
        arrived.for_each(|key| gather.receive(key, &mut poller.sources));
        gather.is_open = true;
        Some(poller.exchange())
    });
    wake.flatten().into_iter().flatten().for_each(Waker::wake);
}

/// Sends what was gathered.
pub(crate) fn end_gathering() {
    let wake = with(|poller| {
        let gather = poller.gather.as_mut()?;
        gather.put_apart(&mut poller.sources);
        gather.is_open = false;
        Some(poller.exchange())
    });
    wake.flatten().into_iter().flatten().for_each(Waker::wake);
}

/// The descriptor of the epoll instance that the runtime around waits at, if it does: the one that knows a descriptor which
/// only the runtime was told of. `not` is another instance.
fn runtime_epoll(not: &OwnedFd) -> io::Result<Option<RawFd>> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let mark = rustix::event::eventfd(0, flags)?;
    // SAFETY: an owned descriptor is open, stays so, and is the same one until it is dropped, which the registration does.
    let mark = unsafe { AsyncFd::register(mark) }.map_err(io::Error::from)?;
    // The lowest free number is given to each that is opened.
    let highest = not.as_raw_fd().max(mark.get_ref().as_raw_fd()).saturating_add(64);
    let knows = |number: &RawFd| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let descriptor = mark.get_ref().as_raw_fd();
        // SAFETY: the call reads the event and keeps nothing. It fails for numbers that are no epoll instances (`EBADF`,
        // `EINVAL`, `EPERM`) and changes nothing at instances that do not know the descriptor (`ENOENT`).
        unsafe { libc::epoll_ctl(*number, libc::EPOLL_CTL_MOD, descriptor, &raw mut event) == 0 }
    };
    Ok((0..=highest).find(knows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails after an upgrade of the runtime, loops still work, but each wait is one for the runtime first.
    #[test]
    fn a_loop_waits_at_its_own_instance_with_this_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        assert!(matches!(Poller::new(true), Ok((_, Waiting::Own))));
        assert!(matches!(Poller::new(false), Ok((_, Waiting::Runtime(_)))));
    }
}
