//! The resolver: the state machine that decides where a client is sent.
//!
//! It combines the location cache, the path table, queries to children and selection, so that each
//! request gets its answer from one place.
//!
//! ```text
//!              known                                   Answer
//! request ---> judge ---------------------------------> Redirect | Located | Wait | Error
//!                |  replies are outstanding
//!                v
//!              query ---- Ask ----> children             (one query per path, however many wait)
//!                ^                     |
//!                +-- have, not here ---+--> judge again, for every waiting request
//!                +-- timeout, loss ----+
//! ```
//!
//! Real daemons send no reply when they do not have a file; for these children a missing reply
//! means absence after [`ResolveSettings::silence`]. Other children send explicit NOT_HERE replies,
//! which count at once. A missing reply from such a child proves nothing, and the client is asked
//! to retry. So among our own nodes a missing file costs one round trip.
//!
//! The resolver runs on one thread. Connections read its knowledge through [`LocationReader`], each
//! on its own thread. Source: cms protocol 3, sections "state handling" to "locate".

mod checked_path;
mod child_messages;
mod children;
mod effective_location;
mod effects;
mod held_requests;
mod hold;
mod limits;
mod locate;
mod missed;
mod parent_queries;
mod placed_leases;
mod placement;
mod queries;
mod reader;
mod reliance;
mod replaced;
mod reserve;
mod select;
mod settle;
mod shared_lookup;
mod unconfirmed;
mod unresponsive;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::Rng;

pub use effects::{
    LookupOutcome, ResolveSettings, ResolveStats, ResolverAction, SILENCE, StateAsk, StateReply,
};
pub use limits::{EXPECTED_BACK, HOLD, STEPS_MAX};
pub use queries::{QUERIES_MAX, RequestToken, WAITERS_MAX};
pub use reader::{LocationReader, ResolverShared};

use checked_path::checked;
use held_requests::HeldRequests;
use limits::{CARRIED_ON, PATIENCE, QUERIES_AT_ONCE, STEPS_AT_ONCE};
use missed::MissedChildren;
use placed_leases::PlacedLeases;
use queries::{ChildQuery, Queries, QueryWaiter, WaiterRequest};
use reliance::Reliance;
use replaced::ReplacedSlots;
use select::{Question, SelectDecision};
use unconfirmed::UnconfirmedLeases;
use unresponsive::UnresponsiveChildren;

use crate::cache::{Cache, CachedLocation};
use crate::cell::Cell;
use crate::inventories::Inventories;
use crate::lease_number::LeaseClock;
use crate::leases::Leases;
use crate::paths::plain;
use crate::request::{ClusterAnswer, LocateFlags, SelectOptions};
use crate::selection::Chooser;
use crate::slots::{Slot, SlotMask};
use crate::tree::{Address, ConnectionId};
use crate::tried_children::TriedChildren;

/// The connection of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AttachedChild {
    pub(super) link: ConnectionId,
    pub(super) since: Duration,
}

/// The state machine of one cell.
///
/// Methods come in three kinds: requests (`select`, `locate`, `state`), messages of children
/// (`have`, `gone`, `not_here`, `inventory`), and events of the tree (`follow`, or `join`,
/// `change`, `leave`, `bounce`; `set_quorum`). Paths are absolute and normalised, as
/// [`base::LogicalPath`] holds them; `now` is the time since the start.
pub struct LocationResolver {
    cell: Cell,
    shared: Arc<ResolverShared>,
    queries: Queries,
    settings: ResolveSettings,
    rng: Box<dyn Rng>,
    /// Leases of files that clients are about to create here, as granted by parents.
    leases: Leases,
    /// Leases of children, reported to parents.
    placed_leases: PlacedLeases,
    unconfirmed: UnconfirmedLeases,
    lease_clock: LeaseClock,
    /// The time until which each lost child is expected to reconnect. For a child that has only
    /// just reconnected, it still counts from the first loss (flapping).
    expected: Vec<(Duration, Slot)>,
    /// The time until which files wait that each child with [`Newness::Announced`] would get.
    ///
    /// [`Newness::Announced`]: crate::cell::Newness::Announced
    announced: Vec<(Duration, Slot)>,
    /// The server that is queried next for servers with a shared file system (round robin).
    turn: usize,
    /// The connections of the children, as reported by the tree.
    links: HashMap<Slot, AttachedChild>,
    /// Requests that wait for children to join.
    held: HeldRequests,
    /// Counts the changes for which requests may wait.
    version: u64,
    /// Slots that have been reassigned to another child.
    replaced: ReplacedSlots,
    /// The answers on which parents rely.
    reliance: Reliance,
    /// Children that do not send the NOT_HERE replies that they promised.
    unresponsive: UnresponsiveChildren,
    /// The quorum of children is present, as reported by the driver.
    enough: bool,
    /// Lost children without a kept slot, and children that were redirected to other cells.
    missed: MissedChildren,
    /// The time until which children are expected while the cell has none.
    empty_until: Option<Duration>,
    /// That time has passed, and held requests have been judged again because of it.
    empty_noted: bool,
    /// The address at which clients enter the cluster, if a parent has sent it.
    door: Option<Address>,
}

