//! The messages of a node to its parents about files, which it has itself or through children.
//!
//! They are in one file, because the content depends on the extensions of each parent: XRootD nodes
//! receive only messages that they support.

use super::pending_requests::ParentQuery;
use super::tree_driver::TreeDriver;
use cluster::tree::{ConnectionId, Extensions};
use cluster::{LeaseNumber, LeaseReport};
use std::sync::Arc;
use std::time::Duration;
use wire::cms::flags::HaveModifier;
use wire::cms::message::{Gone, Have, Lease, NotHere};
use wire::cms::{Message as Wire, StreamId};

/// The state of a path at this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LocalPathState {
    /// It exists, or is pending.
    Present(HaveModifier),
    /// A client is expected to create it.
    Leased(LeaseReport),
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
pub(super) fn announce_lease(tree: &mut TreeDriver, path: &[u8], lease: LeaseReport) {
    for parent in tree.parents() {
        report_lease(tree, parent, path, lease);
    }
}

/// Reports all leases to a new parent.
pub(super) fn report_leases(
    tree: &mut TreeDriver,
    parent: ConnectionId,
    leases: &[(Arc<[u8]>, LeaseReport)],
) {
    for (path, lease) in leases {
        report_lease(tree, parent, path, *lease);
    }
}

/// Reports a lease to a parent that supports leases.
pub(super) fn report_lease(tree: &mut TreeDriver, parent: ConnectionId, path: &[u8], lease: LeaseReport) {
    if tree.extensions(parent).contains(Extensions::LEASES) {
        tree.put(parent, |peer, out| {
            report(path, LocalPathState::Leased(lease), peer).encode(StreamId::NONE, peer, out)
        });
    }
}

/// Composes the report of a lease. In the message 0 ms are an unknown time, as older nodes send it.
fn lease_message(path: &[u8], lease: LeaseReport) -> Lease<'_> {
    let milliseconds =
        lease.left.map_or(0, |left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
    Lease { number: lease.number.0, milliseconds, path }
}

/// Returns the lease that a child reports.
pub(super) fn reported_lease(message: &Lease<'_>) -> LeaseReport {
    let left = Duration::from_millis(message.milliseconds.into());
    LeaseReport { number: LeaseNumber(message.number), left: Some(left).filter(|left| !left.is_zero()) }
}

/// Composes a report without the extensions that the peer does not support.
fn report(path: &[u8], here: LocalPathState, peer: Extensions) -> Wire<'_> {
    let modifier = match here {
        LocalPathState::Leased(lease) if peer.contains(Extensions::LEASES) => {
            return Wire::Lease(lease_message(path, lease));
        }
        LocalPathState::Leased(_) => HaveModifier::PENDING,
        LocalPathState::Present(modifier) if peer.is_own() => modifier,
        LocalPathState::Present(modifier) => modifier.without(HaveModifier::DRAINING),
    };
    Wire::Have(Have { modifier, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_lease_has_its_remaining_time_and_zero_is_an_unknown_one() {
        let transmitted = |left| {
            let message = lease_message(b"/f", LeaseReport { number: LeaseNumber(7), left });
            assert_eq!((message.number, message.path), (7, &b"/f"[..]));
            (message.milliseconds, reported_lease(&message).left)
        };
        let time = Duration::from_millis;
        assert_eq!(transmitted(Some(time(2700))), (2700, Some(time(2700))));
        assert_eq!(transmitted(Some(Duration::ZERO)), (1, Some(time(1))));
        assert_eq!(transmitted(None), (0, None));
        assert_eq!(transmitted(Some(Duration::MAX)).0, u32::MAX);
    }
}
