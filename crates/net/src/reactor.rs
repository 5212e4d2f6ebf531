//! The reactor of a loop: readiness of its sockets, by an epoll instance separate from the
//! runtime's.
//!
//! The runtime has a reactor too, but that takes a thousand more instructions per request. Each
//! socket has an entry here. The readiness reported by the kernel is kept until a call finds it
//! used up (edge-triggered), so that a waiting connection costs nothing. This instance also watches
//! the instance of the runtime, so that one wait covers both.
//!
//! Each function borrows the table of this thread, ends the borrow, and only then clones, drops or
//! calls wakers.

use crate::alarm::TimerDescriptor;
use crate::batch::IoBatch;
use crate::source::SourceFlags;
use crate::wake_list::WakeList;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
#[expect(
    clippy::disallowed_types,
    reason = "only the methods of `Sources` and `Alarm` are called while it is borrowed"
)]
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

mod sources;

use sources::{SourceReadiness, SourceTable};

/// Maximum number of events per wait.
const EVENTS_MAX: usize = 256;

/// Key of the runtime's instance among the events.
const RUNTIME: u64 = u64::MAX;

/// Key of the alarm.
const ALARM: u64 = u64::MAX - 1;

/// The descriptors and the alarm that a loop waits for.
pub(crate) struct Reactor {
    sources: SourceTable,
    /// Timer for the runtime, if the loop waits at its own instance.
    alarm: Option<TimerDescriptor>,
}

/// The epoll instance at which a loop waits.
pub(crate) enum WaitMode {
    /// The loop's own instance, which watches the runtime's.
    Own,
    /// The runtime's instance, which watches the loop's.
    Runtime(AsyncFd<OwnedFd>),
}

/// Result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome {
    /// Timeout.
    Nothing,
    /// Sources have become ready.
    Sources,
    /// The runtime has work or the alarm has expired; sources may have become ready too.
    Runtime,
}

thread_local! {
    #[expect(clippy::disallowed_types, reason = "only the methods of `Sources` and `Alarm` are called while it is borrowed")]
    static REACTOR: RefCell<Option<Reactor>> = const { RefCell::new(None) };
}

/// Calls `work` with the reactor of this thread. Returns `None` outside of a loop. `work` may only
/// call methods of the table.
fn with<T>(work: impl FnOnce(&mut Reactor) -> T) -> Option<T> {
    // The access fails if the thread is ending and its thread-local data is destroyed.
    REACTOR.try_with(|place| place.borrow_mut().as_mut().map(work)).ok().flatten()
}

fn no_loop() -> io::Error {
    io::Error::other("there is no loop on this thread")
}

impl Reactor {
    /// Creates a reactor. Must be called inside the runtime.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn new(own: bool) -> io::Result<(Self, WaitMode)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waiting = match runtime_epoll(&epoll)? {
            Some(runtime) if own => {
                // SAFETY: the runtime has the descriptor open as long as it lives, which is longer
                // than its loop waits.
                let runtime = unsafe { BorrowedFd::borrow_raw(runtime) };
                epoll::add(&epoll, runtime, EventData::new_u64(RUNTIME), EventFlags::IN)?;
                WaitMode::Own
            }
            _ => {
                // SAFETY: an owned descriptor is open, stays so, and is the same one until it is
                // dropped, which the registration does.
                let watched = unsafe { AsyncFd::register(epoll.try_clone()?) };
                WaitMode::Runtime(watched.map_err(io::Error::from)?)
            }
        };
        // Without an alarm, each wait has a timeout (fallback).
        let alarm = TimerDescriptor::new().and_then(|alarm| {
            epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
            Ok(alarm)
        });
        Ok((Self { sources: SourceTable::new(epoll), alarm: alarm.ok() }, waiting))
    }

    /// Installs the reactor on this thread.
    pub(crate) fn install(self) {
        drop(REACTOR.replace(Some(self)));
    }

    /// Removes the reactor of this thread.
    pub(crate) fn remove() {
        drop(REACTOR.take());
    }
}