impl LocationResolver {
    /// Creates a resolver for this cell. Its cache and rules are shared with the readers made from
    /// [`Self::shared`].
    pub fn new(
        cell: Cell,
        cache: Cache,
        chooser: Chooser,
        settings: ResolveSettings,
        mut rng: Box<dyn Rng>,
    ) -> Self {
        let lease_clock = LeaseClock::new(settings.started, rng.as_mut());
        let inventories = Inventories::new(cache.key());
        let reliance = Reliance::new(cache.window());
        let shared = ResolverShared::new(cache, chooser, cell.clone(), inventories, !settings.has_parents);
        let shared = Arc::new(shared);
        let enough = cell.quorum();
        Self {
            cell,
            shared,
            queries: Queries::default(),
            settings,
            rng,
            leases: Leases::default(),
            placed_leases: PlacedLeases::default(),
            unconfirmed: UnconfirmedLeases::default(),
            lease_clock,
            expected: Vec::new(),
            announced: Vec::new(),
            turn: 0,
            links: HashMap::new(),
            held: HeldRequests::default(),
            version: 0,
            replaced: ReplacedSlots::default(),
            reliance,
            unresponsive: UnresponsiveChildren::default(),
            enough,
            missed: MissedChildren::default(),
            empty_until: None,
            empty_noted: false,
            door: None,
        }
    }

    /// Returns the shared part from which readers are made.
    pub fn shared(&self) -> &Arc<ResolverShared> {
        &self.shared
    }

    /// Returns the current cell. Its meters hold the loads and the free space.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Returns the counts of open queries and waiting requests.
    pub fn stats(&self) -> ResolveStats {
        ResolveStats {
            cache: self.shared.cache.stats(),
            queries: self.queries.len(),
            waiters: self.queries.waiters(),
            held: self.held.len(),
            steps: self.steps(),
        }
    }

    /// Returns the number of waiting requests and queries looked at since the start.
    pub fn steps(&self) -> u64 {
        self.held.steps() + self.queries.steps()
    }

    /// Returns the time of the next work for [`Self::tick`].
    pub fn next_deadline(&self) -> Option<Duration> {
        let known = [
            self.queries.next_deadline(),
            self.next_given_up(),
            self.announced.iter().map(|(until, _)| *until).min(),
            self.next_held(),
            self.next_watch(),
            self.leases.next_deadline(),
            self.queries.has_lost().then_some(Duration::ZERO),
        ];
        known.into_iter().flatten().min()
    }

    /// Chooses a child for a client. `tried` is the client's list of the nodes it has already
    /// visited. Returns `None` if the answer follows as an action for `token`.
    pub fn select(
        &mut self,
        token: RequestToken,
        path: &[u8],
        options: SelectOptions,
        tried: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        let question = Question { options, avoided: TriedChildren::parse(tried, &self.cell) };
        if let Some(answer) = self.deserted(now) {
            return Some(answer);
        }
        let refresh = self.forget_for_refresh(path, options.refresh, now);
        self.invalidate_tried(path, &question, now, actions);
        self.select_by(token, path, question, refresh, now, actions)
    }

    /// Answers a request by the known location, or queries children.
    fn select_by(
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
        self.conclude(path, verdict, QueryWaiter::new(token, wish, self.replaced.changes()), now, actions)
    }

