//! Memory admission of a session.
//!
//! It admits work, queues it while memory is short, and closes connections that hold memory for too
//! long. `base::budget` has the accounts and queues; `costs` has the memory of each request.

use crate::connections::{CloseState, LinkState};
use crate::costs::CALL_BYTES;
use crate::driver::{InputFlow, SessionDriver};
use crate::input::Input;
use crate::{LIST_PAGE_BYTES, OUTPUT_LOW_BYTES};
use base::{Charge, MemoryPurpose, Shortage, Ticket};
use session::{CallId, DriverTask, PathId};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

impl SessionDriver {
    /// Reserves memory before work begins. Returns `None` if memory is short; the connections are
    /// woken when there may be. `own` is that of [`base::Account::reserve`].
    pub(crate) fn reserve(&mut self, purpose: MemoryPurpose, bytes: usize, own: usize) -> Option<Charge> {
        let reserved = self.links.account().reserve(purpose, bytes, own);
        reserved.map_err(|shortage| self.wait_for_memory(shortage, purpose, bytes)).ok()
    }

    /// Arranges that the connections are woken when refused memory may be available.
    pub(crate) fn wait_for_memory(&mut self, shortage: Shortage, purpose: MemoryPurpose, bytes: usize) {
        // If the session's own limit refused it, its account wakes the control connection.
        if shortage == Shortage::Process {
            self.is_short = true;
            let account = self.links.account().clone();
            if let Some(waker) = self.links.get(PathId::CONTROL).and_then(|link| link.waker.as_ref()) {
                account.wait(purpose, bytes, waker);
            }
        }
    }

    /// Wakes the bound connections to retry if memory may be available again.
    pub(crate) fn retry_memory(&mut self) {
        if std::mem::take(&mut self.is_short) | self.links.account().take_has_room_again() {
            self.links.wake_bound();
        }
    }

    /// Reports whether another page of a listing may be read. If not, the memory of the last page
    /// is released.
    pub(crate) fn may_list_on(&mut self, id: CallId) -> bool {
        let full = self.links.get(PathId::CONTROL).is_some_and(|link| link.out.pending() >= OUTPUT_LOW_BYTES);
        let Some(charge) = self.session.charge_mut(id) else { return true };
        let bytes = CALL_BYTES + LIST_PAGE_BYTES;
        let grown = if full { Err(Shortage::Session) } else { charge.grow_to(MemoryPurpose::Data, bytes, 0) };
        let Err(shortage) = grown else { return true };
        charge.shrink_to(CALL_BYTES);
        self.wait_for_memory(shortage, MemoryPurpose::Data, bytes);
        false
    }

    /// Arranges that the control connection is woken when the arriving argument may grow by
    /// `bytes`.
    pub(crate) fn wait_with_argument(&mut self, input: &mut Input, shortage: Shortage, bytes: usize) {
        if shortage == Shortage::Process {
            self.is_short = true;
            let account = self.links.account().clone();
            if let Some(waker) = self.links.get(PathId::CONTROL).and_then(|link| link.waker.as_ref()) {
                input.ticket.get_or_insert_with(|| Ticket::new(&account)).wait(bytes, waker);
            }
        }
    }

    /// Closes a connection whose client has exceeded the deadline for the rest of a request.
    pub(crate) fn check_argument(&mut self, link: PathId, input: &Input, flow: &InputFlow) {
        let InputFlow::More(bytes) = *flow else { return };
        let (tick, most) = (self.hub.tick(), self.hub.shared.config.argument_seconds);
        let Some(state) = self.links.get(link) else { return };
        if input.is_empty() || state.closing != CloseState::No || state.input_lag.seconds(tick) <= most {
            return;
        }
        state.close(CloseState::AfterOutput);
        self.session.refuse_overdue(input.bytes(), bytes, link, &mut self.links);
        let came = input.bytes().len();
        tracing::warn!(
            client = %self.session.caller().identity,
            "a request of {bytes} bytes did not arrive in time, {came} bytes came; closing its connection"
        );
    }

    /// Returns the seconds for which the session has held memory of the process without progress of
    /// its client. Each connection counts separately: only a connection from which the server does
    /// not read is excused.
    pub(crate) fn stalled_for(&mut self, tick: u32) -> u32 {
        if !self.links.account().holds_claim() {
            return 0;
        }
        self.links.iter_mut().map(|link| link.waits_for_client(tick)).max().unwrap_or(0)
    }

    /// Ends the session because others need the memory that it holds.
    pub(crate) fn end_stalled(this: &Rc<RefCell<Self>>, seconds: u32) {
        {
            let driver = this.borrow();
            tracing::warn!(
                client = %driver.session.caller().identity,
                "closing a connection: its client has sent and received nothing for {seconds} s, and others wait for the \
                 {} bytes of memory that it holds",
                driver.links.account().used()
            );
        }
        Self::abort(this);
    }

    /// Wakes connections whose argument has exceeded its deadline.
    pub(crate) fn wake_overdue(&mut self, tick: u32) {
        let most = self.hub.shared.config.argument_seconds;
        let overdue = |link: &&mut LinkState| {
            link.closing == CloseState::No && link.expected.is_empty() && link.input_lag.seconds(tick) > most
        };
        self.links
            .iter_mut()
            .filter(overdue)
            .filter_map(|link| link.waker.as_ref())
            .for_each(Waker::wake_by_ref);
    }

    /// Closes connections that are about to close and whose clients do not take their output.
    pub(crate) fn close_overdue(&mut self, tick: u32) {
        let most = self.hub.shared.config.stalled_seconds;
        let overdue =
            |link: &LinkState| link.closing == CloseState::AfterOutput && link.output_waits(tick) > most;
        if !self.links.iter_mut().any(|link| overdue(link)) {
            return;
        }
        for link in self.links.iter_mut().filter(|link| overdue(link)) {
            link.close(CloseState::Now);
            link.waker.iter().for_each(Waker::wake_by_ref);
        }
        self.drop_output_of(|link| link.closing == CloseState::Now);
        self.run(DriverTask::Nothing);
    }
}
