//! What a parent is told that asks whether a path is here.

use std::time::Duration;

use super::children::SEATED_WITHIN;
use super::queries::{Waiter, Wish};
use super::{Action, Resolver, StateAsk, StateReply, Token, checked};
use crate::cache::Location;
use crate::paths::Rights;
use crate::request::Answer;
use crate::tree::Address;

impl Resolver {
    /// A parent asks whether it is here. `None`: there is nothing to say now; unless the ask was quiet, the answer comes
    /// as [`Action::Reply`] or [`Action::Announce`], or never if nobody below answers.
    pub fn state(
        &mut self,
        token: Token,
        path: &[u8],
        ask: StateAsk,
        now: Duration,
        actions: &mut Vec<Action>,
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
        let refresh = self.recall(path, ask.refresh, now);
        let location = self.known(path, now);
        self.ask(path, refresh, ask.via_meta, now, actions);
        match self.judge_state(path, &location, rights, now) {
            Heard::Say(said) => {
                self.note_reply(path, said, now);
                reply(said)
            }
            _ if ask.quiet => None,
            Heard::Hold => {
                self.hold(path, self.state_waiter(token), None, now);
                None
            }
            Heard::Await => {
                if let Some(id) = self.queries.find(path) {
                    self.queries.wait(id, self.state_waiter(token));
                }
                None
            }
        }
    }

    /// A parent is told what it asked for.
    pub(super) fn note_reply(&mut self, path: &[u8], reply: StateReply, now: Duration) {
        if matches!(reply, StateReply::Have { .. }) {
            self.reliance.note(path, now);
        }
    }

    fn state_waiter(&self, token: Token) -> Waiter {
        Waiter::new(token, Wish::State, self.replaced.changes())
    }

    /// What can be said to a parent by what is known.
    pub(super) fn judge_state(
        &mut self,
        path: &[u8],
        location: &Location,
        rights: Rights,
        now: Duration,
    ) -> Heard {
        if let Some(pending) = presence(location, rights) {
            return Heard::Say(StateReply::Have { pending });
        }
        if self.is_lease_running(path, now) {
            return Heard::Say(StateReply::Have { pending: true });
        }
        let unasked = location.unasked & rights.read;
        if location.querying || unasked.meets(self.cell.connected()) {
            Heard::Await
        } else if self.missed.hold_parents() {
            Heard::Hold
        } else if self.is_empty(now) {
            // Who is below nobody can be asked for: a spare supervisor must not hold up the cluster.
            Heard::Say(StateReply::NotHere)
        } else if !self.cell.quorum() || unasked.meets(self.cell.expected()) {
            Heard::Hold
        } else {
            Heard::Say(StateReply::NotHere)
        }
    }

    /// Whether there have been no children for so long that none is on its way back.
    fn is_empty(&mut self, now: Duration) -> bool {
        self.watch_empty(now);
        self.empty_until.is_some_and(|until| until <= now)
    }

    /// Whether clients were sent here by a node above and there has been nobody for a while: others have their files.
    pub(super) fn is_deserted(&mut self, now: Duration) -> bool {
        self.settings.supervises && self.is_empty(now)
    }

    /// Back to where clients begin, from a supervisor that has nobody below it: it may get none for days.
    pub(super) fn deserted(&mut self, now: Duration) -> Option<Answer> {
        if !self.is_deserted(now) {
            return None;
        }
        let door = self.door.as_ref()?;
        Some(Answer::Redirect { slot: None, host: door.written_host().into(), port: door.port() })
    }

    /// Where clients of the cluster begin, as the parents of a supervisor say.
    pub fn set_door(&mut self, door: Option<&Address>) {
        if self.settings.supervises && self.door.as_ref() != door {
            self.door = door.cloned();
            // Held clients may be sent there.
            self.held.review_all();
        }
    }

    /// Notes since when there are no children.
    pub(super) fn watch_empty(&mut self, now: Duration) {
        if !self.cell.connected().is_empty() {
            self.empty_until = None;
            self.empty_noted = false;
        } else {
            self.empty_until.get_or_insert(now.saturating_add(SEATED_WITHIN));
        }
    }

    /// Whether it is still to be noted since when there are none.
    pub(super) fn next_watch(&self) -> Option<Duration> {
        let unseen = self.empty_until.is_none() == self.cell.connected().is_empty();
        (self.settings.has_parents && unseen).then_some(Duration::ZERO)
    }
}

impl Resolver {
    /// Whether clients are being moved away from all that have a path: then others come first, wherever they are.
    pub fn is_draining(&self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        self.only_draining(&self.known(path, now), rights)
    }

    pub(super) fn only_draining(&self, location: &Location, rights: Rights) -> bool {
        let have = location.have & rights.read;
        !have.is_empty() && have.within(self.cell.draining() | location.draining)
    }
}

/// What can be said to a parent.
pub(super) enum Heard {
    Say(StateReply),
    /// Nothing for now, and no query will tell.
    Hold,
    Await,
}

/// Whether a path is here; `Some(true)` if everywhere only on its way.
pub(super) fn presence(location: &Location, rights: Rights) -> Option<bool> {
    let have = location.have & rights.read;
    (!have.is_empty()).then(|| have.within(location.pending))
}
