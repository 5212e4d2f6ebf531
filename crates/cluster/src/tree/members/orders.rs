//! Orders of the administrator: the black list, and the nodes that are drained.

use std::collections::BTreeSet;

use super::super::action::{ChildChange, NodeAction};
use super::super::blacklist::{Blacklist, BlacklistVerdict};
use super::super::member::ClusterMember;
use super::super::member_slots::MemberSlots;
use super::super::message::{NodeMessage, StatusMessage};
use super::super::peer_address::PeerAddress;
use crate::Slot;

/// The orders that apply to children, connected or not.
#[derive(Debug, Default)]
pub(super) struct NodeOrders {
    pub(super) blacklist: Blacklist,
    /// Ids of nodes that the administrator drains here.
    drained: BTreeSet<String>,
}

impl NodeOrders {
    /// Returns the verdict of the black list on a node that has logged in.
    pub(super) fn verdict(&self, member: &ClusterMember) -> BlacklistVerdict {
        let peer = PeerAddress { ip: member.identity.ip, host: member.address.host().to_owned() };
        self.blacklist.verdict(&peer)
    }

    /// Drains a child, or ends that; `false` if there is no such child.
    pub(super) fn drain(
        &mut self,
        cell: &mut MemberSlots,
        slot: Slot,
        draining: bool,
        out: &mut Vec<NodeAction>,
    ) -> bool {
        let Some(member) = cell.get_mut(slot) else { return false };
        let id = member.identity.id.as_str();
        let news = if draining { self.drained.insert(id.to_owned()) } else { self.drained.remove(id) };
        // A child that has the order from elsewhere receives the end of it, too.
        if news || member.condition.draining != draining || (member.condition.drains_itself && !draining) {
            member.condition.draining = draining;
            if let Some(link) = member.link.filter(|_| member.is_own()) {
                // It moves its current clients, too.
                let status = StatusMessage { drains: Some(draining), ..StatusMessage::default() };
                out.push(NodeAction::Send { link, message: NodeMessage::Status(status) });
            }
            out.push(NodeAction::Child { slot, change: ChildChange::Draining });
        }
        true
    }

    /// Reports whether a node is drained.
    pub(super) fn is_drained(&self, member: &ClusterMember) -> bool {
        self.drained.contains(member.identity.id.as_str())
    }

    /// Returns the ids of the nodes that are drained, connected or not.
    pub(super) fn drained(&self) -> impl Iterator<Item = &str> {
        self.drained.iter().map(String::as_str)
    }

    /// Replaces the nodes that are drained when they join.
    pub(super) fn set_drained(&mut self, ids: impl IntoIterator<Item = String>) {
        self.drained = ids.into_iter().collect();
    }
}
