//! Queries that are settled: a child has answered, was lost, or has been silent for too long, and the requests that wait are
//! judged again.

use std::sync::Arc;
use std::time::Duration;

use super::queries::{Query, Token, Waiter, Wish};
use super::select::Verdict;
use super::state::Heard;
use super::{Action, CARRIED_ON, PATIENCE, Resolver, Sight, StateReply};
use crate::slots::{Slot, SlotMask};

/// Requests that wait for one query and are judged at once.
pub(super) const WAITERS_AT_ONCE: usize = 64;

/// Why the waiting requests of a query are looked at again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settle {
    /// A child has answered, or was lost.
    Heard,
    /// A child has answered, and all parents have received its answer.
    Announced,
    /// The time for answers is over.
    GivenUp,
}

impl Resolver {
    /// Records the answer of a child; requests that wait for the query are judged again.
    pub(super) fn heard(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        why: Settle,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(id) = query else { return };
        if let Some(query) = self.queries.get(id).filter(|query| query.outstanding().contains(slot)) {
            // News are no answers: a server may tell of all that its clients make, and still be silent when it is asked.
            self.mute.heard(slot, &query.path);
            let outstanding = query.outstanding() - slot.mask();
            self.queries.set_outstanding(id, outstanding);
        }
        self.settle(id, why, now, actions);
    }

    /// Returns the children whose silence about a path does not count as "not here", because they send that answer.
    pub(super) fn definite(&self, path: &[u8], now: Duration) -> SlotMask {
        self.cell.definite() - self.mute.about(path) - self.mute.idle(now, self.settings.mute)
    }

    /// The time of a query is over: silence counts as far as it can.
    pub(super) fn time_is_up(
        &mut self,
        id: usize,
        now: Duration,
        is_gone: &dyn Fn(Token) -> bool,
        actions: &mut Vec<Action>,
    ) {
        if self.queries.has_unjudged(id) {
            return self.judge_waiters(id, is_gone, now, actions);
        }
        let Some(path) = self.queries.get(id).map(|query| query.path.clone()) else { return };
        if self.queries.get(id).is_some_and(|query| query.looking) {
            return self.looked(&path, Sight::Unknown, now, actions);
        }
        let definite = self.definite(&path, now);
        let Some(query) = self.queries.get(id) else { return };
        // Silence of those that promise no more means that they do not have it.
        let (asked, outstanding) = (query.asked, query.outstanding());
        let silent = outstanding - definite;
        self.queries.set_outstanding(id, outstanding & definite);
        // They may have been away since they reported the file. A reader that is sent there finds out; at one that is out of
        // service it would wait without end, because a real supervisor that has lost its servers does not report their files.
        let idle = |slot: &Slot| self.cell.child(*slot).is_some_and(|child| child.state.suspended);
        let lost: Vec<Slot> = silent.iter().filter(idle).collect();
        if !lost.is_empty() {
            self.shared.cache.update(&path, now, self.cell.bounces(), |location| {
                lost.iter().for_each(|slot| location.absent(*slot));
            });
        }
        if (outstanding & definite).is_empty() {
            return self.settle_for(id, Settle::Heard, is_gone, now, actions);
        }
        if now < asked + self.settings.silence * PATIENCE {
            self.set_deadline(id, now);
            return;
        }
        let silent = outstanding & definite;
        self.queries.set_outstanding(id, SlotMask::EMPTY);
        // Nodes below an inner node may be slow.
        for slot in silent & self.cell.servers() {
            self.mute.missed(slot, &path, asked, now, self.settings.mute);
        }
        // Nobody else was asked where all see the same files.
        let shared = self.shared.chooser.policy().shared.is_some();
        self.shared.cache.update(&path, now, self.cell.bounces(), |location| {
            location.unasked |= if shared { SlotMask::ALL } else { silent };
        });
        self.settle_for(id, Settle::GivenUp, is_gone, now, actions);
    }

