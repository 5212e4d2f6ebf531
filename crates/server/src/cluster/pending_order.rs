//! Orders that wait for an answer of the location machine: the lease of a new name, or the server
//! that prepares a file.
//!
//! An order waits in `pending_requests` like a request of a client, and is carried out with the
//! answer.

use super::forward::Forward;
use cluster::tree::ConnectionId;
use cluster::{ClusterAnswer, Slot};
use std::cell::RefCell;
use std::rc::Rc;
use wire::cms::StreamId;
use wire::cms::flags::PrepaddModifier;

/// A callback that delivers the outcome of an order to its client: `Ok` after it was forwarded,
/// otherwise the reason.
pub(super) type OrderCallback = Box<dyn FnOnce(Result<(), ClusterAnswer>) + Send>;

/// The origin of an order, which gets the outcome.
pub(super) enum OrderOrigin {
    /// A client of this process.
    Here(OrderCallback),
    /// A client of this redirector.
    Redirector(ConnectionId, StreamId),
    /// A parent, which expects no outcome.
    Nobody,
}

/// The query that precedes a change of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameCheck {
    /// Finds the node that has the file to be renamed.
    Holder,
    /// Gets the lease of the new name for this node, which proves that the name is free.
    Lease(Slot),
    /// Checks that the new name is free: no node is known to have the file, or all nodes share
    /// their files.
    Free,
}

/// An order that waits for the result of a query: the new name is free, or a node is chosen to
/// prepare a file.
pub(super) enum PendingOrder {
    /// A change of names.
    Names {
        /// The request that is forwarded to children.
        forward: Forward,
        /// The origin of the order.
        client: OrderOrigin,
        /// The current query.
        check: NameCheck,
    },
    /// The preparation of a file by the chosen node.
    Prepare(PendingPrepare),
}

/// A path that waits for its server.
pub(super) struct PendingPrepare {
    pub(super) path: Box<[u8]>,
    pub(super) frame: Vec<u8>,
    pub(super) modifier: PrepaddModifier,
    pub(super) batch: Option<Rc<RefCell<Batch>>>,
}

impl PendingPrepare {
    pub(super) fn settle(&self, outcome: Result<(), ClusterAnswer>) {
        if let Some(batch) = &self.batch {
            batch.borrow_mut().done(outcome);
        }
    }
}

/// A batch of paths of one client. It gets one reply, after each path has a server or has failed.
pub(super) struct Batch {
    left: usize,
    taken: bool,
    refused: Option<ClusterAnswer>,
    tell: Option<OrderCallback>,
}

impl Batch {
    pub(super) fn new(paths: usize, tell: OrderCallback) -> Self {
        Self { left: paths, taken: false, refused: None, tell: Some(tell) }
    }

    /// Records that a path has a server, or the reason why not.
    fn done(&mut self, outcome: Result<(), ClusterAnswer>) {
        self.left = self.left.saturating_sub(1);
        match outcome {
            Ok(()) => self.taken = true,
            Err(answer) => self.refused = self.refused.take().or(Some(answer)),
        }
        if self.left == 0
            && let Some(tell) = self.tell.take()
        {
            // The request succeeds if at least one path can be prepared. Only if no path has a
            // server, it fails.
            tell(self.refused.take().filter(|_| !self.taken).map_or(Ok(()), Err));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ErrorCode;
    use std::sync::{Arc, Mutex};

    fn outcome(outcomes: Vec<Result<(), ClusterAnswer>>) -> Option<Result<(), ClusterAnswer>> {
        let heard = Arc::new(Mutex::new(None));
        let hears = heard.clone();
        let tell: OrderCallback = Box::new(move |outcome| *hears.lock().unwrap() = Some(outcome));
        let mut batch = Batch::new(outcomes.len(), tell);
        let last = outcomes.len() - 1;
        for (number, outcome) in outcomes.into_iter().enumerate() {
            assert!(heard.lock().unwrap().is_none());
            batch.done(outcome);
            assert_eq!(heard.lock().unwrap().is_some(), number == last, "told once, at the end");
        }
        heard.lock().unwrap().take()
    }

    #[test]
    fn a_client_gets_one_reply_when_every_path_is_settled() {
        let missing = || Err(ClusterAnswer::Error(ErrorCode::NO_ENTRY, "no".into()));
        assert_eq!(outcome(vec![Ok(()), Ok(())]), Some(Ok(())));
        assert_eq!(outcome(vec![missing(), Ok(()), missing()]), Some(Ok(())), "one is enough");
        assert_eq!(outcome(vec![missing(), missing()]), Some(missing()));
    }
}
