//! Messages about files from other nodes: queries and leases of parents, replies and reports of
//! children.

use std::time::Duration;

use cluster::tree::{ConnectionId, Extensions, NodeEvent};
use cluster::{LeaseNumber, LeaseReport, RequestToken, StateAsk, StateReply};

use super::leases::leased;
use super::parents::Parents;
use super::{OwnProcess, QueryBehaviour, Sabotage, inventory};
use crate::disk::HostDisk;
use crate::messages::{FileMessage, Name, ProcessAction};

impl OwnProcess {
    /// Handles a message about files.
    pub fn files(
        &mut self,
        link: ConnectionId,
        message: FileMessage,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let state = matches!(message, FileMessage::State { .. });
        self.handle(NodeEvent::Heard { link, state }, disk, now, out);
        if let FileMessage::Lease { path, time, number } = message {
            return self.lease(link, &path, time, number, now, out);
        }
        if let FileMessage::State { path, ask } = message {
            self.asked(link, path, ask, disk, now, out);
            return;
        }
        if let FileMessage::InventoryWanted = message {
            return self.inventory.send(link, &self.node, disk, out);
        }
        if let FileMessage::Order(order) = message {
            return self.order_receiver().handle(link, order, disk, now, out);
        }
        let Some(slot) = self.node.slot(link) else { return };
        inventory::pass_on(link, &self.node, &message, out);
        if let FileMessage::Inventory { paths, last } = message {
            for path in paths {
                self.location_service(now, out, |location_service, orders| {
                    location_service.resolver.inventory(slot, &path, false, now, orders);
                });
            }
            if last {
                self.location_service(now, out, |location_service, _| location_service.resolver.listed(slot));
            }
            return;
        }
        self.location_service(now, out, |location_service, orders| match message {
            FileMessage::Have { path, leased: Some(lease), .. } => {
                location_service.resolver.have_leased(slot, &path, lease, now, orders);
            }
            FileMessage::Have { path, draining: true, .. } => {
                location_service.resolver.have_draining(slot, &path, now, orders)
            }
            FileMessage::Have { path, pending, .. } => {
                location_service.resolver.have(slot, &path, pending, now, orders)
            }
            FileMessage::Gone { path } => location_service.resolver.gone(slot, &path, now, orders),
            FileMessage::NotHere { path } => location_service.resolver.not_here(slot, &path, now, orders),
            FileMessage::Inventory { .. }
            | FileMessage::State { .. }
            | FileMessage::Lease { .. }
            | FileMessage::Order(_)
            | FileMessage::InventoryWanted => {}
        });
    }

    /// Handles a parent's query for a path.
    fn asked(
        &mut self,
        link: ConnectionId,
        path: Name,
        ask: StateAsk,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        if self.location_service.is_none() {
            if disk.hangs {
                self.unanswered.push((link, path));
            } else {
                self.look(link, path, disk, now, out);
            }
            return;
        }
        let mut reply = None;
        self.location_service(now, out, |location_service, orders| {
            reply = location_service.resolver.state(RequestToken(link.0), &path, ask, now, orders);
        });
        if let Some(reply) = reply {
            self.reply(link, path, reply, now, out);
        }
    }

    /// Answers a parent's query at a server.
    pub(super) fn look(
        &mut self,
        link: ConnectionId,
        path: Name,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let has = disk.has(&path) && !self.does(Sabotage::Denies);
        let here = self.behaviour == QueryBehaviour::Claims || has;
        let pending = !here && self.lease_report(&path, now).is_some();
        let reply = if here || pending { StateReply::Have { pending } } else { StateReply::NotHere };
        if self.behaviour != QueryBehaviour::Mute {
            let times = if self.does(Sabotage::Chatters) { 20 } else { 1 };
            (0..times).for_each(|_| self.reply(link, path.clone(), reply, now, out));
        }
    }

    /// Answers a query of a parent.
    pub(super) fn reply(
        &mut self,
        link: ConnectionId,
        path: Name,
        reply: StateReply,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let Some(extensions) = Parents::of(&self.node).extensions(link) else { return };
        match reply {
            StateReply::Have { pending } => {
                let draining = extensions.is_own() && self.drains(&path, now);
                let tells = pending && extensions.contains(Extensions::LEASES);
                let leased = if tells { self.lease_report(&path, now) } else { None };
                out.push(ProcessAction::Files(link, FileMessage::Have { path, pending, draining, leased }));
            }
            // A real parent has no such reply; a missing one means absence.
            StateReply::NotHere if extensions.contains(Extensions::NOT_HERE) => {
                if self.leases.has_ended(&path, self.location_service.as_deref_mut(), now) {
                    out.push(ProcessAction::Files(link, FileMessage::Gone { path: path.clone() }));
                }
                out.push(ProcessAction::Files(link, FileMessage::NotHere { path }));
            }
            StateReply::NotHere => {}
        }
    }

    /// Carries out a parent's order about a lease: the parent redirects a client here to create a
    /// path.
    fn lease(
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
            self.leases.note_granted(now);
        }
        if self.location_service.is_some() {
            self.location_service(now, out, |location_service, orders| {
                location_service.resolver.lease(path, time, number, now, orders)
            });
        } else {
            let stays = self.leases.at_server.order(path, time, number, now);
            out.extend(stays.map(|lease| ProcessAction::Files(link, leased(path, lease))));
        }
        if !time.is_zero() {
            let report = LeaseReport { number, left: Some(time) };
            self.leases.confirm(Parents::of(&self.node), path, report, out);
        }
    }
}
