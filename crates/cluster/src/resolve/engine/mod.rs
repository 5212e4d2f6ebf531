//! The engine that answers requests: from known locations, or when replies or children arrive.
//!
//! Clients and parents are answered by the same steps, so that a file that was placed for one
//! request is known to the next. The steps are:
//!
//! | file | step |
//! |---|---|
//! | here | judge a request by the known location, and answer it, or let it wait |
//! | `settle` | judge the requests of a query again: a reply, a loss or a timeout |
//! | `hold` | hold requests that depend on expected children, and judge them again |

mod hold;
mod settle;

use std::time::Duration;

use base::Rng;

use super::child_queries::ChildQueries;
use super::empty_cell_timer::EmptyCellTimer;
use super::held_requests::HeldRequests;
use super::lease_book::LeaseBook;
use super::locations::{Locations, presence};
use super::missed::MissedChildren;
use super::queries::{QueryWaiter, RequestToken, WaiterRequest};
use super::reliance::Reliance;
use super::replaced::ReplacedSlots;
use super::select::{self, Question, SelectDecision};
use super::{ResolveSettings, ResolveStats, ResolverAction, StateAsk, StateReply, locate, reader};
use crate::cache::CachedLocation;
use crate::leases::{OVERTAKEN, Permit};
use crate::paths::Rights;
use crate::request::{ClusterAnswer, ErrorCode, LocateFlags};
use crate::slots::Slot;
use crate::tree::Address;

/// The result for a parent.
enum StateReport {
    Say(StateReply),
    /// There is no reply for now, and a query would not find one.
    Hold,
    Await,
}

/// The known locations and all requests that wait for an answer.
pub(super) struct AnswerEngine {
    pub(super) locations: Locations,
    pub(super) queries: ChildQueries,
    pub(super) leases: LeaseBook,
    /// Lost children without a kept slot, and children that were redirected to other cells.
    pub(super) missed: MissedChildren,
    pub(super) settings: ResolveSettings,
    rng: Box<dyn Rng>,
    /// Requests that wait for children to join.
    held: HeldRequests,
    /// Counts the changes for which requests may wait.
    version: u64,
    /// Slots that have been reassigned to another child.
    replaced: ReplacedSlots,
    /// The answers on which parents rely.
    reliance: Reliance,
    empty: EmptyCellTimer,
    /// The address at which clients enter the cluster, if a parent has sent it.
    door: Option<Address>,
}

impl AnswerEngine {
    pub(super) fn new(locations: Locations, settings: ResolveSettings, mut rng: Box<dyn Rng>) -> Self {
        let reliance = Reliance::new(locations.shared().cache.window());
        Self {
            locations,
            queries: ChildQueries::new(settings.silence, settings.mute),
            leases: LeaseBook::new(settings.started, settings.has_parents, rng.as_mut()),
            missed: MissedChildren::default(),
            settings,
            rng,
            held: HeldRequests::default(),
            version: 0,
            replaced: ReplacedSlots::default(),
            reliance,
            empty: EmptyCellTimer::default(),
            door: None,
        }
    }

    /// Reports whether parents need reports about changes of files.
    pub(super) const fn has_parents(&self) -> bool {
        self.settings.has_parents
    }

    /// Reports whether a parent redirects clients here.
    pub(super) const fn supervises(&self) -> bool {
        self.settings.supervises
    }

    /// Returns the counts of open queries and waiting requests.
    pub(super) fn stats(&self) -> ResolveStats {
        ResolveStats {
            cache: self.locations.shared().cache.stats(),
            queries: self.queries.open.len(),
            waiters: self.queries.open.waiters(),
            held: self.held.len(),
            steps: self.steps(),
        }
    }

    /// Returns the number of waiting requests and queries looked at since the start.
    pub(super) fn steps(&self) -> u64 {
        self.held.steps() + self.queries.open.steps()
    }

