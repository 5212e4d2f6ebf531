//! State of one connection of the engine: its stage, the extensions of the peer, and the output
//! queue.
//!
//! Outgoing frames are put into a [`ConnectionOutbox`], which a task of the connection empties. It
//! is bounded, so that a peer that does not read loses its connection instead of exhausting the
//! memory.

use super::node_login::NodeAuthentication;
use cluster::tree::{Address, ConnectionId, Extensions, Mode};
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use wire::cms::response::MessageId;
use wire::cms::{Code, FramePhase};

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionStage {
    /// Accepted; the peer has not logged in.
    Anonymous,
    /// This node connects to a parent: the connection is not made yet, or the login is not
    /// answered.
    Asking,
    /// Logged in as a node.
    Node,
    /// Logged in as a redirector, which asks for the locations of files.
    Redirector,
}

impl ConnectionStage {
    /// Returns the stage of a connection that was just made or accepted.
    pub(super) const fn first(link: ConnectionId) -> Self {
        if link.is_outward() { Self::Asking } else { Self::Anonymous }
    }

    /// Returns the number of frames of one connection that are handled before others have their
    /// turn. Each request of a redirector has an answer. Nodes send more frames, and these frames
    /// answer clients.
    pub(super) const fn frames_at_once(self) -> usize {
        match self {
            Self::Anonymous | Self::Asking => 1,
            Self::Redirector => 4,
            Self::Node => 64,
        }
    }

    /// Returns the cost of a frame in a turn, in frames. The answer to `stats` has hundreds of
    /// bytes for each child. Copying and sending it takes as long as many other answers, so it
    /// costs a whole turn.
    pub(super) const fn frame_cost(self, code: Code) -> usize {
        match self {
            Self::Redirector if code.0 == Code::STATS.0 => self.frames_at_once(),
            _ => 1,
        }
    }

    /// Returns the phase that determines the limits of the frames.
    pub(super) const fn phase(self) -> FramePhase {
        match self {
            Self::Anonymous | Self::Asking => FramePhase::Login,
            Self::Node | Self::Redirector => FramePhase::Established,
        }
    }
}

/// The number of connections to nodes with received frames that wait for the next turn.
#[derive(Clone, Default)]
pub(super) struct WaitingFrames(Rc<Cell<usize>>);

impl WaitingFrames {
    /// Reports whether frames wait.
    pub(super) fn wait(&self) -> bool {
        self.0.get() > 0
    }

    /// Counts one more connection until the result is dropped.
    pub(super) fn add(&self) -> MoreFrames {
        self.0.set(self.0.get() + 1);
        MoreFrames(self.clone())
    }
}

/// One connection in [`WaitingFrames`].
pub(super) struct MoreFrames(WaitingFrames);

impl Drop for MoreFrames {
    fn drop(&mut self) {
        let WaitingFrames(count) = &self.0;
        count.set(count.get().saturating_sub(1));
    }
}

/// One connection.
pub(super) struct NodeConnection {
    pub(super) stage: ConnectionStage,
    /// The address of a peer that connected to this node.
    pub(super) ip: Option<IpAddr>,
    /// The authentication of a peer that connected to this node.
    pub(super) authentication: NodeAuthentication,
    /// The address of this end of a connection to a parent.
    pub(super) local: Option<SocketAddr>,
    /// Set if the parent has asked this node for credentials.
    pub(super) has_authenticated: bool,
    /// For a child, its other addresses, reported by it or found by its name. For a connection to a
    /// parent, the addresses of this node that face the parent.
    pub(super) other_addresses: Vec<IpAddr>,
    /// The parent to which this node connected.
    pub(super) parent_address: Option<Address>,
    /// The reason why the connection did not result in a login, if known.
    pub(super) failure: Option<String>,
    /// The protocol extensions that both ends support.
    pub(super) extensions: Extensions,
    pub(super) outbox: Rc<ConnectionOutbox>,
    /// Promised answers to a redirector.
    pub(super) promises: Promises,
    tasks: Vec<AbortHandle>,
}

impl NodeConnection {
    pub(super) fn new(stage: ConnectionStage, ip: Option<IpAddr>) -> Self {
        Self {
            stage,
            ip,
            authentication: NodeAuthentication::Over,
            local: None,
            has_authenticated: false,
            other_addresses: Vec::new(),
            parent_address: None,
            failure: None,
            extensions: Extensions::NONE,
            outbox: Rc::default(),
            promises: Promises::default(),
            tasks: Vec::new(),
        }
    }

    /// Creates a connection to a parent.
    pub(super) fn to_parent(goal: Address) -> Self {
        Self { parent_address: Some(goal), ..Self::new(ConnectionStage::Asking, None) }
    }

    /// Reports whether the connection is established.
    pub(super) fn is_made(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Applies the mode from the login of the peer.
    pub(super) fn logged_in(&mut self, mode: Mode) {
        self.stage =
            if mode.contains(Mode::DIRECTOR) { ConnectionStage::Redirector } else { ConnectionStage::Node };
    }

    /// Adds a task that ends with the connection.
    pub(super) fn keep(&mut self, task: AbortHandle) {
        self.tasks.push(task);
    }

    /// Closes the connection. The outbox is still sent if the peer reads it soon; the sending task
    /// lives until then.
    pub(super) fn close(self) -> Rc<ConnectionOutbox> {
        for task in &self.tasks {
            task.abort();
        }
        self.outbox.close();
        self.outbox
    }
}

/// Numbers of outstanding answers that were promised to a redirector.
#[derive(Default)]
pub(super) struct Promises {
    last: Option<MessageId>,
    outstanding: usize,
}

impl Promises {
    /// Returns another number; `None` if all are used up and the first must not be reused yet.
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

    /// Records that one promise was kept.
    pub(super) fn kept(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

/// The output queue of a connection.
#[derive(Default)]
pub(super) struct ConnectionOutbox {
    content: RefCell<OutboxContent>,
    wake: Notify,
    end: Notify,
}

#[derive(Default)]
struct OutboxContent {
    bytes: Vec<u8>,
    /// Taken by the sending task, but not sent yet.
    under_way: usize,
    closed: bool,
}

impl ConnectionOutbox {
    /// Lets `write` append frames. Returns the number of bytes that wait now.
    pub(super) fn put<E>(&self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<usize, E> {
        let mut content = self.content.borrow_mut();
        if content.closed {
            return Ok(0);
        }
        write(&mut content.bytes)?;
        let waiting = content.bytes.len() + content.under_way;
        drop(content);
        self.wake.notify_one();
        Ok(waiting)
    }

    /// Returns the number of bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        let content = self.content.borrow();
        content.bytes.len() + content.under_way
    }

    pub(super) fn is_closed(&self) -> bool {
        self.content.borrow().closed
    }

    fn close(&self) {
        self.content.borrow_mut().closed = true;
        self.wake.notify_one();
        self.end.notify_one();
    }

    /// Waits until the outbox is closed. Only one task may wait.
    pub(super) async fn closed(&self) {
        self.end.notified().await;
    }

    /// Waits for data to send and moves it into `into`, which must be empty. Returns `false` once
    /// the outbox is closed.
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
            self.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_visitor_that_asks_for_the_state_of_the_node_has_one_answer_in_a_turn() {
        let answers = |code| {
            ConnectionStage::Redirector
                .frames_at_once()
                .div_ceil(ConnectionStage::Redirector.frame_cost(code))
        };
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
        let outbox = ConnectionOutbox::default();
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
