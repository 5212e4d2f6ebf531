//! The messages of a node to its parents about files, which it has itself or through children.
//!
//! They are in one file, because the content depends on the extensions of each parent: XRootD nodes
//! receive only messages that they support.

use super::pending_requests::ParentQuery;
use super::tree_driver::TreeDriver;
use cluster::LeaseNumber;
use cluster::tree::{ConnectionId, Extensions};
use std::sync::Arc;
use wire::cms::flags::HaveModifier;
use wire::cms::message::{Gone, Have, Lease, NotHere};
use wire::cms::{Message as Wire, StreamId};

/// The state of a path at this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LocalPathState {
    /// It exists, or is pending.
    Present(HaveModifier),
    /// A client is expected to create it.
    Leased(LeaseNumber),
}

/// Answers a query of a parent: the path is here.
pub(super) fn here(tree: &mut TreeDriver, parent: &ParentQuery, here: LocalPathState) {
    tree.put(parent.link, |peer, out| report(&parent.path, here, peer).encode(parent.streamid, peer, out));
}

/// Answers a query of a parent: the path is not here. An XRootD parent gets no reply, because its
/// protocol has no such answer.
///
/// `has_ended` is set if the path was leased. A parent that does not know that the lease has ended
/// would take the answer for one that is older than the lease.
pub(super) fn not_here(tree: &mut TreeDriver, parent: &ParentQuery, has_ended: bool) {
    if !parent.definite {
        return;
    }
    let path = &*parent.path;
    if has_ended {
        tree.put(parent.link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
    }
    tree.put(parent.link, |peer, out| Wire::NotHere(NotHere { path }).encode(parent.streamid, peer, out));
}

/// Reports to all parents, without a query, that a path is here now.
pub(super) fn announce(tree: &mut TreeDriver, path: &[u8], here: LocalPathState) {
    for link in tree.parents() {
        tree.put(link, |peer, out| report(path, here, peer).encode(StreamId::NONE, peer, out));
    }
}

/// Reports to all parents that a path is no longer here.
pub(super) fn retract(tree: &mut TreeDriver, path: &[u8]) {
    for link in tree.parents() {
        tree.put(link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
    }
}

/// Reports to all parents that a client is expected to create this path here. It confirms the lease
/// to the parent that granted it; the others may be asked for a place for the same file.
pub(super) fn announce_lease(tree: &mut TreeDriver, path: &[u8], number: LeaseNumber) {
    for parent in tree.parents() {
        report_lease(tree, parent, path, number);
    }
}

/// Reports all leases to a new parent.
pub(super) fn report_leases(
    tree: &mut TreeDriver,
    parent: ConnectionId,
    leases: &[(Arc<[u8]>, LeaseNumber)],
) {
    for (path, number) in leases {
        report_lease(tree, parent, path, *number);
    }
}

/// Reports a lease to a parent that supports leases.
pub(super) fn report_lease(tree: &mut TreeDriver, parent: ConnectionId, path: &[u8], number: LeaseNumber) {
    if tree.extensions(parent).contains(Extensions::LEASES) {
        tree.put(parent, |peer, out| {
            report(path, LocalPathState::Leased(number), peer).encode(StreamId::NONE, peer, out)
        });
    }
}

/// Composes a report without the extensions that the peer does not support.
fn report(path: &[u8], here: LocalPathState, peer: Extensions) -> Wire<'_> {
    let modifier = match here {
        LocalPathState::Leased(number) if peer.contains(Extensions::LEASES) => {
            return Wire::Lease(Lease { number: number.0, milliseconds: 0, path });
        }
        LocalPathState::Leased(_) => HaveModifier::PENDING,
        LocalPathState::Present(modifier) if peer.is_own() => modifier,
        LocalPathState::Present(modifier) => modifier.without(HaveModifier::DRAINING),
    };
    Wire::Have(Have { modifier, path })
}
