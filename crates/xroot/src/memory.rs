//! Memory of a session: admits work, lets it wait, and ends connections that hold memory for too long.

use crate::costs::CALL_BYTES;
use crate::driver::{Flow, SessionDriver};
use crate::link::Input;
use crate::links::{Closing, LinkState};
use crate::{LIST_PAGE_BYTES, OUTPUT_LOW_BYTES};
use base::{Charge, Purpose, Shortage, Ticket};
use session::{CallId, LinkId, Todo};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

impl SessionDriver {
    /// Takes memory before work begins. Returns `None` if there is no room now; the links are woken when there may be.
    /// `own` as in [`base::Account::reserve`].
    pub(crate) fn reserve(&mut self, purpose: Purpose, bytes: usize, own: usize) -> Option<Charge> {
        let reserved = self.links.account().reserve(purpose, bytes, own);
        reserved.map_err(|shortage| self.wait_for_memory(shortage, purpose, bytes)).ok()
    }

    /// Sees to it that the links are woken when memory that was refused may be had.
    pub(crate) fn wait_for_memory(&mut self, shortage: Shortage, purpose: Purpose, bytes: usize) {
        // If the session's own limit refused it, its account wakes the control link.
        if shortage == Shortage::Process {
            self.is_short = true;
            let account = self.links.account().clone();
            if let Some(waker) = self.links.get(LinkId::CONTROL).and_then(|link| link.waker.as_ref()) {
                account.wait(purpose, bytes, waker);
            }
        }
    }

    /// Lets all links look whether there is memory for them, if any of them waits for it.
    pub(crate) fn retry_memory(&mut self) {
        if std::mem::take(&mut self.is_short) | self.links.account().take_has_room_again() {
            self.links.wake_bound();
        }
    }

    /// Is there room for another page of a listing? If not, the listing gives back the room of the last one.
    pub(crate) fn may_list_on(&mut self, id: CallId) -> bool {
        let full = self.links.get(LinkId::CONTROL).is_some_and(|link| link.out.pending() >= OUTPUT_LOW_BYTES);
        let Some(charge) = self.session.charge_mut(id) else { return true };
        let bytes = CALL_BYTES + LIST_PAGE_BYTES;
        let grown = if full { Err(Shortage::Session) } else { charge.grow_to(Purpose::Data, bytes, 0) };
        let Err(shortage) = grown else { return true };
        charge.shrink_to(CALL_BYTES);
        self.wait_for_memory(shortage, Purpose::Data, bytes);
        false
    }

    /// Has the control link woken when the arriving argument may grow by `bytes`.
    pub(crate) fn wait_with_argument(&mut self, input: &mut Input, shortage: Shortage, bytes: usize) {
        if shortage == Shortage::Process {
            self.is_short = true;
            let account = self.links.account().clone();
            if let Some(waker) = self.links.get(LinkId::CONTROL).and_then(|link| link.waker.as_ref()) {
                input.ticket.get_or_insert_with(|| Ticket::new(&account)).wait(bytes, waker);
            }
        }
    }

    /// Ends a connection whose client has had its time for the rest of a request that it has begun
    /// to send.
    pub(crate) fn check_argument(&mut self, link: LinkId, input: &Input, flow: &Flow) {
        let Flow::More(bytes) = *flow else { return };
        let (tick, most) = (self.hub.tick(), self.hub.shared.config.argument_seconds);
        let Some(state) = self.links.get(link) else { return };
        if input.is_empty() || state.closing != Closing::No || state.input_lag.seconds(tick) <= most {
            return;
        }
        state.close(Closing::AfterOutput);
        self.session.refuse_overdue(input.bytes(), bytes, link, &mut self.links);
        let came = input.bytes().len();
        tracing::warn!(
            client = %self.session.caller().identity,
            "a request of {bytes} bytes did not arrive in time, {came} bytes came; its connection is closed"
        );
    }

    /// Seconds for which the session has held memory of the process and kept the server waiting.
    /// Each connection counts by itself: what is excused is only that of a connection from which
    /// the server does not read.
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
                "a connection is closed: its client has taken and sent nothing for {seconds} s, and others wait for the \
                 {} bytes of memory that it holds",
                driver.links.account().used()
            );
        }
        Self::abort(this);
    }

    /// Has a link look at an argument whose time is over.
    pub(crate) fn wake_overdue(&mut self, tick: u32) {
        let most = self.hub.shared.config.argument_seconds;
        let overdue = |link: &&mut LinkState| {
            link.closing == Closing::No && link.expected.is_empty() && link.input_lag.seconds(tick) > most
        };
        self.links
            .iter_mut()
            .filter(overdue)
            .filter_map(|link| link.waker.as_ref())
            .for_each(Waker::wake_by_ref);
    }

    /// Closes the links that are to close and whose clients do not take their output.
    pub(crate) fn close_overdue(&mut self, tick: u32) {
        let most = self.hub.shared.config.stalled_seconds;
        let overdue =
            |link: &LinkState| link.closing == Closing::AfterOutput && link.output_waits(tick) > most;
        if !self.links.iter_mut().any(|link| overdue(link)) {
            return;
        }
        for link in self.links.iter_mut().filter(|link| overdue(link)) {
            link.close(Closing::Now);
            link.waker.iter().for_each(Waker::wake_by_ref);
        }
        self.drop_output_of(|link| link.closing == Closing::Now);
        self.run(Todo::Nothing);
    }
}
