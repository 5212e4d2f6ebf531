//! Requests to prepare files. Each path goes to the server that is chosen for it, as for a client.
//! Files that are no longer needed are reported to all servers, because any of them may have a
//! copy. Source: cms protocol 3, sections prepare and modifiers.

use super::forward::parts;
use super::location_driver::{LocationDriver, renew_access_time};
use super::pending_order::{Batch, OrderCallback, PendingOrder, PendingPrepare};
use super::pending_requests::{LocationQuery, RequestOrigin};
use super::tree_driver::TreeDriver;
use base::LogicalPath;
use cluster::{ClusterAnswer, ErrorCode, SelectOptions};
use std::cell::RefCell;
use std::rc::Rc;
use vfs::{PrepareRequest, Target};
use wire::cms::flags::PrepaddModifier;
use wire::cms::message::Prepadd;
use wire::cms::{Extensions, Message as Wire, StreamId};

/// The common part of all paths of a client's request.
#[derive(Clone)]
pub(crate) struct PrepareBatch {
    /// The options.
    pub(crate) request: PrepareRequest,
    /// The client.
    pub(crate) ident: String,
    /// The id of the request.
    pub(crate) id: String,
    /// The first path, with which the others may be placed together.
    pub(crate) first: LogicalPath,
}

/// Prepares files for a client of this process. `tell` receives the outcome: at least one server
/// accepted, or an error.
pub(super) fn for_client(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    whole: &PrepareBatch,
    targets: &[Target],
    tell: OrderCallback,
) {
    let PrepareBatch { request, ident, id, first } = whole;
    let batch = Rc::new(RefCell::new(Batch::new(targets.len(), tell)));
    for target in targets {
        let (path, opaque) = parts(target);
        let mut priority = request.priority.to_string().into_bytes();
        let mut modifier = modifier(request);
        if request.colocate && path != first.as_bytes() {
            modifier |= PrepaddModifier::COLOCATE;
            priority.push(b' ');
            priority.extend_from_slice(first.as_bytes());
        }
        let message = Prepadd {
            modifier,
            ident: ident.as_bytes(),
            reqid: id.as_bytes(),
            notify: b"*",
            priority: &priority,
            mode: if request.write { b"wq" } else { b"rq" },
            path: &path,
            opaque: opaque.as_deref(),
        };
        prepare(location, tree, &message, Some(batch.clone()));
    }
}

/// Handles one file. To stage it or to renew its access time, a node is chosen as for a client. A
/// file that is no longer needed is reported to all scalla nodes; XRootD nodes do not support the
/// option.
pub(super) fn prepare(
    location: &mut LocationDriver,
    tree: &mut TreeDriver,
    message: &Prepadd<'_>,
    batch: Option<Rc<RefCell<Batch>>>,
) {
    let mut frame = Vec::new();
    let encoded = Wire::Prepadd(*message).encode(StreamId::NONE, Extensions::NONE, &mut frame);
    let preparation = PendingPrepare { path: message.path.into(), frame, modifier: message.modifier, batch };
    if let Err(error) = encoded {
        let answer =
            ClusterAnswer::Error(ErrorCode::INVALID, format!("it cannot be passed on: {error}").into());
        return preparation.settle(Err(answer));
    }
    if message.modifier.contains(PrepaddModifier::EVICT) {
        tree.send_down(location.resolver().cell().connected(), &preparation.frame, true);
        return preparation.settle(Ok(()));
    }
    let write = message.modifier.contains(PrepaddModifier::WRITE);
    let intent = if write { cluster::Intent::Update } else { cluster::Intent::Read };
    let options = SelectOptions { intent, ..SelectOptions::default() };
    let query = LocationQuery::Select { options, tried: Box::default() };
    location.ask(
        tree,
        message.path,
        &query,
        RequestOrigin::Order(Box::new(PendingOrder::Prepare(preparation))),
    );
}

/// Handles the choice of a server for a path, or its failure.
pub(super) fn server_chosen(tree: &mut TreeDriver, preparation: &PendingPrepare, answer: ClusterAnswer) {
    let ClusterAnswer::Redirect { slot: Some(slot), .. } = answer else {
        tracing::debug!("no server prepares {}: {answer:?}", String::from_utf8_lossy(&preparation.path));
        return preparation.settle(Err(answer));
    };
    if preparation.modifier.contains(PrepaddModifier::FRESHEN) {
        renew_access_time(tree, slot.mask(), &preparation.path);
    }
    if preparation.modifier.contains(PrepaddModifier::STAGE) {
        tree.send_down(slot.mask(), &preparation.frame, false);
    }
    preparation.settle(Ok(()));
}

/// Returns the options of a request for each of its paths.
fn modifier(request: &PrepareRequest) -> PrepaddModifier {
    let wants = [
        (request.stage, PrepaddModifier::STAGE),
        (request.write, PrepaddModifier::WRITE),
        (request.fresh, PrepaddModifier::FRESHEN),
        (request.evict, PrepaddModifier::EVICT),
    ];
    wants.into_iter().filter(|(wanted, _)| *wanted).fold(PrepaddModifier::NONE, |all, (_, bit)| all | bit)
}
