//! The state of one loop: its sessions, the mailbox for late answers, and a tick for time limits.
//!
//! Each loop has its own hub, so that only the mailbox needs a lock. A hub does not know what drives
//! its sessions: it is generic over [`LoopSession`], so that its calls are direct.

use crate::front_end::FrontEnd;
use crate::stats::{self, LoopStats};
use monitor::LoopStreams;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use vfs::{Answer, DeferredReply, Mailbox, ReplyToken};

/// Interval between checks of time limits.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A point in time, in milliseconds since the creation of the loop's hub. Half the size of
/// `std::time::Instant`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LoopTime(u64);

impl LoopTime {
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Receives answers from any thread.
#[derive(Default)]
pub(crate) struct LoopMailbox {
    letters: Mutex<Vec<(ReplyToken, Letter)>>,
    arrived: Notify,
}

/// What a mailbox receives for a call.
enum Letter {
    Answer(Answer),
    /// The answer follows within this time, in seconds.
    Later(u32),
}

impl LoopMailbox {
    fn push(&self, token: ReplyToken, letter: Letter) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        letters.push((token, letter));
        drop(letters);
        self.arrived.notify_one();
    }
}

impl Mailbox for LoopMailbox {
    fn deliver(&self, token: ReplyToken, answer: Answer) {
        self.push(token, Letter::Answer(answer));
    }

    fn deliver_notice(&self, token: ReplyToken, seconds: u32) {
        self.push(token, Letter::Later(seconds));
    }
}

const TICK_MILLISECONDS: u64 = TICK.as_secs() * 1000;

/// A session as the hub of its loop uses it.
pub(crate) trait LoopSession: Sized + 'static {
    /// Returns the hubs of the current loop. A static variable cannot be generic, so the type of the
    /// sessions owns it.
    fn hubs() -> &'static LocalKey<HubTable<Self>>;

    /// Delivers the late answer of a call.
    fn deliver(this: &Rc<RefCell<Self>>, call: u64, answer: Answer);

    /// Notifies the client of a call that its answer follows within this time, in seconds.
    fn defer(this: &Rc<RefCell<Self>>, call: u64, seconds: u32);

    /// Checks the time limits of the session.
    fn check_time(this: &Rc<RefCell<Self>>, now: LoopTime, tick: u32);

    /// Ends the session. The reply is sent after its files have been released.
    fn terminate(this: &Rc<RefCell<Self>>, reply: DeferredReply);

    /// Ends the session immediately.
    fn abort(this: &Rc<RefCell<Self>>);

    /// Returns the seconds for which the session has held memory of the process without progress.
    fn stalled_for(&mut self, tick: u32) -> u32;

    /// Ends the session because others need the memory that it holds.
    fn end_stalled(this: &Rc<RefCell<Self>>, seconds: u32);

    /// Wakes the tasks of all connections.
    fn wake_all(&self);
}

/// The hubs of one loop, each with the address of its front end.
pub(crate) type HubTable<S> = RefCell<Vec<(usize, Rc<Hub<S>>)>>;

/// The part of the front end that belongs to one loop.
pub(crate) struct Hub<S> {
    pub(crate) shared: Arc<FrontEnd>,
    pub(crate) mailbox: Arc<LoopMailbox>,
    pub(crate) stats: Arc<LoopStats>,
    sessions: RefCell<HashMap<u64, Rc<RefCell<S>>>>,
    pub(crate) draining: Cell<bool>,
    /// Buffers of detailed monitoring; `None` if there is none.
    pub(crate) streams: Option<Rc<LoopStreams>>,
    started: Instant,
    ticks: Cell<u32>,
}

impl<S: LoopSession> Hub<S> {
    /// Returns the hub of this front end on the current loop. The first call creates it and starts
    /// its tasks.
    pub(crate) fn of(shared: &Arc<FrontEnd>) -> Rc<Self> {
        let door = Arc::as_ptr(shared).addr();
        let known = S::hubs()
            .with_borrow(|hubs| hubs.iter().find(|(key, _)| *key == door).map(|(_, hub)| hub.clone()));
        if let Some(hub) = known {
            return hub;
        }
        let stats = Arc::new(LoopStats::default());
        shared.add_loop(stats.clone());
        stats::time_requests(&stats);
        let hub = Rc::new(Self {
            shared: shared.clone(),
            mailbox: Arc::default(),
            stats,
            sessions: RefCell::default(),
            draining: Cell::new(shared.is_draining()),
            streams: shared.config.streams.as_ref().map(LoopStreams::new),
            started: Instant::now(),
            ticks: Cell::new(0),
        });
        S::hubs().with_borrow_mut(|hubs| hubs.push((door, hub.clone())));
        // Without these tasks, replies and time limits of the whole loop would stop.
        let mail = sort_mail(hub.clone());
        net::spawn_essential("the delivery of late replies", async { match mail.await {} });
        let ticks = tick(hub.clone());
        net::spawn_essential("the tick of the sessions", async { match ticks.await {} });
        hub
    }