/// Reports whether there is a loop on this thread.
pub(crate) fn has_loop() -> bool {
    with(|_| ()).is_some()
}

/// Watches a non-blocking descriptor. Returns its key.
///
/// # Errors
/// If the kernel refuses, or outside of a loop.
pub(crate) fn add(fd: BorrowedFd<'_>, flags: SourceFlags) -> io::Result<usize> {
    with(|reactor| reactor.sources.add(fd, flags)).unwrap_or_else(|| Err(no_loop()))
}

/// Removes a source. If its descriptor remains open elsewhere, it must also be [deleted](delete).
pub(crate) fn forget(key: usize) {
    let known = with(|reactor| reactor.sources.forget(key));
    drop(known);
}

/// Removes a descriptor from the epoll instance.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn delete(fd: BorrowedFd<'_>) -> io::Result<()> {
    with(|reactor| reactor.sources.delete(fd)).unwrap_or(Ok(()))
}

/// Returns the flags of a source, or none if it is unknown.
pub(crate) fn flags(key: usize) -> SourceFlags {
    with(|reactor| reactor.sources.flags(key)).unwrap_or(SourceFlags::NONE)
}

/// Clears a readiness flag until the kernel reports it again.
pub(crate) fn used_up(key: usize, flag: SourceFlags) {
    with(|reactor| reactor.sources.used_up(key, flag));
}

/// Records that a read found no data, whatever readiness was reported before.
pub(crate) fn clear_readiness(key: usize) {
    with(|reactor| reactor.sources.clear_readiness(key));
}

/// Reports whether a source has the readiness named by the flag. If not, the task is woken when it
/// may have; data may be received before the task runs. Ready with `true` means that data was
/// received already.
pub(crate) fn poll_ready(
    key: usize,
    flag: SourceFlags,
    fetch: bool,
    context: &Context<'_>,
) -> Poll<Result<bool, Errno>> {
    let waker = context.waker();
    let readiness = with(|reactor| reactor.sources.readiness(key, flag, fetch, waker));
    match readiness.unwrap_or(Err(Errno::BADF))? {
        SourceReadiness::Ready { fetched } => return Poll::Ready(Ok(fetched)),
        SourceReadiness::Waits => {}
        SourceReadiness::WaitsWithoutWaker => {
            let waker = waker.clone();
            let old = with(|reactor| reactor.sources.set_waker(key, waker));
            drop(old);
        }
    }
    Poll::Pending
}

/// Copies data that was received for a source and returns its length. 0 means that the socket must
/// be read.
pub(crate) fn poll_receive(
    key: usize,
    into: &mut [MaybeUninit<u8>],
    fetch: bool,
    context: &Context<'_>,
) -> Poll<Result<usize, Errno>> {
    let fetched = ready!(poll_ready(key, SourceFlags::READABLE, fetch, context))?;
    Poll::Ready(Ok(if fetched { take_fetched(key, into) } else { 0 }))
}

/// Copies data that was received for a source. Returns its length.
pub(crate) fn take_fetched(key: usize, into: &mut [MaybeUninit<u8>]) -> usize {
    with(|reactor| reactor.sources.take_fetched(key, into)).unwrap_or(0)
}

/// Adds a buffer to the batch, or returns it.
pub(crate) fn send(key: usize, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
    let mut waits = Some(buffer);
    let sent = with(|reactor| reactor.sources.send(key, waits.take().unwrap_or_default()));
    sent.unwrap_or_else(|| Err(waits.unwrap_or_default()))
}

/// Takes back a batched buffer that was not sent completely.
pub(crate) fn take_returned(key: usize) -> Option<(Vec<u8>, usize)> {
    with(|reactor| reactor.sources.take_returned(key)).flatten()
}