    /// Records that a child does not have the path, which changed no known location. Requests that wait for the answers of
    /// other children wait on, so they are not judged again for each child.
    pub(super) fn heard_absence(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let others = |query: &Query| {
            let left = query.outstanding() - slot.mask();
            query.outstanding().contains(slot) && !left.is_empty() && query.judged == self.version
        };
        match query.filter(|id| self.queries.get(*id).is_some_and(others)) {
            Some(id) => {
                let left = self.queries.get(id).map(Query::outstanding).unwrap_or_default() - slot.mask();
                self.queries.set_outstanding(id, left);
                self.set_deadline(id, now);
            }
            None => self.heard(query, slot, Settle::Heard, now, actions),
        }
    }

    /// Has all requests that wait for a query judged again, and ends the query when all children have answered.
    pub(super) fn settle(&mut self, id: usize, why: Settle, now: Duration, actions: &mut Vec<Action>) {
        self.settle_for(id, why, &|_| false, now, actions);
    }

    /// Does the same for requests of which `is_gone` reports whether the client has disconnected.
    fn settle_for(
        &mut self,
        id: usize,
        why: Settle,
        is_gone: &dyn Fn(Token) -> bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(query) = self.queries.get(id) else { return };
        let path = query.path.clone();
        let carry_on = why != Settle::GivenUp && now < query.started + self.settings.silence * CARRIED_ON;
        if !query.is_open() && carry_on && !query.is_unwanted() {
            // Children that joined or came back meanwhile.
            self.ask(&path, false, false, now, actions);
        }
        self.queries.judge_again(id, why);
        if let Some(query) = self.queries.get_mut(id) {
            query.judged = self.version;
        }
        self.judge_waiters(id, is_gone, now, actions);
    }

    /// Judges a limited number of the requests that are to be judged again. The next tick goes on with the others.
    fn judge_waiters(
        &mut self,
        id: usize,
        is_gone: &dyn Fn(Token) -> bool,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(query) = self.queries.get(id) else { return };
        let (path, why, complete) = (query.path.clone(), query.why, !query.is_open());
        if complete {
            self.shared.cache.update(&path, now, self.cell.bounces(), |location| location.querying = false);
        }
        for _ in 0..WAITERS_AT_ONCE {
            let Some(next) = self.queries.take_unjudged(id) else { break };
            let Some(waiter) = next.filter(|waiter| !is_gone(waiter.token)) else { continue };
            if !self.settle_one(&path, waiter, why, now, actions) {
                if !complete && self.queries.wait(id, waiter) {
                    continue;
                }
                if !matches!(waiter.wish, Wish::State) {
                    actions.push(Action::Answer { token: waiter.token, answer: self.come_again() });
                }
            }
        }
        if !complete || self.queries.has_unjudged(id) {
            self.set_deadline(id, now);
        } else {
            self.retract_unknown(id, now, actions);
            self.queries.end(id);
        }
    }

    /// Answers a waiting request if the known locations suffice, or holds it.
    fn settle_one(
        &mut self,
        path: &Arc<[u8]>,
        mut waiter: Waiter,
        why: Settle,
        now: Duration,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.replaced.update(&mut waiter);
        let token = waiter.token;
        if let Wish::State = waiter.wish {
            let rights = self.cell.paths().rights(path).unwrap_or_default();
            let location = self.known(path, now);
            match self.judge_state(path, &location, rights, now) {
                Heard::Await => return false,
                Heard::Hold => drop(self.hold(path, waiter, None, now)),
                Heard::Say(StateReply::Have { .. }) if why == Settle::Announced => {}
                Heard::Say(reply) => {
                    self.note_reply(path, reply, now);
                    actions.push(Action::Reply { token, path: path.clone(), reply });
                }
            }
            return true;
        }
        let answer = match self.judge(path, &waiter.wish, now) {
            Verdict::Await => return false,
            Verdict::Hold(answer) => self.hold(path, waiter, Some(answer), now),
            verdict => self.answer(path, verdict, now, actions),
        };
        if let Some(answer) = answer {
            actions.push(Action::Answer { token, answer });
        }
        true
    }
}
