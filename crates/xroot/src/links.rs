//! The connections of one session, as its other parts see them.

use crate::outbox::Outbox;
use session::LinkId;
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;
use wire::xroot::header::StreamId;

/// One connection of the session.
#[derive(Default)]
pub(crate) struct LinkState {
    pub(crate) out: Outbox,
    pub(crate) waker: Option<Waker>,
    /// Transfers whose replies go here, in turn.
    pub(crate) transfers: VecDeque<usize>,
    /// Payload that this link brings next.
    pub(crate) expected: VecDeque<usize>,
    /// Close when the output has left.
    pub(crate) closing: bool,
    /// It was given something to do that its task has not looked at.
    pub(crate) news: bool,
    /// Its input waits for what other links hold up.
    pub(crate) stalled: bool,
    /// Since when there is input that nobody announced, and the stream that it would be of.
    pub(crate) unannounced: Option<(Instant, StreamId)>,
}

/// All connections of the session. A reply for one that is gone goes nowhere.
#[derive(Default)]
pub(crate) struct Links {
    states: Vec<Option<Box<LinkState>>>,
    nowhere: Vec<u8>,
}

impl Links {
    pub(crate) fn get(&mut self, link: LinkId) -> Option<&mut LinkState> {
        self.states.get_mut(usize::from(link.0))?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, link: LinkId) {
        let index = usize::from(link.0);
        if self.states.len() <= index {
            self.states.resize_with(index + 1, || None);
        }
        if let Some(place) = self.states.get_mut(index) {
            *place = Some(Box::default());
        }
    }

    pub(crate) fn remove(&mut self, link: LinkId) -> Option<Box<LinkState>> {
        self.states.get_mut(usize::from(link.0))?.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.states.iter().all(Option::is_none)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LinkState> {
        self.states.iter_mut().flatten().map(|state| &mut **state)
    }

    /// Forgets what was to be sent and received.
    pub(crate) fn forget_work(&mut self) {
        for link in self.iter_mut() {
            link.out.clear();
            link.transfers.clear();
            link.expected.clear();
        }
    }

    /// Wakes the links' tasks.
    pub(crate) fn wake_all(&self) {
        self.states.iter().flatten().filter_map(|link| link.waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    /// Wakes the links that one link's turn concerns: those that were given something to do, and those that wait for
    /// output of others to leave. Never because of what was there before, or two links would wake each other for ever.
    pub(crate) fn wake_others(&mut self, link: LinkId, progress: bool) {
        for (index, state) in self.states.iter_mut().enumerate() {
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
        self.nowhere.clear();
        match self.states.get_mut(usize::from(link.0)) {
            Some(Some(state)) => {
                state.news = true;
                state.out.tail()
            }
            _ => &mut self.nowhere,
        }
    }
}
