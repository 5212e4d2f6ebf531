//! The event loop of a thread: runs ready tasks, then waits for the next events (decision 005).
//!
//! The loop polls its sockets itself instead of leaving that to the runtime, because the runtime
//! takes a thousand more instructions per request. The runtime has few tasks that rarely run. It
//! gets its turn when its epoll instance, which the loop watches with the sockets, has an event,
//! and periodically for its timers.

use crate::executor::rounds::RunningExecutor;
use crate::polling;
use crate::reactor::{self, Reactor, WaitMode, WaitOutcome};
use crate::round_hook;
use crate::task_waker::SharedWaker;
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

/// Delay after which the runtime checks its timers when one of its tasks has run; then the delay
/// doubles (backoff). A timer set by a task is therefore late by at most its own duration.
const VISIT_LEAST: Duration = Duration::from_millis(1);

/// Maximum delay between two checks of timers. Each check wakes an idle loop.
const VISIT_MOST: Duration = Duration::from_millis(512);

/// The waker of the runtime's local tasks. It also marks that the loop must run them.
#[derive(Default)]
struct LocalTasksWaker {
    any: AtomicBool,
    runtime: SharedWaker,
}

impl Wake for LocalTasksWaker {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.any.store(true, Ordering::Release);
        self.runtime.wake();
    }
}

/// The schedule of the runtime's timer checks.
struct TimerSchedule {
    next: Instant,
    every: Duration,
}

impl TimerSchedule {
    fn schedule_soon(&mut self, now: Instant) {
        self.every = VISIT_LEAST;
        self.next = self.next.min(now + VISIT_LEAST);
    }

    /// Records a check.
    fn record_check(&mut self, now: Instant) {
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
    reactor: Reactor,
    waiting: WaitMode,
    main: impl Future<Output = ()>,
) -> io::Result<()> {
    let local = LocalSet::new();
    runtime.block_on(async {
        reactor.install();
        let ended = {
            let _inside = local.enter();
            let running = RunningExecutor::begin();
            let tasks = pin!(local.run_until(unconstrained(main)));
            let called = Arc::new(LocalTasksWaker::default());
            called.any.store(true, Ordering::Relaxed);
            let now = Instant::now();
            let turn = LoopFuture {
                running,
                waker: Waker::from(called.clone()),
                called,
                tasks,
                waiting,
                visits: TimerSchedule { next: now, every: VISIT_LEAST },
            };
            // Without the cooperative budget of the runtime: a task that has used it up would wait
            // until the runtime has its turn. The executor limits the tasks of a round itself, and
            // the local tasks of the runtime have budgets of their own.
            unconstrained(turn).await
        };
        Reactor::remove();
        ended
    })
}

struct LoopFuture<'a, F> {
    running: RunningExecutor,
    /// Waker of the local tasks.
    waker: Waker,
    called: Arc<LocalTasksWaker>,
    tasks: Pin<&'a mut F>,
    waiting: WaitMode,
    visits: TimerSchedule,
}

impl<F: Future<Output = ()>> Future for LoopFuture<'_, F> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.called.runtime.set(context.waker());
        this.running.set_waker(context.waker());
        this.running.set_called(true);
        loop {
            if this.called.any.swap(false, Ordering::Acquire) {
                this.visits.schedule_soon(Instant::now());
                if this.tasks.as_mut().poll(&mut Context::from_waker(&this.waker)).is_ready() {
                    return Poll::Ready(Ok(()));
                }
            }
            this.running.round();
            let pressing = this.called.any.load(Ordering::Relaxed) || this.running.has_ready();
            let (leave, back) = match &this.waiting {
                WaitMode::Own => (wait_own(&mut this.visits, pressing)?, true),
                WaitMode::Runtime(watched) => wait_runtime(watched, &mut this.visits, pressing, context)?,
            };
            if leave {
                if back {
                    // The runtime checks its own events without sleeping.
                    context.waker().wake_by_ref();
                }
                this.running.set_called(back);
                return Poll::Pending;
            }
        }
    }
}

/// Waits for sockets or the runtime. Returns `true` if the runtime must run.
fn wait_own(visits: &mut TimerSchedule, pressing: bool) -> io::Result<bool> {
    let now = Instant::now();
    round_hook::call(now);
    let limit = if pressing { Some(Duration::ZERO) } else { reactor::wake_at(visits.next, now) };
    let woken = match polling::moment(now) {
        Some(until) if limit != Some(Duration::ZERO) => look_until(until, limit),
        _ => reactor::wait(limit),
    }?;
    let due =
        woken == WaitOutcome::Runtime || (now >= visits.next) || (woken == WaitOutcome::Nothing && !pressing);
    if due {
        visits.record_check(Instant::now());
    }
    Ok(due)
}

/// Polls without sleeping until a moment, then waits.
fn look_until(until: Instant, limit: Option<Duration>) -> io::Result<WaitOutcome> {
    loop {
        let woken = reactor::wait(Some(Duration::ZERO))?;
        if woken != WaitOutcome::Nothing {
            return Ok(woken);
        }
        if Instant::now() >= until {
            return reactor::wait(limit);
        }
    }
}

/// Polls the sockets. Returns whether the runtime must run, and whether it must return immediately.
/// If not, it returns when sockets are ready.
fn wait_runtime(
    watched: &AsyncFd<OwnedFd>,
    visits: &mut TimerSchedule,
    pressing: bool,
    context: &mut Context<'_>,
) -> io::Result<(bool, bool)> {
    let now = Instant::now();
    round_hook::call(now);
    if now >= visits.next {
        visits.record_check(now);
        return Ok((true, true));
    }
    let woken = reactor::wait(Some(Duration::ZERO))?;
    if woken == WaitOutcome::Sources || pressing {
        return Ok((false, false));
    }
    // No socket was ready, so from now on the runtime waits for them.
    match watched.poll_read_ready(context) {
        Poll::Ready(ready) => {
            ready?.clear_ready();
            Ok((false, false))
        }
        Poll::Pending => Ok((true, false)),
    }
}
