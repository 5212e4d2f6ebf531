//! Orders to change names at a node of our own: permission, execution, and forwarding down the
//! tree.

use std::time::Duration;

use cluster::tree::{AcceptorRole, ClusterNode, ConnectionId};
use cluster::{LoginClass, NameChange, NameChangeSet, OrderPermit, PeerOrder};

use super::Sabotage;
use super::parents::{Parents, here};
use crate::disk::HostDisk;
use crate::location_service::LocationService;
use crate::messages::{ChangeOrder, FileMessage, ProcessAction};

/// A node that receives an order.
pub(super) struct OrderReceiver<'a> {
    pub(super) node: &'a ClusterNode,
    /// Of a parent.
    pub(super) location_service: Option<&'a mut LocationService>,
    /// Changes that a manager forwards for redirectors.
    pub(super) forwarded: NameChangeSet,
    pub(super) sabotage: Option<Sabotage>,
}

impl OrderReceiver<'_> {
    /// Handles an order to change names.
    pub(super) fn handle(
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

    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn class(&self, link: ConnectionId) -> LoginClass {
        if link.is_outward() {
            let is_parent = Parents::of(self.node).extensions(link).is_some();
            return if is_parent { LoginClass::Parent } else { LoginClass::Visitor };
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
        &self,
        _permit: OrderPermit,
        order: &ChangeOrder,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        let (path, parents) = (&order.path, Parents::of(self.node));
        let was_here = disk.has(path);
        match (order.change, &order.to) {
            (NameChange::Rm, _) if was_here => {
                disk.remove(path, now, false);
                parents.tell(&FileMessage::Gone { path: path.clone() }, out);
            }
            (NameChange::Mv, Some(to)) if was_here => {
                disk.remove(path, now, false);
                disk.put(to, None, now);
                parents.tell(&FileMessage::Gone { path: path.clone() }, out);
                parents.tell(&here(to), out);
            }
            (NameChange::Mkdir, _) if !was_here => {
                disk.put(path, None, now);
                parents.tell(&here(path), out);
            }
            _ => {}
        }
    }
}
