//! The parents of a node of our own, and messages to them.

use cluster::tree::{ClusterNode, ConnectionId, Extensions};

use crate::disk::HostDisk;
use crate::messages::{FileMessage, Name, ProcessAction};

/// The parents of a node.
#[derive(Clone, Copy)]
pub(super) struct Parents<'a> {
    node: &'a ClusterNode,
}

impl<'a> Parents<'a> {
    /// Returns the parents of this node.
    pub(super) const fn of(node: &'a ClusterNode) -> Self {
        Self { node }
    }

    /// Returns the connections to all of them, with the extensions that each supports.
    pub(super) fn all(self) -> impl Iterator<Item = (ConnectionId, Extensions)> + 'a {
        self.node.memberships().iter().flat_map(|membership| membership.parents())
    }

    /// Returns the connections to those that support an extension.
    pub(super) fn supporting(self, extension: Extensions) -> impl Iterator<Item = ConnectionId> + 'a {
        self.all().filter(move |(_, extensions)| extensions.contains(extension)).map(|(link, _)| link)
    }

    /// Returns the extensions of the parent with this connection, if it is one.
    pub(super) fn extensions(self, link: ConnectionId) -> Option<Extensions> {
        self.all().find(|(parent, _)| *parent == link).map(|(_, extensions)| extensions)
    }

    /// Sends a message to all of them, without the parts that one does not support.
    pub(super) fn tell(self, message: &FileMessage, out: &mut Vec<ProcessAction>) {
        let for_peer = |(link, extensions): (ConnectionId, Extensions)| {
            let mut message = message.clone();
            if let FileMessage::Have { leased, .. } = &mut message {
                leased.take_if(|_| !extensions.contains(Extensions::LEASES));
            }
            ProcessAction::Files(link, message)
        };
        out.extend(self.all().map(for_peer));
    }

    /// Reports to all of them whether a path is on the disk of a server.
    pub(super) fn report(self, path: &Name, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
        let message = if disk.has(path) { here(path) } else { FileMessage::Gone { path: path.clone() } };
        self.tell(&message, out);
    }
}

/// Returns the message for a file that exists here.
pub(super) fn here(path: &Name) -> FileMessage {
    FileMessage::Have { path: path.clone(), pending: false, draining: false, leased: None }
}
