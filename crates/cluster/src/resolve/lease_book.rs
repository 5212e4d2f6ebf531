//! The leases that this node knows: those that parents granted to it, and those of its children.
//!
//! A parent grants this node the lease of a new file, and this node grants it to the child that it
//! chooses. The numbers of all these leases are ordered by one clock.
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

use base::Rng;

use super::ResolverAction;
use super::locations::Locations;
use super::placed_leases::PlacedLeases;
use super::unconfirmed::UnconfirmedLeases;
use crate::cache::CachedLocation;
use crate::cell::Cell;
use crate::lease_number::{LeaseClock, LeaseNumber, LeaseReport};
use crate::leases::{CreationOutcome, LEASE, Leases, Permit};
use crate::slots::{Slot, SlotMask};

/// The order of a parent about the lease of a path.
#[derive(Clone, Copy)]
pub(super) struct LeaseOrder<'a> {
    pub(super) path: &'a [u8],
    /// The duration of the lease; zero ends a lease with a lower number.
    pub(super) time: Duration,
    pub(super) number: LeaseNumber,
}

/// The leases from parents and the leases of children.
pub(super) struct LeaseBook {
    /// Leases of files that clients are about to create here, as granted by parents.
    own: Leases,
    /// Leases of children, reported to parents.
    placed: PlacedLeases,
    unconfirmed: UnconfirmedLeases,
    clock: LeaseClock,
    has_parents: bool,
}

impl LeaseBook {
    /// Creates an empty record. `started` is the time of day at which this node started.
    pub(super) fn new(started: Duration, has_parents: bool, rng: &mut dyn Rng) -> Self {
        Self {
            own: Leases::default(),
            placed: PlacedLeases::default(),
            unconfirmed: UnconfirmedLeases::default(),
            clock: LeaseClock::new(started, rng),
            has_parents,
        }
    }

    /// Returns the leases that parents granted to this node.
    pub(super) const fn own(&self) -> &Leases {
        &self.own
    }

    /// Returns the leases that parents granted to this node, for a change.
    pub(super) const fn own_mut(&mut self) -> &mut Leases {
        &mut self.own
    }

    /// Grants a child the lease of a file, before the client is redirected there.
    pub(super) fn grant(
        &mut self,
        cell: &Cell,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        if !cell.lessees().contains(slot) {
            return;
        }
        let number = self.clock.next(now);
        self.note_placed(path, LeaseReport { number, left: Some(LEASE) }, now);
        let path: Arc<[u8]> = Arc::from(path);
        self.unconfirmed.grant(slot, path.clone(), number, now);
        actions.push(ResolverAction::Lease { slot, path, time: LEASE, number });
    }

    /// Orders a child to end any lease of a path that it holds, if it takes leases.
    pub(super) fn end(
        &mut self,
        cell: &Cell,
        slot: Slot,
        path: &[u8],
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let number = self.clock.next(now);
        end_below(cell, slot, path, number, actions);
    }

    /// Records that a child reports a lease. Returns whether that confirms a grant; otherwise later
    /// leases get higher numbers.
    pub(super) fn confirm(&mut self, slot: Slot, path: &[u8], number: LeaseNumber, now: Duration) -> bool {
        let confirms = self.unconfirmed.confirm(slot, path, number);
        if !confirms {
            self.clock.observe(number, now);
        }
        confirms
    }

    /// Reports whether a child may have sent its last message before it received the last lease of
    /// a path.
    pub(super) fn is_unconfirmed(&self, slot: Slot, path: &[u8], now: Duration) -> bool {
        self.unconfirmed.contains(slot, path, now)
    }

    /// Forgets the grants of a child whose connection has ended, because messages on their way are
    /// lost.
    pub(super) fn forget_unconfirmed(&mut self, slot: Slot) {
        self.unconfirmed.forget(slot);
    }

    /// Records the lease of a child for reports to parents, if there are any.
    pub(super) fn note_placed(&mut self, path: &[u8], lease: LeaseReport, now: Duration) {
        if self.has_parents {
            self.placed.note(path, lease, now);
        }
    }

    /// Carries out the order of a parent; `location` is the known location of the path.
    pub(super) fn carry_out(
        &mut self,
        order: LeaseOrder<'_>,
        locations: &Locations,
        location: &CachedLocation,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) {
        let LeaseOrder { path, time, number } = order;
        self.clock.observe(number, now);
        let placed = location.placed.filter(|slot| locations.cell().lessees().contains(*slot));
        match placed {
            // The lease belongs to a lost child, so it cannot be ended.
            _ if time.is_zero() && locations.is_placed_at_absent(location) => {
                if !self.placed.keep(path, number, now) {
                    return;
                }
                actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
            }
            // The child replies with the end of its lease, or with the lease.
            Some(slot) if time.is_zero() && !self.own.is_running(path, now) => {
                end_below(locations.cell(), slot, path, number, actions);
            }
            _ if self.own.order(path, time, number, now).is_some() => {
                actions.push(ResolverAction::Announce { path: Arc::from(path), pending: true });
            }
            _ => {}
        }
    }

    /// Decides whether the placement of a file may start here. A lease of a parent ends by this,
    /// because from now on parents receive the state of the child.
    pub(super) fn begin_placement(&mut self, path: &[u8], now: Duration) -> Permit {
        let permit = self.own.begin(path, now);
        if permit == Permit::Leased {
            self.own.end(path, CreationOutcome::Created, now);
        }
        permit
    }

    /// Returns the lease of a path, if the lease is all that is known of the path. `have` are the
    /// known holders that export it.
    pub(super) fn report(
        &mut self,
        path: &[u8],
        locations: &Locations,
        location: &CachedLocation,
        have: SlotMask,
        now: Duration,
    ) -> Option<LeaseReport> {
        let is_placed = location.placed.is_some_and(|slot| have == slot.mask());
        if have.is_empty()
            && let Some(lease) = self.own.report(path, now)
        {
            return Some(lease);
        }
        let is_leased = is_placed || have.is_empty() && locations.is_placed_at_absent(location);
        is_leased.then(|| self.placed.report(path, now))
    }

    /// Returns all leases of this node and its children, for a new parent. `is_placed` reports
    /// whether a child is still about to create a path.
    pub(super) fn running(
        &self,
        is_placed: impl Fn(&[u8]) -> bool,
        now: Duration,
    ) -> Vec<(Arc<[u8]>, LeaseReport)> {
        let own = self.own.running(now).map(|(path, lease)| (path.clone(), lease));
        let placed = self.placed.paths().filter(|path| is_placed(path));
        own.chain(placed.map(|path| (path.clone(), self.placed.report(path, now)))).collect()
    }
}

/// Orders a child to end a lease with a number below `number`, if it takes leases.
pub(super) fn end_below(
    cell: &Cell,
    slot: Slot,
    path: &[u8],
    number: LeaseNumber,
    actions: &mut Vec<ResolverAction>,
) {
    if cell.lessees().contains(slot) {
        let path = Arc::from(path);
        actions.push(ResolverAction::Lease { slot, path, time: Duration::ZERO, number });
    }
}
