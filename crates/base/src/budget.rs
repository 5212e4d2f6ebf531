//! Memory accounting for requests in flight, with limits for the process and for each session
//! (decision 031).
//!
//! Each session has an account, and each allocation a charge. The limits exist so that clients
//! cannot exhaust the memory of the server; a refusal is the back-pressure that stops a session
//! from reading its socket.
//!
//! An [`Account`] belongs to the event loop of its session and consists of plain numbers. Each
//! session has some free bytes. An account claims bytes beyond these from the [`MemoryBudget`] of
//! the process in granules, so that a session with small requests costs no atomic operation. A
//! [`Charge`] belongs to the owner of the memory and returns its bytes when it is dropped.
//!
//! Limits rise with the [`MemoryPurpose`], so that work in progress can always finish. An argument
//! cannot take the memory that requests need to run, and requests cannot take the memory of the
//! data that they wait for. Partially received arguments could deadlock by waiting for each other.
//! The argument that waits longest may therefore use the memory of requests, one argument at a time
//! ([`Ticket`]).
//!
//! After a refusal by the limit of its session, an account records the use at which the bytes would
//! fit. It wakes its session when its use falls to that value. Each returned charge performs this
//! check, so callers do not have to.

mod ceilings;
mod queue;
mod shared_charge;

pub use ceilings::{Ceilings, MemoryPurpose};
use ceilings::{PURPOSES, fits};
use queue::WaitQueues;
pub use shared_charge::SharedCharge;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

/// Granularity in bytes of claims from the budget of the process.
pub const GRANULE_BYTES: usize = 64 * 1024;

/// The reason why memory is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The limit of the session is reached; the session must finish other work first.
    Session,
    /// The limit of the process is reached.
    Process,
}

/// The memory that all sessions of the process share beyond their free bytes.
#[derive(Debug)]
pub struct MemoryBudget {
    process: Ceilings,
    session: Ceilings,
    free: usize,
    claimed: AtomicUsize,
    queues: WaitQueues,
}

impl MemoryBudget {
    /// Creates a budget with limits for the process and for each session. The first `free` bytes of
    /// each session are not claimed from the budget.
    pub fn new(process: Ceilings, session: Ceilings, free: usize) -> Arc<Self> {
        Arc::new(Self { process, session, free, claimed: AtomicUsize::new(0), queues: WaitQueues::default() })
    }

    /// Returns the bytes that sessions have claimed.
    pub fn claimed(&self) -> usize {
        self.claimed.load(Ordering::SeqCst)
    }

    /// Returns the limit for the claims of all sessions.
    pub fn limit(&self) -> usize {
        self.process.data
    }

    /// Reports whether a session waits for memory.
    pub fn is_short(&self) -> bool {
        self.queues.is_waiting()
    }

