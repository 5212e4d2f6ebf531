//! Held requests: they depend on expected children, and are judged again when one joins.
//!
//! Holding exists because a wait of fixed length ends too late or too soon; real managers ask
//! clients to wait for 15 s or 30 s (decision 027). Source: cms protocol 3, sections "timers and
//! waits told to clients" and "which waits are needed".

use std::time::Duration;

use super::super::ResolverAction;
use super::super::held_requests::HeldRequest;
use super::super::limits::{PATIENCE, REVIEWS_AT_ONCE};
use super::super::queries::{QueryWaiter, RequestToken, WAITERS_MAX, WaiterRequest};
use super::{AnswerEngine, StateReport};
use crate::request::{ClusterAnswer, ErrorCode};

impl AnswerEngine {
    /// Drops the requests with these tokens, because the clients that sent them have disconnected.
    pub(in crate::resolve) fn abandon(&mut self, gone: impl IntoIterator<Item = RequestToken>) {
        for token in gone {
            if self.held.take_token(token).is_none() {
                self.queries.open.abandon(token);
            }
        }
    }

    /// Holds a request until something changes. Returns the answer for the client if it cannot be
    /// held.
    pub(super) fn hold(
        &mut self,
        path: &[u8],
        mut waiter: QueryWaiter,
        answer: Option<ClusterAnswer>,
        now: Duration,
    ) -> Option<ClusterAnswer> {
        let longest = match waiter.request {
            // The parent stops waiting then.
            WaiterRequest::State => self.settings.hold.min(self.settings.silence * PATIENCE),
            _ => self.settings.hold,
        };
        let until = *waiter.held_until.get_or_insert(now.saturating_add(longest));
        if until <= now && !matches!(waiter.request, WaiterRequest::State) && self.is_deserted(now) {
            // The node that sent the client here has others.
            let text = "No server is here that could have the file.";
            return Some(ClusterAnswer::error(ErrorCode::SERVER_ERROR, text));
        }
        let is_full =
            self.held.len() + self.queries.open.waiters() >= WAITERS_MAX || !self.held.has_room(path);
        if until <= now || is_full {
            return answer;
        }
        self.held.insert(path, waiter, until);
        None
    }

    /// Returns the time at which a held request is to be judged again, or its deadline.
    pub(super) fn next_held(&self) -> Option<Duration> {
        if self.held.has_reviews() {
            return Some(Duration::ZERO);
        }
        let over = self.held.next_deadline()?;
        let concerned = self.held.has_states() || self.door.is_some();
        let soon = self.empty.next_deadline().filter(|_| concerned);
        Some(soon.map_or(over, |until| until.min(over)))
    }

    /// Marks all held requests as to be judged again, because a change may concern them.
    pub(in crate::resolve) fn review_held(&mut self) {
        self.version += 1;
        self.held.review_all();
    }

    /// Judges a limited number of held requests again after a change, and ends those whose deadline
    /// has passed.
    pub(in crate::resolve) fn look_at_held(
        &mut self,
        now: Duration,
        is_gone: &dyn Fn(RequestToken) -> bool,
        actions: &mut Vec<ResolverAction>,
    ) {
        if self.empty.note_end(now) {
            self.held.review_all();
        }
        for _ in 0..REVIEWS_AT_ONCE {
            let Some(held) = self.held.take_due(now) else { return };
            if !is_gone(held.waiter.token) {
                self.judge_held(held, now, actions);
            }
        }
    }

    /// Judges a limited number of the requests held for this path again; the next tick continues.
    pub(in crate::resolve) fn look_at_path(
        &mut self,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if self.held.is_empty() {
            return;
        }
        for held in self.held.take_path(path, REVIEWS_AT_ONCE) {
            self.judge_held(held, now, actions);
        }
    }

    fn judge_held(&mut self, held: HeldRequest, now: Duration, actions: &mut Vec<ResolverAction>) {
        let HeldRequest { path, mut waiter, .. } = held;
        self.replaced.update(&mut waiter);
        // Queries the children that joined meanwhile.
        self.ask(&path, false, false, now, actions);
        let token = waiter.token;
        if let WaiterRequest::State = waiter.request {
            let rights = self.locations.rights(&path).unwrap_or_default();
            let location = self.known(&path, now);
            match self.judge_state(&path, &location, rights, now) {
                StateReport::Say(reply) => {
                    self.note_state_reply(&path, reply, now);
                    actions.push(ResolverAction::Reply { token, path, reply });
                }
                StateReport::Await => drop(self.queries.wait(&path, waiter)),
                StateReport::Hold => drop(self.hold(&path, waiter, None, now)),
            }
            return;
        }
        let deserted = self.deserted(now);
        let verdict = self.judge(&path, &waiter.request, now);
        if let Some(answer) = deserted.or_else(|| self.conclude(&path, verdict, waiter, now, actions)) {
            actions.push(ResolverAction::Answer { token, answer });
        }
    }
}
