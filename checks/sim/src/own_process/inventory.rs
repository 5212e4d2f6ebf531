//! Inventories: the lists of all files of servers, for parents that know nothing of them yet.

use std::collections::BTreeSet;

use cluster::tree::{ClusterNode, ConnectionId, Extensions, inventory};

use super::parents::Parents;
use crate::disk::HostDisk;
use crate::messages::{FileMessage, Name, ProcessAction};

/// Paths in one message of an inventory.
const PATHS_PER_MESSAGE: usize = 500;

/// The inventory of a node, and the parents that received it.
pub(super) struct InventoryReports {
    /// Parents get the inventory at login.
    is_enabled: bool,
    /// Parents that received it.
    greeted: BTreeSet<ConnectionId>,
}

impl InventoryReports {
    /// Creates the state of a node without parents. With `is_enabled` parents get the inventory at
    /// login.
    pub(super) const fn new(is_enabled: bool) -> Self {
        Self { is_enabled, greeted: BTreeSet::new() }
    }

    /// Sends the inventory of a server to new parents of our own.
    pub(super) fn greet(&mut self, parents: Parents<'_>, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
        if !self.is_enabled || disk.hangs {
            return;
        }
        self.greeted.retain(|link| parents.extensions(*link).is_some());
        for (link, extensions) in parents.all() {
            if self.greeted.insert(link) && extensions.contains(Extensions::INVENTORY) {
                list(link, disk, out);
            }
        }
    }

    /// Handles a parent's request for the inventory: a server sends its own, an inner node asks its
    /// children.
    pub(super) fn send(
        &self,
        link: ConnectionId,
        node: &ClusterNode,
        disk: &HostDisk,
        out: &mut Vec<ProcessAction>,
    ) {
        match node.members() {
            Some(members) => {
                out.extend(
                    inventory::sources(members)
                        .map(|link| ProcessAction::Files(link, FileMessage::InventoryWanted)),
                );
            }
            None if self.is_enabled && !disk.hangs => list(link, disk, out),
            None => {}
        }
    }
}

/// Forwards the inventory of a child to the parents that accept it.
pub(super) fn pass_on(
    link: ConnectionId,
    node: &ClusterNode,
    message: &FileMessage,
    out: &mut Vec<ProcessAction>,
) {
    let FileMessage::Inventory { .. } = message else { return };
    let child = node.members().and_then(|members| members.member(node.slot(link)?));
    if child.is_some_and(inventory::is_passed_on) {
        let able = Parents::of(node).supporting(Extensions::INVENTORY);
        out.extend(able.map(|parent| ProcessAction::Files(parent, message.clone())));
    }
}

/// Sends the inventory to a parent.
fn list(link: ConnectionId, disk: &HostDisk, out: &mut Vec<ProcessAction>) {
    let paths: Vec<Name> = disk.files.keys().cloned().collect();
    let parts = paths.chunks(PATHS_PER_MESSAGE).map(<[Name]>::to_vec);
    let say = |paths, last| ProcessAction::Files(link, FileMessage::Inventory { paths, last });
    out.extend(parts.map(|paths| say(paths, false)));
    out.push(say(Vec::new(), true));
}
