//! Settling of queries: a child replied or was lost, or the query timed out.
//!
//! All these events end in the same step, which judges the waiting requests again.

use std::sync::Arc;
use std::time::Duration;

use super::limits::{CARRIED_ON, PATIENCE, WAITERS_AT_ONCE};
use super::parent_queries::StateReport;
use super::queries::{ChildQuery, QueryWaiter, RequestToken, Settle, WaiterRequest};
use super::select::SelectDecision;
use super::{LocationResolver, LookupOutcome, ResolverAction, StateReply};
use crate::slots::{Slot, SlotMask};

impl LocationResolver {
    /// Records the reply of a child and judges the requests that wait for the query again.
    pub(super) fn settle_reply(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        why: Settle,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(id) = query else { return };
        if let Some(query) = self.queries.get(id).filter(|query| query.outstanding().contains(slot)) {
            // Reports without a query are not replies: a server may report all files that its
            // clients create and still leave queries unanswered.
            self.unresponsive.note_reply(slot, &query.path);
            let outstanding = query.outstanding() - slot.mask();
            self.queries.set_outstanding(id, outstanding);
        }
        self.settle(id, why, now, actions);
    }

    /// Returns the children whose missing reply for a path does not count as "not here", because
    /// they send NOT_HERE replies.
    pub(super) fn definite(&self, path: &[u8], now: Duration) -> SlotMask {
        self.cell.definite() - self.unresponsive.about(path) - self.unresponsive.idle(now, self.settings.mute)
    }

    /// Handles the timeout of a query: missing replies count where they have a meaning.
    pub(super) fn time_is_up(
        &mut self,
        id: usize,
        now: Duration,
        is_gone: &dyn Fn(RequestToken) -> bool,
        actions: &mut Vec<ResolverAction>,
    ) {
        if self.queries.has_unjudged(id) {
            return self.judge_waiters(id, is_gone, now, actions);
        }
        let Some(path) = self.queries.get(id).map(|query| query.path.clone()) else { return };
        if self.queries.get(id).is_some_and(|query| query.looking) {
            return self.lookup_finished(&path, LookupOutcome::Unknown, now, actions);
        }
        let definite = self.definite(&path, now);
        let Some(query) = self.queries.get(id) else { return };
        // A missing reply of a child without NOT_HERE replies means that it does not have the file.
        let (queried_at, outstanding) = (query.queried_at, query.outstanding());
        let silent = outstanding - definite;
        self.queries.set_outstanding(id, outstanding & definite);
        // The child may have been absent since it reported the file. A reader that is sent there
        // finds out. At a child out of service it would wait without end, because a real supervisor
        // that has lost its servers does not report their files.
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
        if now < queried_at + self.settings.silence * PATIENCE {
            self.set_deadline(id, now);
            return;
        }
        let silent = outstanding & definite;
        self.queries.set_outstanding(id, SlotMask::EMPTY);
        // Nodes below an inner node may be slow.
        for slot in silent & self.cell.servers() {
            self.unresponsive.missed(slot, &path, queried_at, now, self.settings.mute);
        }
        // With a shared file system only this server was queried.
        let shared = self.shared.chooser.policy().shared.is_some();
        self.shared.cache.update(&path, now, self.cell.bounces(), |location| {
            location.unasked |= if shared { SlotMask::ALL } else { silent };
        });
        self.settle_for(id, Settle::GivenUp, is_gone, now, actions);
    }

    /// Records that a child does not have the path, if that changed no known location. Requests
    /// that wait for other children continue to wait, so they are not judged again for each reply.
    pub(super) fn settle_absence(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let others = |query: &ChildQuery| {
            let left = query.outstanding() - slot.mask();
            query.outstanding().contains(slot) && !left.is_empty() && query.judged == self.version
        };
        match query.filter(|id| self.queries.get(*id).is_some_and(others)) {
            Some(id) => {
                let left =
                    self.queries.get(id).map(ChildQuery::outstanding).unwrap_or_default() - slot.mask();
                self.queries.set_outstanding(id, left);
                self.set_deadline(id, now);
            }
            None => self.settle_reply(query, slot, Settle::Heard, now, actions),
        }
    }

    /// Judges all requests that wait for a query again, and ends the query when all children have
    /// replied.
    pub(super) fn settle(
        &mut self,
        id: usize,
        why: Settle,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.settle_for(id, why, &|_| false, now, actions);
    }

    /// Does the same work as [`Self::settle`], except for requests whose client has disconnected,
    /// as `is_gone` reports.
    fn settle_for(
        &mut self,
        id: usize,
        why: Settle,
        is_gone: &dyn Fn(RequestToken) -> bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(query) = self.queries.get(id) else { return };
        let path = query.path.clone();
        let carry_on = why != Settle::GivenUp && now < query.started + self.settings.silence * CARRIED_ON;
        if !query.is_open() && carry_on && !query.is_unwanted() {
            // Queries the children that joined or reconnected meanwhile.
            self.ask(&path, false, false, now, actions);
        }
        self.queries.judge_again(id, why);
        if let Some(query) = self.queries.get_mut(id) {
            query.judged = self.version;
        }
        self.judge_waiters(id, is_gone, now, actions);
    }

    /// Judges a limited number of the marked requests. The next tick continues with the others.
    fn judge_waiters(
        &mut self,
        id: usize,
        is_gone: &dyn Fn(RequestToken) -> bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
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
                if !matches!(waiter.request, WaiterRequest::State) {
                    actions.push(ResolverAction::Answer { token: waiter.token, answer: self.come_again() });
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
        mut waiter: QueryWaiter,
        why: Settle,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> bool {
        self.replaced.update(&mut waiter);
        let token = waiter.token;
        if let WaiterRequest::State = waiter.request {
            let rights = self.cell.paths().rights(path).unwrap_or_default();
            let location = self.known(path, now);
            match self.judge_state(path, &location, rights, now) {
                StateReport::Await => return false,
                StateReport::Hold => drop(self.hold(path, waiter, None, now)),
                StateReport::Say(StateReply::Have { .. }) if why == Settle::Announced => {}
                StateReport::Say(reply) => {
                    self.note_reply(path, reply, now);
                    actions.push(ResolverAction::Reply { token, path: path.clone(), reply });
                }
            }
            return true;
        }
        let answer = match self.judge(path, &waiter.request, now) {
            SelectDecision::Await => return false,
            SelectDecision::Hold(answer) => self.hold(path, waiter, Some(answer), now),
            verdict => self.answer(path, verdict, now, actions),
        };
        if let Some(answer) = answer {
            actions.push(ResolverAction::Answer { token, answer });
        }
        true
    }
}
