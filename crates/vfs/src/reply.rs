//! Where a late answer goes, and that one always comes.

use crate::Answer;
use base::{ErrorKind, Owner};
use std::sync::Arc;

/// Names a call at its door: the door made it, everyone else only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token {
    /// Which connection or session: the number of an [`Owner`], unique in the process.
    pub owner: u64,
    /// Which call in it.
    pub call: u64,
}

/// Takes answers in any thread and brings them to the loop that waits for them.
pub trait Mailbox: Send + Sync {
    /// Delivers; never blocks. A token that nobody waits for any more is dropped by the receiver.
    fn deliver(&self, token: Token, answer: Answer);
}

/// Where the answer of a call would go; becomes a [`Reply`] only if it does not come at once.
#[derive(Clone)]
pub struct ReplyTo {
    mailbox: Arc<dyn Mailbox>,
    token: Token,
}

impl ReplyTo {
    /// Answers for `token` go to `mailbox`.
    pub fn new(mailbox: Arc<dyn Mailbox>, token: Token) -> Self {
        Self { mailbox, token }
    }

    /// The session that waits for the answer: work for it is accounted to this owner.
    pub fn owner(&self) -> Owner {
        Owner(self.token.owner)
    }

    /// The same call, whose answer passes `mailbox` on its way.
    pub fn through(&self, mailbox: Arc<dyn Mailbox>) -> Self {
        Self { mailbox, token: self.token }
    }

    /// The duty to answer, once.
    pub fn defer(&self) -> Reply {
        Reply(Some(self.clone()))
    }
}

/// The duty to answer one call. Dropped unanswered (a panic, a lost job), it answers with an error, so nobody waits for
/// ever.
pub struct Reply(Option<ReplyTo>);

impl Reply {
    /// The session that waits for the answer.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::SERVER, ReplyTo::owner)
    }

    /// Answers.
    pub fn send(mut self, answer: Answer) {
        if let Some(to) = self.0.take() {
            to.mailbox.deliver(to.token, answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            let answer = Answer::error(
                ErrorKind::ServerError,
                "the operation ended without an answer; see the server's log",
            );
            to.mailbox.deliver(to.token, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Box(Mutex<Vec<(Token, bool)>>);
    impl Mailbox for Box {
        fn deliver(&self, token: Token, answer: Answer) {
            self.0.lock().unwrap().push((token, matches!(answer, Answer::Error(_))));
        }
    }

    #[test]
    fn each_duty_is_answered_exactly_once() {
        let mailbox = Arc::new(Box::default());
        let token = Token { owner: 1, call: 2 };
        let to = ReplyTo::new(mailbox.clone(), token);
        to.defer().send(Answer::DONE);
        drop(to.defer());
        assert_eq!(*mailbox.0.lock().unwrap(), [(token, false), (token, true)]);
    }
}
