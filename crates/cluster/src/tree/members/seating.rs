//! The choice of a place for a newcomer: in the own cell, in one below, or none yet.
//!
//! A root fills its own cell first while the cluster is small. Beyond that its free places are for
//! supervisors, and servers go straight to their final cell. A login without a place waits, so that
//! it does not try every full cell.

use std::time::Duration;

use super::super::cell_directory::CellDirectory;
use super::super::connection_id::ConnectionId;
use super::super::limits::{FLAT_MAX, SETTLE};
use super::super::member::ClusterMember;
use super::super::member_slots::{MemberSlots, SlotOffer};
use super::super::parent::ParentSettings;
use super::super::parking::Parked;
use super::super::role::AcceptorRole;
use super::RootDistance;
use super::parked::ParkedLogins;
use crate::Slot;

/// The place of a newcomer.
pub(super) enum NewcomerPlacement {
    /// In the own cell; a child in the slot has to leave.
    Here(Slot),
    /// In this cell below.
    Below(u64),
    /// None yet.
    Wait,
    /// None.
    Nowhere,
}

/// The rules by which a newcomer gets its place. Nothing changes by a choice.
pub(super) struct SeatChooser<'a> {
    pub(super) settings: &'a ParentSettings,
    pub(super) cell: &'a MemberSlots,
    pub(super) directory: &'a CellDirectory,
    pub(super) waiting: &'a ParkedLogins,
    pub(super) standing: RootDistance,
    /// The last arrival of a supervisor. For a while after it, places at the root are kept for
    /// further supervisors.
    pub(super) last_parent: Duration,
}

impl SeatChooser<'_> {
    /// Returns the place for a newcomer. `returned`: it was redirected a moment ago and has come
    /// back.
    pub(super) fn find(&self, member: &ClusterMember, returned: bool, now: Duration) -> NewcomerPlacement {
        let place = self.cell.place(&member.identity, member.role, now);
        let here = match place {
            SlotOffer::Free(slot) | SlotOffer::Displace(slot) | SlotOffer::Return(slot) => Some(slot),
            _ => None,
        };
        match self.settings.acceptor {
            AcceptorRole::MetaManager | AcceptorRole::Server => {
                here.map_or(NewcomerPlacement::Nowhere, NewcomerPlacement::Here)
            }
            AcceptorRole::Supervisor | AcceptorRole::ProxySupervisor => {
                let too_deep = member.role.has_children() && self.standing != RootDistance::Near;
                here.filter(|_| !too_deep).map_or(NewcomerPlacement::Nowhere, NewcomerPlacement::Here)
            }
            AcceptorRole::Manager | AcceptorRole::ProxyManager => {
                self.seat_at_root(member, here, returned, now)
            }
        }
    }

    fn seat_at_root(
        &self,
        member: &ClusterMember,
        here: Option<Slot>,
        returned: bool,
        now: Duration,
    ) -> NewcomerPlacement {
        let node = member.identity.id.digest();
        // A real node that returns over the own address at the end of a list treats this node as an
        // inner node, and would leave the other managers.
        let here = here.filter(|_| !(returned && self.settings.replicas && !member.is_own()));
        if member.role.has_children() {
            let below = || self.directory.cell_for_parent(node, now).map(NewcomerPlacement::Below);
            return here.map(NewcomerPlacement::Here).or_else(below).unwrap_or(NewcomerPlacement::Wait);
        }
        let free = here.filter(|slot| !self.cell.online().contains(*slot));
        if let Some(slot) = free.filter(|_| !self.needs_tree()) {
            return NewcomerPlacement::Here(slot);
        }
        if let Some(cell) = self.directory.cell_for_server(node, now) {
            return NewcomerPlacement::Below(cell);
        }
        match free {
            Some(slot) if now >= self.last_parent + SETTLE => NewcomerPlacement::Here(slot),
            _ => NewcomerPlacement::Wait,
        }
    }

    /// Reports whether the cluster is larger than one cell, so that free places at the root are for
    /// supervisors.
    fn needs_tree(&self) -> bool {
        // The newcomer itself is not among the known nodes.
        self.settings.expected > FLAT_MAX
            || self.cell.used().len() >= FLAT_MAX
            || self.known_nodes() >= FLAT_MAX
    }

    /// Returns the number of known nodes: children, waiting logins, and the children of reported
    /// cells.
    pub(super) fn known_nodes(&self) -> usize {
        let below = self
            .directory
            .entries()
            .iter()
            .map(|entry| usize::from(entry.places.leaves) + usize::from(entry.places.parents));
        self.cell.used().len() + self.waiting.len() + below.sum::<usize>()
    }

    /// Returns the login that has waited longest, if there is a place for it. A login that came
    /// back may have none where others have one.
    pub(super) fn next_to_seat(&self, parents: bool, now: Duration) -> Option<ConnectionId> {
        let waiting = self.waiting.of(parents);
        let first = waiting.oldest()?;
        let seated = |parked: &&Parked| {
            !matches!(self.find(&parked.member, parked.returned, now), NewcomerPlacement::Wait)
        };
        let next = Some(first)
            .filter(seated)
            .or_else(|| waiting.oldest_new().filter(|_| first.returned).filter(seated))?;
        next.member.link
    }
}
