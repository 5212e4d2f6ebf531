//! Delivery of answers that are not available when an operation is started.
//!
//! Each started operation must be answered exactly once, because otherwise its client would wait
//! forever. A [`DeferredReply`] that is dropped therefore answers with an error.

use crate::Answer;
use base::{ErrorKind, Owner};
use std::sync::{Arc, Mutex, PoisonError};

/// The key of a call at a front end. The front end creates it; the file system returns it
/// unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReplyToken {
    /// The connection or session: the number of an [`Owner`], unique in the process.
    pub owner: u64,
    /// The number of the call within that session.
    pub call: u64,
}

/// A queue that accepts answers in any thread and delivers them to the event loop that waits for
/// them.
pub trait Mailbox: Send + Sync {
    /// Delivers an answer; never blocks. The receiver drops answers that it no longer waits for.
    fn deliver(&self, token: ReplyToken, answer: Answer);

    /// Delivers the notice that the answer follows late ([`crate::Started::Later`]). Front ends
    /// without such notices ignore it, as they do after the answer.
    fn deliver_notice(&self, _token: ReplyToken, _seconds: u32) {}
}

/// The destination of the answer of a call. It becomes a [`DeferredReply`] only if the answer is
/// not immediate.
#[derive(Clone)]
pub struct ReplyTo {
    mailbox: Arc<dyn Mailbox>,
    token: ReplyToken,
}

impl ReplyTo {
    /// Creates the destination that delivers answers for `token` to `mailbox`.
    pub fn new(mailbox: Arc<dyn Mailbox>, token: ReplyToken) -> Self {
        Self { mailbox, token }
    }

    /// Returns the owner to which work for this call is accounted: the session that waits for the
    /// answer.
    pub fn owner(&self) -> Owner {
        Owner(self.token.owner)
    }

    /// Returns a destination of the same call that passes the answer to `then` instead of the
    /// client. `then` is called at most once, on the thread that delivers the answer, and never
    /// blocks.
    #[must_use]
    pub fn intercept(&self, then: impl FnOnce(Answer) + Send + 'static) -> Self {
        let then: AnswerFunction = Box::new(then);
        let mailbox = Arc::new(Interception(Mutex::new(Some(then)), self.mailbox.clone()));
        Self { mailbox, token: self.token }
    }

    /// Notifies the client that its answer follows within this time, as [`crate::Started::Later`]
    /// does. For operations that learn this only after their start.
    pub fn notify_later(&self, seconds: u32) {
        self.mailbox.deliver_notice(self.token, seconds);
    }

    /// Creates the obligation to answer the call once.
    pub fn defer(&self) -> DeferredReply {
        DeferredReply(Some(self.clone()))
    }
}

/// The receiver of an intercepted answer. Notices go to the mailbox of the client.
struct Interception(Mutex<Option<AnswerFunction>>, Arc<dyn Mailbox>);

type AnswerFunction = Box<dyn FnOnce(Answer) + Send>;

impl Mailbox for Interception {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        let then = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(then) = then {
            then(answer);
        }
    }

    fn deliver_notice(&self, token: ReplyToken, seconds: u32) {
        self.1.deliver_notice(token, seconds);
    }
}

/// The obligation to answer one call. If it is dropped without an answer, after a panic or with a
/// lost job, it answers with an error. Otherwise the client would wait forever.
pub struct DeferredReply(Option<ReplyTo>);

impl DeferredReply {
    /// Returns the session that waits for the answer.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::SERVER, ReplyTo::owner)
    }

    /// Ends the obligation, because another reply of the same call answers.
    pub fn release(mut self) {
        self.0 = None;
    }

    /// Sends the answer.
    pub fn send(mut self, answer: Answer) {
        if let Some(to) = self.0.take() {
            to.mailbox.deliver(to.token, answer);
        }
    }
}

impl Drop for DeferredReply {
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

    #[derive(Default)]
    struct Answers(Mutex<Vec<(ReplyToken, bool)>>);
    impl Mailbox for Answers {
        fn deliver(&self, token: ReplyToken, answer: Answer) {
            self.0.lock().unwrap().push((token, matches!(answer, Answer::Error(_))));
        }
    }

    #[test]
    fn each_reply_answers_exactly_once() {
        let mailbox = Arc::new(Answers::default());
        let token = ReplyToken { owner: 1, call: 2 };
        let to = ReplyTo::new(mailbox.clone(), token);
        to.defer().send(Answer::DONE);
        drop(to.defer());
        assert_eq!(*mailbox.0.lock().unwrap(), [(token, false), (token, true)]);
    }

    #[test]
    fn an_intercepted_answer_is_passed_on_once() {
        let mailbox = Arc::new(Answers::default());
        let token = ReplyToken { owner: 1, call: 2 };
        let to = ReplyTo::new(mailbox.clone(), token);
        let client = to.clone();
        let detour = to.intercept(move |answer| {
            assert!(matches!(answer, Answer::Error(_)), "a lost obligation is an error");
            client.defer().send(Answer::DONE);
        });
        assert_eq!(detour.owner(), to.owner());
        drop(detour.defer());
        detour.defer().send(Answer::DONE);
        assert_eq!(*mailbox.0.lock().unwrap(), [(token, false)]);
    }
}
