//! Placement of new files: the end of a placement, and the leases of this node from its parents.
//!
//! A file must be created only once (decisions 001 and 024). So the child that was chosen for it is
//! stored in [`CachedLocation::placed`], and only these events end the placement:
//!
//! | event | child that takes leases | real daemon |
//! |---|---|---|
//! | `have` | ends | ends |
//! | `gone` | ends: the child has ended the lease | ignored: a reader may have come before the creator |
//! | "not here" | ignored: it may have been sent before the lease | ignored |
//! | a reader that was there in vain | the child is queried again | the child is queried again |
//! | `have` of another child, or its lease with a higher number | the child gets the order to end the lease | ignored |
//! | a creator that failed there | the child gets the order to end the lease, and is queried again | ends |
//! | [`PLACEMENT_HOLD`](crate::PLACEMENT_HOLD) | ends | ends |

use std::sync::Arc;
use std::time::Duration;

use super::checked_path::checked;
use super::parent_queries::presence;
use super::select::Question;
use super::{LocationResolver, ResolverAction};
use crate::cache::CachedLocation;
use crate::lease_number::{LeaseNumber, LeaseReport};
use crate::leases::{CreationOutcome, LEASE, OVERTAKEN, Permit};
use crate::request::{ClusterAnswer, ErrorCode, Intent, RetryReason};
use crate::slots::Slot;

impl LocationResolver {
    /// Invalidates the state of the children that a client avoids or that are creating the file:
    /// the client returned from them, or wants to create a file that another client is creating.
    pub(super) fn invalidate_tried(
        &mut self,
        path: &[u8],
        question: &Question,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let options = &question.options;
        let tried = question.avoided.never;
        let creates = options.intent == Intent::Create;
        if tried.is_empty() && !creates {
            return;
        }
        let missing = options.reason == RetryReason::Missing;
        let failed = options.intent.writes() && (!missing || options.intent.creates() && !tried.is_empty());
        let shared = self.shared.chooser.policy().shared.is_some();
        let lessees = self.cell.lessees();
        let left = self.shared.cache.update(path, now, self.cell.bounces(), |location| {
            let placed = location.placed.map(Slot::mask).unwrap_or_default();
            let kept = if failed { placed & lessees } else { placed };
            let invalidated = match missing {
                // With a shared file system the report of one child was valid for all.
                true if shared && !tried.is_empty() => location.have,
                true => tried & location.have,
                false => tried & placed,
            } - kept;
            if !invalidated.is_empty() {
                location.invalidate(invalidated);
            }
            if !shared {
                location.unasked |= if creates { kept } else { kept & tried };
            }
            location.placed.filter(|slot| (kept & tried).contains(*slot))
        });
        // The creator could not reach the child, or could not create the file there. Another child
        // may be chosen when this one has ended the lease; it keeps the lease while it creates the
        // file.
        if let Some(slot) = left.flatten().filter(|_| options.intent.creates()) {
            self.end_lease(slot, path, now, actions);
        }
    }

    /// Grants a child the lease of a file, before the client is redirected there.
    pub(super) fn grant(
        &mut self,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if !self.cell.lessees().contains(slot) {
            return;
        }
        let number = self.lease_clock.next(now);
        if self.settings.has_parents {
            self.placed_leases.note(path, LeaseReport { number, left: Some(LEASE) }, now);
        }
        let path: Arc<[u8]> = Arc::from(path);
        self.unconfirmed.grant(slot, path.clone(), number, now);
        actions.push(ResolverAction::Lease { slot, path, time: LEASE, number });
    }

    /// Orders a child to end any lease of a path that it holds, if it takes leases.
    pub(super) fn end_lease(
        &mut self,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let number = self.lease_clock.next(now);
        self.end_below(slot, path, number, actions);
    }

    fn end_below(&self, slot: Slot, path: &[u8], number: LeaseNumber, actions: &mut Vec<ResolverAction>) {
        if self.cell.lessees().contains(slot) {
            let path = Arc::from(path);
            actions.push(ResolverAction::Lease { slot, path, time: Duration::ZERO, number });
        }
    }