    /// Returns the children that have a file. The forms `*` and `*<path>` are answered at once.
    /// Returns `None` as [`Self::select`] does.
    pub fn locate(
        &mut self,
        token: RequestToken,
        path: &[u8],
        options: LocateFlags,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        if let Some(answer) = locate::listing(&self.cell, path, &options) {
            return Some(answer);
        }
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        if let Some(answer) = self.deserted(now) {
            return Some(answer);
        }
        let refresh = self.forget_for_refresh(path, options.refresh, now);
        let wish = WaiterRequest::Locate(options);
        let verdict = self.judge(path, &wish, now);
        self.ask(path, refresh, false, now, actions);
        self.conclude(path, verdict, QueryWaiter::new(token, wish, self.replaced.changes()), now, actions)
    }

    /// Returns the children that receive an order to change this path, or an order without a path:
    /// those that may write the path. Of servers with a shared file system one carries out the
    /// order for all, always the same one while it is connected.
    pub fn order_receivers(&self, path: Option<&[u8]>) -> SlotMask {
        let slots = match path {
            None => SlotMask::ALL,
            Some(path) => self.cell.paths().rights(path).map(|rights| rights.write).unwrap_or_default(),
        };
        let slots = slots & self.cell.connected();
        match self.shared.chooser.policy().shared {
            Some(_) => slots.lowest().map(Slot::mask).unwrap_or_default(),
            None => slots,
        }
    }

    /// Forgets a path that was removed by order of a client.
    pub fn forget(&mut self, path: &[u8]) {
        self.shared.cache.forget(plain(path));
    }

    /// Forgets both names of a path that was renamed by order of a client.
    pub fn rename(&mut self, old: &[u8], new: &[u8]) {
        self.forget(old);
        self.forget(new);
    }

    /// Ends the waits and queries whose deadline has passed, and removes expired state. One call
    /// does a limited amount of work; the next one is due at once while there is more.
    pub fn tick(&mut self, now: Duration, actions: &mut Vec<ResolverAction>) {
        self.tick_for(now, &|_| false, actions);
    }

    /// Does the same work as [`Self::tick`], except for requests whose client has disconnected, as
    /// `is_gone` reports. The resolver decides nothing for those, so that no file is placed for an
    /// absent client.
    pub fn tick_for(
        &mut self,
        now: Duration,
        is_gone: &dyn Fn(RequestToken) -> bool,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.give_up_lost(now);
        self.choose_announced(now);
        self.watch_empty(now);
        self.end_leases(now, actions);
        self.look_at_held(now, is_gone, actions);
        self.settle_lost(now, actions);
        let before = self.steps();
        for _ in 0..QUERIES_AT_ONCE {
            if self.steps() - before >= STEPS_AT_ONCE {
                break;
            }
            let Some(id) = self.queries.due(now) else { break };
            self.time_is_up(id, now, is_gone, actions);
        }
        self.shared.cache.sweep(now);
        self.shared.chooser.refresh(&self.cell, now);
    }

    /// Returns the known location of a path, or [`CachedLocation::UNKNOWN`].
    fn known(&self, path: &[u8], now: Duration) -> CachedLocation {
        let known =
            self.shared.cache.lookup(path, now, self.cell.bounces()).unwrap_or(CachedLocation::UNKNOWN);
        let query = self.queries.find(path).and_then(|id| self.queries.get(id));
        // The flag in the cache is for readers; the list of queries is exact.
        CachedLocation { querying: query.is_some_and(ChildQuery::is_open), ..known }
    }

    /// Forgets the known location if the client requests a refresh and no refresh is in progress.
    /// Reports whether it did.
    fn forget_for_refresh(&mut self, path: &[u8], refresh: bool, now: Duration) -> bool {
        let running = self.queries.find(path).and_then(|id| self.queries.get(id));
        let again =
            refresh && running.is_none_or(|query| !query.refresh) && self.cell.paths().rights(path).is_some();
        if again {
            self.shared.cache.enter(path, now, self.cell.bounces(), CachedLocation::reset);
        }
        again
    }

