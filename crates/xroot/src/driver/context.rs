//! [`SessionContext`]: the parts of a session that all of its work uses.

use super::SessionHub;
use super::jobs::{JobWork, Jobs};
use crate::connections::SessionConnections;
use crate::costs::CALL_BYTES;
use crate::registry::SessionHome;
use crate::{LIST_PAGE_BYTES, OUTPUT_LOW_BYTES};
use base::{Account, Charge, Error, MemoryPurpose, Shortage};
use net::LoopHandle;
use session::{CallId, PathId, Session};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use vfs::{Answer, FileOperation, OpenFile, ReplyTo, ReplyToken};

/// The session machine, the connections that take its replies, and the operations in flight.
///
/// It is apart from the driver, so that reads, payload and logins each keep their own state and
/// share only this.
pub(super) struct SessionContext {
    /// Key of the session at the hub of its loop.
    pub(super) owner: u64,
    pub(super) hub: Rc<SessionHub>,
    pub(super) session: Session,
    pub(super) links: SessionConnections,
    pub(super) jobs: Jobs,
}

impl SessionContext {
    /// Returns the context of a new session with its control connection.
    pub(super) fn new(hub: &Rc<SessionHub>, session: Session) -> Self {
        let mut links = SessionConnections::new(Account::new(&hub.shared.memory));
        links.insert(PathId::CONTROL);
        Self { owner: hub.new_owner(), hub: hub.clone(), session, links, jobs: Jobs::default() }
    }

    /// Registers the session, so that others can join or end it.
    pub(super) fn register(&self, home: &LoopHandle) {
        let caller = self.session.caller().clone();
        let entry = SessionHome { home: home.clone(), owner: self.owner, caller };
        self.hub.shared.registry.insert(self.session.id(), entry);
    }

    /// Returns the address of the client.
    pub(super) fn peer_address(&self) -> Option<IpAddr> {
        self.session.caller().identity.address
    }

    /// Reserves memory before work begins ([`SessionMemory::reserve`]).
    ///
    /// [`SessionMemory::reserve`]: crate::memory::SessionMemory::reserve
    #[inline]
    pub(super) fn reserve(&mut self, purpose: MemoryPurpose, bytes: usize, own: usize) -> Option<Charge> {
        self.links.memory().reserve(purpose, bytes, own)
    }

    /// Reports whether another page of a listing may be read. If not, the memory of the last page
    /// is released.
    pub(super) fn may_list_on(&mut self, id: CallId) -> bool {
        let full = self.links.get(PathId::CONTROL).is_some_and(|link| link.out.pending() >= OUTPUT_LOW_BYTES);
        let Some(charge) = self.session.charge_mut(id) else { return true };
        let bytes = CALL_BYTES + LIST_PAGE_BYTES;
        let grown = if full { Err(Shortage::Session) } else { charge.grow_to(MemoryPurpose::Data, bytes, 0) };
        let Err(shortage) = grown else { return true };
        charge.shrink_to(CALL_BYTES);
        self.links.memory().wait(shortage, MemoryPurpose::Data, bytes);
        false
    }

    /// Returns the return address of a call.
    pub(super) fn reply_to(&self, call: u64) -> ReplyTo {
        ReplyTo::new(self.hub.mailbox.clone(), ReplyToken { owner: self.owner, call })
    }

    /// Starts an operation of the driver itself. The charge returns with the answer.
    pub(super) fn start_job(
        &mut self,
        work: JobWork,
        charge: Charge,
        file: &Arc<dyn OpenFile>,
        operation: FileOperation,
    ) -> Option<(Answer, Charge)> {
        let (mailbox, owner) = (&self.hub.mailbox, self.owner);
        self.jobs.start(work, charge, |call| {
            file.start(operation, &ReplyTo::new(mailbox.clone(), ReplyToken { owner, call }))
        })
    }

    /// Logs the error of an answer, if it is one.
    pub(super) fn note(&self, answer: &Answer) {
        if let Answer::Error(error) = answer {
            self.note_failure(error);
        }
    }

    /// Logs a failed request.
    pub(super) fn note_failure(&self, error: &Error) {
        self.hub.shared.failures.note(&self.session.caller().identity, error);
    }
}
