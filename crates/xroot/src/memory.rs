//! What a session does about memory: what may begin now, what waits, and what has waited for too long.

use crate::core::{Core, Flow};
use crate::costs::CALL_BYTES;
use crate::link::Input;
use crate::links::LinkState;
use crate::{ARGUMENT_BYTES_PER_SECOND_MIN, LIST_PAGE_BYTES, OUTPUT_LOW_BYTES};
use base::{Charge, Purpose, Shortage};
use session::{CallId, LinkId};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;
use wire::xroot::header::StreamId;

impl Core {
    /// Takes bytes of memory before something begins. `None`: there is no room now, and the links are woken when there may be.
    /// `own` as in [`base::Account::reserve`].
    pub(crate) fn reserve(&mut self, purpose: Purpose, bytes: usize, own: usize) -> Option<Charge> {
        let reserved = self.links.account().reserve(purpose, bytes, own);
        reserved.map_err(|shortage| self.wait_for_memory(shortage, purpose, bytes)).ok()
    }

    /// Sees to it that the links are woken when memory that was refused may be had.
    pub(crate) fn wait_for_memory(&mut self, shortage: Shortage, purpose: Purpose, bytes: usize) {
        // For what the session itself holds, its account wakes the control link.
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

    /// Gives a request that has begun to arrive its time, and ends a connection whose time is over.
    pub(crate) fn check_argument(&mut self, link: LinkId, input: &Input, flow: &Flow) {
        let now = self.hub.tick();
        let Some((state, account)) = self.links.get_with_account(link) else { return };
        let Flow::More(bytes) = *flow else { return state.argument_due = 0 };
        if input.is_empty() {
            return;
        }
        if state.argument_due == 0 {
            let seconds = u32::try_from(bytes / ARGUMENT_BYTES_PER_SECOND_MIN).unwrap_or(u32::MAX);
            state.argument_due =
                now.saturating_add(self.hub.shared.config.argument_seconds).saturating_add(seconds).max(1);
        } else if now > state.argument_due && !state.closing {
            let streamid = StreamId(input.bytes().first_chunk().copied().unwrap_or_default());
            let came = input.bytes().len();
            let text = format!("Request did not arrive in time; {came} of {bytes} bytes came");
            let code = session::wire_code(base::ErrorKind::InvalidRequest);
            session::error_reply(state.out.tail(account), streamid, code, &text);
            state.closing = true;
            tracing::warn!(
                client = %self.session.caller().identity,
                "a request of {bytes} bytes did not arrive in time, {came} bytes came; its connection is closed"
            );
        }
    }

    /// The tick since which the session holds memory of the process and waits for its client.
    pub(crate) fn stalled_since(&mut self) -> Option<u32> {
        let active = self.active;
        if !self.links.account().holds_claim() || self.session.is_ending() {
            return None;
        }
        // Output that the client does not take is its doing. That nothing comes is not, if a disk or memory is waited for.
        let waits = !self.jobs.is_empty() || self.is_short;
        let sends = |link: &LinkState| if waits { None } else { link.sends_nothing_since(active) };
        self.links
            .iter_mut()
            .filter_map(|link| [link.takes_nothing_since(), sends(link)].into_iter().flatten().min())
            .min()
    }

    /// Ends the session because others need the memory that it holds.
    pub(crate) fn end_stalled(this: &Rc<RefCell<Self>>, seconds: u32) {
        {
            let core = this.borrow();
            tracing::warn!(
                client = %core.session.caller().identity,
                "a connection is closed: its client has taken and sent nothing for {seconds} s, and others wait for the \
                 {} bytes of memory that it holds",
                core.links.account().used()
            );
        }
        Self::abort(this);
    }

    /// Has a link look at an argument whose time is over.
    pub(crate) fn wake_overdue(&mut self, tick: u32) {
        let overdue = |link: &&mut LinkState| link.argument_due != 0 && tick > link.argument_due;
        self.links
            .iter_mut()
            .filter(overdue)
            .filter_map(|link| link.waker.as_ref())
            .for_each(Waker::wake_by_ref);
    }
}