    /// Reads the clock.
    pub(crate) fn now(&self) -> LoopTime {
        LoopTime(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the number of whole [`TICK`]s as of the last one, without reading the clock.
    pub(crate) fn tick(&self) -> u32 {
        self.ticks.get()
    }

    /// Returns a key for a new session. It is unique in the process and never reused.
    pub(crate) fn new_owner(&self) -> u64 {
        base::Owner::unique().0
    }

    pub(crate) fn insert(&self, owner: u64, driver: Rc<RefCell<S>>) {
        let old = self.sessions.borrow_mut().insert(owner, driver);
        // The destructor of a session may look up other sessions.
        drop(old);
    }

    pub(crate) fn find(&self, owner: u64) -> Option<Rc<RefCell<S>>> {
        self.sessions.borrow().get(&owner).cloned()
    }

    pub(crate) fn remove(&self, owner: u64) {
        let driver = self.sessions.borrow_mut().remove(&owner);
        drop(driver);
    }

    fn all(&self) -> Vec<Rc<RefCell<S>>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// Ends a session on request of another connection. The reply is sent after its files have been
    /// released.
    pub(crate) fn terminate(&self, owner: u64, reply: DeferredReply) {
        match self.find(owner) {
            Some(driver) => S::terminate(&driver, reply),
            None => reply.send(Answer::DONE),
        }
    }

    /// Stops taking requests. Operations in flight complete, then the sessions end.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        for driver in self.all() {
            driver.borrow().wake_all();
        }
    }

    /// Frees memory for waiting sessions: ends the session that has held memory for the longest
    /// time without progress, if that exceeds the limit.
    fn free_memory(&self, tick: u32) {
        // A waiter that was woken but no longer needed its memory may have left room for others.
        self.shared.memory.wake_waiters();
        let stalled = self.all().into_iter().map(|driver| {
            let seconds = driver.borrow_mut().stalled_for(tick);
            (seconds, driver)
        });
        if let Some((seconds, driver)) = stalled.max_by_key(|(seconds, _)| *seconds)
            && seconds > self.shared.config.stalled_seconds
        {
            S::end_stalled(&driver, seconds);
        }
    }

    /// Ends all sessions immediately.
    pub(crate) fn abort(&self) {
        for driver in self.all() {
            S::abort(&driver);
        }
        self.streams.iter().for_each(|streams| streams.flush());
    }
}

/// Delivers answers to their sessions.
async fn sort_mail<S: LoopSession>(hub: Rc<Hub<S>>) -> Infallible {
    let mut batch = Vec::new();
    loop {
        hub.mailbox.arrived.notified().await;
        std::mem::swap(&mut batch, &mut *hub.mailbox.letters.lock().unwrap_or_else(PoisonError::into_inner));
        for (token, letter) in batch.drain(..) {
            // Letters for a session that has ended are dropped.
            let Some(driver) = hub.find(token.owner) else { continue };
            match letter {
                Letter::Answer(answer) => S::deliver(&driver, token.call, answer),
                Letter::Later(seconds) => S::defer(&driver, token.call, seconds),
            }
        }
    }
}

/// Closes connections whose login timeout has passed, or whose idle timeout if one is configured.
async fn tick<S: LoopSession>(hub: Rc<Hub<S>>) -> Infallible {
    let mut beat = tokio::time::interval(TICK);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let now = hub.now();
        let tick = u32::try_from(now.0 / TICK_MILLISECONDS).unwrap_or(u32::MAX);
        hub.ticks.set(tick);
        hub.shared.failures.write(Instant::now());
        hub.streams.iter().for_each(|streams| streams.tick());
        for driver in hub.all() {
            S::check_time(&driver, now, tick);
        }
        if hub.shared.memory.is_short() {
            hub.free_memory(tick);
        }
    }
}