    /// Handles the "not here" of a child that was chosen for a new file. Reports whether the
    /// message is ignored, because the client that creates the file may be on its way.
    pub(super) fn is_placement_kept(&self, slot: Slot, path: &[u8], now: Duration) -> bool {
        !self.cell.lessees().contains(slot) && self.known(path, now).placed == Some(slot)
    }

    /// Records that a child confirms the lease of a path, or reports that a client is on its way to
    /// create the path there. If the path exists elsewhere, or is leased to another child, one of
    /// the two leases ends. The age of the lease decides later whether it ended by itself, so it
    /// counts from the grant also if this node learns of the lease at a return of the child.
    pub fn have_leased(
        &mut self,
        slot: Slot,
        path: &[u8],
        lease: LeaseReport,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        let number = lease.number;
        if self.unconfirmed.confirm(slot, path, number) {
            return;
        }
        self.lease_clock.observe(number, now);
        let before = self.known(path, now);
        let rival = self.rival(&before, slot);
        let placed = before.placed.map(Slot::mask).unwrap_or_default();
        let exists = !((before.have & self.cell.connected()) - placed - slot.mask()).is_empty();
        if exists && self.shared.chooser.policy().shared.is_none() {
            self.end_below(slot, path, LeaseNumber::CREATING, actions);
        } else if let Some(rival) = rival {
            // If the rival lease is the later one, the rival reports it.
            self.end_below(rival, path, number, actions);
        }
        if self.settings.has_parents {
            self.placed_leases.note(path, lease, now);
        }
        let place = |location: &mut CachedLocation| {
            location.invalidate(rival.map(Slot::mask).unwrap_or_default());
            location.place(slot);
        };
        let announced = actions.len();
        self.holders(Some(slot), path, place, now, actions);
        if let Some(left) = lease.left {
            let (age, bounces) = (LEASE.saturating_sub(left), self.cell.bounces());
            self.shared.cache.set_placement_age(path, slot, age, now, bounces);
        }
        let is_announced =
            actions.iter().skip(announced).any(|action| matches!(action, ResolverAction::Announce { .. }));
        if self.settings.has_parents && !is_announced && before.have.contains(slot) {
            // The child keeps its lease, or has another one.
            actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
        }
    }

    /// Ends the lease of another child, because a child has the path.
    pub(super) fn end_rival(
        &self,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        if let Some(rival) = self.rival(&self.known(path, now), slot) {
            self.end_below(rival, path, LeaseNumber::CREATING, actions);
        }
    }

    /// Returns another child than this one that takes leases and was chosen to create the file.
    fn rival(&self, location: &CachedLocation, slot: Slot) -> Option<Slot> {
        let is_shared = self.shared.chooser.policy().shared.is_some();
        let lessees = self.cell.lessees();
        location.placed.filter(|placed| *placed != slot && lessees.contains(*placed) && !is_shared)
    }

    /// Carries out the order of a parent about the lease of a path. The parent sends a client here
    /// to create the path within `time`; if that is zero, it ends a lease with a lower number.
    pub fn lease(
        &mut self,
        path: &[u8],
        time: Duration,
        number: LeaseNumber,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let Ok(path) = checked(path) else { return };
        self.lease_clock.observe(number, now);
        let location = self.known(path, now);
        let placed = location.placed.filter(|slot| self.cell.lessees().contains(*slot));
        match placed {
            // The lease belongs to a lost child, so it cannot be ended.
            _ if time.is_zero() && self.is_placed_at_absent(&location) => {
                if !self.placed_leases.keep(path, number, now) {
                    return;
                }
                actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
            }
            // The child replies with the end of its lease, or with the lease.
            Some(slot) if time.is_zero() && !self.leases.is_running(path, now) => {
                self.end_below(slot, path, number, actions);
            }
            _ if self.leases.order(path, time, number, now).is_some() => {
                actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
            }
            _ => {}
        }
    }

