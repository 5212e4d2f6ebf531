//! One connection as the engine sees it: how far it is, what the peer can do, and what waits to be sent.
//!
//! What is to be sent is put into an [`Outbox`], which a task of the connection empties. It is bounded: a peer that does
//! not take what it is sent loses its connection, not our memory.

use cluster::tree::{Address, Extensions, LinkId, Mode};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::cms::response::MessageId;
use wire::cms::{Code, Phase};

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Accepted; the peer has not logged in.
    Anonymous,
    /// Ours to a parent; not made yet, or the login was not answered.
    Asking,
    /// Logged in: a node.
    Node,
    /// Logged in: a redirector, which asks where files are.
    Redirector,
}

impl Stage {
    /// The stage of a connection that was just made or accepted.
    pub(super) const fn first(link: LinkId) -> Self {
        if link.is_outward() { Self::Asking } else { Self::Anonymous }
    }

    /// Frames of one connection that are handled before others have their turn. Each request of a redirector has an answer;
    /// nodes send more, and what they send answers clients.
    pub(super) const fn frames_at_once(self) -> usize {
        match self {
            Self::Anonymous | Self::Asking => 1,
            Self::Redirector => 4,
            Self::Node => 32,
        }
    }

    /// The share of a turn that a frame takes, in frames. The answer to `stats` has hundreds of bytes for each child, and copying
    /// and sending it takes as long as many other answers. So it takes a whole turn.
    pub(super) const fn frame_cost(self, code: Code) -> usize {
        match self {
            Self::Redirector if code.0 == Code::STATS.0 => self.frames_at_once(),
            _ => 1,
        }
    }

    /// Which limits its frames have.
    pub(super) const fn phase(self) -> Phase {
        match self {
            Self::Anonymous | Self::Asking => Phase::Login,
            Self::Node | Self::Redirector => Phase::Established,
        }
    }
}

/// One connection.
pub(super) struct Line {
    pub(super) stage: Stage,
    /// The peer's address, where the peer connected to us.
    pub(super) ip: Option<IpAddr>,
    /// Of a child: its other addresses, as it says or as its name has them. Of one to a parent: those of this node that
    /// face the parent.
    pub(super) others: Vec<IpAddr>,
    /// The parent that it leads to, where we made it.
    pub(super) goal: Option<Address>,
    /// Why it did not lead to a place, where that is known.
    pub(super) failure: Option<String>,
    /// What both ends can do beyond the protocol.
    pub(super) extensions: Extensions,
    pub(super) outbox: Rc<Outbox>,
    /// Answers promised to a redirector.
    pub(super) promises: Promises,
    tasks: Vec<AbortHandle>,
}

impl Line {
    pub(super) fn new(stage: Stage, ip: Option<IpAddr>) -> Self {
        Self {
            stage,
            ip,
            others: Vec::new(),
            goal: None,
            failure: None,
            extensions: Extensions::NONE,
            outbox: Rc::default(),
            promises: Promises::default(),
            tasks: Vec::new(),
        }
    }

    /// One of ours to a parent.
    pub(super) fn to_parent(goal: Address) -> Self {
        Self { goal: Some(goal), ..Self::new(Stage::Asking, None) }
    }

    /// Whether there is a connection already.
    pub(super) fn is_made(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// What a login says of the peer.
    pub(super) fn logged_in(&mut self, mode: Mode) {
        self.stage = if mode.contains(Mode::DIRECTOR) { Stage::Redirector } else { Stage::Node };
    }

    /// A task that ends with the connection.
    pub(super) fn keep(&mut self, task: AbortHandle) {
        self.tasks.push(task);
    }

    /// Ends it: what is in the outbox is sent if the peer takes it soon. The task that sends lives on until then.
    pub(super) fn close(self) -> Rc<Outbox> {
        for task in &self.tasks {
            task.abort();
        }
        self.outbox.close();
        self.outbox
    }
}

/// Numbers of answers that were promised to a redirector and are outstanding.
#[derive(Default)]
pub(super) struct Promises {
    last: Option<MessageId>,
    outstanding: usize,
}

impl Promises {
    /// The number of one more; `None` when all are used up and the first may not be used again yet.
    pub(super) fn one_more(&mut self) -> Option<MessageId> {
        let next = match self.last {
            None => MessageId::FIRST,
            Some(last) => match last.next() {
                Some(next) => next,
                None if self.outstanding == 0 => MessageId::FIRST,
                None => return None,
            },
        };
        self.last = Some(next);
        self.outstanding += 1;
        Some(next)
    }

    /// One was kept.
    pub(super) fn kept(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Outbox {
    content: RefCell<Content>,
    bell: Notify,
    end: Notify,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// Taken by the sending task and not sent yet.
    under_way: usize,
    closed: bool,
}

impl Outbox {
    /// Lets `write` append frames; bytes that wait now.
    pub(super) fn put<E>(&self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<usize, E> {
        let mut content = self.content.borrow_mut();
        if content.closed {
            return Ok(0);
        }
        write(&mut content.bytes)?;
        let waiting = content.bytes.len() + content.under_way;
        drop(content);
        self.bell.notify_one();
        Ok(waiting)
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        let content = self.content.borrow();
        content.bytes.len() + content.under_way
    }

    pub(super) fn is_closed(&self) -> bool {
        self.content.borrow().closed
    }

    fn close(&self) {
        self.content.borrow_mut().closed = true;
        self.bell.notify_one();
        self.end.notify_one();
    }

    /// Waits for the end. One task may wait.
    pub(super) async fn closed(&self) {
        self.end.notified().await;
    }

    /// Waits for something to send, which is put into the empty `into`; `false` at the end.
    pub(super) async fn take(&self, into: &mut Vec<u8>) -> bool {
        loop {
            {
                let mut content = self.content.borrow_mut();
                content.under_way = 0;
                if !content.bytes.is_empty() {
                    std::mem::swap(&mut content.bytes, into);
                    content.under_way = into.len();
                    return true;
                }
                if content.closed {
                    return false;
                }
            }
            self.bell.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_visitor_that_asks_for_the_state_of_the_node_has_one_answer_in_a_turn() {
        let answers = |code| Stage::Redirector.frames_at_once().div_ceil(Stage::Redirector.frame_cost(code));
        assert_eq!((answers(Code::STATS), answers(Code::SELECT)), (1, 4));
    }

    #[test]
    fn numbers_of_promises_wrap_when_none_is_outstanding() {
        let mut promises = Promises::default();
        let all = std::iter::from_fn(|| promises.one_more()).count();
        assert_eq!(all, 65_535);
        (0..all).for_each(|_| promises.kept());
        assert_eq!(promises.one_more(), Some(MessageId::FIRST));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_was_put_is_sent_before_the_end_and_counted_until_then() {
        let outbox = Outbox::default();
        let put = |bytes: &[u8]| {
            outbox.put(|out| {
                out.extend_from_slice(bytes);
                Ok::<(), Infallible>(())
            })
        };
        assert_eq!(put(b"abc"), Ok(3));
        let mut batch = Vec::new();
        assert!(outbox.take(&mut batch).await);
        assert_eq!(put(b"d"), Ok(4));
        outbox.close();
        assert_eq!(put(b"never"), Ok(0));
        batch.clear();
        assert!(outbox.take(&mut batch).await);
        assert_eq!(batch, b"d");
        batch.clear();
        assert!(!outbox.take(&mut batch).await);
    }
}
