//! Answers to parents: the presence of a path on or below this node.
//!
//! They differ from answers to clients because a parent needs no child, and may rely on an answer
//! for longer than this node keeps it: see `reliance`.

use std::time::Duration;

use super::checked_path::checked;
use super::limits::SEATED_WITHIN;
use super::queries::{QueryWaiter, WaiterRequest};
use super::{LocationResolver, RequestToken, ResolverAction, StateAsk, StateReply};
use crate::cache::CachedLocation;
use crate::paths::Rights;
use crate::request::ClusterAnswer;
use crate::tree::Address;

impl LocationResolver {
    /// Answers a parent's query for a path. `None`: there is no answer now. Unless the query was
    /// quiet, the answer follows as [`ResolverAction::Reply`] or [`ResolverAction::Announce`], or
    /// never if no child replies.
    pub fn state(
        &mut self,
        token: RequestToken,
        path: &[u8],
        ask: StateAsk,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<StateReply> {
        let path = checked(path).ok()?;
        let reply = |reply| (!ask.quiet).then_some(reply);
        let rights = match self.cell.paths().rights(path) {
            Some(rights) => rights,
            None if self.cell.quorum() => return reply(StateReply::NotHere),
            None => Rights::default(),
        };
        if self.is_lease_running(path, now) {
            return reply(StateReply::Have { pending: true });
        }
        let refresh = self.forget_for_refresh(path, ask.refresh, now);
        let location = self.known(path, now);
        self.ask(path, refresh, ask.via_meta, now, actions);
        match self.judge_state(path, &location, rights, now) {
            StateReport::Say(said) => {
                self.note_reply(path, said, now);
                reply(said)
            }
            _ if ask.quiet => None,
            StateReport::Hold => {
                self.hold(path, self.state_waiter(token), None, now);
                None
            }
            StateReport::Await => {
                if let Some(id) = self.queries.find(path) {
                    self.queries.wait(id, self.state_waiter(token));
                }
                None
            }
        }
    }

    /// Records the reply to a parent.
    pub(super) fn note_reply(&mut self, path: &[u8], reply: StateReply, now: Duration) {
        if matches!(reply, StateReply::Have { .. }) {
            self.reliance.note(path, now);
        }
    }

    fn state_waiter(&self, token: RequestToken) -> QueryWaiter {
        QueryWaiter::new(token, WaiterRequest::State, self.replaced.changes())
    }

    /// Returns the reply to a parent from the known location.
    pub(super) fn judge_state(
        &mut self,
        path: &[u8],
        location: &CachedLocation,
        rights: Rights,
        now: Duration,
    ) -> StateReport {
        if let Some(pending) = presence(location, rights) {
            return StateReport::Say(StateReply::Have { pending });
        }
        if self.is_lease_running(path, now) {
            return StateReport::Say(StateReply::Have { pending: true });
        }
        let unasked = location.unasked & rights.read;
        if location.querying || unasked.meets(self.cell.connected()) {
            StateReport::Await
        } else if self.missed.hold_parents() {
            StateReport::Hold
        } else if self.is_empty(now) {
            // Without children there is nothing to query: a spare supervisor must not delay the
            // cluster.
            StateReport::Say(StateReply::NotHere)
        } else if !self.cell.quorum() || unasked.meets(self.cell.expected()) {
            StateReport::Hold
        } else {
            StateReport::Say(StateReply::NotHere)
        }
    }

    /// Reports whether the node has been without children for so long that none is expected back.
    fn is_empty(&mut self, now: Duration) -> bool {
        self.watch_empty(now);
        self.empty_until.is_some_and(|until| until <= now)
    }

    /// Reports whether a parent sends clients here although there have been no children for a
    /// while: other nodes have their files.
    pub(super) fn is_deserted(&mut self, now: Duration) -> bool {
        self.settings.supervises && self.is_empty(now)
    }

    /// Redirects a client back to the entry of the cluster from a supervisor without children,
    /// which may get none for days.
    pub(super) fn deserted(&mut self, now: Duration) -> Option<ClusterAnswer> {
        if !self.is_deserted(now) {
            return None;
        }
        let door = self.door.as_ref()?;
        Some(ClusterAnswer::Redirect { slot: None, host: door.written_host().into(), port: door.port() })
    }

    /// Sets the address at which clients enter the cluster, as received from the parents of a
    /// supervisor.
    pub fn set_door(&mut self, door: Option<&Address>) {
        if self.settings.supervises && self.door.as_ref() != door {
            self.door = door.cloned();
            // Held clients may be redirected there.
            self.held.review_all();
        }
    }

    /// Records the time since which there are no children.
    pub(super) fn watch_empty(&mut self, now: Duration) {
        if !self.cell.connected().is_empty() {
            self.empty_until = None;
            self.empty_noted = false;
        } else {
            self.empty_until.get_or_insert(now.saturating_add(SEATED_WITHIN));
        }
    }

    /// Returns the time at which the lack of children is to be recorded.
    pub(super) fn next_watch(&self) -> Option<Duration> {
        let unseen = self.empty_until.is_none() == self.cell.connected().is_empty();
        (self.settings.has_parents && unseen).then_some(Duration::ZERO)
    }
}

impl LocationResolver {
    /// Reports whether all holders of a path are draining. Then holders at other nodes are
    /// preferred.
    pub fn is_draining(&self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        self.only_draining(&self.known(path, now), rights)
    }

    pub(super) fn only_draining(&self, location: &CachedLocation, rights: Rights) -> bool {
        let have = location.have & rights.read;
        !have.is_empty() && have.within(self.cell.draining() | location.draining)
    }
}

/// The result for a parent.
pub(super) enum StateReport {
    Say(StateReply),
    /// There is no reply for now, and a query would not find one.
    Hold,
    Await,
}

/// Reports whether a path is here; `Some(true)` if every holder is still staging it.
pub(super) fn presence(location: &CachedLocation, rights: Rights) -> Option<bool> {
    let have = location.have & rights.read;
    (!have.is_empty()).then(|| have.within(location.pending))
}
