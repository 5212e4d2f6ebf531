//! Session state that the turn of one of its connections reads and changes.
//!
//! It is part of [`SessionDriver`]; `connection` calls it, so that the task of a connection does
//! not know the tables of its session.

use super::timeouts::ConnectionTimeouts;
use super::{InputFlow, SessionDriver};
use crate::input::Input;
use net::Socket;
use session::PathId;
use std::task::Waker;

impl SessionDriver {
    /// Begins the flow of the session if it is time, and reports it if it goes on.
    pub(crate) fn advance_flow(&mut self, link: PathId, socket: &Socket) {
        if link == PathId::CONTROL
            && let Some(flow) = self.rare.flow_mut()
            && let Some(marker) = &self.context.hub.shared.config.marker
        {
            flow.advance(marker, self.context.session.caller(), socket);
        }
    }

    /// Ends the flow of the session with its control connection.
    pub(crate) fn end_flow(&mut self, link: PathId, socket: &Socket) {
        if link == PathId::CONTROL
            && let Some(flow) = self.rare.flow_mut()
        {
            flow.end(socket);
        }
    }

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

    /// Reports, once, whether the connection switches to TLS.
    pub(crate) fn take_starts_tls(&mut self) -> bool {
        std::mem::take(&mut self.rare.starts_tls)
    }

    /// Counts bytes that have left.
    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.context.hub.stats.add_replies();
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

    /// Consumes payload from the front of `bytes`. Returns the number of bytes consumed. 0 means
    /// that pieces in flight must end first.
    pub(crate) fn feed(&mut self, key: usize, bytes: &[u8]) -> usize {
        let taken = self.rare.receipts.feed(&mut self.context, key, bytes);
        let todo = self.rare.receipts.complete(&mut self.context, key);
        self.run_if_any(todo);
        taken
    }

    /// Returns room for payload that is read directly from the socket. Returns `None` if that does
    /// not pay or is not possible.
    pub(crate) fn payload_room(&mut self, key: usize) -> Option<&mut [u8]> {
        self.rare.receipts.room(&mut self.context, key)
    }

    /// Records bytes that were read into the room of [`Self::payload_room`].
    pub(crate) fn payload_came(&mut self, key: usize, bytes: usize) {
        let todo = self.rare.receipts.note_arrived(&mut self.context, key, bytes);
        self.run_if_any(todo);
    }

    /// Reports whether reading from the connection must pause until pieces have been written.
    pub(crate) fn payload_waits(&mut self, key: usize) -> bool {
        self.rare.receipts.must_wait(key)
    }

    /// Reports, once, whether held payload was released.
    pub(crate) fn was_released(&mut self, key: usize) -> bool {
        self.rare.receipts.take_released(key)
    }

    /// Reports whether announced data is expected on the connection and may be received now.
    pub(crate) fn awaits_payload(&mut self, link: PathId) -> bool {
        let expected = self.context.links.get(link).and_then(|state| state.expected.front().copied());
        expected.is_some_and(|key| self.rare.receipts.may_arrive(key))
    }

    /// Reports whether sent output may have made room for further work of this connection.
    pub(crate) fn has_further_work(&mut self, link: PathId) -> bool {
        let Some(state) = self.context.links.get(link) else { return false };
        self.transfers.has_ready(&state.transfers) || (link == PathId::CONTROL && self.has_parked())
    }
}
