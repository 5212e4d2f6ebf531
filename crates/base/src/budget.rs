//! Memory for requests in flight: a limit for the process, an account for each session, and a charge for each thing that
//! takes memory.
//!
//! An [`Account`] lives on the loop of its session and is made of plain numbers. What it uses beyond its free bytes it claims
//! from the [`MemoryBudget`] of the process in granules, so a session that needs little costs no atomic operation. A
//! [`Charge`] belongs to whatever holds the memory and returns its bytes when it is dropped.
//!
//! Limits rise with the [`Purpose`], so that what has begun can always end: an argument cannot take the room that requests
//! need to run, and requests cannot take the room of the data that they wait for. Arguments that have arrived in part could
//! wait for each other: the one that waits longest may use the room of requests, one at a time.
//!
//! What is refused is woken: an account that refuses bytes because of its session's limit records up to which use they would
//! fit, and wakes its session when its use falls to that. Each returned charge is checked, so no caller has to do it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Bytes by which an account claims from the budget of the process.
pub const GRANULE_BYTES: usize = 64 * 1024;

/// What memory is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// An argument that arrives.
    Argument,
    /// A request that runs, and the reply that is reserved for it.
    Request,
    /// A piece of file data in flight.
    Data,
}

/// Purposes that there are.
const PURPOSES: usize = 3;

/// Bytes allowed for each purpose, what the purposes before it use included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceilings {
    /// Arguments.
    pub argument: usize,
    /// Arguments and requests.
    pub request: usize,
    /// Everything.
    pub data: usize,
}

impl Ceilings {
    /// Half for arguments, three quarters for requests, all for data.
    #[must_use]
    pub const fn shares_of(limit: usize) -> Self {
        Self { argument: limit / 2, request: limit / 4 * 3, data: limit }
    }

    fn of(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Argument => self.argument,
            Purpose::Request => self.request,
            Purpose::Data => self.data,
        }
    }
}

/// Why memory is not given now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The session uses all that it may: something of its own must end first.
    Session,
    /// The process uses all that it may.
    Process,
}

/// What all sessions of the process may use beyond their free bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    process: Ceilings,
    session: Ceilings,
    free: usize,
    claimed: AtomicUsize,
    /// Accounts that wait for memory.
    waiting: AtomicUsize,
    tickets: AtomicU64,
    /// The ticket whose argument may use the room of requests; 0 for none.
    express: AtomicU64,
    queue: Mutex<BTreeMap<u64, Waiter>>,
}

/// An account that waits, and the bytes that it wants for each purpose.
#[derive(Debug)]
struct Waiter {
    wanted: [Option<usize>; PURPOSES],
    waker: Waker,
}

impl MemoryBudget {
    /// A budget with limits for the process and for each session, of whose bytes the first `free` are not claimed.
    pub fn new(process: Ceilings, session: Ceilings, free: usize) -> Arc<Self> {
        Arc::new(Self {
            process,
            session,
            free,
            claimed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            tickets: AtomicU64::new(1),
            express: AtomicU64::new(0),
            queue: Mutex::default(),
        })
    }

    /// Bytes that sessions have claimed.
    pub fn claimed(&self) -> usize {
        self.claimed.load(Ordering::SeqCst)
    }

    /// Bytes that sessions may claim.
    pub fn limit(&self) -> usize {
        self.process.data
    }

    /// Reports whether a session waits for memory.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn queue(&self) -> MutexGuard<'_, BTreeMap<u64, Waiter>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes up to which the session with this ticket may claim.
    fn ceiling(&self, purpose: Purpose, ticket: u64) -> usize {
        let is_express = ticket != 0 && self.express.load(Ordering::SeqCst) == ticket;
        self.process.of(if is_express && purpose == Purpose::Argument { Purpose::Request } else { purpose })
    }