    /// Returns the time of the next work, except for that of lost and new children.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let known = [
            self.queries.open.next_deadline(),
            self.next_held(),
            self.next_watch(),
            self.leases.own().next_deadline(),
            self.queries.open.has_lost().then_some(Duration::ZERO),
        ];
        known.into_iter().flatten().min()
    }

    /// Returns the known location of a path, or [`CachedLocation::UNKNOWN`].
    pub(super) fn known(&self, path: &[u8], now: Duration) -> CachedLocation {
        self.queries.known(&self.locations, path, now)
    }

    /// Forgets the known location if the client requests a refresh and no refresh is in progress.
    /// Reports whether it did.
    pub(super) fn forget_for_refresh(&self, path: &[u8], refresh: bool, now: Duration) -> bool {
        self.queries.forget_for_refresh(&self.locations, path, refresh, now)
    }

    /// Sends a query to each child whose reply is needed.
    pub(super) fn ask(
        &mut self,
        path: &[u8],
        refresh: bool,
        via_meta: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.queries.ask(&self.locations, path, refresh, via_meta, now, actions);
    }

    /// Settles which of the children of one host has failed.
    pub(super) fn settle_failed(&self, path: &[u8], question: &mut Question, now: Duration) {
        self.locations.settle_failed(path, question, now);
    }

    /// Invalidates the state of the children that a client avoids or that are creating the file.
    pub(super) fn invalidate_tried(
        &mut self,
        path: &[u8],
        question: &Question,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let left = self.locations.invalidate_tried(path, question, now);
        // The creator could not reach the child, or could not create the file there. Another child
        // may be chosen when this one has ended the lease; it keeps the lease while it creates the
        // file.
        if let Some(slot) = left.filter(|_| question.options.intent.creates()) {
            self.leases.end(self.locations.cell(), slot, path, now, actions);
        }
    }

    /// Answers a `select` by the known location, or queries children. `refresh` is the result of
    /// [`Self::forget_for_refresh`]. Returns `None` if the request waits.
    pub(super) fn select(
        &mut self,
        token: RequestToken,
        path: &[u8],
        question: Question,
        refresh: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let wish = WaiterRequest::Select(question);
        let verdict = self.judge(path, &wish, now);
        if !matches!(verdict, SelectDecision::Answer(_)) {
            self.ask(path, refresh, false, now, actions);
        }
        self.conclude(path, verdict, self.waiter(token, wish), now, actions)
    }

    /// Answers a `locate` of a path as [`Self::select`] does.
    pub(super) fn locate(
        &mut self,
        token: RequestToken,
        path: &[u8],
        options: LocateFlags,
        refresh: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let wish = WaiterRequest::Locate(options);
        let verdict = self.judge(path, &wish, now);
        self.ask(path, refresh, false, now, actions);
        self.conclude(path, verdict, self.waiter(token, wish), now, actions)
    }

    /// Answers a parent's query for a path. Returns `None` if there is no answer now; unless the
    /// query was quiet, it waits.
    pub(super) fn state(
        &mut self,
        token: RequestToken,
        path: &[u8],
        ask: StateAsk,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<StateReply> {
        let reply = |reply| (!ask.quiet).then_some(reply);
        let rights = match self.locations.rights(path) {
            Some(rights) => rights,
            None if self.locations.cell().quorum() => return reply(StateReply::NotHere),
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
                self.note_state_reply(path, said, now);
                reply(said)
            }
            _ if ask.quiet => None,
            StateReport::Hold => {
                self.hold(path, self.waiter(token, WaiterRequest::State), None, now);
                None
            }
            StateReport::Await => {
                self.queries.wait(path, self.waiter(token, WaiterRequest::State));
                None
            }
        }
    }

    fn waiter(&self, token: RequestToken, wish: WaiterRequest) -> QueryWaiter {
        QueryWaiter::new(token, wish, self.replaced.changes())
    }

    /// Records that parents rely on the presence of a path.
    pub(super) fn note_reliance(&mut self, path: &[u8], now: Duration) {
        self.reliance.note(path, now);
    }

    /// Reports whether parents may know a path of this child that this node has forgotten.
    pub(super) fn may_be_relied_on(&mut self, slot: Slot, path: &[u8], now: Duration) -> bool {
        self.settings.has_parents
            && self.locations.is_exported_by(slot, path)
            && self.reliance.contains(path, now)
    }

    /// Records that the slot has another child, which the clients of its predecessor do not avoid.
    pub(super) fn note_replaced(&mut self, slot: Slot) {
        self.replaced.note(slot);
    }

    /// Records the reply to a parent.
    fn note_state_reply(&mut self, path: &[u8], reply: StateReply, now: Duration) {
        if matches!(reply, StateReply::Have { .. }) {
            self.reliance.note(path, now);
        }
    }

    /// Judges a request of a client by the current knowledge.
    fn judge(&mut self, path: &[u8], wish: &WaiterRequest, now: Duration) -> SelectDecision {
        // The location is looked up for each request, because the answer to one may have placed the
        // file for the next.
        let location = self.known(path, now);
        let (cell, chooser) = (self.locations.cell(), &self.locations.shared().chooser);
        match wish {
            WaiterRequest::Select(question) => {
                // A child that does not report its files gets clients only if no other child
                // qualifies.
                let mut question = *question;
                question.avoided.last |= self.queries.unresponsive.about(path);
                if question.options.intent.creates() {
                    // The same creation would fail there once more.
                    question.avoided.last |= location.failed.map(Slot::mask).unwrap_or_default();
                }
                select::judge(cell, chooser, &location, path, &question, self.rng.as_mut())
            }
            WaiterRequest::Locate(options) => locate::judge(cell, chooser.policy(), &location, path, options),
            WaiterRequest::State => SelectDecision::Await,
        }
    }

    /// Returns the reply to a parent from the known location.
    fn judge_state(
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
        if location.querying || unasked.meets(self.locations.cell().connected()) {
            StateReport::Await
        } else if self.missed.hold_parents() {
            StateReport::Hold
        } else if self.is_empty(now) {
            // Without children there is nothing to query: a spare supervisor must not delay the
            // cluster.
            StateReport::Say(StateReply::NotHere)
        } else if !self.locations.cell().quorum() || unasked.meets(self.locations.cell().expected()) {
            StateReport::Hold
        } else {
            StateReport::Say(StateReply::NotHere)
        }
    }

    /// Turns the verdict on a new request into its answer, or lets the request wait.
    fn conclude(
        &mut self,
        path: &[u8],
        verdict: SelectDecision,
        waiter: QueryWaiter,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        match verdict {
            SelectDecision::Await => {
                if self.queries.wait(path, waiter) {
                    None
                } else {
                    Some(self.come_again())
                }
            }
            SelectDecision::Hold(answer) => self.hold(path, waiter, Some(answer), now),
            verdict => self.answer(path, verdict, now, actions),
        }
    }

    /// Returns the answer for a verdict and applies its effects; `None` for a verdict without an
    /// answer.
    fn answer(
        &mut self,
        path: &[u8],
        verdict: SelectDecision,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        match verdict {
            SelectDecision::Await => None,
            SelectDecision::Answer(answer) | SelectDecision::Hold(answer) => Some(answer),
            SelectDecision::Child { slot, kind, client, place } => {
                if place {
                    if let Some(refusal) = self.begin_placement(path, now) {
                        return Some(refusal);
                    }
                    self.leases.grant(self.locations.cell(), slot, path, now, actions);
                    self.locations.update_or_enter(path, now, |location| location.place(slot));
                }
                let cell = self.locations.cell();
                Some(reader::redirect(cell, &self.locations.shared().chooser, slot, kind, client))
            }
        }
    }

    /// Starts the placement of a file at a child. Returns the answer for a client that arrived too
    /// late.
    fn begin_placement(&mut self, path: &[u8], now: Duration) -> Option<ClusterAnswer> {
        match self.leases.begin_placement(path, now) {
            // Parents have no reply of an absent child for the file.
            Permit::Free if self.settings.has_parents && self.missed.hold_parents() => {
                Some(ClusterAnswer::wait(self.locations.policy().waits.service))
            }
            Permit::Free | Permit::Leased => None,
            Permit::Later => Some(ClusterAnswer::wait(OVERTAKEN)),
            Permit::Refused => Some(self.redirect_to_door().unwrap_or_else(|| {
                ClusterAnswer::error(ErrorCode::SERVER_ERROR, "The time to create the file here is over.")
            })),
        }
    }

    fn come_again(&self) -> ClusterAnswer {
        ClusterAnswer::wait(self.locations.policy().waits.lookup)
    }

    /// Sets the address at which clients enter the cluster.
    pub(super) fn set_door(&mut self, door: Option<&Address>) {
        if self.door.as_ref() != door {
            self.door = door.cloned();
            // Held clients may be redirected there.
            self.held.review_all();
        }
    }

    /// Redirects a client back to the entry of the cluster from a supervisor without children,
    /// which may get none for days.
    pub(super) fn deserted(&mut self, now: Duration) -> Option<ClusterAnswer> {
        if self.is_deserted(now) { self.redirect_to_door() } else { None }
    }

    fn redirect_to_door(&self) -> Option<ClusterAnswer> {
        let door = self.door.as_ref()?;
        Some(ClusterAnswer::Redirect { slot: None, host: door.written_host().into(), port: door.port() })
    }

    /// Reports whether a parent sends clients here although there have been no children for a
    /// while: other nodes have their files.
    fn is_deserted(&mut self, now: Duration) -> bool {
        self.settings.supervises && self.is_empty(now)
    }

    /// Reports whether the node has been without children for so long that none is expected back.
    fn is_empty(&mut self, now: Duration) -> bool {
        self.watch_empty(now);
        self.empty.is_over(now)
    }

    /// Records the time since which there are no children.
    pub(super) fn watch_empty(&mut self, now: Duration) {
        self.empty.watch(self.locations.cell().connected().is_empty(), now);
    }

    /// Returns the time at which the lack of children is to be recorded.
    fn next_watch(&self) -> Option<Duration> {
        let unseen = self.empty.is_outdated(self.locations.cell().connected().is_empty());
        (self.settings.has_parents && unseen).then_some(Duration::ZERO)
    }

    /// Reports ended leases to parents.
    pub(super) fn end_leases(&mut self, now: Duration, actions: &mut Vec<ResolverAction>) {
        if self.leases.own().next_deadline().is_none_or(|due| due > now) {
            return;
        }
        for path in self.leases.own_mut().take_ended(now) {
            if !self.is_present(&path, now) {
                actions.push(ResolverAction::Retract { path });
            }
        }
    }

    /// Reports whether a lease of a parent is all that is known of a path.
    fn is_lease_running(&mut self, path: &[u8], now: Duration) -> bool {
        let runs = self.leases.own_mut().is_running(path, now);
        if !runs && self.locations.cell().absent().is_empty() {
            return false;
        }
        let location = self.known(path, now);
        let rights = self.locations.rights(path).unwrap_or_default();
        presence(&location, rights).is_none() && (runs || self.locations.is_placed_at_absent(&location))
    }

    /// Reports whether a child has a path, or is staging it.
    fn is_present(&self, path: &[u8], now: Duration) -> bool {
        let rights = self.locations.rights(path).unwrap_or_default();
        presence(&self.known(path, now), rights).is_some()
    }
}
