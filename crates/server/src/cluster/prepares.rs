//! Requests to prepare files: each path goes to the server that is chosen for it, as for a client; files nobody needs any more
//! are named to all servers. Source: cms protocol 3, sections prepare and modifiers.

use super::askers::Asker;
use super::engine::Engine;
use super::orders::{Order, Tell};
use super::questions::Wish;
use base::LogicalPath;
use cluster::{Answer, ErrorCode, SelectOptions, SlotMask};
use std::cell::RefCell;
use std::rc::Rc;
use vfs::{PrepareRequest, Target};
use wire::cms::flags::{PrepaddModifier, StateModifier};
use wire::cms::message::{Prepadd, State};
use wire::cms::{Extensions, Message as Wire, StreamId};

/// What all paths of a client's request have in common.
#[derive(Clone)]
pub(crate) struct PrepareBatch {
    /// What is wanted.
    pub(crate) request: PrepareRequest,
    /// The client.
    pub(crate) ident: String,
    /// The name of the request.
    pub(crate) id: String,
    /// The first path, beside which the others may be wanted.
    pub(crate) first: LogicalPath,
}

/// Paths that a client named together: it is told once, when all are with a server or are not.
pub(super) struct Batch {
    left: usize,
    taken: bool,
    refused: Option<Answer>,
    tell: Option<Tell>,
}

impl Batch {
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

/// A path that waits for its server.
pub(super) struct Waiting {
    path: Box<[u8]>,
    frame: Vec<u8>,
    modifier: PrepaddModifier,
    batch: Option<Rc<RefCell<Batch>>>,
}

impl Waiting {
    fn settle(&self, outcome: Result<(), Answer>) {
        if let Some(batch) = &self.batch {
            batch.borrow_mut().done(outcome);
        }
    }
}

impl Engine {
    /// A client of this process has these files prepared; `tell` hears whether any server does it.
    pub(crate) fn client_prepares(
        &mut self,
        whole: &PrepareBatch,
        targets: &[Target],
        tell: impl FnOnce(Result<(), Answer>) + Send + 'static,
    ) {
        let PrepareBatch { request, ident, id, first } = whole;
        let left = targets.len();
        let batch = Batch { left, taken: false, refused: None, tell: Some(Box::new(tell)) };
        let batch = Rc::new(RefCell::new(batch));
        for target in targets {
            let path = target.path.without_slash();
            let opaque = target.cgi.as_bytes();
            let mut priority = request.priority.to_string().into_bytes();
            let mut modifier = modifier(request);
            if request.colocate && path != *first {
                modifier |= PrepaddModifier::COLOCATE;
                priority.push(b' ');
                priority.extend_from_slice(first.as_bytes());
            }
            let prepare = Prepadd {
                modifier,
                ident: ident.as_bytes(),
                reqid: id.as_bytes(),
                notify: b"*",
                priority: &priority,
                mode: if request.write { b"wq" } else { b"rq" },
                path: path.as_bytes(),
                opaque: (!opaque.is_empty()).then_some(opaque),
            };
            self.prepare(&prepare, Some(batch.clone()));
        }
    }

    /// A file is to be brought online, or its access time is to be renewed: a node is chosen as for a client. One that is not
    /// needed any more is named to all of our own; real ones do not know the word.
    pub(super) fn prepare(&mut self, prepare: &Prepadd<'_>, batch: Option<Rc<RefCell<Batch>>>) {
        let mut frame = Vec::new();
        let encoded = Wire::Prepadd(*prepare).encode(StreamId::NONE, Extensions::NONE, &mut frame);
        let waiting = Waiting { path: prepare.path.into(), frame, modifier: prepare.modifier, batch };
        if let Err(error) = encoded {
            let answer = Answer::Error(ErrorCode::INVALID, format!("it cannot be passed on: {error}").into());
            return waiting.settle(Err(answer));
        }
        if prepare.modifier.contains(PrepaddModifier::EVICT) {
            let connected = self.resolver.as_ref().map(|resolver| resolver.cell().connected());
            self.send_down(connected.unwrap_or_default(), &waiting.frame, true);
            return waiting.settle(Ok(()));
        }
        let write = prepare.modifier.contains(PrepaddModifier::WRITE);
        let intent = if write { cluster::Intent::Update } else { cluster::Intent::Read };
        let options = SelectOptions { intent, ..SelectOptions::default() };
        let wish = Wish::Select { options, tried: Box::default() };
        self.ask(prepare.path, &wish, Asker::Order(Box::new(Order::Prepare(waiting))));
    }

    /// The server for a path is known, or that there is none.
    pub(super) fn prepared(&mut self, waiting: &Waiting, answer: Answer) {
        let Answer::Redirect { slot: Some(slot), .. } = answer else {
            tracing::debug!("no server prepares {}: {answer:?}", String::from_utf8_lossy(&waiting.path));
            return waiting.settle(Err(answer));
        };
        if waiting.modifier.contains(PrepaddModifier::FRESHEN) {
            self.freshen(slot.mask(), &waiting.path);
        }
        if waiting.modifier.contains(PrepaddModifier::STAGE) {
            self.send_down(slot.mask(), &waiting.frame, false);
        }
        waiting.settle(Ok(()));
    }

    /// A question that wants no answer renews the access time, also at real servers.
    pub(super) fn freshen(&mut self, children: SlotMask, path: &[u8]) {
        for link in children.iter().filter_map(|slot| self.link_of(slot)).collect::<Vec<_>>() {
            let state = Wire::State(State { modifier: StateModifier::NO_REPLY, path });
            self.put(link, |peer, out| state.encode(StreamId::NONE, peer, out));
        }
        self.end_broken();
    }
}

/// What a request wants of each of its paths.
fn modifier(request: &PrepareRequest) -> PrepaddModifier {
    let wants = [
        (request.stage, PrepaddModifier::STAGE),
        (request.write, PrepaddModifier::WRITE),
        (request.fresh, PrepaddModifier::FRESHEN),
        (request.evict, PrepaddModifier::EVICT),
    ];
    wants.into_iter().filter(|(wanted, _)| *wanted).fold(PrepaddModifier::NONE, |all, (_, bit)| all | bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn outcome(outcomes: Vec<Result<(), Answer>>) -> Option<Result<(), Answer>> {
        let heard = Arc::new(Mutex::new(None));
        let hears = heard.clone();
        let tell: Tell = Box::new(move |outcome| *hears.lock().unwrap() = Some(outcome));
        let mut batch = Batch { left: outcomes.len(), taken: false, refused: None, tell: Some(tell) };
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
