//! The connections of one session, with their pending output, transfers and expected payload.
//!
//! The task of each connection is in `connection`. This table exists because replies and payload of
//! one request may use different connections.

use crate::client_delay::ClientDelay;
use crate::memory::SessionMemory;
use crate::outbox::{FlushOutcome, Outbox};
use crate::stats;
use crate::{EXPECTED_MAX, OUTPUT_HIGH_BYTES};
use base::{Account, Charge};
use net::SMALL_BYTES;
use session::{CountedEvent, PathId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use wire::xroot::header::StreamId;
use wire::xroot::limits::PATH_ID_MAX;

/// State that a connection has only while work is pending on it.
#[derive(Default)]
pub(crate) struct PendingWork {
    pub(crate) out: Outbox,
    /// Transfers that reply on this connection, in turn.
    pub(crate) transfers: VecDeque<usize>,
    /// Payload expected next on this connection.
    pub(crate) expected: VecDeque<usize>,
    /// Arrival time of input without an announcement, and the stream id it would have.
    pub(crate) unannounced: Option<(Instant, StreamId)>,
    /// Time for which output waits for the client.
    output_lag: ClientDelay,
    /// Charge for the memory of the encryption.
    encryption: Charge,
}

impl PendingWork {
    const NONE: &'static Self = &Self {
        out: Outbox::EMPTY,
        transfers: VecDeque::new(),
        expected: VecDeque::new(),
        unannounced: None,
        output_lag: ClientDelay::NONE,
        encryption: Charge::NONE,
    };

    fn is_over(&self) -> bool {
        self.out.is_empty()
            && self.transfers.is_empty()
            && self.expected.is_empty()
            && self.unannounced.is_none()
            && self.encryption.bytes() == 0
    }
}

/// Maximum number of idle `Traffic` values that a loop keeps for connections that become active;
/// more are freed. Each may hold a reply buffer.
const SPARE_TRAFFICS_MAX: usize = 16;

thread_local! {
    #[expect(clippy::vec_box, reason = "what moves between connections is the pointer")]
    static SPARE_TRAFFICS: RefCell<Vec<Box<PendingWork>>> = const { RefCell::new(Vec::new()) };
}

/// State of one connection.
#[derive(Default)]
pub(crate) struct LinkState {
    /// `None` while the connection is idle, to save memory.
    traffic: Option<Box<PendingWork>>,
    pub(crate) waker: Option<Waker>,
    /// Requested end of the connection.
    pub(crate) closing: CloseState,
    /// Set if work was added that its task has not seen.
    pub(crate) news: bool,
    /// Set if its input waits for output of other connections.
    pub(crate) stalled: bool,
    /// Set if memory was short for its output.
    pub(crate) short: bool,
    /// Set if the server takes no further request from it.
    pub(crate) held_up: bool,
    /// Set while work waits for memory of the process. The control connection waits on behalf of
    /// all work of its session.
    pub(crate) awaits_memory: bool,
    /// Time for which the server has waited for the rest of a request or payload.
    pub(crate) input_lag: ClientDelay,
}

/// State of closing a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum CloseState {
    /// Stays open.
    #[default]
    No,
    /// Closes after its output has been sent.
    AfterOutput,
    /// Closes immediately, dropping its output.
    Now,
}

impl LinkState {
    /// Requests the end of the connection and marks its task for a wake-up.
    pub(crate) fn close(&mut self, when: CloseState) {
        self.closing = self.closing.max(when);
        self.news = true;
    }

    /// Records the bytes of output that were sent in a turn that ends at `tick`. The output can be
    /// empty while the socket still holds encrypted bytes that the client does not take.
    pub(crate) fn note_output(&mut self, left: usize, flushed: FlushOutcome, tick: u32) {
        let Some(traffic) = self.traffic.as_mut() else { return };
        if traffic.out.is_empty() && flushed != FlushOutcome::Blocked {
            traffic.output_lag = ClientDelay::NONE;
        } else {
            traffic.output_lag.credit(left, tick);
            traffic.output_lag.run(tick);
        }
    }

    /// Returns the seconds for which output has waited for the client.
    pub(crate) fn output_waits(&self, tick: u32) -> u32 {
        self.output_lag.seconds(tick)
    }

    /// Returns the seconds for which the client has delayed the server, by not taking output or by
    /// not sending the rest of a request.
    pub(crate) fn waits_for_client(&self, tick: u32) -> u32 {
        self.output_waits(tick).max(self.input_lag.seconds(tick))
    }