    /// Returns the lease of a path, if the lease is all that is known of the path.
    pub fn lease_report(&mut self, path: &[u8], now: Duration) -> Option<LeaseReport> {
        let path = checked(path).ok()?;
        let location = self.known(path, now);
        let have = location.have & self.cell.paths().rights(path).unwrap_or_default().read;
        let is_placed = location.placed.is_some_and(|slot| have == slot.mask());
        if have.is_empty()
            && let Some(lease) = self.leases.report(path, now)
        {
            return Some(lease);
        }
        let is_leased = is_placed || have.is_empty() && self.is_placed_at_absent(&location);
        is_leased.then(|| self.placed_leases.report(path, now))
    }

    /// Returns all leases of this node and its children, for a new parent.
    pub fn running_leases(&self, now: Duration) -> Vec<(Arc<[u8]>, LeaseReport)> {
        let own = self.leases.running(now).map(|(path, lease)| (path.clone(), lease));
        let is_placed = |path: &&Arc<[u8]>| {
            let location = self.known(path, now);
            location.placed.is_some_and(|slot| location.have == slot.mask())
        };
        let placed = self.placed_leases.paths().filter(is_placed);
        own.chain(placed.map(|path| (path.clone(), self.placed_leases.report(path, now)))).collect()
    }

    /// Reports whether this node has ended the lease of a path on which its parents may still rely.
    pub fn has_lease_ended(&mut self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let takers = self.cell.paths().rights(path).unwrap_or_default().write;
        // A real daemon creates a file however late the client of an earlier run of this node
        // arrives.
        let is_certain = takers.within(self.cell.lessees()) || !self.leases.expects_earlier(now);
        is_certain && self.leases.has_ended(path, now)
    }

    /// Starts the placement of a file at a child. Returns the answer for a client that arrived too
    /// late.
    pub(super) fn begin_placement(&mut self, path: &[u8], now: Duration) -> Option<ClusterAnswer> {
        match self.leases.begin(path, now) {
            // Parents have no reply of an absent child for the file.
            Permit::Free if self.settings.has_parents && self.missed.hold_parents() => {
                return Some(ClusterAnswer::wait(self.shared.chooser.policy().waits.service));
            }
            Permit::Free => return None,
            Permit::Leased => {
                // From now on parents receive the state of the child.
                self.leases.end(path, CreationOutcome::Created, now);
                return None;
            }
            Permit::Later => return Some(ClusterAnswer::wait(OVERTAKEN)),
            Permit::Refused => {}
        }
        Some(match &self.door {
            Some(door) => {
                ClusterAnswer::Redirect { slot: None, host: door.written_host().into(), port: door.port() }
            }
            None => {
                ClusterAnswer::error(ErrorCode::SERVER_ERROR, "The time to create the file here is over.")
            }
        })
    }

    /// Reports ended leases to parents.
    pub(super) fn end_leases(&mut self, now: Duration, actions: &mut Vec<ResolverAction>) {
        if self.leases.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        for path in self.leases.take_ended(now) {
            if !self.is_present(&path, now) {
                actions.push(ResolverAction::Retract { path });
            }
        }
    }

    /// Reports whether a lease of a parent is all that is known of a path.
    pub(super) fn is_lease_running(&mut self, path: &[u8], now: Duration) -> bool {
        let runs = self.leases.is_running(path, now);
        if !runs && self.cell.absent().is_empty() {
            return false;
        }
        let location = self.known(path, now);
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        presence(&location, rights).is_none() && (runs || self.is_placed_at_absent(&location))
    }

    /// Reports whether a path was placed at a child that was lost since, and may still be created
    /// there.
    fn is_placed_at_absent(&self, location: &CachedLocation) -> bool {
        location.placed.is_some_and(|slot| self.cell.absent().was_in(slot))
    }

    fn is_present(&self, path: &[u8], now: Duration) -> bool {
        let rights = self.cell.paths().rights(path).unwrap_or_default();
        presence(&self.known(path, now), rights).is_some()
    }
}
