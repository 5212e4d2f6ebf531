//! Orders to change names at a node of our own: permission, execution, and forwarding down the
//! tree.

use std::time::Duration;

use cluster::tree::{AcceptorRole, ConnectionId, Extensions};
use cluster::{LoginClass, NameChange, OrderPermit, PeerOrder};

use super::{OwnProcess, Sabotage, here};
use crate::disk::HostDisk;
use crate::messages::{ChangeOrder, FileMessage, ProcessAction};

impl OwnProcess {
    /// Handles an order to change names.
    pub(super) fn ordered(
        &mut self,
        link: ConnectionId,
        order: ChangeOrder,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        if self.does(Sabotage::Heeds) {
            self.forget(&order);
        }
        let is_relayed = order.relays_left > 0;
        let peer_order =
            PeerOrder { change: Some(order.change), is_relayed, path: &order.path, ident: b"a client" };
        let class = if self.does(Sabotage::Obeys) { LoginClass::Parent } else { self.class(link) };
        let own = match (self.does(Sabotage::Obeys), self.node.members()) {
            (false, Some(members)) => members.settings().acceptor,
            _ => AcceptorRole::Server,
        };
        let Some(permit) = OrderPermit::for_peer(class, own, self.forwarded, &peer_order) else { return };
        if self.location_service.is_some() {
            self.pass_on(permit, order, out);
        } else {
            self.carry_out(permit, &order, disk, now, out);
        }
    }

    fn class(&self, link: ConnectionId) -> LoginClass {
        let is_parent = |(parent, _): (ConnectionId, Extensions)| parent == link;
        if link.is_outward() {
            return if self.parents().any(is_parent) { LoginClass::Parent } else { LoginClass::Visitor };
        }
        match self.node.slot(link) {
            Some(_) => LoginClass::Child,
            None if self.node.is_redirector(link) => LoginClass::Redirector,
            None => LoginClass::Visitor,
        }
    }

    fn forget(&mut self, order: &ChangeOrder) {
        if let Some(location_service) = &mut self.location_service {
            match &order.to {
                Some(to) => location_service.resolver.rename(&order.path, to),
                None => location_service.resolver.forget(&order.path),
            }
        }
    }

    fn pass_on(&mut self, _permit: OrderPermit, order: ChangeOrder, out: &mut Vec<ProcessAction>) {
        self.forget(&order);
        let (Some(location_service), Some(members)) = (&self.location_service, self.node.members()) else {
            return;
        };
        let Some(relays_left) = order.relays_left.checked_sub(1) else { return };
        let slots = location_service.resolver.order_receivers(Some(&order.path));
        let links = slots.iter().filter_map(|slot| members.member(slot)?.link);
        let order = ChangeOrder { relays_left, ..order };
        out.extend(links.map(|link| ProcessAction::Files(link, FileMessage::Order(order.clone()))));
    }

    fn carry_out(
        &mut self,
        _permit: OrderPermit,
        order: &ChangeOrder,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let path = &order.path;
        let was_here = disk.has(path);
        match (order.change, &order.to) {
            (NameChange::Rm, _) if was_here => {
                disk.remove(path, now, false);
                self.tell_parents(&FileMessage::Gone { path: path.clone() }, out);
            }
            (NameChange::Mv, Some(to)) if was_here => {
                disk.remove(path, now, false);
                disk.put(to, None, now);
                self.tell_parents(&FileMessage::Gone { path: path.clone() }, out);
                self.tell_parents(&here(to), out);
            }
            (NameChange::Mkdir, _) if !was_here => {
                disk.put(path, None, now);
                self.tell_parents(&here(path), out);
            }
            _ => {}
        }
    }
}
