//! The connections of children, alternates and waiting logins, and the ways in which they end.

use base::IdMap;

use super::super::action::{NodeAction, Notice, RefusalReason};
use super::super::address::Address;
use super::super::connection_id::ConnectionId;
use super::super::message::NodeMessage;
use crate::Slot;

/// The role of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionRole {
    /// A child.
    Child(Slot),
    /// An alternate, which stands by for a child.
    Alternate(Slot),
    /// A login that waits for a cell.
    Parked,
    /// A login that waits until the older connection of the same node proves to be dead.
    Contest,
}

/// The connections of nodes, by role.
#[derive(Debug, Default)]
pub(super) struct NodeConnections {
    roles: IdMap<ConnectionId, ConnectionRole>,
}

impl NodeConnections {
    pub(super) fn role(&self, link: ConnectionId) -> Option<ConnectionRole> {
        self.roles.get(&link).copied()
    }

    /// Returns the slot of a connection; `None` if it does not belong to a child.
    pub(super) fn slot(&self, link: ConnectionId) -> Option<Slot> {
        match self.role(link) {
            Some(ConnectionRole::Child(slot)) => Some(slot),
            _ => None,
        }
    }

    pub(super) fn contains(&self, link: ConnectionId) -> bool {
        self.roles.contains_key(&link)
    }

    pub(super) fn len(&self) -> usize {
        self.roles.len()
    }

    pub(super) fn assign(&mut self, link: ConnectionId, role: ConnectionRole) {
        self.roles.insert(link, role);
    }

    /// Forgets a connection that has ended, or whose login continues.
    pub(super) fn remove(&mut self, link: ConnectionId) -> Option<ConnectionRole> {
        self.roles.remove(&link)
    }

    /// Ends a connection from this side.
    pub(super) fn close(&mut self, link: ConnectionId, out: &mut Vec<NodeAction>) {
        self.roles.remove(&link);
        out.push(NodeAction::Close { link });
    }

    /// Names other parents, then ends the connection.
    pub(super) fn redirect(&mut self, link: ConnectionId, hosts: Vec<Address>, out: &mut Vec<NodeAction>) {
        out.push(NodeAction::Send { link, message: NodeMessage::Try { hosts, permanent: false } });
        self.close(link, out);
    }

    /// Ends the connection of a login that was refused, and reports it to the operator.
    pub(super) fn refuse(
        &mut self,
        link: ConnectionId,
        host: &str,
        reason: RefusalReason,
        out: &mut Vec<NodeAction>,
    ) {
        self.roles.remove(&link);
        out.push(NodeAction::Notice(Notice::Refused { host: host.to_owned(), reason }));
        out.push(NodeAction::Close { link });
    }

    /// Refuses a login without naming another parent. An empty list is safe with real nodes.
    pub(super) fn turn_away(
        &mut self,
        link: ConnectionId,
        host: &str,
        reason: RefusalReason,
        out: &mut Vec<NodeAction>,
    ) {
        out.push(NodeAction::Send {
            link,
            message: NodeMessage::Try { hosts: Vec::new(), permanent: false },
        });
        self.refuse(link, host, reason, out);
    }
}
