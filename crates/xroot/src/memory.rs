//! [`SessionMemory`]: admission of the work of a session by memory.
//!
//! `base::budget` has the accounts and queues; `costs` has the memory of each request.

use crate::connections::LinkState;
use crate::input::Input;
use base::{Account, Charge, MemoryPurpose, Shortage, Ticket};
use std::rc::Rc;

/// The memory account of a session, and the control connection, which waits for memory on behalf
/// of all work of the session.
pub(crate) struct SessionMemory<'a> {
    account: &'a Rc<Account>,
    control: &'a mut Option<LinkState>,
}

impl<'a> SessionMemory<'a> {
    /// Returns the memory of a session. `control` is `None` after the control connection was lost.
    #[inline]
    pub(crate) fn new(account: &'a Rc<Account>, control: &'a mut Option<LinkState>) -> Self {
        Self { account, control }
    }

    /// Reserves memory before work begins. Returns `None` if memory is short; the connections are
    /// woken when there may be. `own` is that of [`base::Account::reserve`].
    #[inline]
    pub(crate) fn reserve(self, purpose: MemoryPurpose, bytes: usize, own: usize) -> Option<Charge> {
        let reserved = self.account.reserve(purpose, bytes, own);
        reserved.map_err(|shortage| self.wait(shortage, purpose, bytes)).ok()
    }

    /// Arranges that the connections are woken when refused memory may be available.
    pub(crate) fn wait(self, shortage: Shortage, purpose: MemoryPurpose, bytes: usize) {
        // If the session's own limit refused it, its account wakes the control connection.
        if shortage == Shortage::Process
            && let Some(control) = self.control
        {
            control.awaits_memory = true;
            control.waker.iter().for_each(|waker| self.account.wait(purpose, bytes, waker));
        }
    }

    /// Arranges that the control connection is woken when the arriving argument may grow by
    /// `bytes`.
    pub(crate) fn wait_with_argument(self, input: &mut Input, shortage: Shortage, bytes: usize) {
        if shortage == Shortage::Process
            && let Some(control) = self.control
        {
            control.awaits_memory = true;
            if let Some(waker) = &control.waker {
                input.ticket.get_or_insert_with(|| Ticket::new(self.account)).wait(bytes, waker);
            }
        }
    }
}
