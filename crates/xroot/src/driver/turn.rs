//! Session state that the turn of one of its connections reads and changes.
//!
//! It is part of [`SessionDriver`]; `connection` calls it, so that the task of a connection does
//! not know the tables of its session.

use super::timeouts::ConnectionTimeouts;
use super::{InputFlow, SessionDriver};
use crate::input::Input;
use session::PathId;
use std::task::Waker;

impl SessionDriver {
    /// Stores the waker of the connection's task. Returns `false` if the connection was removed.
    pub(crate) fn begin_turn(&mut self, link: PathId, waker: &Waker) -> bool {
        let Some(state) = self.context.links.get(link) else { return false };
        match &mut state.waker {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
        self.context.hub.stats.turns.add(1);
        if link == PathId::CONTROL {
            self.context.links.account().set_waker(waker);
            self.context.links.retry_memory();
        }
        true
    }

    /// Closes a connection whose client has exceeded the deadline for the rest of a request.
    pub(crate) fn check_argument(&mut self, link: PathId, input: &Input, flow: &InputFlow) {
        if let InputFlow::More(bytes) = *flow {
            ConnectionTimeouts::new(&mut self.context).check_argument(link, input, bytes);
        }
    }

    /// Counts bytes that have left.
    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.context.hub.stats.bytes_out.add(bytes);
        self.sent += bytes;
    }

    pub(crate) fn arrived(&mut self, link: PathId, bytes: usize) {
        let tick = self.context.hub.tick();
        self.context.hub.stats.bytes_in.add(bytes as u64);
        self.received += bytes as u64;
        self.active = tick;
        self.context.links.get(link).into_iter().for_each(|state| state.input_lag.credit(bytes, tick));
    }

    /// Reports whether announced data is expected on the connection and may be received now.
    pub(crate) fn awaits_payload(&mut self, link: PathId) -> bool {
        let expected = self.context.links.get(link).and_then(|state| state.expected.front().copied());
        expected.is_some_and(|key| self.rare.receipts.get(key).is_some_and(|receipt| !receipt.is_held()))
    }

    /// Reports whether sent output may have made room for further work of this connection.
    pub(crate) fn has_further_work(&mut self, link: PathId) -> bool {
        let Some(state) = self.context.links.get(link) else { return false };
        self.transfers.has_ready(&state.transfers) || (link == PathId::CONTROL && self.has_parked())
    }
}
