//! Settling of queries: a child replied or was lost, or the query timed out.
//!
//! All these events end in the same step, which judges the waiting requests again.

use std::sync::Arc;
use std::time::Duration;

use super::super::checked_path::checked;
use super::super::limits::{QUERIES_AT_ONCE, STEPS_AT_ONCE, WAITERS_AT_ONCE};
use super::super::locations::presence;
use super::super::queries::{QueryWaiter, RequestToken, Settle, WaiterRequest};
use super::super::select::SelectDecision;
use super::super::{LookupOutcome, ResolverAction, StateReply};
use super::{AnswerEngine, StateReport};
use crate::cache::CachedLocation;
use crate::slots::{Slot, SlotMask};

impl AnswerEngine {
    /// Records the holders of a path, from the message of a child or from an own look-up.
    pub(in crate::resolve) fn record_holders(
        &mut self,
        said_by: Option<Slot>,
        path: &[u8],
        note: impl Fn(&mut CachedLocation),
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if let Some(slot) = said_by {
            self.locations.note_name(slot, path);
        }
        let query = self.queries.open.find(path);
        let found = |location: &mut CachedLocation| {
            let before = *location;
            note(location);
            (before, *location)
        };
        let changed = self.locations.update(path, now, found).or_else(|| {
            // The location was evicted during its query.
            query.is_some().then(|| self.locations.enter(path, now, found))
        });
        let Some((before, after)) = changed else { return };
        let rights = self.locations.rights(path).unwrap_or_default();
        let said = presence(&after, rights);
        let same = said == presence(&before, rights)
            && self.locations.only_draining(&after, rights) == self.locations.only_draining(&before, rights);
        let news = self.settings.has_parents && !same;
        if let Some(pending) = said.filter(|_| news) {
            self.reliance.note(path, now);
            actions.push(ResolverAction::Announce { path: Arc::from(path), pending });
        }
        let why = if news { Settle::Announced } else { Settle::Heard };
        match (said_by, query) {
            (Some(slot), query) => self.settle_reply(query, slot, why, now, actions),
            (None, Some(id)) => self.settle(id, why, now, actions),
            (None, None) => {}
        }
        self.look_at_path(path, now, actions);
    }

    /// Records the result of [`ResolverAction::Look`], a look-up in a file system that all servers
    /// and this node see (`cms.dfs lookup central`). If it has no result, one server is queried as
    /// a fallback. A result without waiting requests is ignored.
    pub(in crate::resolve) fn lookup_finished(
        &mut self,
        path: &[u8],
        sight: LookupOutcome,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        let Some(id) = self.queries.open.find(path) else { return };
        let Some(query) = self.queries.open.get_mut(id).filter(|query| query.looking) else { return };
        query.looking = false;
        let refresh = query.refresh;
        let all = self.locations.rights(path).unwrap_or_default().read;
        match sight {
            LookupOutcome::Here { pending } => {
                let note = |location: &mut CachedLocation| {
                    location.unasked -= all;
                    // An incomplete file belongs to the child that creates it.
                    if !pending || location.have.is_empty() {
                        all.iter().for_each(|slot| location.found(slot, pending));
                    }
                };
                self.record_holders(None, path, note, now, actions);
            }
            LookupOutcome::NotHere => {
                self.locations.update(path, now, |location| {
                    all.iter().for_each(|slot| location.absent(slot));
                });
                self.settle(id, Settle::Heard, now, actions);
            }
            LookupOutcome::Unknown => {
                query.blind = true;
                self.locations.update(path, now, |location| location.unasked = SlotMask::ALL);
                self.ask(path, refresh, false, now, actions);
                self.settle(id, Settle::Heard, now, actions);
            }
            LookupOutcome::Refused => {
                self.locations.update(path, now, |location| location.unasked = SlotMask::ALL);
                self.settle(id, Settle::GivenUp, now, actions);
            }
        }
    }

    /// Records the reply of a child and judges the requests that wait for the query again.
    pub(in crate::resolve) fn settle_reply(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        why: Settle,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(id) = query else { return };
        self.queries.note_reply(id, slot);
        self.settle(id, why, now, actions);
    }

    /// Records that a child does not have the path, if that changed no known location. Requests
    /// that wait for other children continue to wait, so they are not judged again for each reply.
    pub(in crate::resolve) fn settle_absence(
        &mut self,
        query: Option<usize>,
        slot: Slot,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(id) = query else { return };
        if !self.queries.note_absence(&self.locations, id, slot, self.version, now) {
            self.settle_reply(query, slot, Settle::Heard, now, actions);
        }
    }

