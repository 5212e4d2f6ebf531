//! Memory for requests in flight: a limit for the process, an account for each session, and a charge for each thing that
//! takes memory.
//!
//! An [`Account`] lives on the loop of its session and is made of plain numbers. What it uses beyond its free bytes it claims
//! from the [`MemoryBudget`] of the process in granules, so a session that needs little costs no atomic operation. A
//! [`Charge`] belongs to whatever holds the memory and returns its bytes when it is dropped.
//!
//! Limits rise with the [`Purpose`], so that what has begun can always end: an argument cannot take
//! the room that requests need to run, and requests cannot take the room of the data that they wait
//! for. Arguments that have arrived in part could wait for each other: the one that waits longest
//! may use the room of requests, one at a time ([`Ticket`]).
//!
//! What is refused is woken: an account that refuses bytes because of its session's limit records up to which use they would
//! fit, and wakes its session when its use falls to that. Each returned charge is checked, so no caller has to do it.

mod queue;

use queue::WaitQueues;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

impl Purpose {
    /// All, those first that what has begun needs to end.
    const ALL: [Self; PURPOSES] = [Self::Data, Self::Request, Self::Argument];
}

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
    queues: WaitQueues,
}

impl MemoryBudget {
    /// A budget with limits for the process and for each session, of whose bytes the first `free` are not claimed.
    pub fn new(process: Ceilings, session: Ceilings, free: usize) -> Arc<Self> {
        Arc::new(Self { process, session, free, claimed: AtomicUsize::new(0), queues: WaitQueues::default() })
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
        self.queues.is_waiting()
    }

    fn try_claim(&self, purpose: Purpose, bytes: usize, place: u64) -> bool {
        let ceiling = match purpose {
            Purpose::Argument if self.queues.is_express(place) => self.process.request,
            purpose => self.process.of(purpose),
        };
        let claim = |claimed: usize| fits(claimed, bytes, ceiling).then_some(claimed + bytes);
        self.claimed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim).is_ok()
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

    /// Wakes the sessions that fit now, for each purpose those that have waited longest first.
    pub fn wake_waiters(&self) {
        // Outside of the lock of the queues: a waker may run anything.
        self.queues.take_fitting(|| self.claimed(), &self.process).into_iter().for_each(Waker::wake);
    }

    fn enqueue(&self, purpose: Purpose, place: u64, bytes: usize, waker: &Waker) {
        self.queues.insert(purpose, place, bytes, waker);
        // Memory that returned before the session stood in the queue woke nobody.
        self.wake_waiters();
    }

    /// The session does not wait for this purpose any more; others may have waited behind it.
    fn leave(&self, purpose: Purpose, place: u64) {
        if self.queues.remove(purpose, place) {
            self.wake_waiters();
        }
    }
}

