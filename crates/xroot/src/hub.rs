//! What a loop keeps: its sessions, the mailbox that late answers come to, and a tick for time limits.

use crate::door::Shared;
use crate::driver::SessionDriver;
use crate::stats::LoopStats;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use vfs::{Answer, Mailbox, Reply, Token};

/// Between looks at time limits.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A point in time: milliseconds since a loop's part of the door was made. Half the size of what the system gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Takes answers in any thread.
#[derive(Default)]
pub(crate) struct LoopMailbox {
    letters: Mutex<Vec<(Token, Answer)>>,
    arrived: Notify,
}

impl Mailbox for LoopMailbox {
    fn deliver(&self, token: Token, answer: Answer) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.push((token, answer));
        drop(letters);
        self.arrived.notify_one();
    }
}

const TICK_MILLISECONDS: u64 = TICK.as_secs() * 1000;

/// One loop's part of the door.
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<LoopMailbox>,
    pub(crate) stats: Arc<LoopStats>,
    sessions: RefCell<HashMap<u64, Rc<RefCell<SessionDriver>>>>,
    pub(crate) draining: Cell<bool>,
    started: Instant,
    ticks: Cell<u32>,
}

thread_local! {
    static HUBS: RefCell<Vec<(usize, Rc<Hub>)>> = const { RefCell::new(Vec::new()) };
}

impl Hub {
    /// The current loop's hub of this door, made and set going at first use.
    pub(crate) fn of(shared: &Arc<Shared>) -> Rc<Self> {
        let door = Arc::as_ptr(shared).addr();
        let known =
            HUBS.with_borrow(|hubs| hubs.iter().find(|(key, _)| *key == door).map(|(_, hub)| hub.clone()));
        if let Some(hub) = known {
            return hub;
        }
        let stats = Arc::new(LoopStats::default());
        shared.add_loop(stats.clone());
        let hub = Rc::new(Self {
            shared: shared.clone(),
            mailbox: Arc::default(),
            stats,
            sessions: RefCell::default(),
            draining: Cell::new(shared.is_draining()),
            started: Instant::now(),
            ticks: Cell::new(0),
        });
        HUBS.with_borrow_mut(|hubs| hubs.push((door, hub.clone())));
        // Without them replies and time limits of the whole loop would stop.
        let mail = sort_mail(hub.clone());
        net::spawn_essential("the delivery of late replies", async { match mail.await {} });
        let ticks = tick(hub.clone());
        net::spawn_essential("the tick of the sessions", async { match ticks.await {} });
        hub
    }

    /// Asks the clock.
    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Whole [`TICK`]s that have passed, as of the last one: costs nothing.
    pub(crate) fn tick(&self) -> u32 {
        self.ticks.get()
    }

    /// A key for a new session; unique in the process and never used again.
    pub(crate) fn new_owner(&self) -> u64 {
        base::Owner::unique().0
    }

    pub(crate) fn insert(&self, owner: u64, driver: Rc<RefCell<SessionDriver>>) {
        let old = self.sessions.borrow_mut().insert(owner, driver);
        // The destructor of a session can look for other sessions.
        drop(old);
    }

    pub(crate) fn find(&self, owner: u64) -> Option<Rc<RefCell<SessionDriver>>> {
        self.sessions.borrow().get(&owner).cloned()
    }

    pub(crate) fn remove(&self, owner: u64) {
        let driver = self.sessions.borrow_mut().remove(&owner);
        drop(driver);
    }

    fn all(&self) -> Vec<Rc<RefCell<SessionDriver>>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Ends a session of another connection's wish; the reply comes when its files are released.
    pub(crate) fn terminate(&self, owner: u64, reply: Reply) {
        match self.find(owner) {
            Some(driver) => SessionDriver::terminate(&driver, reply),
            None => reply.send(Answer::DONE),
        }
    }

    /// No further requests: what is in flight ends, then the sessions do.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        for driver in self.all() {
            driver.borrow().wake_all();
        }
    }

    /// Others wait for memory: ends the session that has kept its own for the longest time without moving, if that is too long.
    fn free_memory(&self, tick: u32) {
        // Who was woken and did not need it any more may have left room to others.
        self.shared.memory.wake_waiters();
        let stalled = self.all().into_iter().map(|driver| {
            let seconds = driver.borrow_mut().stalled_for(tick);
            (seconds, driver)
        });
        if let Some((seconds, driver)) = stalled.max_by_key(|(seconds, _)| *seconds)
            && seconds > self.shared.config.stalled_seconds
        {
            SessionDriver::end_stalled(&driver, seconds);
        }
    }

    /// Ends all sessions now.
    pub(crate) fn abort(&self) {
        for driver in self.all() {
            SessionDriver::abort(&driver);
        }
    }
}

/// Brings answers to their sessions.
async fn sort_mail(hub: Rc<Hub>) -> Infallible {
    let mut batch = Vec::new();
    loop {
        hub.mailbox.arrived.notified().await;
        std::mem::swap(&mut batch, &mut *hub.mailbox.letters.lock().unwrap_or_else(PoisonError::into_inner));
        for (token, answer) in batch.drain(..) {
            // A session that is gone takes no answers any more.
            if let Some(driver) = hub.find(token.owner) {
                SessionDriver::deliver(&driver, token.call, answer);
            }
        }
    }
}

/// Closes connections that never log in, and those that are silent for too long if that is configured.
async fn tick(hub: Rc<Hub>) -> Infallible {
    let mut beat = tokio::time::interval(TICK);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let now = hub.now();
        let tick = u32::try_from(now.0 / TICK_MILLISECONDS).unwrap_or(u32::MAX);
        hub.ticks.set(tick);
        hub.shared.failures.write(Instant::now());
        for driver in hub.all() {
            SessionDriver::check_time(&driver, now, tick);
        }
        if hub.shared.memory.is_short() {
            hub.free_memory(tick);
        }
    }
}
