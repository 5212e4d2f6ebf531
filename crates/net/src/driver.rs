//! What a loop's thread does all day: runs connections that are ready, and waits for the next.
//!
//! It looks at its sockets itself; the runtime, whose tasks are few and seldom run, has its turn when its epoll instance, which
//! is watched with the sockets, has something, and from time to time for the sake of its timers.

use crate::crew::{Crew, Running};
use crate::poller::{self, Poller, Waiting, Woken};
use crate::polling;
use crate::wakes::SharedWaker;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::task::{LocalSet, unconstrained};

/// The runtime looks after its timers this long after a task of its own has run, then after twice the time, and so on: what
/// a task has set itself is late by no more than it lasts.
const VISIT_LEAST: Duration = Duration::from_millis(1);

/// Between two looks at timers, at most.
const VISIT_MOST: Duration = Duration::from_millis(128);

/// Wakes the runtime's local tasks, and tells the loop that it is to run them.
#[derive(Default)]
struct Called {
    any: AtomicBool,
    runtime: SharedWaker,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.any.store(true, Ordering::Release);
        self.runtime.wake();
    }
}

/// When the runtime is to look at its timers.
struct Visits {
    next: Instant,
    every: Duration,
}

impl Visits {
    fn soon(&mut self, now: Instant) {
        self.every = VISIT_LEAST;
        self.next = self.next.min(now + VISIT_LEAST);
    }

    /// It does now.
    fn made(&mut self, now: Instant) {
        self.next = now + self.every;
        self.every = VISIT_MOST.min(2 * self.every);
    }
}

/// Runs a loop on this thread until `main` ends.
///
/// # Errors
/// If the loop cannot wait for its sockets.
pub(crate) fn drive(
    runtime: &tokio::runtime::Runtime,
    poller: Poller,
    waiting: Waiting,
    main: impl Future<Output = ()>,
) -> io::Result<()> {
    let local = LocalSet::new();
    runtime.block_on(async {
        poller.install();
        let ended = {
            let _inside = local.enter();
            let running = Crew::begin();
            let tasks = pin!(local.run_until(unconstrained(main)));
            let called = Arc::new(Called::default());
            called.any.store(true, Ordering::Relaxed);
            let now = Instant::now();
            let turn = Turn {
                running,
                waker: Waker::from(called.clone()),
                called,
                tasks,
                waiting,
                visits: Visits { next: now, every: VISIT_LEAST },
            };
            turn.await
        };
        Poller::remove();
        ended
    })
}

struct Turn<'a, F> {
    running: Running,
    /// Of the local tasks.
    waker: Waker,
    called: Arc<Called>,
    tasks: Pin<&'a mut F>,
    waiting: Waiting,
    visits: Visits,
}

impl<F: Future<Output = ()>> Future for Turn<'_, F> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.called.runtime.set(context.waker());
        this.running.set_waker(context.waker());
        this.running.set_called(true);
        loop {
            if this.called.any.swap(false, Ordering::Acquire) {
                this.visits.soon(Instant::now());
                if this.tasks.as_mut().poll(&mut Context::from_waker(&this.waker)).is_ready() {
                    return Poll::Ready(Ok(()));
                }
            }
            this.running.round();
            let pressing = this.called.any.load(Ordering::Relaxed) || this.running.has_ready();
            let (leave, back) = match &this.waiting {
                Waiting::Own => (wait_own(&mut this.visits, pressing)?, true),
                Waiting::Runtime(watched) => wait_runtime(watched, &mut this.visits, pressing, context)?,
            };
            if leave {
                if back {
                    // The runtime looks after its own without sleeping.
                    context.waker().wake_by_ref();
                }
                this.running.set_called(back);
                return Poll::Pending;
            }
        }
    }
}

/// Waits for sockets, or the runtime; `true` if it is the runtime's turn.
fn wait_own(visits: &mut Visits, pressing: bool) -> io::Result<bool> {
    let now = Instant::now();
    let limit = if pressing { Some(Duration::ZERO) } else { poller::wake_at(visits.next, now) };
    let woken = match polling::moment(now) {
        Some(until) if limit != Some(Duration::ZERO) => look_until(until, limit),
        _ => poller::wait(limit),
    }?;
    let due = woken == Woken::Runtime || (now >= visits.next) || (woken == Woken::Nothing && !pressing);
    if due {
        visits.made(Instant::now());
    }
    Ok(due)
}

/// Looks without sleeping for a moment, then waits.
fn look_until(until: Instant, limit: Option<Duration>) -> io::Result<Woken> {
    loop {
        let woken = poller::wait(Some(Duration::ZERO))?;
        if woken != Woken::Nothing {
            return Ok(woken);
        }
        if Instant::now() >= until {
            return poller::wait(limit);
        }
    }
}

/// Looks at the sockets. Is it the runtime's turn, and shall it come back at once? If not it does when sockets are ready.
fn wait_runtime(
    watched: &AsyncFd<OwnedFd>,
    visits: &mut Visits,
    pressing: bool,
    context: &mut Context<'_>,
) -> io::Result<(bool, bool)> {
    let now = Instant::now();
    if now >= visits.next {
        visits.made(now);
        return Ok((true, true));
    }
    let woken = poller::wait(Some(Duration::ZERO))?;
    if woken == Woken::Sources || pressing {
        return Ok((false, false));
    }
    // Nothing was there: from now on the runtime tells.
    match watched.poll_read_ready(context) {
        Poll::Ready(ready) => {
            ready?.clear_ready();
            Ok((false, false))
        }
        Poll::Pending => Ok((true, false)),
    }
}
