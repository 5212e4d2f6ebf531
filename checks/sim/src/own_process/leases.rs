//! The leases of a node of our own: reports to its parents, and their orders.

use std::time::Duration;

use cluster::tree::{ConnectionId, Extensions};
use cluster::{EXPECTED_FOR, LeaseNumber, LeaseReport};

use super::{OwnProcess, Sabotage};
use crate::messages::{FileMessage, Name, ProcessAction};

impl OwnProcess {
    /// Reports the running leases to new parents.
    pub(super) fn report_leases(&mut self, now: Duration, out: &mut Vec<ProcessAction>) {
        let parents: Vec<(ConnectionId, Extensions)> = self.parents().collect();
        self.informed.retain(|link| parents.iter().any(|(parent, _)| parent == link));
        for (link, extensions) in parents {
            if self.informed.insert(link)
                && extensions.contains(Extensions::LEASES)
                && !self.does(Sabotage::Conceals)
            {
                let leases: Vec<(Name, LeaseReport)> = match &self.location_service {
                    Some(location_service) => location_service.resolver.running_leases(now),
                    None => self.leases.running(now).map(|(path, lease)| (path.clone(), lease)).collect(),
                };
                out.extend(
                    leases.iter().map(|(path, lease)| ProcessAction::Files(link, leased(path, *lease))),
                );
            }
        }
    }

    /// Returns the lease of a path that a client is about to create here or below.
    pub(super) fn lease_report(&mut self, path: &[u8], now: Duration) -> Option<LeaseReport> {
        let conceals = self.does(Sabotage::Conceals);
        match &mut self.location_service {
            Some(location_service) => location_service.resolver.lease_report(path, now),
            None => self.leases.report(path, now).filter(|_| !conceals),
        }
    }

    /// Carries out a parent's order about a lease: the parent redirects a client here to create a
    /// path.
    pub(super) fn lease(
        &mut self,
        link: ConnectionId,
        path: &Name,
        time: Duration,
        number: LeaseNumber,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        if self.does(Sabotage::Clings) && time.is_zero() {
            return;
        }
        if !time.is_zero() {
            self.granted = self.granted.max(Some(now + EXPECTED_FOR));
        }
        if self.location_service.is_some() {
            self.location_service(now, out, |location_service, orders| {
                location_service.resolver.lease(path, time, number, now, orders)
            });
        } else {
            let stays = self.leases.order(path, time, number, now);
            out.extend(stays.map(|lease| ProcessAction::Files(link, leased(path, lease))));
        }
        if self.does(Sabotage::Conceals) || time.is_zero() {
            return;
        }
        // The report confirms the arrival of the lease to the parent that granted it.
        let knows = |(_, extensions): &(ConnectionId, Extensions)| extensions.contains(Extensions::LEASES);
        let message = leased(path, LeaseReport { number, left: Some(time) });
        out.extend(
            self.parents().filter(knows).map(|(parent, _)| ProcessAction::Files(parent, message.clone())),
        );
    }
}

/// Returns the message for a file that a client is about to create here.
fn leased(path: &Name, lease: LeaseReport) -> FileMessage {
    FileMessage::Have { path: path.clone(), pending: true, draining: false, leased: Some(lease) }
}
