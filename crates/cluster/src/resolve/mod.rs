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
//! | object | job |
//! |---|---|
//! | [`LocationResolver`] | the interface for clients; for children, in `children`; for parents, in `parents` |
//! | `AnswerEngine` | judges requests, lets them wait, and judges them again |
//! | `Locations` | the cell and the cache, read together |
//! | `ChildQueries` | the children that are asked, and the meaning of a missing reply |
//! | `LeaseBook` | leases from parents and of children |
//! | `ChildMessage` | applies one message of a child about a path |
//! | `ChildConnections` | the connections of children, and the times at which the waits for them end |
//!
//! The resolver runs on one thread. Connections read its knowledge through [`LocationReader`], each
//! on its own thread. Source: cms protocol 3, sections "state handling" to "locate".

mod checked_path;
mod child_connections;
mod child_messages;
mod child_queries;
mod children;
mod effective_location;
mod effects;
mod empty_cell_timer;
mod engine;
mod held_requests;
mod lease_book;
mod limits;
mod locate;
mod locations;
mod missed;
mod parents;
mod placed_leases;
mod queries;
mod reader;
mod reliance;
mod replaced;
mod select;
mod unconfirmed;
mod unresponsive;

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
use child_connections::ChildConnections;
use engine::AnswerEngine;
use locations::Locations;
use select::Question;

use crate::cache::Cache;
use crate::cell::Cell;
use crate::inventories::Inventories;
use crate::paths::plain;
use crate::request::{ClusterAnswer, Intent, LocateFlags, RetryReason, SelectOptions};
use crate::selection::Chooser;
use crate::slots::{Slot, SlotMask};
use crate::tried_children::TriedChildren;

/// The state machine of one cell.
///
/// Methods come in three kinds: requests (`select`, `locate`, `state`), messages of children
/// (`have`, `gone`, `not_here`, `inventory`), and events of the tree (`follow`, or `join`,
/// `change`, `leave`, `bounce`; `set_quorum`). Paths are absolute and normalised, as
/// [`base::LogicalPath`] holds them; `now` is the time since the start.
pub struct LocationResolver {
    engine: AnswerEngine,
    connections: ChildConnections,
}

impl LocationResolver {
    /// Creates a resolver for this cell. Its cache and rules are shared with the readers made from
    /// [`Self::shared`].
    pub fn new(
        cell: Cell,
        cache: Cache,
        chooser: Chooser,
        settings: ResolveSettings,
        rng: Box<dyn Rng>,
    ) -> Self {
        let connections = ChildConnections::new(cell.quorum());
        let inventories = Inventories::new(cache.key());
        let shared = ResolverShared::new(cache, chooser, cell.clone(), inventories, !settings.has_parents);
        let locations = Locations::new(cell, Arc::new(shared));
        Self { engine: AnswerEngine::new(locations, settings, rng), connections }
    }

    /// Returns the shared part from which readers are made.
    pub fn shared(&self) -> &Arc<ResolverShared> {
        self.engine.locations.shared()
    }

    /// Returns the current cell. Its meters hold the loads and the free space.
    pub const fn cell(&self) -> &Cell {
        self.engine.locations.cell()
    }

    /// Returns the counts of open queries and waiting requests.
    pub fn stats(&self) -> ResolveStats {
        self.engine.stats()
    }

    /// Returns the number of waiting requests and queries looked at since the start.
    pub fn steps(&self) -> u64 {
        self.engine.steps()
    }

    /// Returns the time of the next work for [`Self::tick`].
    pub fn next_deadline(&self) -> Option<Duration> {
        [self.engine.next_deadline(), self.next_child_deadline()].into_iter().flatten().min()
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
        // Where any child serves any file, the client may have met the same one again, while a healthy one was
        // beside it.
        let unchecked = self.shared().chooser.policy().shared.is_some_and(|shared| shared.unchecked);
        let rounds = if unchecked && options.reason == RetryReason::Server { 2 } else { 1 };
        let avoided = TriedChildren::parse_rounds(tried, self.cell(), rounds);
        let mut question = Question { options, avoided };
        if let Some(answer) = self.engine.deserted(now) {
            return Some(answer);
        }
        let refresh = self.engine.forget_for_refresh(path, options.refresh, now);
        self.engine.settle_failed(path, &mut question, now);
        self.engine.invalidate_tried(path, &question, now, actions);
        self.engine.select(token, path, question, refresh, now, actions)
    }

    /// Grants the child in `holder` the lease of a path, if the path is free. `None`: the answer
    /// comes as an action for `token`. It is a redirect to that child if the child has the lease.
    ///
    /// This reserves the new name of a file that is about to be renamed. Without it a client could
    /// create another file of that name elsewhere during the rename. So the child that has the file
    /// gets the lease of the new name before it receives the order to rename, as if a client came
    /// to create it there.
    pub fn reserve(
        &mut self,
        token: RequestToken,
        path: &[u8],
        holder: Slot,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<ClusterAnswer> {
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        if let Some(answer) = self.engine.deserted(now) {
            return Some(answer);
        }
        let options = SelectOptions { intent: Intent::Create, name_only: true, ..SelectOptions::default() };
        // There are no tried children.
        let untried = Question { options, avoided: TriedChildren::default() };
        self.engine.invalidate_tried(path, &untried, now, actions);
        let avoided = TriedChildren { never: SlotMask::ALL - holder.mask(), ..TriedChildren::default() };
        self.engine.select(token, path, Question { options, avoided }, false, now, actions)
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
        if let Some(answer) = locate::listing(self.cell(), path, &options) {
            return Some(answer);
        }
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        if let Some(answer) = self.engine.deserted(now) {
            return Some(answer);
        }
        let refresh = self.engine.forget_for_refresh(path, options.refresh, now);
        self.engine.locate(token, path, options, refresh, now, actions)
    }

    /// Drops the requests with these tokens, because the clients that sent them have disconnected.
    pub fn abandon(&mut self, gone: impl IntoIterator<Item = RequestToken>) {
        self.engine.abandon(gone);
    }

    /// Records the result of [`ResolverAction::Look`]. A result without waiting requests is
    /// ignored.
    pub fn lookup_finished(
        &mut self,
        path: &[u8],
        sight: LookupOutcome,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        self.engine.lookup_finished(path, sight, now, actions);
    }

    /// Returns the children that receive an order to change this path, or an order without a path:
    /// those that may write the path. Of servers with a shared file system one carries out the
    /// order for all, always the same one while it is connected.
    pub fn order_receivers(&self, path: Option<&[u8]>) -> SlotMask {
        let locations = &self.engine.locations;
        let slots = match path {
            None => SlotMask::ALL,
            Some(path) => locations.rights(path).map(|rights| rights.write).unwrap_or_default(),
        };
        let slots = slots & locations.cell().connected();
        if locations.is_file_system_shared() {
            slots.lowest().map(Slot::mask).unwrap_or_default()
        } else {
            slots
        }
    }

    /// Forgets a path that was removed by order of a client.
    pub fn forget(&mut self, path: &[u8]) {
        self.shared().cache.forget(plain(path));
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
        self.review_children(now);
        self.engine.watch_empty(now);
        self.engine.end_leases(now, actions);
        self.engine.look_at_held(now, is_gone, actions);
        self.engine.settle_lost(now, actions);
        self.engine.end_due(now, is_gone, actions);
        self.shared().cache.sweep(now);
        self.shared().chooser.refresh(self.cell(), now);
    }
}

#[cfg(test)]
mod tests;
