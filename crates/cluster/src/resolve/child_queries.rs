//! Queries to children: the choice of the children that are asked, and the meaning of a missing
//! reply.
//!
//! A query asks each child whose state for a path is unknown. Most children send explicit NOT_HERE
//! replies; for the others, and for unresponsive children, a missing reply means absence after the
//! timeout.

use std::time::Duration;

use super::ResolverAction;
use super::effective_location;
use super::limits::{CARRIED_ON, PATIENCE};
use super::locations::Locations;
use super::queries::{ChildQuery, Queries, QueryWaiter, Settle};
use super::unresponsive::UnresponsiveChildren;
use crate::cache::CachedLocation;
use crate::slots::{Slot, SlotMask};

/// The open queries, and the children that do not reply to them.
pub(super) struct ChildQueries {
    /// The open queries with the requests that wait for them.
    pub(super) open: Queries,
    /// Children that do not send the NOT_HERE replies that they promised.
    pub(super) unresponsive: UnresponsiveChildren,
    /// The server that is queried next for servers with a shared file system (round robin).
    turn: usize,
    /// The query timeout for a child without NOT_HERE replies.
    silence: Duration,
    /// The time after which a server without replies is unresponsive.
    pub(super) mute: Duration,
}

impl ChildQueries {
    /// Creates an empty record with the timeouts of [`ResolveSettings`](super::ResolveSettings).
    pub(super) fn new(silence: Duration, mute: Duration) -> Self {
        Self {
            open: Queries::default(),
            unresponsive: UnresponsiveChildren::default(),
            turn: 0,
            silence,
            mute,
        }
    }

    /// Returns the known location of a path, or [`CachedLocation::UNKNOWN`].
    pub(super) fn known(&self, locations: &Locations, path: &[u8], now: Duration) -> CachedLocation {
        let known = locations.lookup(path, now).unwrap_or(CachedLocation::UNKNOWN);
        let query = self.open.find(path).and_then(|id| self.open.get(id));
        // The flag in the cache is for readers; the list of queries is exact.
        CachedLocation { querying: query.is_some_and(ChildQuery::is_open), ..known }
    }

    /// Forgets the known location if the client requests a refresh and no refresh is in progress.
    /// Reports whether it did.
    pub(super) fn forget_for_refresh(
        &self,
        locations: &Locations,
        path: &[u8],
        refresh: bool,
        now: Duration,
    ) -> bool {
        let is_running =
            || self.open.find(path).and_then(|id| self.open.get(id)).is_some_and(|query| query.refresh);
        let again = refresh && !is_running() && locations.rights(path).is_some();
        if again {
            locations.enter(path, now, CachedLocation::reset);
        }
        again
    }

    /// Sends a query to each child whose reply is needed.
    pub(super) fn ask(
        &mut self,
        locations: &Locations,
        path: &[u8],
        refresh: bool,
        via_meta: bool,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Some(rights) = locations.rights(path) else { return };
        let askable = rights.read & locations.cell().connected();
        let shared = locations.policy().shared;
        if shared.is_some_and(|shared| shared.unchecked) {
            return;
        }
        let unasked = locations.update(path, now, |location| {
            let known = shared.is_some() && !location.have.is_empty();
            if known { SlotMask::EMPTY } else { location.unasked }
        });
        if !unasked.unwrap_or(SlotMask::ALL).meets(askable) {
            return;
        }
        let Some(id) = self.open.begin(path, now) else { return };
        let blind = self.open.get(id).is_some_and(|query| query.blind);
        let looks = !blind && shared.is_some_and(|shared| shared.central);
        // Servers that see the same files are queried in turn (round robin).
        let first = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let to = locations.update_or_enter(path, now, |location| {
            let unasked = location.unasked & askable;
            location.unasked -= unasked;
            location.querying = true;
            match shared {
                _ if looks => SlotMask::EMPTY,
                Some(_) => effective_location::turn(unasked, first),
                None => unasked,
            }
        });
        let Some(query) = self.open.get(id) else { return };
        let outstanding = query.outstanding() | to;
        self.open.set_outstanding(id, outstanding);
        let carried_on = self.silence * CARRIED_ON;
        let Some(query) = self.open.get_mut(id) else { return };
        query.refresh |= refresh;
        if now < query.started + carried_on {
            query.queried_at = now;
        }
        let path = query.path.clone();
        if !looks {
            actions.push(ResolverAction::Ask { to, path, refresh, via_meta });
        } else if !std::mem::replace(&mut query.looking, true) {
            actions.push(ResolverAction::Look { path });
        }
        self.set_deadline(locations, id, now);
    }

    /// Adds a waiting request to the query for a path; `false` if there is none, or no room.
    pub(super) fn wait(&mut self, path: &[u8], waiter: QueryWaiter) -> bool {
        self.open.find(path).is_some_and(|id| self.open.wait(id, waiter))
    }

