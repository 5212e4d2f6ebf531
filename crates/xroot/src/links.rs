//! The connections of one session, as its other parts see them.

use crate::lag::Lag;
use crate::outbox::Outbox;
use crate::{EXPECTED_MAX, OUTPUT_HIGH_BYTES};
use base::Account;
use net::SMALL_BYTES;
use session::LinkId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use wire::xroot::header::StreamId;
use wire::xroot::limits::PATH_ID_MAX;

/// What a connection has only while something is on its way over it.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) out: Outbox,
    /// Transfers whose replies go here, in turn.
    pub(crate) transfers: VecDeque<usize>,
    /// Payload that this link brings next.
    pub(crate) expected: VecDeque<usize>,
    /// Since when there is input that nobody announced, and the stream that it would be of.
    pub(crate) unannounced: Option<(Instant, StreamId)>,
    /// How long output waits for the client to take it.
    output_lag: Lag,
}

impl Traffic {
    const NONE: &'static Self = &Self {
        out: Outbox::EMPTY,
        transfers: VecDeque::new(),
        expected: VecDeque::new(),
        unannounced: None,
        output_lag: Lag::NONE,
    };

    fn is_over(&self) -> bool {
        self.out.is_empty()
            && self.transfers.is_empty()
            && self.expected.is_empty()
            && self.unannounced.is_none()
    }
}

/// Traffics without anything on its way that a loop keeps for the next connections to wake; more are freed. Each may hold the
/// buffer that replies gather in.
const SPARE_TRAFFICS_MAX: usize = 16;

thread_local! {
    #[expect(clippy::vec_box, reason = "what moves between connections is the pointer")]
    static SPARE_TRAFFICS: RefCell<Vec<Box<Traffic>>> = const { RefCell::new(Vec::new()) };
}

/// One connection of the session.
#[derive(Default)]
pub(crate) struct LinkState {
    /// `None`: it is idle, and costs next to nothing.
    traffic: Option<Box<Traffic>>,
    pub(crate) waker: Option<Waker>,
    /// Whether it is to close.
    pub(crate) closing: Closing,
    /// It was given something to do that its task has not looked at.
    pub(crate) news: bool,
    /// Its input waits for what other links hold up.
    pub(crate) stalled: bool,
    /// There was no memory for data of this connection's output.
    pub(crate) short: bool,
    /// It is the server that takes no further request.
    pub(crate) held_up: bool,
    /// Time for which the server has waited for the rest of something that the client has begun to send.
    pub(crate) input_lag: Lag,
}

/// Whether and when a connection closes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Closing {
    /// Not now.
    #[default]
    No,
    /// When its output has left.
    AfterOutput,
    /// At once, whatever it has still to send.
    Now,
}

impl LinkState {
    /// Has it close, and its task look at that.
    pub(crate) fn close(&mut self, when: Closing) {
        self.closing = self.closing.max(when);
        self.news = true;
    }

    /// Records the bytes of output that have left in a turn that ends at `tick`.
    pub(crate) fn note_output(&mut self, left: usize, tick: u32) {
        let Some(traffic) = self.traffic.as_mut() else { return };
        if traffic.out.is_empty() {
            traffic.output_lag = Lag::NONE;
        } else {
            traffic.output_lag.credit(left, tick);
            traffic.output_lag.run(tick);
        }
    }

    /// Seconds for which output has waited for the client to take it.
    pub(crate) fn output_waits(&self, tick: u32) -> u32 {
        self.output_lag.seconds(tick)
    }

    /// Seconds for which the client has been waited for, to take output or to send what it has
    /// begun.
    pub(crate) fn waits_for_client(&self, tick: u32) -> u32 {
        self.output_waits(tick).max(self.input_lag.seconds(tick))
    }

    /// Reports whether no further request is taken because of what is on its way.
    fn is_full(&self) -> bool {
        let is_full = |traffic: &Traffic| {
            traffic.out.held() >= OUTPUT_HIGH_BYTES || traffic.expected.len() >= EXPECTED_MAX
        };
        self.traffic.as_deref().is_some_and(is_full)
    }

    /// Reports whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.traffic.is_none()
    }

    /// Gives back what an idle connection does not need. Nothing happens if something is on its way.
    pub(crate) fn shrink(&mut self) {
        let Some(mut traffic) = self.traffic.take_if(|traffic| traffic.is_over()) else { return };
        SPARE_TRAFFICS.with_borrow_mut(|spare| {
            traffic.output_lag = Lag::NONE;
            let is_worth_keeping = traffic.out.settle();
            if spare.len() < SPARE_TRAFFICS_MAX && is_worth_keeping {
                spare.push(traffic);
            } else {
                traffic.out.clear();
            }
        });
    }
}

impl Deref for LinkState {
    type Target = Traffic;

    fn deref(&self) -> &Traffic {
        self.traffic.as_deref().unwrap_or(Traffic::NONE)
    }
}

