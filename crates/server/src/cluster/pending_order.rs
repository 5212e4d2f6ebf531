//! Orders that wait for an answer of the location machine: whether a new name is free, or which server prepares a file.

use super::forward::Forward;
use cluster::tree::LinkId;
use cluster::{Answer, Slot};
use std::cell::RefCell;
use std::rc::Rc;
use wire::cms::StreamId;
use wire::cms::flags::PrepaddModifier;

/// Brings the outcome of an order to the client that gave it: nothing when it was passed on, else why it was not.
pub(super) type Tell = Box<dyn FnOnce(Result<(), Answer>) + Send>;

/// Who gave an order, and hears what became of it.
pub(super) enum Client {
    /// A client of this process.
    Here(Tell),
    /// A client of this redirector.
    Redirector(LinkId, StreamId),
    /// A parent, which wants to hear nothing.
    Nobody,
}

/// The question that is asked before names change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameCheck {
    /// Which node has the file that is to be renamed.
    Holder,
    /// Whether the new name is free: this node gets the lease of it.
    Lease(Slot),
    /// Whether the new name is free: no node is known to have the file, or all see the same files.
    Free,
}

/// An order that waits until it is known whether its new name is free, or which node shall prepare a file.
pub(super) enum Order {
    /// Names change.
    Names {
        /// What goes down.
        forward: Forward,
        /// Who wants it.
        client: Client,
        /// The question that is asked now.
        check: NameCheck,
    },
    /// A file is prepared, by the node that is chosen.
    Prepare(Preparation),
}

/// A path that waits for its server.
pub(super) struct Preparation {
    pub(super) path: Box<[u8]>,
    pub(super) frame: Vec<u8>,
    pub(super) modifier: PrepaddModifier,
    pub(super) batch: Option<Rc<RefCell<Batch>>>,
}

impl Preparation {
    pub(super) fn settle(&self, outcome: Result<(), Answer>) {
        if let Some(batch) = &self.batch {
            batch.borrow_mut().done(outcome);
        }
    }
}

/// Paths that a client named together: it is told once, when all are with a server or are not.
pub(super) struct Batch {
    left: usize,
    taken: bool,
    refused: Option<Answer>,
    tell: Option<Tell>,
}

impl Batch {
    pub(super) fn new(paths: usize, tell: Tell) -> Self {
        Self { left: paths, taken: false, refused: None, tell: Some(tell) }
    }

    /// One path is with a server, or why not.
    fn done(&mut self, outcome: Result<(), Answer>) {
        self.left = self.left.saturating_sub(1);
        match outcome {
            Ok(()) => self.taken = true,
            Err(answer) => self.refused = self.refused.take().or(Some(answer)),
        }
        if self.left == 0
            && let Some(tell) = self.tell.take()
        {
            // As long as one can be prepared the request stands, as it does at a real manager for none.
            tell(self.refused.take().filter(|_| !self.taken).map_or(Ok(()), Err));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ErrorCode;
    use std::sync::{Arc, Mutex};

    fn outcome(outcomes: Vec<Result<(), Answer>>) -> Option<Result<(), Answer>> {
        let heard = Arc::new(Mutex::new(None));
        let hears = heard.clone();
        let tell: Tell = Box::new(move |outcome| *hears.lock().unwrap() = Some(outcome));
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
    fn a_client_is_told_once_when_every_path_is_settled() {
        let missing = || Err(Answer::Error(ErrorCode::NO_ENTRY, "no".into()));
        assert_eq!(outcome(vec![Ok(()), Ok(())]), Some(Ok(())));
        assert_eq!(outcome(vec![missing(), Ok(()), missing()]), Some(Ok(())), "one is enough");
        assert_eq!(outcome(vec![missing(), missing()]), Some(missing()));
    }
}