    /// Sets the time of the next work for a query.
    pub(super) fn set_deadline(&mut self, locations: &Locations, id: usize, now: Duration) {
        let Some(query) = self.open.get(id) else { return };
        if self.open.has_unjudged(id) {
            return self.open.set_deadline(id, Duration::ZERO);
        }
        let silent = !(query.outstanding() - self.definite(locations, &query.path, now)).is_empty();
        let times = if silent || query.looking { 1 } else { PATIENCE };
        let deadline = query.queried_at + self.silence * times;
        self.open.set_deadline(id, deadline);
    }

    /// Reports whether a query that has all replies is still extended to children that join.
    pub(super) fn is_extensible(&self, query: &ChildQuery, now: Duration) -> bool {
        !query.is_open() && now < query.started + self.silence * CARRIED_ON && !query.is_unwanted()
    }

    /// Returns the children whose missing reply for a path does not count as "not here", because
    /// they send NOT_HERE replies.
    fn definite(&self, locations: &Locations, path: &[u8], now: Duration) -> SlotMask {
        locations.cell().definite() - self.unresponsive.about(path) - self.unresponsive.idle(now, self.mute)
    }

    /// Records the reply of a child to a query.
    pub(super) fn note_reply(&mut self, id: usize, slot: Slot) {
        if let Some(query) = self.open.get(id).filter(|query| query.outstanding().contains(slot)) {
            // Reports without a query are not replies: a server may report all files that its
            // clients create and still leave queries unanswered.
            self.unresponsive.note_reply(slot, &query.path);
            let outstanding = query.outstanding() - slot.mask();
            self.open.set_outstanding(id, outstanding);
        }
    }

    /// Records that a child does not have the path of a query, if that changed no known location.
    /// Returns `false`, without any change, if the query is gone or did not ask the child, or if the
    /// waiting requests have to be judged again: the last reply has arrived, or they were judged for
    /// an older version of the cell.
    pub(super) fn note_absence(
        &mut self,
        locations: &Locations,
        id: usize,
        slot: Slot,
        version: u64,
        now: Duration,
    ) -> bool {
        let Some(query) = self.open.get(id) else { return false };
        let left = query.outstanding() - slot.mask();
        let waits_on = query.outstanding().contains(slot) && !left.is_empty() && query.judged == version;
        if waits_on {
            self.open.set_outstanding(id, left);
            self.set_deadline(locations, id, now);
        }
        waits_on
    }

    /// Handles the timeout of a query: missing replies count where they have a meaning. Returns the
    /// event for which the waiting requests are judged again; `None`: the query goes on.
    pub(super) fn time_out(&mut self, locations: &Locations, id: usize, now: Duration) -> Option<Settle> {
        let query = self.open.get(id)?;
        // A missing reply of a child without NOT_HERE replies means that it does not have the file.
        let (path, queried_at, outstanding) = (query.path.clone(), query.queried_at, query.outstanding());
        let definite = self.definite(locations, &path, now);
        let silent = outstanding - definite;
        self.open.set_outstanding(id, outstanding & definite);
        // The child may have been absent since it reported the file. A reader that is sent there
        // finds out. At a child out of service it would wait without end, because a real supervisor
        // that has lost its servers does not report their files.
        let idle = |slot: &Slot| locations.cell().child(*slot).is_some_and(|child| child.state.suspended);
        let lost: Vec<Slot> = silent.iter().filter(idle).collect();
        if !lost.is_empty() {
            locations.update(&path, now, |location| {
                lost.iter().for_each(|slot| location.absent(*slot));
            });
        }
        if (outstanding & definite).is_empty() {
            return Some(Settle::Heard);
        }
        if now < queried_at + self.silence * PATIENCE {
            self.set_deadline(locations, id, now);
            return None;
        }
        let silent = outstanding & definite;
        self.open.set_outstanding(id, SlotMask::EMPTY);
        // Nodes below an inner node may be slow.
        for slot in silent & locations.cell().servers() {
            self.unresponsive.missed(slot, &path, queried_at, now, self.mute);
        }
        mark_unasked(locations, &path, silent, now);
        Some(Settle::GivenUp)
    }

    /// Records that a lost child will not reply to a query. Reports whether the query exists.
    pub(super) fn give_up_reply(
        &mut self,
        locations: &Locations,
        id: usize,
        slot: Slot,
        now: Duration,
    ) -> bool {
        let Some(query) = self.open.get(id) else { return false };
        let (path, outstanding) = (query.path.clone(), query.outstanding() - slot.mask());
        self.open.set_outstanding(id, outstanding);
        mark_unasked(locations, &path, slot.mask(), now);
        true
    }
}

/// Marks children without a reply as to be queried again. With a shared file system only one server
/// was queried, for all.
fn mark_unasked(locations: &Locations, path: &[u8], slots: SlotMask, now: Duration) {
    let unasked = if locations.is_file_system_shared() { SlotMask::ALL } else { slots };
    locations.update(path, now, |location| location.unasked |= unasked);
}
