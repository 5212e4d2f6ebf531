//! Who waits for an answer of the location machine: clients of this process, redirectors, parents.

use super::orders::Order;
use cluster::tree::LinkId;
use cluster::{Answer, Token};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use vfs::Caller;
use wire::cms::StreamId;
use wire::cms::response::MessageId;

/// How long a parent's question is kept: a parent that gets no answer takes that for one, and nobody says so here.
const PARENT_PATIENCE: Duration = Duration::from_secs(60);

/// Brings an answer to whoever asked; dropped without one it says so itself.
pub(super) type Tell = Box<dyn FnOnce(Answer) + Send>;

/// Who asked.
pub(super) enum Asker {
    /// A client of this process.
    Client(Arc<Caller>, Tell),
    /// A redirector, over a connection.
    Redirector {
        /// The connection.
        link: LinkId,
        /// Its number for the request; none when it wants no answer.
        streamid: StreamId,
        /// The number of the answer, once it was promised for later.
        promised: Option<MessageId>,
        /// Whether it may be: see `questions`.
        takes_later: bool,
    },
    /// An order that waits for the answer.
    Order(Box<Order>),
}

/// A parent that asked whether a path is here.
pub(super) struct Parent {
    /// The connection.
    pub(super) link: LinkId,
    /// What has to be in the answer.
    pub(super) streamid: StreamId,
    /// The path as it was asked for.
    pub(super) path: Box<[u8]>,
    /// Whether "not here" may be said.
    pub(super) definite: bool,
}

/// All who wait.
#[derive(Default)]
pub(super) struct Askers {
    last: u64,
    clients: HashMap<u64, Asker>,
    parents: HashMap<u64, Parent>,
    patience: VecDeque<(Duration, u64)>,
    /// Redirectors that take silence for a lost manager from then on.
    nervous: VecDeque<(Duration, u64)>,
}

impl Askers {
    /// A number for one more.
    pub(super) fn token(&mut self) -> Token {
        self.last += 1;
        Token(self.last)
    }

    pub(super) fn wait(&mut self, token: Token, asker: Asker) {
        self.clients.insert(token.0, asker);
    }

    /// The same for a redirector, which has to hear something soon.
    pub(super) fn wait_nervously(&mut self, token: Token, asker: Asker, until: Duration) {
        self.clients.insert(token.0, asker);
        self.nervous.push_back((until, token.0));
    }

    /// A redirector that has waited long enough for silence.
    pub(super) fn next_nervous(&mut self, now: Duration) -> Option<(Token, Asker)> {
        while let Some((_, token)) = self.nervous.pop_front_if(|(until, _)| *until <= now) {
            if let Some(asker) = self.clients.remove(&token) {
                return Some((Token(token), asker));
            }
        }
        None
    }

    /// When the next of them has.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.nervous.front().map(|(until, _)| *until)
    }

    pub(super) fn wait_above(&mut self, token: Token, parent: Parent, now: Duration) {
        self.parents.insert(token.0, parent);
        self.patience.push_back((now + PARENT_PATIENCE, token.0));
    }

    pub(super) fn take(&mut self, token: Token) -> Option<Asker> {
        self.clients.remove(&token.0)
    }

    pub(super) fn take_above(&mut self, token: Token) -> Option<Parent> {
        self.parents.remove(&token.0)
    }

    /// A connection is no more: parents ask again over the next.
    pub(super) fn forget(&mut self, link: LinkId) {
        if !self.parents.is_empty() {
            self.parents.retain(|_, parent| parent.link != link);
        }
    }

    /// Those who are not there any more, this redirector's among them; they are forgotten.
    pub(super) fn gone(&mut self, redirector: Option<LinkId>) -> Vec<Token> {
        let gone = |_: &u64, asker: &mut Asker| match asker {
            Asker::Client(caller, _) => caller.has_left(),
            Asker::Redirector { link, .. } => Some(*link) == redirector,
            Asker::Order(_) => false,
        };
        self.clients.extract_if(gone).map(|(token, _)| Token(token)).collect()
    }

    /// Lets go of questions that were answered by silence.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((_, token)) = self.patience.pop_front_if(|(until, _)| *until <= now) {
            self.parents.remove(&token);
        }
    }
}
