//! [`Replier`]: the immediate replies to a request, errors and successes.

use crate::ids::PathId;
use crate::replies;
use crate::step::DriverTask;
use base::Error;
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::StreamId;

/// Output buffers for replies, one per connection. Replies for a lost connection are discarded.
pub trait ReplyOutputs {
    /// Returns the output of a connection. Callers append whole frames.
    fn link(&mut self, link: PathId) -> &mut Vec<u8>;

    /// Counts something of which statistics show the number.
    fn count(&mut self, event: CountedEvent);
}

/// Something of which statistics show the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountedEvent {
    /// A reply with this error.
    Error(ErrorCode),
    /// A reply with a redirect.
    Redirect,
    /// A reply that asks to wait and to repeat the request.
    Wait,
    /// A notice that the answer comes late.
    LateAnswer,
    /// A late answer that is a success.
    LateSuccess,
    /// A late answer that is an error.
    LateError,
    /// A request with a correct signature.
    Signed,
    /// A request whose signature is wrong or missing.
    Unsigned,
    /// A signature that was not needed.
    UnneededSignature,
}

/// The reply to one request that arrived on the control connection.
pub(crate) struct Replier<'a> {
    pub(crate) id: StreamId,
    out: &'a mut dyn ReplyOutputs,
}

impl<'a> Replier<'a> {
    pub(crate) fn new(id: StreamId, out: &'a mut dyn ReplyOutputs) -> Self {
        Self { id, out }
    }

    /// Returns the output of the control connection.
    pub(crate) fn control(&mut self) -> &mut Vec<u8> {
        self.out.link(PathId::CONTROL)
    }

    /// Counts something of which statistics show the number.
    pub(crate) fn count(&mut self, event: CountedEvent) {
        self.out.count(event);
    }

    /// Replies with an error and keeps the session.
    pub(crate) fn refuse(&mut self, code: ErrorCode, text: &str) -> DriverTask {
        self.refuse_on(PathId::CONTROL, code, text)
    }

    /// Replies with an error on another connection and keeps the session.
    pub(crate) fn refuse_on(&mut self, link: PathId, code: ErrorCode, text: &str) -> DriverTask {
        self.out.count(CountedEvent::Error(code));
        replies::error(self.out.link(link), self.id, code, text);
        DriverTask::Nothing
    }

    /// Replies with an error after which the session ends, because the client violated the protocol
    /// or the end of its request cannot be found. The rest of the input is ignored.
    pub(crate) fn refuse_and_close(&mut self, code: ErrorCode, text: &str) -> DriverTask {
        self.refuse(code, text);
        DriverTask::Close
    }

    /// Replies with an error of our own crates and keeps the session.
    pub(crate) fn fail(&mut self, error: &Error) -> DriverTask {
        self.refuse(crate::wire_code(error.kind), &error.text)
    }

    /// Replies that the request succeeded, with these bytes.
    pub(crate) fn succeed(&mut self, body: &[u8]) -> DriverTask {
        let id = self.id;
        replies::ok(self.control(), id, body);
        DriverTask::Nothing
    }
}