    /// Reports whether the pending work is too large for another request (back-pressure).
    fn is_full(&self) -> bool {
        let is_full = |traffic: &PendingWork| {
            traffic.out.held() >= OUTPUT_HIGH_BYTES || traffic.expected.len() >= EXPECTED_MAX
        };
        self.traffic.as_deref().is_some_and(is_full)
    }

    /// Reports whether no work is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.traffic.is_none()
    }

    /// Frees the state that an idle connection does not need. Has no effect while work is pending.
    pub(crate) fn shrink(&mut self) {
        let Some(mut traffic) = self.traffic.take_if(|traffic| traffic.is_over()) else { return };
        SPARE_TRAFFICS.with_borrow_mut(|spare| {
            traffic.output_lag = ClientDelay::NONE;
            let is_worth_keeping = traffic.out.release_charge();
            if spare.len() < SPARE_TRAFFICS_MAX && is_worth_keeping {
                spare.push(traffic);
            } else {
                traffic.out.clear();
            }
        });
    }
}

impl Deref for LinkState {
    type Target = PendingWork;

    fn deref(&self) -> &PendingWork {
        self.traffic.as_deref().unwrap_or(PendingWork::NONE)
    }
}

impl DerefMut for LinkState {
    fn deref_mut(&mut self) -> &mut PendingWork {
        self.traffic.get_or_insert_with(|| SPARE_TRAFFICS.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

/// State that only sessions with bound connections have, or that have lost a connection.
#[derive(Default)]
struct BoundConnections {
    /// The bound connections, by path id.
    links: [Option<LinkState>; PATH_ID_MAX as usize],
    /// Output for connections that no longer exist; it is discarded.
    nowhere: Vec<u8>,
}

/// All connections of the session. Replies for a removed one are dropped.
pub(crate) struct SessionConnections {
    /// The memory account of the session, to which all memory of these connections is charged.
    account: Rc<Account>,
    control: Option<LinkState>,
    bound: Option<Box<BoundConnections>>,
}

impl SessionConnections {
    /// Returns an empty table for a session with this account.
    pub(crate) fn new(account: Rc<Account>) -> Self {
        Self { account, control: None, bound: None }
    }

    /// Returns the memory account of the session.
    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Returns the memory of the session, for reservations.
    #[inline]
    pub(crate) fn memory(&mut self) -> SessionMemory<'_> {
        SessionMemory::new(&self.account, &mut self.control)
    }

    /// Reports whether work of the session waits for memory of the process.
    pub(crate) fn awaits_memory(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.awaits_memory)
    }

    /// Wakes the bound connections to retry if memory may be available again.
    pub(crate) fn retry_memory(&mut self) {
        let waited = self.control.as_mut().map(|control| std::mem::take(&mut control.awaits_memory));
        if waited.unwrap_or(false) | self.account.take_has_room_again() {
            self.wake_bound();
        }
    }

    /// Returns the seconds for which the session has held memory of the process without progress of
    /// its client. Each connection counts separately: only a connection from which the server does
    /// not read is excused.
    pub(crate) fn stalled_for(&self, tick: u32) -> u32 {
        if !self.account.holds_claim() {
            return 0;
        }
        self.iter().map(|link| link.waits_for_client(tick)).max().unwrap_or(0)
    }

    /// Returns a connection, and the account to which additions to its output are charged.
    pub(crate) fn get_with_account(&mut self, link: PathId) -> Option<(&mut LinkState, &Rc<Account>)> {
        let account = &self.account;
        let place = match usize::from(link.0).checked_sub(1) {
            None => self.control.as_mut(),
            Some(index) => self.bound.as_mut().and_then(|bound| bound.links.get_mut(index)?.as_mut()),
        };
        place.map(|state| (state, account))
    }

    /// Charges the output of a connection that waits, or frees its buffer: an idle connection owns
    /// none. `encryption` is the number of bytes that its encryption holds.
    pub(crate) fn end_turn(&mut self, link: PathId, encryption: usize) {
        let Some((state, account)) = self.get_with_account(link) else { return };
        if encryption > 0 || !state.is_idle() {
            state.encryption.measure(account, encryption);
        }
        state.shrink();
        if let Some(traffic) = &mut state.traffic {
            traffic.out.end_turn(account);
        }
    }

    /// Returns the slot of a connection, or `None` for an invalid path id.
    fn place(&mut self, link: PathId) -> Option<&mut Option<LinkState>> {
        match usize::from(link.0).checked_sub(1) {
            None => Some(&mut self.control),
            Some(index) => self.bound.as_mut()?.links.get_mut(index),
        }
    }

    pub(crate) fn get(&mut self, link: PathId) -> Option<&mut LinkState> {
        self.place(link)?.as_mut()
    }

    pub(crate) fn insert(&mut self, link: PathId) {
        if link != PathId::CONTROL {
            self.bound.get_or_insert_default();
        }
        if let Some(place) = self.place(link) {
            *place = Some(LinkState::default());
        }
    }

    pub(crate) fn remove(&mut self, link: PathId) -> Option<LinkState> {
        self.place(link)?.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &LinkState> {
        self.control.iter().chain(self.bound.iter().flat_map(|bound| bound.links.iter().flatten()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LinkState> {
        let bound = self.bound.iter_mut().flat_map(|bound| bound.links.iter_mut().flatten());
        self.control.iter_mut().chain(bound)
    }

    /// Reports whether the pending work of any connection is too large for another request.
    pub(crate) fn is_full(&self) -> bool {
        self.control.as_ref().is_some_and(LinkState::is_full)
            || self.bound.as_ref().is_some_and(|bound| bound.links.iter().flatten().any(LinkState::is_full))
    }

    /// Drops all pending output, transfers and expected payload.
    pub(crate) fn forget_work(&mut self) {
        for link in self.iter_mut().filter(|link| link.traffic.is_some()) {
            link.out.clear();
            link.transfers.clear();
            link.expected.clear();
        }
    }

    /// Wakes the tasks of all connections.
    pub(crate) fn wake_all(&self) {
        self.iter().filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Returns an upper bound in bytes of the input that bound connections hold until a request
    /// announces it.
    pub(crate) fn unannounced_bytes(&self) -> usize {
        let Some(bound) = &self.bound else { return 0 };
        bound.links.iter().flatten().filter(|link| link.unannounced.is_some()).count() * SMALL_BYTES
    }

    /// Wakes the tasks of the bound connections.
    pub(crate) fn wake_bound(&self) {
        let bound = self.bound.iter().flat_map(|bound| bound.links.iter().flatten());
        bound.filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Wakes the connections that are affected by the turn of one connection: those with added
    /// work, and those that wait for output of others to be sent. Earlier state does not count,
    /// otherwise two connections could wake each other forever.
    pub(crate) fn wake_others(&mut self, link: PathId, progress: bool) {
        let Some(bound) = &mut self.bound else { return };
        let all = std::iter::once(&mut self.control).chain(bound.links.iter_mut()).enumerate();
        for (index, state) in all {
            let Some(state) = state.as_mut().filter(|_| index != usize::from(link.0)) else { continue };
            let waits = progress && std::mem::take(&mut state.stalled);
            let concerned = std::mem::take(&mut state.news) || waits;
            if concerned && let Some(waker) = &state.waker {
                waker.wake_by_ref();
            }
        }
    }
}

impl session::ReplyOutputs for SessionConnections {
    fn link(&mut self, link: PathId) -> &mut Vec<u8> {
        let index = usize::from(link.0).checked_sub(1);
        if let (None, Some(state)) = (index, &mut self.control) {
            state.news = true;
            return state.out.tail(&self.account);
        }
        let BoundConnections { links, nowhere } = &mut **self.bound.get_or_insert_default();
        match index.and_then(|index| links.get_mut(index)?.as_mut()) {
            Some(state) => {
                state.news = true;
                state.out.tail(&self.account)
            }
            None => {
                nowhere.clear();
                nowhere
            }
        }
    }

    fn count(&mut self, event: CountedEvent) {
        stats::count_reply(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Ceilings, MemoryBudget};

    #[test]
    fn encrypted_output_waits_for_the_client_until_the_socket_has_sent_it() {
        let ceilings = Ceilings::shares_of(1 << 30);
        let account = Account::new(&MemoryBudget::new(ceilings, ceilings, 0));
        let mut state = LinkState::default();
        state.out.tail(&account).extend_from_slice(b"reply");
        state.note_output(0, FlushOutcome::Blocked, 10);
        assert_eq!(state.output_waits(15), 5);
        state.out.clear();
        state.note_output(5, FlushOutcome::Blocked, 20);
        assert_eq!(state.output_waits(25), 15, "the client has not received it");
        state.note_output(0, FlushOutcome::All, 30);
        assert_eq!(state.output_waits(40), 0);
    }
}