/// Sets the alarm for a moment. Returns the timeout that waits need instead if the alarm cannot be
/// set.
pub(crate) fn wake_at(moment: Instant, now: Instant) -> Option<Duration> {
    let left = moment.saturating_duration_since(now);
    if left.is_zero() {
        return Some(left);
    }
    let set = with(|reactor| reactor.alarm.as_mut().is_some_and(|alarm| alarm.set(moment, now).is_ok()));
    (set != Some(true)).then_some(left)
}

/// Wakes the tasks that a use of the table has collected, and keeps the buffer.
fn wake(mut wakes: WakeList) {
    wakes.wake();
    let old = with(|reactor| reactor.sources.keep_room(wakes));
    drop(old);
}

/// Waits until sources of this thread are ready, and wakes their tasks. `None` means no timeout.
pub(crate) fn wait(limit: Option<Duration>) -> io::Result<WaitOutcome> {
    let mut room = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
    let Some(epoll) = with(|reactor| reactor.sources.epoll()) else { return Ok(WaitOutcome::Nothing) };
    // SAFETY: the reactor of this thread has it open. Only this thread removes the reactor, and not
    // while it waits.
    let epoll = unsafe { BorrowedFd::borrow_raw(epoll) };
    let limit = limit.map(|limit| {
        // Rounded up to milliseconds, because then the older system call is used.
        let milliseconds = limit.as_micros().div_ceil(1000);
        rustix::event::Timespec {
            tv_sec: i64::try_from(milliseconds / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(milliseconds % 1000).unwrap_or(0) * 1_000_000,
        }
    });
    let events = match epoll::wait(epoll, &mut room, limit.as_ref()) {
        Ok((events, _)) => events,
        Err(rustix::io::Errno::INTR) => return Ok(WaitOutcome::Nothing),
        Err(error) => return Err(error.into()),
    };
    let mut woken = if events.is_empty() { WaitOutcome::Nothing } else { WaitOutcome::Sources };
    let wakes = with(|reactor| {
        let mut wakes = reactor.sources.take_room();
        for event in &*events {
            let (data, events) = (event.data, event.flags);
            if data.u64() == RUNTIME || data.u64() == ALARM {
                woken = WaitOutcome::Runtime;
                continue;
            }
            let key = usize::try_from(data.u64()).unwrap_or(usize::MAX);
            reactor.sources.set_ready(key, events, &mut wakes);
        }
        wakes
    });
    wakes.into_iter().for_each(wake);
    Ok(woken)
}

/// Enables batching on the current loop: receives and sends of many sockets with one system call,
/// by io_uring. If this fails, each socket makes its own system calls (fallback).
///
/// # Errors
/// The error of the kernel: `ENOSYS`, `EPERM`, `ENOMEM`; `EOPNOTSUPP` before Linux 5.6; an error
/// outside of a loop.
pub fn enable_batching() -> io::Result<()> {
    let batch = IoBatch::new()?;
    let mut batch = Some(batch);
    let old = with(|reactor| batch.take().and_then(|batch| reactor.sources.set_batch(batch)));
    old.map(drop).ok_or_else(no_loop)
}

/// Reports whether sends of other connections are batched.
pub(crate) fn has_sends() -> bool {
    with(|reactor| reactor.sources.has_sends()) == Some(true)
}

/// Executes the batch, and wakes the tasks whose sends failed or were incomplete.
pub(crate) fn exchange() {
    let done = with(|reactor| {
        let mut wakes = reactor.sources.take_room();
        (reactor.sources.exchange(&mut wakes), wakes)
    });
    let Some((done, wakes)) = done else { return };
    if let Err(error) = done {
        tracing::error!("io_uring failed: {error}; each connection makes its own system calls from now on");
    }
    wake(wakes);
}

/// Executes the batch together with receives from these sources. Later sends of their tasks are
/// batched.
pub(crate) fn begin_batch(arrived: &[usize]) {
    with(|reactor| reactor.sources.prepare_batch(arrived, true));
    exchange();
}

/// Executes the last batch. Later sends are not batched.
pub(crate) fn end_batch() {
    with(|reactor| reactor.sources.prepare_batch(&[], false));
    exchange();
}

/// Returns the descriptor of the epoll instance at which the current runtime waits, if it uses one.
/// It is found by a descriptor that only the runtime has registered. `not` is another instance.
fn runtime_epoll(not: &OwnedFd) -> io::Result<Option<RawFd>> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let mark = rustix::event::eventfd(0, flags)?;
    // SAFETY: an owned descriptor is open, stays so, and is the same one until it is dropped, which
    // the registration does.
    let mark = unsafe { AsyncFd::register(mark) }.map_err(io::Error::from)?;
    // Descriptors are the lowest free numbers.
    let highest = not.as_raw_fd().max(mark.get_ref().as_raw_fd()).saturating_add(64);
    let knows = |number: &RawFd| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let descriptor = mark.get_ref().as_raw_fd();
        // SAFETY: the call reads the event and keeps nothing. It fails for numbers that are not
        // epoll instances (`EBADF`, `EINVAL`, `EPERM`) and changes nothing at instances that do not
        // know the descriptor (`ENOENT`).
        unsafe { libc::epoll_ctl(*number, libc::EPOLL_CTL_MOD, descriptor, &raw mut event) == 0 }
    };
    Ok((0..=highest).find(knows))
}