impl DerefMut for LinkState {
    fn deref_mut(&mut self) -> &mut Traffic {
        self.traffic.get_or_insert_with(|| SPARE_TRAFFICS.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

/// The bound connections of a session, by path id.
type Bound = [Option<LinkState>; PATH_ID_MAX as usize];

/// All connections of the session. A reply for one that is gone goes nowhere.
pub(crate) struct Links {
    /// The memory of the session, to which all memory of these connections is charged.
    account: Rc<Account>,
    control: Option<LinkState>,
    bound: Option<Box<Bound>>,
    #[expect(clippy::box_collection, reason = "hardly any session needs it")]
    nowhere: Option<Box<Vec<u8>>>,
}

impl Links {
    /// No connections yet, of a session with this account.
    pub(crate) fn new(account: Rc<Account>) -> Self {
        Self { account, control: None, bound: None, nowhere: None }
    }

    /// Returns the account of the session's memory.
    pub(crate) fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Returns a link, and the account to which additions to its output are charged.
    pub(crate) fn get_with_account(&mut self, link: LinkId) -> Option<(&mut LinkState, &Rc<Account>)> {
        let account = &self.account;
        let place = match usize::from(link.0).checked_sub(1) {
            None => self.control.as_mut(),
            Some(index) => self.bound.as_mut().and_then(|bound| bound.get_mut(index)?.as_mut()),
        };
        place.map(|state| (state, account))
    }

    /// Has a link that waits pay for the memory of its output, or give it back: an idle one owns no buffer.
    pub(crate) fn rest(&mut self, link: LinkId) {
        let Some((state, account)) = self.get_with_account(link) else { return };
        state.shrink();
        if let Some(traffic) = &mut state.traffic {
            traffic.out.rest(account);
        }
    }

    /// Where a link is kept; `None` for a path id that cannot be.
    fn place(&mut self, link: LinkId) -> Option<&mut Option<LinkState>> {
        match usize::from(link.0).checked_sub(1) {
            None => Some(&mut self.control),
            Some(index) => self.bound.as_mut()?.get_mut(index),
        }
    }

    pub(crate) fn get(&mut self, link: LinkId) -> Option<&mut LinkState> {
        self.place(link)?.as_mut()
    }

    pub(crate) fn insert(&mut self, link: LinkId) {
        if link != LinkId::CONTROL {
            self.bound.get_or_insert_default();
        }
        if let Some(place) = self.place(link) {
            *place = Some(LinkState::default());
        }
    }

    pub(crate) fn remove(&mut self, link: LinkId) -> Option<LinkState> {
        self.place(link)?.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn iter(&self) -> impl Iterator<Item = &LinkState> {
        self.control.iter().chain(self.bound.iter().flat_map(|bound| bound.iter().flatten()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LinkState> {
        let bound = self.bound.iter_mut().flat_map(|bound| bound.iter_mut().flatten());
        self.control.iter_mut().chain(bound)
    }

    /// Reports whether a connection takes no further request because of what is on its way.
    pub(crate) fn is_full(&self) -> bool {
        self.control.as_ref().is_some_and(LinkState::is_full)
            || self.bound.as_ref().is_some_and(|bound| bound.iter().flatten().any(LinkState::is_full))
    }

    /// Forgets what was to be sent and received.
    pub(crate) fn forget_work(&mut self) {
        for link in self.iter_mut().filter(|link| link.traffic.is_some()) {
            link.out.clear();
            link.transfers.clear();
            link.expected.clear();
        }
    }

    /// Wakes the links' tasks.
    pub(crate) fn wake_all(&self) {
        self.iter().filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Bytes of input, at most, that bound links hold until requests on the control link announce it.
    pub(crate) fn unannounced_bytes(&self) -> usize {
        let Some(bound) = &self.bound else { return 0 };
        bound.iter().flatten().filter(|link| link.unannounced.is_some()).count() * SMALL_BYTES
    }

    /// Wakes the tasks of bound links.
    pub(crate) fn wake_bound(&self) {
        let bound = self.bound.iter().flat_map(|bound| bound.iter().flatten());
        bound.filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Wakes the links that one link's turn concerns: those that were given something to do, and those that wait for
    /// output of others to leave. Never because of what was there before, or two links would wake each other for ever.
    pub(crate) fn wake_others(&mut self, link: LinkId, progress: bool) {
        let Some(bound) = &mut self.bound else { return };
        let all = std::iter::once(&mut self.control).chain(bound.iter_mut()).enumerate();
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

impl session::Outlets for Links {
    fn link(&mut self, link: LinkId) -> &mut Vec<u8> {
        let account = &self.account;
        let place = match usize::from(link.0).checked_sub(1) {
            None => self.control.as_mut(),
            Some(index) => self.bound.as_mut().and_then(|bound| bound.get_mut(index)?.as_mut()),
        };
        match place {
            Some(state) => {
                state.news = true;
                state.out.tail(account)
            }
            None => {
                let nowhere = self.nowhere.get_or_insert_default();
                nowhere.clear();
                nowhere
            }
        }
    }
}