    /// Ends a limited number of the queries whose deadline has passed, except for requests whose
    /// client has disconnected, as `is_gone` reports.
    pub(in crate::resolve) fn end_due(
        &mut self,
        now: Duration,
        is_gone: &dyn Fn(RequestToken) -> bool,
        actions: &mut Vec<ResolverAction>,
    ) {
        let before = self.steps();
        for _ in 0..QUERIES_AT_ONCE {
            if self.steps() - before >= STEPS_AT_ONCE {
                break;
            }
            let Some(id) = self.queries.open.due(now) else { break };
            self.time_is_up(id, now, is_gone, actions);
        }
    }

    /// Handles the timeout of a query.
    fn time_is_up(
        &mut self,
        id: usize,
        now: Duration,
        is_gone: &dyn Fn(RequestToken) -> bool,
        actions: &mut Vec<ResolverAction>,
    ) {
        if self.queries.open.has_unjudged(id) {
            return self.judge_waiters(id, is_gone, now, actions);
        }
        let Some(query) = self.queries.open.get(id) else { return };
        if query.looking {
            let path = query.path.clone();
            return self.lookup_finished(&path, LookupOutcome::Unknown, now, actions);
        }
        if let Some(why) = self.queries.time_out(&self.locations, id, now) {
            self.settle_for(id, why, is_gone, now, actions);
        }
    }

    /// Records that a child will not reply to its queries: it has to be queried again if it
    /// reconnects.
    pub(in crate::resolve) fn lose_child(
        &mut self,
        slot: Slot,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.leases.forget_unconfirmed(slot);
        self.queries.open.lose(slot);
        self.settle_lost(now, actions);
    }

    /// Settles a limited number of the queries of lost children. The next tick continues with the
    /// others; until then they count as open.
    pub(in crate::resolve) fn settle_lost(&mut self, now: Duration, actions: &mut Vec<ResolverAction>) {
        let before = self.steps();
        while self.steps() - before < STEPS_AT_ONCE {
            let Some((slot, id)) = self.queries.open.next_lost() else { return };
            if self.queries.give_up_reply(&self.locations, id, slot, now) {
                self.settle(id, Settle::Heard, now, actions);
            }
        }
    }

    /// Judges all requests that wait for a query again, and ends the query when all children have
    /// replied.
    pub(in crate::resolve) fn settle(
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
        let Some(query) = self.queries.open.get(id) else { return };
        if why != Settle::GivenUp && self.queries.is_extensible(query, now) {
            // Queries the children that joined or reconnected meanwhile.
            let path = query.path.clone();
            self.ask(&path, false, false, now, actions);
        }
        self.queries.open.judge_again(id, why);
        if let Some(query) = self.queries.open.get_mut(id) {
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
        let Some(query) = self.queries.open.get(id) else { return };
        let (path, why, complete) = (query.path.clone(), query.why, !query.is_open());
        if complete {
            self.locations.update(&path, now, |location| location.querying = false);
        }
        for _ in 0..WAITERS_AT_ONCE {
            let Some(next) = self.queries.open.take_unjudged(id) else { break };
            let Some(waiter) = next.filter(|waiter| !is_gone(waiter.token)) else { continue };
            if !self.settle_one(&path, waiter, why, now, actions) {
                if !complete && self.queries.open.wait(id, waiter) {
                    continue;
                }
                if !matches!(waiter.request, WaiterRequest::State) {
                    actions.push(ResolverAction::Answer { token: waiter.token, answer: self.come_again() });
                }
            }
        }
        if !complete || self.queries.open.has_unjudged(id) {
            self.queries.set_deadline(&self.locations, id, now);
        } else {
            self.retract_unknown(id, now, actions);
            self.queries.open.end(id);
        }
    }

    /// Ends a query that was made for parents: they receive "gone" if no child has the path.
    fn retract_unknown(&mut self, id: usize, now: Duration, actions: &mut Vec<ResolverAction>) {
        let Some(query) = self.queries.open.get(id).filter(|query| query.retracts) else { return };
        let path = query.path.clone();
        if !self.is_present(&path, now) {
            actions.push(ResolverAction::Retract { path });
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
            let rights = self.locations.rights(path).unwrap_or_default();
            let location = self.known(path, now);
            match self.judge_state(path, &location, rights, now) {
                StateReport::Await => return false,
                StateReport::Hold => drop(self.hold(path, waiter, None, now)),
                StateReport::Say(StateReply::Have { .. }) if why == Settle::Announced => {}
                StateReport::Say(reply) => {
                    self.note_state_reply(path, reply, now);
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