    fn try_claim(&self, purpose: MemoryPurpose, bytes: usize, place: u64) -> bool {
        let ceiling = match purpose {
            MemoryPurpose::Argument if self.queues.is_express(place) => self.process.request,
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

    /// Wakes the sessions whose bytes fit now. Within each purpose, the session that has waited
    /// longest comes first.
    pub fn wake_waiters(&self) {
        // The lock of the queues is released first, because a waker may run any code.
        self.queues.take_fitting(|| self.claimed(), &self.process).into_iter().for_each(Waker::wake);
    }

    fn enqueue(&self, purpose: MemoryPurpose, place: u64, bytes: usize, waker: &Waker) {
        self.queues.insert(purpose, place, bytes, waker);
        // Memory that was released before this session entered the queue has woken no session.
        self.wake_waiters();
    }

    /// Removes a session that stops waiting for this purpose, and wakes the sessions that were
    /// queued behind it.
    fn leave(&self, purpose: MemoryPurpose, place: u64) {
        if self.queues.remove(purpose, place) {
            self.wake_waiters();
        }
    }
}

/// The memory use of one session. It belongs to the event loop of that session.
#[derive(Debug)]
pub struct Account {
    budget: Arc<MemoryBudget>,
    used: Cell<usize>,
    claimed: Cell<usize>,
    /// After a refusal by the limit of the session: the refused bytes may fit when fewer bytes than
    /// this are in use. 0 if none were refused.
    awaited: Cell<usize>,
    /// Set when refused bytes may fit; cleared by [`Account::take_has_room_again`].
    has_room_again: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// The position in the queue for memory of the process, for each purpose; 0 for none. The
    /// position for arguments belongs to a [`Ticket`].
    places: [Cell<u64>; PURPOSES],
}

impl Account {
    /// Creates an account without any use.
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

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Sets the waker of the session, which is called when refused bytes may fit.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        match &mut *known {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }

    /// Reports whether refused bytes may fit now, and clears the flag. The limit of the session or
    /// a grant to another waiting reservation of the session may have made room.
    pub fn take_has_room_again(&self) -> bool {
        self.has_room_again.take()
    }

    /// Reports whether the account has claimed memory of the process beyond its free bytes.
    pub fn holds_claim(&self) -> bool {
        self.claimed.get() > 0
    }

    /// Reserves bytes before the work that needs them begins. `own` is the number of bytes that the
    /// same work already holds. If the session has no other work in flight, its limit does not
    /// apply, so that one request is always possible.
    ///
    /// After [`Shortage::Session`] the session is woken when the bytes may fit; after
    /// [`Shortage::Process`] call [`Account::wait`].
    #[inline]
    pub fn reserve(
        self: &Rc<Self>,
        purpose: MemoryPurpose,
        bytes: usize,
        own: usize,
    ) -> Result<Charge, Shortage> {
        self.admit(purpose, bytes, own)?;
        self.used.set(self.used.get() + bytes);
        Ok(Charge { account: Some(self.clone()), bytes })
    }

    /// Charges bytes that cannot be refused, because the memory is already allocated.
    pub fn charge(self: &Rc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { account: Some(self.clone()), bytes }
    }

    fn place(&self, purpose: MemoryPurpose) -> &Cell<u64> {
        match (&self.places, purpose) {
            ([place, _, _], MemoryPurpose::Argument)
            | ([_, place, _], MemoryPurpose::Request)
            | ([_, _, place], MemoryPurpose::Data) => place,
        }
    }

    #[inline]
    fn admit(&self, purpose: MemoryPurpose, bytes: usize, own: usize) -> Result<(), Shortage> {
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

    /// Returns the bytes that the account must claim from the process before it can use `used`
    /// bytes.
    #[inline]
    fn missing(&self, used: usize) -> usize {
        granules(used.saturating_sub(self.budget.free)).saturating_sub(self.claimed.get())
    }

    /// Removes a waiting reservation of this purpose from the queue after it has received its
    /// bytes.
    fn granted(&self, purpose: MemoryPurpose, place: u64) {
        if purpose != MemoryPurpose::Argument {
            self.place(purpose).set(0);
            // The position stands for all reservations of the session with this purpose; the
            // remaining ones must try again.
            self.wake();
        }
        self.budget.leave(purpose, place);
    }

    fn wake(&self) {
        self.has_room_again.set(true);
        // The waker is cloned so that the cell is not borrowed during the call: a waker may run any
        // code.
        let waker = self.waker.borrow().clone();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Registers `waker` to be woken when `bytes` may fit for this purpose. Call it after
    /// [`Shortage::Process`]. The session has one position in the queue for each purpose and keeps
    /// it until it receives bytes for that purpose.
    pub fn wait(&self, purpose: MemoryPurpose, bytes: usize, waker: &Waker) {
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

    /// Returns the claimed bytes that are not needed for `used` bytes.
    #[inline]
    fn release(&self, used: usize) {
        let claimed = self.claimed.get();
        if claimed != 0 {
            self.release_claimed(used, claimed);
        }
    }

    fn release_claimed(&self, used: usize, claimed: usize) {
        let needed = granules(used.saturating_sub(self.budget.free));
        // One spare granule is kept as long as others are needed, so that use that varies around a
        // boundary costs no atomic operation.
        if needed == 0 || claimed > needed + GRANULE_BYTES {
            self.claimed.set(needed);
            self.budget.release(claimed - needed);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        for purpose in MemoryPurpose::ALL {
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

/// The position of a partially received argument in the queue for memory. The argument owns it from
/// its first wait until its request is taken. An argument that has begun to use the memory of
/// requests is therefore completed before the next one.
#[derive(Debug)]
#[must_use = "the position is lost on drop"]
pub struct Ticket(Rc<Account>);

impl Ticket {
    /// Creates a position behind all sessions that wait now.
    pub fn new(account: &Rc<Account>) -> Self {
        let place = account.place(MemoryPurpose::Argument);
        if place.get() == 0 {
            place.set(account.budget.queues.next_place());
        }
        Self(account.clone())
    }

    /// Registers `waker` to be woken when the argument may grow by `bytes`. Call it after
    /// [`Shortage::Process`].
    pub fn wait(&self, bytes: usize, waker: &Waker) {
        self.0.wait(MemoryPurpose::Argument, bytes, waker);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let place = self.0.place(MemoryPurpose::Argument).take();
        self.0.budget.queues.retire(place);
        self.0.budget.leave(MemoryPurpose::Argument, place);
    }
}

fn granules(bytes: usize) -> usize {
    bytes.next_multiple_of(GRANULE_BYTES)
}

/// Bytes of memory charged to an account; they return to the account when the charge is dropped.
#[derive(Debug, Default)]
#[must_use = "the bytes return on drop"]
pub struct Charge {
    account: Option<Rc<Account>>,
    bytes: usize,
}

impl Charge {
    /// A charge of 0 bytes without an account.
    pub const NONE: Self = Self { account: None, bytes: 0 };

    /// Returns the size of the charge in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Shrinks the charge to `bytes` and returns the rest to the budget.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let less = self.bytes - bytes;
            self.bytes = bytes;
            self.account.iter().for_each(|account| account.subtract(less));
        }
    }

    /// Grows the charge to `bytes` if the limits allow it. `own` has the meaning of
    /// [`Account::reserve`] and need not include the present bytes of this charge.
    pub fn grow_to(&mut self, purpose: MemoryPurpose, bytes: usize, own: usize) -> Result<(), Shortage> {
        let (Some(account), Some(more)) = (&self.account, bytes.checked_sub(self.bytes)) else {
            return Ok(());
        };
        account.admit(purpose, more, own + self.bytes)?;
        account.used.set(account.used.get() + more);
        self.bytes = bytes;
        Ok(())
    }

    /// Sets the charge to the `bytes` that its owner now holds, and charges them to `account`.
    /// Never refuses.
    #[inline]
    pub fn measure(&mut self, account: &Rc<Account>, bytes: usize) {
        // This is the rare case: buffers keep their size from one request to the next.
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

    /// Splits off a charge of `bytes`, or of all bytes if there are fewer.
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
