//! The interface for parents: queries for files, and leases of files.
//!
//! Answers to parents differ from answers to clients because a parent needs no child, and may rely
//! on an answer for longer than this node keeps it: see `reliance`.

use std::sync::Arc;
use std::time::Duration;

use super::checked_path::checked;
use super::lease_book::LeaseOrder;
use super::{LocationResolver, RequestToken, ResolverAction, StateAsk, StateReply};
use crate::lease_number::{LeaseNumber, LeaseReport};
use crate::slots::Slot;
use crate::tree::Address;

impl LocationResolver {
    /// Answers a parent's query for a path. `None`: there is no answer now. Unless the query was
    /// quiet, the answer follows as [`ResolverAction::Reply`] or [`ResolverAction::Announce`], or
    /// never if no child replies.
    pub fn state(
        &mut self,
        token: RequestToken,
        path: &[u8],
        ask: StateAsk,
        now: Duration,
        actions: &mut Vec<ResolverAction>,
    ) -> Option<StateReply> {
        self.engine.state(token, checked(path).ok()?, ask, now, actions)
    }

    /// Reports whether all holders of a path are draining. Then holders at other nodes are
    /// preferred.
    pub fn is_draining(&self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let locations = &self.engine.locations;
        let rights = locations.rights(path).unwrap_or_default();
        locations.only_draining(&self.engine.known(path, now), rights)
    }

    /// Sets the address at which clients enter the cluster, as received from the parents of a
    /// supervisor.
    pub fn set_door(&mut self, door: Option<&Address>) {
        if self.engine.supervises() {
            self.engine.set_door(door);
        }
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
        let location = self.engine.known(path, now);
        let order = LeaseOrder { path, time, number };
        self.engine.leases.carry_out(order, &self.engine.locations, &location, now, actions);
    }

    /// Returns the lease of a path, if the lease is all that is known of the path.
    pub fn lease_report(&mut self, path: &[u8], now: Duration) -> Option<LeaseReport> {
        let path = checked(path).ok()?;
        let location = self.engine.known(path, now);
        let have = location.have & self.engine.locations.rights(path).unwrap_or_default().read;
        self.engine.leases.report(path, &self.engine.locations, &location, have, now)
    }

    /// Returns all leases of this node and its children, for a new parent.
    pub fn running_leases(&self, now: Duration) -> Vec<(Arc<[u8]>, LeaseReport)> {
        let is_placed = |path: &[u8]| {
            let location = self.engine.known(path, now);
            location.placed.is_some_and(|slot: Slot| location.have == slot.mask())
        };
        self.engine.leases.running(is_placed, now)
    }

    /// Reports whether this node has ended the lease of a path on which its parents may still rely.
    pub fn has_lease_ended(&mut self, path: &[u8], now: Duration) -> bool {
        let Ok(path) = checked(path) else { return false };
        let takers = self.engine.locations.rights(path).unwrap_or_default().write;
        let leases = self.engine.leases.own_mut();
        // A real daemon creates a file however late the client of an earlier run of this node
        // arrives.
        let is_certain =
            takers.within(self.engine.locations.cell().lessees()) || !leases.expects_earlier(now);
        is_certain && leases.has_ended(path, now)
    }

    /// Expects clients with leases of an earlier run of this node for `time`, see
    /// [`crate::Leases::recover`].
    pub fn recover_leases(&mut self, time: Duration, now: Duration) {
        self.engine.leases.own_mut().recover(time, now);
    }

    /// Sets whether a parent that grants no leases is connected, see
    /// [`crate::Leases::set_plain_parent`].
    pub fn set_plain_parent(&mut self, is_connected: bool) {
        self.engine.leases.own_mut().set_plain_parent(is_connected);
    }
}