/// Reports whether so many bytes more stay below a limit. Alone anything fits, so that the largest
/// request is possible.
fn fits(claimed: usize, bytes: usize, ceiling: usize) -> bool {
    claimed == 0 || claimed + bytes <= ceiling
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
    /// For each purpose the place in the queue for memory of the process; 0 for none. That for
    /// arguments belongs to a [`Ticket`].
    places: [Cell<u64>; PURPOSES],
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
            places: Default::default(),
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Sets what wakes the session when bytes that were refused may be had.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        match &mut *known {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }

    /// Reports, once, whether bytes that were refused may be had again, by the limit of the session
    /// or because something of the session that waited has got its bytes.
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
    #[inline]
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

    fn place(&self, purpose: Purpose) -> &Cell<u64> {
        match (&self.places, purpose) {
            ([place, _, _], Purpose::Argument)
            | ([_, place, _], Purpose::Request)
            | ([_, _, place], Purpose::Data) => place,
        }
    }

    #[inline]
    fn admit(&self, purpose: Purpose, bytes: usize, own: usize) -> Result<(), Shortage> {
        let used = self.used.get();
        let after = used + bytes;
        let free = self.budget.free;
        if after > self.budget.session.of(purpose) && used.saturating_sub(own) > free {
            let fits = self.budget.session.of(purpose).saturating_sub(bytes).max(free + own);
            self.awaited.set(self.awaited.get().max(fits + 1));
            return Err(Shortage::Session);
        }
        let more = self.missing(after);
        if more > 0 {
            let place = self.place(purpose).get();
            let is_behind_others = place == 0 && self.budget.queues.is_awaited(purpose);
            if is_behind_others || !self.budget.try_claim(purpose, more, place) {
                return Err(Shortage::Process);
            }
            self.claimed.set(self.claimed.get() + more);
            if place != 0 {
                self.granted(purpose, place);
            }
        }
        Ok(())
    }

    /// Bytes of the process that it must claim before it can use so many.
    #[inline]
    fn missing(&self, used: usize) -> usize {
        granules(used.saturating_sub(self.budget.free)).saturating_sub(self.claimed.get())
    }

    /// Something that waited for this purpose has got its bytes.
    fn granted(&self, purpose: Purpose, place: u64) {
        if purpose != Purpose::Argument {
            self.place(purpose).set(0);
            // The place stood for all that the session wants for this purpose: what is left asks
            // again.
            self.wake();
        }
        self.budget.leave(purpose, place);
    }

    fn wake(&self) {
        self.has_room_again.set(true);
        // Not borrowed meanwhile: a waker may run anything.
        let waker = self.waker.borrow().clone();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Has `waker` woken when so many bytes may be had for a request or for data. To be called
    /// after [`Shortage::Process`]. The session has one place for each purpose, and keeps it until
    /// it gets bytes for that purpose.
    pub fn wait(&self, purpose: Purpose, bytes: usize, waker: &Waker) {
        let place = self.place(purpose);
        if place.get() == 0 {
            place.set(self.budget.queues.next_place());
        }
        self.budget.enqueue(purpose, place.get(), self.missing(self.used.get() + bytes), waker);
    }

    fn add(&self, bytes: usize) {
        let used = self.used.get() + bytes;
        self.used.set(used);
        let more = self.missing(used);
        if more > 0 {
            self.claimed.set(self.claimed.get() + more);
            self.budget.claim(more);
        }
    }

    #[inline]
    fn subtract(&self, bytes: usize) {
        let used = self.used.get().saturating_sub(bytes);
        self.used.set(used);
        self.release(used);
        if used < self.awaited.get() {
            self.awaited.set(0);
            self.wake();
        }
    }

    /// Returns claimed bytes that so many bytes in use do not need.
    #[inline]
    fn release(&self, used: usize) {
        let claimed = self.claimed.get();
        if claimed != 0 {
            self.release_claimed(used, claimed);
        }
    }

    fn release_claimed(&self, used: usize, claimed: usize) {
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
        for purpose in Purpose::ALL {
            let place = self.place(purpose).get();
            if place != 0 {
                self.budget.leave(purpose, place);
            }
        }
        let claimed = self.claimed.get();
        if claimed > 0 {
            self.budget.release(claimed);
        }
    }
}

/// The place of an arriving argument among those that wait for memory. The argument owns it from
/// its first wait until its request is taken, so that an argument that has begun to get the room of
/// requests is completed before another one.
#[derive(Debug)]
#[must_use = "the place is lost when it is dropped"]
pub struct Ticket(Rc<Account>);

impl Ticket {
    /// A place behind all others that wait now.
    pub fn new(account: &Rc<Account>) -> Self {
        let place = account.place(Purpose::Argument);
        if place.get() == 0 {
            place.set(account.budget.queues.next_place());
        }
        Self(account.clone())
    }

    /// Has `waker` woken when the argument may grow by so many bytes. To be called after
    /// [`Shortage::Process`].
    pub fn wait(&self, bytes: usize, waker: &Waker) {
        self.0.wait(Purpose::Argument, bytes, waker);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let place = self.0.place(Purpose::Argument).take();
        self.0.budget.queues.retire(place);
        self.0.budget.leave(Purpose::Argument, place);
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

    /// Shrinks the charge to `bytes`; the rest goes back to the budget.
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
    #[inline]
    pub fn measure(&mut self, account: &Rc<Account>, bytes: usize) {
        // Nearly always: buffers keep their size from one request to the next.
        if self.bytes != bytes || (bytes == 0 && self.account.is_some()) {
            self.adjust(account, bytes);
        }
    }

    fn adjust(&mut self, account: &Rc<Account>, bytes: usize) {
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
    #[inline]
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
