//! Name changes and prepare requests on their way down the tree.
//!
//! A name change goes to all children that may write the path, once it is known that no node has
//! the new name. A prepare request goes to the server that is selected for the file.

use super::forward::Forward;
use super::location_driver::{LocationDriver, respond, respond_with};
use super::pending_order::{NameCheck, OrderOrigin, PendingOrder};
use super::pending_requests::{LocationQuery, RequestOrigin};
use super::prepares;
use super::tree_driver::TreeDriver;
use cluster::{ClusterAnswer, ErrorCode, LocateFlags, OrderPermit};
use wire::cms::response::ResponseAnswer as WireAnswer;

/// Forwards an order to all children it concerns, once it is known that no node has the new name.
///
/// The node that has the file gets the lease of the new name first. Otherwise a client could create
/// a file of that name elsewhere between the check and the change.
pub(super) fn change_names(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    _permit: OrderPermit,
    forward: Forward,
    client: OrderOrigin,
) {
    match &forward.must_be_free {
        Some(_) => {
            let is_shared = location.settings().policy.shared.is_some();
            let check = if is_shared { NameCheck::Free } else { NameCheck::Holder };
            ask(location, tree, forward, client, check);
        }
        None => pass_on(location, tree, &forward, client),
    }
}

/// Queries the location machine, and continues the order once the answer is known.
fn ask(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    forward: Forward,
    client: OrderOrigin,
    check: NameCheck,
) {
    let first = || LocationQuery::Locate(LocateFlags { asap: true, ..LocateFlags::default() });
    let (path, query) = match check {
        NameCheck::Holder => (forward.path.clone(), first()),
        NameCheck::Lease(holder) => (forward.must_be_free.clone(), LocationQuery::Reserve(holder)),
        NameCheck::Free => (forward.must_be_free.clone(), first()),
    };
    let origin = RequestOrigin::Order(Box::new(PendingOrder::Names { forward, client, check }));
    location.ask(tree, &path.unwrap_or_default(), &query, origin);
}

/// Continues an order whose location query is answered.
pub(super) fn go_on(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    order: PendingOrder,
    answer: ClusterAnswer,
) {
    let (forward, client, check) = match order {
        PendingOrder::Names { forward, client, check } => (forward, client, check),
        PendingOrder::Prepare(preparation) => return prepares::server_chosen(tree, &preparation, answer),
    };
    match (check, answer) {
        (NameCheck::Holder, ClusterAnswer::Located(holders)) => {
            let check = holders.first().map_or(NameCheck::Free, |first| NameCheck::Lease(first.slot));
            ask(location, tree, forward, client, check);
        }
        // A directory that no node has reported, for example.
        (NameCheck::Holder, ClusterAnswer::Error(ErrorCode::NO_ENTRY, _)) => {
            ask(location, tree, forward, client, NameCheck::Free);
        }
        (NameCheck::Free, ClusterAnswer::Error(ErrorCode::NO_ENTRY, _)) => {
            pass_on(location, tree, &forward, client);
        }
        (NameCheck::Lease(holder), ClusterAnswer::Redirect { slot: Some(slot), .. }) if slot == holder => {
            // The new name is known from now on: it belongs to the node with the lease.
            let forget = forward.forget.iter().filter(|path| Some(*path) != forward.must_be_free.as_ref());
            let forward = Forward { forget: forget.cloned().collect(), ..forward };
            pass_on(location, tree, &forward, client);
        }
        (NameCheck::Lease(_), ClusterAnswer::Error(ErrorCode::RW_CONFLICT, _))
        | (NameCheck::Free, ClusterAnswer::Located(_)) => {
            let text = "the new name is there already";
            outcome(tree, client, Err(ClusterAnswer::Error(ErrorCode::RW_CONFLICT, text.into())));
        }
        // Another node replaced the holder in the meantime.
        (NameCheck::Lease(_), ClusterAnswer::Redirect { slot: Some(_), .. }) => {
            let wait = location.settings().policy.waits.lookup;
            outcome(tree, client, Err(ClusterAnswer::Wait(wait)));
        }
        (_, answer) => outcome(tree, client, Err(answer)),
    }
}

fn pass_on(location: &mut LocationDriver, tree: &mut TreeDriver, forward: &Forward, client: OrderOrigin) {
    forward.forget.iter().for_each(|path| location.forget(path));
    let slots = location.resolver().order_receivers(forward.path.as_deref());
    if slots.is_empty() && forward.frame.is_some() {
        let text = "No server exports the path for writing.";
        return outcome(tree, client, Err(ClusterAnswer::Error(ErrorCode::NO_ENTRY, text.into())));
    }
    if let Some(frame) = &forward.frame {
        tree.send_down(slots, frame, forward.own_only);
    }
    outcome(tree, client, Ok(()));
}

fn outcome(tree: &mut TreeDriver, client: OrderOrigin, outcome: Result<(), ClusterAnswer>) {
    match (client, outcome) {
        (OrderOrigin::Here(tell), outcome) => tell(outcome),
        (OrderOrigin::Redirector(link, streamid), Ok(())) => {
            respond_with(tree, link, streamid, None, WireAnswer::Data { value: 0, text: None });
        }
        (OrderOrigin::Redirector(link, streamid), Err(answer)) => {
            respond(tree, link, streamid, None, &answer)
        }
        (OrderOrigin::Nobody, Ok(())) => {}
        (OrderOrigin::Nobody, Err(answer)) => {
            tracing::debug!("an order of a parent was not done: {answer:?}")
        }
    }
}
