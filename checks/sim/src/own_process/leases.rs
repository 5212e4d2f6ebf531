//! The leases of a node of our own, and the reports about them to its parents.
//!
//! A server keeps its leases here; a parent of other nodes keeps them in its resolver.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::tree::{ConnectionId, Extensions};
use cluster::{EXPECTED_FOR, LeaseReport, Leases};

use super::Sabotage;
use super::parents::Parents;
use crate::location_service::LocationService;
use crate::messages::{FileMessage, Name, ProcessAction};

/// The leases of a node, and the parents that know them.
pub(super) struct NodeLeases {
    /// Of a server: the files that clients are about to create here.
    pub(super) at_server: Leases,
    /// The time until which clients with leases of a parent may arrive.
    granted: Option<Duration>,
    /// Parents that received the running leases.
    informed: BTreeSet<ConnectionId>,
    conceals: bool,
}

impl NodeLeases {
    /// Creates the state of a node without leases.
    pub(super) fn new(sabotage: Option<Sabotage>) -> Self {
        Self {
            at_server: Leases::default(),
            granted: None,
            informed: BTreeSet::new(),
            conceals: sabotage == Some(Sabotage::Conceals),
        }
    }

    /// Returns the time until which clients with leases of a parent may arrive.
    pub(super) const fn granted(&self) -> Option<Duration> {
        self.granted
    }

    /// Records that a parent redirects a client here to create a path.
    pub(super) fn note_granted(&mut self, now: Duration) {
        self.granted = self.granted.max(Some(now + EXPECTED_FOR));
    }

    /// Reports the running leases to new parents.
    pub(super) fn greet(
        &mut self,
        parents: Parents<'_>,
        service: Option<&LocationService>,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        self.informed.retain(|link| parents.extensions(*link).is_some());
        for (link, extensions) in parents.all() {
            if self.informed.insert(link) && extensions.contains(Extensions::LEASES) && !self.conceals {
                let leases: Vec<(Name, LeaseReport)> = match service {
                    Some(service) => service.resolver.running_leases(now),
                    None => self.at_server.running(now).map(|(path, lease)| (path.clone(), lease)).collect(),
                };
                out.extend(
                    leases.iter().map(|(path, lease)| ProcessAction::Files(link, leased(path, *lease))),
                );
            }
        }
    }

    /// Returns the lease of a path that a client is about to create here or below.
    pub(super) fn report(
        &mut self,
        path: &[u8],
        service: Option<&mut LocationService>,
        now: Duration,
    ) -> Option<LeaseReport> {
        match service {
            Some(service) => service.resolver.lease_report(path, now),
            None => self.at_server.report(path, now).filter(|_| !self.conceals),
        }
    }

    /// Reports whether the lease of a path has ended.
    pub(super) fn has_ended(
        &mut self,
        path: &[u8],
        service: Option<&mut LocationService>,
        now: Duration,
    ) -> bool {
        match service {
            Some(service) => service.resolver.has_lease_ended(path, now),
            None => self.at_server.has_ended(path, now),
        }
    }

    /// Confirms the arrival of a lease to the parents. One of them granted it.
    pub(super) fn confirm(
        &self,
        parents: Parents<'_>,
        path: &Name,
        lease: LeaseReport,
        out: &mut Vec<ProcessAction>,
    ) {
        if !self.conceals {
            let message = leased(path, lease);
            let knowing = parents.supporting(Extensions::LEASES);
            out.extend(knowing.map(|parent| ProcessAction::Files(parent, message.clone())));
        }
    }
}

/// Returns the message for a file that a client is about to create here.
pub(super) fn leased(path: &Name, lease: LeaseReport) -> FileMessage {
    FileMessage::Have { path: path.clone(), pending: true, draining: false, leased: Some(lease) }
}