    /// Sends a query to each child whose reply is needed.
    fn ask(
        &mut self,
        path: &[u8],
        refresh: bool,
        via_meta: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(rights) = self.cell.paths().rights(path) else { return };
        let (cache, bounces) = (&self.shared.cache, self.cell.bounces());
        let askable = rights.read & self.cell.connected();
        let shared = self.shared.chooser.policy().shared;
        if shared.is_some_and(|shared| shared.unchecked) {
            return;
        }
        let unasked = cache.update(path, now, bounces, |location| {
            let known = shared.is_some() && !location.have.is_empty();
            if known { SlotMask::EMPTY } else { location.unasked }
        });
        if !unasked.unwrap_or(SlotMask::ALL).meets(askable) {
            return;
        }
        let Some(id) = self.queries.begin(path, now) else { return };
        let blind = self.queries.get(id).is_some_and(|query| query.blind);
        let looks = !blind && shared.is_some_and(|shared| shared.central);
        // Servers that see the same files are queried in turn (round robin).
        let first = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let begin = |location: &mut CachedLocation| {
            let unasked = location.unasked & askable;
            location.unasked -= unasked;
            location.querying = true;
            match shared {
                _ if looks => SlotMask::EMPTY,
                Some(_) => effective_location::turn(unasked, first),
                None => unasked,
            }
        };
        let to =
            cache.update(path, now, bounces, begin).unwrap_or_else(|| cache.enter(path, now, bounces, begin));
        let Some(query) = self.queries.get(id) else { return };
        let outstanding = query.outstanding() | to;
        self.queries.set_outstanding(id, outstanding);
        let Some(query) = self.queries.get_mut(id) else { return };
        query.refresh |= refresh;
        if now < query.started + self.settings.silence * CARRIED_ON {
            query.queried_at = now;
        }
        let path = query.path.clone();
        if !looks {
            actions.push(ResolverAction::Ask { to, path, refresh, via_meta });
        } else if !std::mem::replace(&mut query.looking, true) {
            actions.push(ResolverAction::Look { path });
        }
        self.set_deadline(id, now);
    }

    fn set_deadline(&mut self, id: usize, now: Duration) {
        let Some(query) = self.queries.get(id) else { return };
        if self.queries.has_unjudged(id) {
            return self.queries.set_deadline(id, Duration::ZERO);
        }
        let silent = !(query.outstanding() - self.definite(&query.path, now)).is_empty();
        let times = if silent || query.looking { 1 } else { PATIENCE };
        let deadline = query.queried_at + self.settings.silence * times;
        self.queries.set_deadline(id, deadline);
    }

    /// Judges a request of a client by the current knowledge.
    fn judge(&mut self, path: &[u8], wish: &WaiterRequest, now: Duration) -> SelectDecision {
        // The location is looked up for each request, because the answer to one may have placed the
        // file for the next.
        let location = self.known(path, now);
        let chooser = &self.shared.chooser;
        match wish {
            WaiterRequest::Select(question) => {
                // A child that does not report its files gets clients only if no other child
                // qualifies.
                let mut question = *question;
                question.avoided.last |= self.unresponsive.about(path);
                if question.options.intent.creates() {
                    // The same creation would fail there once more.
                    question.avoided.last |= location.failed.map(Slot::mask).unwrap_or_default();
                }
                select::judge(&self.cell, chooser, &location, path, &question, self.rng.as_mut())
            }
            WaiterRequest::Locate(options) => {
                locate::judge(&self.cell, chooser.policy(), &location, path, options)
            }
            WaiterRequest::State => SelectDecision::Await,
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
                let waits = self.queries.find(path).is_some_and(|id| self.queries.wait(id, waiter));
                if waits { None } else { Some(self.come_again()) }
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
                    self.grant(slot, path, now, actions);
                    let place = |location: &mut CachedLocation| location.place(slot);
                    let (cache, bounces) = (&self.shared.cache, self.cell.bounces());
                    if cache.update(path, now, bounces, place).is_none() {
                        cache.enter(path, now, bounces, place);
                    }
                }
                Some(reader::redirect(&self.cell, &self.shared.chooser, slot, kind, client))
            }
        }
    }

    fn come_again(&self) -> ClusterAnswer {
        ClusterAnswer::wait(self.shared.chooser.policy().waits.lookup)
    }
}

#[cfg(test)]
mod tests;