/// Makes the next wait of this thread fail by replacing its instance with another file.
#[cfg(test)]
pub(crate) fn break_waiting() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let epoll = with(|reactor| reactor.sources.epoll()).unwrap();
    // SAFETY: both are open. The reactor owns the number, and closes the file that it refers to.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), epoll) }, epoll);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails after an upgrade of the runtime, loops still work, but each wait involves the
    /// runtime.
    #[test]
    fn a_loop_waits_at_its_own_instance_with_this_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        assert!(matches!(Reactor::new(true), Ok((_, WaitMode::Own))));
        assert!(matches!(Reactor::new(false), Ok((_, WaitMode::Runtime(_)))));
    }

    /// A waker that closes a socket of its thread when it is called or its last copy is dropped.
    struct Closes;

    thread_local! {
        static LAST: std::cell::Cell<Option<crate::Socket>> = const { std::cell::Cell::new(None) };
    }

    impl std::task::Wake for Closes {
        fn wake(self: std::sync::Arc<Self>) {
            drop(LAST.take());
        }
    }

    impl Drop for Closes {
        fn drop(&mut self) {
            drop(LAST.take());
        }
    }

    fn socket() -> (crate::Socket, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (crate::Socket::adopt(server).unwrap(), client)
    }

    #[test]
    fn wakers_may_close_sockets_when_they_are_dropped_or_called() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let (reactor, _waiting) = Reactor::new(true).unwrap();
        reactor.install();
        let count = || with(|reactor| reactor.sources.count()).unwrap();
        let waits = |socket: &crate::Socket, waker: std::task::Waker| {
            assert!(socket.poll_readable(&mut Context::from_waker(&waker)).is_pending());
        };
        let closes = || {
            LAST.set(Some(socket().0));
            std::task::Waker::from(std::sync::Arc::new(Closes))
        };
        let (watched, client) = socket();
        // Replaced by another waker.
        waits(&watched, closes());
        assert_eq!(count(), 2);
        waits(&watched, std::task::Waker::noop().clone());
        assert_eq!(count(), 1);
        // Called because the peer has disconnected. The socket that it closes has events, too.
        waits(&watched, closes());
        drop(client);
        while count() > 1 {
            wait(None).unwrap();
        }
        drop(watched);
        // Dropped with its source.
        let (watched, _client) = socket();
        waits(&watched, closes());
        drop(watched);
        assert_eq!(count(), 0);
        // Dropped at the end of the loop.
        let (watched, _client) = socket();
        waits(&watched, closes());
        Reactor::remove();
        assert!(LAST.take().is_none());
    }
}