    fn try_claim(&self, purpose: Purpose, bytes: usize, ticket: u64) -> bool {
        let ceiling = self.ceiling(purpose, ticket);
        let fits = |claimed: usize| (claimed == 0 || claimed + bytes <= ceiling).then_some(claimed + bytes);
        self.claimed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    fn claim(&self, bytes: usize) {
        self.claimed.fetch_add(bytes, Ordering::SeqCst);
    }

    fn release(&self, bytes: usize) {
        self.claimed.fetch_sub(bytes, Ordering::SeqCst);
        if self.is_short() {
            self.wake_waiters();
        }
    }

    /// Wakes the sessions that fit now, those that have waited longest first.
    pub fn wake_waiters(&self) {
        let woken: Vec<Waker> = {
            let mut queue = self.queue();
            let mut claimed = self.claimed();
            let mut is_full = [false; PURPOSES];
            let mut fitting = Vec::new();
            for (&ticket, waiter) in queue.iter() {
                for purpose in [Purpose::Argument, Purpose::Request, Purpose::Data] {
                    let index = purpose as usize;
                    let (Some(wanted), Some(full)) =
                        (waiter.wanted.get(index).copied().flatten(), is_full.get_mut(index))
                    else {
                        continue;
                    };
                    let fits = |ceiling| claimed == 0 || claimed + wanted <= ceiling;
                    if purpose == Purpose::Argument && !*full && !fits(self.ceiling(purpose, ticket)) {
                        let free =
                            self.express.compare_exchange(0, ticket, Ordering::SeqCst, Ordering::SeqCst);
                        free.ok();
                    }
                    // Nobody overtakes a session that waits for the same purpose.
                    if *full || !fits(self.ceiling(purpose, ticket)) {
                        *full = true;
                        continue;
                    }
                    claimed += wanted;
                    fitting.push(ticket);
                    break;
                }
                if is_full == [true; PURPOSES] {
                    break;
                }
            }
            let woken = fitting.iter().filter_map(|ticket| queue.remove(ticket)).map(|waiter| waiter.waker);
            let woken = woken.collect();
            self.waiting.store(queue.len(), Ordering::SeqCst);
            woken
        };
        // Outside of the lock: a waker may run anything.
        woken.into_iter().for_each(Waker::wake);
    }

    fn enqueue(&self, ticket: u64, purpose: Purpose, bytes: usize, waker: &Waker) {
        {
            let mut queue = self.queue();
            let waiter = queue
                .entry(ticket)
                .or_insert_with(|| Waiter { wanted: [None; PURPOSES], waker: waker.clone() });
            if let Some(wanted) = waiter.wanted.get_mut(purpose as usize) {
                *wanted = Some(bytes);
            }
            waiter.waker.clone_from(waker);
            self.waiting.store(queue.len(), Ordering::SeqCst);
        }
        // Memory that returned before the session stood in the queue woke nobody.
        self.wake_waiters();
    }

    fn dequeue(&self, ticket: u64) {
        let mut queue = self.queue();
        queue.remove(&ticket);
        self.waiting.store(queue.len(), Ordering::SeqCst);
    }

    /// The session with this ticket does not wait any more, and others may wait behind it.
    fn retire(&self, ticket: u64) {
        self.dequeue(ticket);
        let held = self.express.compare_exchange(ticket, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if held || self.is_short() {
            self.wake_waiters();
        }
    }
}

/// The bytes that one session uses. It belongs to the loop of that session.
#[derive(Debug)]
pub struct Account {
    budget: Arc<MemoryBudget>,
    used: Cell<usize>,
    claimed: Cell<usize>,
    /// What was refused because of the session's limit may fit when fewer bytes than this are in use; 0 if nothing was refused.
    awaited: Cell<usize>,
    /// Something that was refused may fit since [`Account::take_has_room_again`].
    has_room_again: Cell<bool>,
    /// Wakes the session.
    waker: RefCell<Option<Waker>>,
    /// The place in the queue for memory of the process, which an argument keeps until its request is taken; 0 for none.
    ticket: Cell<u64>,
}

impl Account {
    /// An account that uses nothing yet.
    pub fn new(budget: &Arc<MemoryBudget>) -> Rc<Self> {
        Rc::new(Self {
            budget: budget.clone(),
            used: Cell::new(0),
            claimed: Cell::new(0),
            awaited: Cell::new(0),
            has_room_again: Cell::new(false),
            waker: RefCell::new(None),
            ticket: Cell::new(0),
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Sets what wakes the session when bytes that were refused because of its limit may be had.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        match &mut *known {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }

    /// Reports, once, whether bytes that were refused because of the session's limit may be had again.
    pub fn take_has_room_again(&self) -> bool {
        self.has_room_again.take()
    }

    /// Reports whether it holds memory of the process beyond its free bytes.
    pub fn holds_claim(&self) -> bool {
        self.claimed.get() > 0
    }

    /// Takes bytes before the work that needs them begins. `own` are bytes that the same work holds already: where nothing
    /// else is in flight the session's limit does not count, so that one request is always possible. After
    /// [`Shortage::Session`] the session is woken when the bytes may be had; for [`Shortage::Process`] see [`Account::wait`].
    pub fn reserve(self: &Rc<Self>, purpose: Purpose, bytes: usize, own: usize) -> Result<Charge, Shortage> {
        self.admit(purpose, bytes, own)?;
        self.used.set(self.used.get() + bytes);
        Ok(Charge { account: Some(self.clone()), bytes })
    }

    /// Takes bytes that cannot be refused, because the memory is there already.
    pub fn charge(self: &Rc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { account: Some(self.clone()), bytes }
    }

    fn admit(&self, purpose: Purpose, bytes: usize, own: usize) -> Result<(), Shortage> {
        let used = self.used.get();
        let after = used + bytes;
        let free = self.budget.free;
        if after > self.budget.session.of(purpose) && used.saturating_sub(own) > free {
            let fits = self.budget.session.of(purpose).saturating_sub(bytes).max(free + own);
            self.awaited.set(self.awaited.get().max(fits + 1));
            return Err(Shortage::Session);
        }
        let claimed = self.claimed.get();
        let more = granules(after.saturating_sub(free)).saturating_sub(claimed);
        if more > 0 {
            let ticket = self.ticket.get();
            let is_behind_others = ticket == 0 && self.budget.is_short();
            if is_behind_others || !self.budget.try_claim(purpose, more, ticket) {
                return Err(Shortage::Process);
            }
            self.claimed.set(claimed + more);
        }
        match self.ticket.get() {
            0 => {}
            ticket if purpose == Purpose::Argument => self.budget.dequeue(ticket),
            _ => self.budget.retire(self.ticket.take()),
        }
        Ok(())
    }

    /// Has `waker` woken when so many bytes may be had for a purpose. To be called after [`Shortage::Process`].
    pub fn wait(&self, purpose: Purpose, bytes: usize, waker: &Waker) {
        if self.ticket.get() == 0 {
            self.ticket.set(self.budget.tickets.fetch_add(1, Ordering::Relaxed));
        }
        let after = self.used.get() + bytes;
        let more = granules(after.saturating_sub(self.budget.free)).saturating_sub(self.claimed.get());
        self.budget.enqueue(self.ticket.get(), purpose, more, waker);
    }

    fn add(&self, bytes: usize) {
        let used = self.used.get() + bytes;
        self.used.set(used);
        let (needed, claimed) = (granules(used.saturating_sub(self.budget.free)), self.claimed.get());
        if needed > claimed {
            self.claimed.set(needed);
            self.budget.claim(needed - claimed);
        }
    }

    fn subtract(&self, bytes: usize) {
        let used = self.used.get().saturating_sub(bytes);
        self.used.set(used);
        self.release(used);
        if used < self.awaited.get() {
            self.awaited.set(0);
            self.has_room_again.set(true);
            // Not borrowed meanwhile: a waker may run anything.
            let waker = self.waker.borrow().clone();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns claimed bytes that so many bytes in use do not need.
    fn release(&self, used: usize) {
        let claimed = self.claimed.get();
        if claimed == 0 {
            return;
        }
        let needed = granules(used.saturating_sub(self.budget.free));
        // One granule is kept as long as others are needed, so that use around a border costs nothing.
        if needed == 0 || claimed > needed + GRANULE_BYTES {
            self.claimed.set(needed);
            self.budget.release(claimed - needed);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.ticket.get() != 0 {
            self.budget.retire(self.ticket.get());
        }
        let claimed = self.claimed.get();
        if claimed > 0 {
            self.budget.release(claimed);
        }
    }
}

fn granules(bytes: usize) -> usize {
    bytes.next_multiple_of(GRANULE_BYTES)
}

/// Bytes of memory that its owner answers for; they return to the account when it is dropped.
#[derive(Debug, Default)]
#[must_use = "the bytes return when it is dropped"]
pub struct Charge {
    account: Option<Rc<Account>>,
    bytes: usize,
}

impl Charge {
    /// No bytes of nobody.
    pub const NONE: Self = Self { account: None, bytes: 0 };

    /// Bytes that it stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what is more than so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let less = self.bytes - bytes;
            self.bytes = bytes;
            self.account.iter().for_each(|account| account.subtract(less));
        }
    }

    /// Takes more, if it may be had. `own` as in [`Account::reserve`]; the present bytes are own ones anyway.
    pub fn grow_to(&mut self, purpose: Purpose, bytes: usize, own: usize) -> Result<(), Shortage> {
        let (Some(account), Some(more)) = (&self.account, bytes.checked_sub(self.bytes)) else {
            return Ok(());
        };
        account.admit(purpose, more, own + self.bytes)?;
        account.used.set(account.used.get() + more);
        self.bytes = bytes;
        Ok(())
    }

    /// Stands for so many bytes of `account` from now on, because that is what its owner holds.
    pub fn measure(&mut self, account: &Rc<Account>, bytes: usize) {
        if self.bytes > bytes {
            self.shrink_to(bytes);
        } else if self.bytes < bytes {
            account.add(bytes - self.bytes);
            self.account.get_or_insert_with(|| account.clone());
            self.bytes = bytes;
        }
        if bytes == 0 {
            self.account = None;
        }
    }

    /// Divides it: so many bytes of it, at most all, become a charge of their own.
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { account: self.account.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
