//! What a node tells its parents about files, whether it has them itself or children that do.

use super::askers::Parent;
use super::tree_driver::TreeDriver;
use cluster::tree::{Extensions, LinkId};
use wire::cms::flags::HaveModifier;
use wire::cms::message::{Gone, Have, NotHere};
use wire::cms::{Message as Wire, StreamId};

/// Answers a parent that a path is here.
pub(super) fn here(tree: &mut TreeDriver, parent: &Parent, modifier: HaveModifier) {
    tree.put(parent.link, |peer, out| have(&parent.path, modifier, peer).encode(parent.streamid, peer, out));
}

/// Answers a parent that a path is not here, if it knows such an answer: silence is the only one that real parents know.
///
/// `has_ended`: the path was leased. A parent that does not know that the lease has ended would take the answer for an older
/// one than the lease.
pub(super) fn not_here(tree: &mut TreeDriver, parent: &Parent, has_ended: bool) {
    if !parent.definite {
        return;
    }
    let path = &*parent.path;
    if has_ended {
        tree.put(parent.link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
    }
    tree.put(parent.link, |peer, out| Wire::NotHere(NotHere { path }).encode(parent.streamid, peer, out));
}

/// Tells all parents that a path is here now, though none asked.
pub(super) fn announce(tree: &mut TreeDriver, path: &[u8], modifier: HaveModifier) {
    for link in tree.parents() {
        tree.put(link, |peer, out| have(path, modifier, peer).encode(StreamId::NONE, peer, out));
    }
}

/// Tells all parents that a path is not here any more.
pub(super) fn retract(tree: &mut TreeDriver, path: &[u8]) {
    for link in tree.parents() {
        tree.put(link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
    }
}

/// Tells the parents beside `by` that a client is on its way to create this path here: they may be asked for a place for the
/// same file.
pub(super) fn announce_lease(tree: &mut TreeDriver, path: &[u8], by: LinkId) {
    for parent in tree.parents().into_iter().filter(|parent| *parent != by) {
        if tree.extensions(parent).contains(Extensions::LEASES) {
            let modifier = HaveModifier::PENDING | HaveModifier::LEASED;
            let message = Wire::Have(Have { modifier, path });
            tree.put(parent, |peer, out| message.encode(StreamId::NONE, peer, out));
        }
    }
}

/// What a real node would not understand is not told to it.
fn have(path: &[u8], modifier: HaveModifier, peer: Extensions) -> Wire<'_> {
    let modifier = if peer.is_own() { modifier } else { modifier.without(HaveModifier::DRAINING) };
    let leases = peer.contains(Extensions::LEASES);
    let modifier = if leases { modifier } else { modifier.without(HaveModifier::LEASED) };
    Wire::Have(Have { modifier, path })
}
