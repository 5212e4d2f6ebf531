//! A session and its interface to the driver, except for taking requests (`machine`).
//!
//! [`Session`] composes the objects that have the jobs: [`SessionClient`], [`SessionWork`] and
//! [`BoundLinks`].

use crate::answers::Answers;
use crate::authentication::AuthenticationResult;
use crate::framing::RequestFront;
use crate::greeting::{SessionClient, SessionStage};
use crate::ids::{CallId, FileIndex, PathId, SequenceId};
use crate::links::BoundLinks;
use crate::reads::ReadReply;
use crate::replies;
use crate::reply::{CountedEvent, ReplyOutputs};
use crate::settings::{CALLS_MAX, Peer, Settings};
use crate::step::{DriverTask, ReadTask, ReadVectorTask, ReceiveResult};
use crate::work::SessionWork;
use crate::write_replies::{UnverifiedPayload, WriteReplies};
use auth::HostName;
use base::{Charge, Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Answer, Caller, OpenFile, RedirectAnswer};
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::{SessionId, StreamId};

/// One login session: the control connection and up to 15 bound connections.
///
/// Getters return its state. The driver reports events by `take`, `answered`, `received` and the
/// methods for reads, gives commands by `bind`, `unbind` and `end`, and takes the next task from
/// `next_todo`.
pub struct Session {
    pub(crate) client: SessionClient,
    pub(crate) links: BoundLinks,
    /// Number of prepare requests so far.
    pub(crate) prepares: u32,
    /// `None` if nothing is open or in flight.
    pub(crate) work: Option<Box<SessionWork>>,
}

/// The state of a session.
impl Session {
    /// Returns a session that has received nothing. `id` must be unguessable and unique.
    pub fn new(id: SessionId, settings: Arc<Settings>, peer: Peer) -> Self {
        let client = SessionClient::new(id, settings, peer);
        Self { client, links: BoundLinks::default(), prepares: 0, work: None }
    }

    /// Returns the session id.
    pub fn id(&self) -> SessionId {
        self.client.id
    }

    /// Returns the identity for which operations run.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.client.caller
    }

    /// Reports whether the client has logged in and is identified.
    pub fn is_active(&self) -> bool {
        self.client.stage == SessionStage::Active
    }

    /// Reports whether the client has logged in and is not authenticated yet.
    pub fn is_authenticating(&self) -> bool {
        self.client.is_authenticating()
    }

    /// Reports whether the client has authenticated by another protocol than that of its host.
    pub fn is_authenticated(&self) -> bool {
        self.client.caller.entity().is_some_and(|entity| &*entity.protocol != auth::host::HOST)
    }

    /// Reports whether the control connection is encrypted, or switches after its output.
    pub fn is_tls(&self) -> bool {
        self.client.is_tls()
    }

    /// Reports whether the session is ending.
    pub fn is_ending(&self) -> bool {
        self.client.is_ending()
    }

    /// Reports whether the session has ended and released all files, so that it can be dropped.
    pub fn is_finished(&self) -> bool {
        self.is_ending() && self.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        self.work.as_ref().is_none_or(|work| work.is_over())
    }

    /// Frees the state for files and calls if there are none. The driver calls this when nothing
    /// has arrived for a while. Until then the memory is kept for the next request.
    pub fn shrink(&mut self) {
        if self.is_at_rest() {
            self.work = None;
        }
    }

    /// Returns the work of the session, which begins if there is none.
    pub(crate) fn work(&mut self) -> &mut SessionWork {
        SessionWork::begin(&mut self.work, self.client.is_ending())
    }

    /// Returns the work of the session, if there is any.
    pub(crate) fn present_work(&mut self) -> Option<&mut SessionWork> {
        self.work.as_deref_mut()
    }

    /// Returns the number of requests without an answer, except reads that the driver has begun.
    pub fn calls_in_flight(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.calls_in_flight())
    }

    /// Returns the number of open files.
    pub fn files_open(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.files.len())
    }

    /// Reports whether the session accepts another request. If not, the driver waits for an answer
    /// (back-pressure).
    pub fn has_room(&self) -> bool {
        self.calls_in_flight() < CALLS_MAX && !self.client.is_login_busy()
    }

    /// Returns a file of the session. The driver also finds a file whose close waits for a read
    /// that the driver was given.
    pub fn file(&self, index: FileIndex) -> Option<&Arc<dyn OpenFile>> {
        self.work.as_ref()?.file(index)
    }

    /// Returns the next request if it is complete. Otherwise returns the number of bytes that must
    /// be there first, as far as the present bytes show it: at most the largest argument and two
    /// headers. A driver takes memory for a request only when these bytes have arrived.
    pub fn front(&self, input: &[u8]) -> Result<RequestFront, usize> {
        self.client.stage.front(input)
    }

    /// Returns the next task that has become possible.
    pub fn next_todo(&mut self) -> Option<DriverTask> {
        self.present_work()?.next_todo()
    }

    /// Appends a task to the queue of [`Session::next_todo`].
    pub fn push(&mut self, todo: DriverTask) {
        self.work().push(todo);
    }

    /// Returns the charge of an unanswered request, for the driver to adapt.
    pub fn charge_mut(&mut self, id: CallId) -> Option<&mut Charge> {
        self.present_work()?.call_mut(id).map(|call| &mut call.charge)
    }

    /// Ends the session: takes no further request, drops operations that have not started, and
    /// releases each file when its last operation has ended.
    pub fn end(&mut self) {
        if self.is_ending() {
            return;
        }
        self.client.end();
        if let Some(work) = self.present_work() {
            work.end();
        }
    }
}

/// Connections.
impl Session {
    /// Reports whether a connection belongs to the session.
    pub fn is_bound(&self, link: PathId) -> bool {
        self.links.has(link)
    }

    /// Gives the lowest free path id to a connection from `address`, which is encrypted or not.
    pub fn bind(&mut self, address: Option<std::net::IpAddr>, is_tls: bool) -> Result<PathId, Error> {
        match self.client.stage {
            SessionStage::Handshake | SessionStage::Greeting | SessionStage::Authenticating => {
                return Err(Error::new(ErrorKind::ArgInvalid, "session not logged in"));
            }
            SessionStage::Ending => return Err(Error::new(ErrorKind::NotFound, "session just closed")),
            SessionStage::Active => {}
        }
        if address != self.client.caller.identity.address {
            return Err(Error::new(ErrorKind::NotAuthorized, "cross-host bind not allowed"));
        }
        if !is_tls && self.client.needs_tls_on_links() {
            return Err(Error::new(ErrorKind::TlsRequired, "bind requires TLS"));
        }
        self.links.bind()
    }

    /// Frees the path id of a bound connection that was lost.
    pub fn unbind(&mut self, link: PathId) {
        self.links.unbind(link);
    }

    /// Replies to a kXR_bind whose connection has joined.
    pub fn bound(&self, streamid: StreamId, link: PathId, out: &mut dyn ReplyOutputs) {
        replies::ok(out.link(link), streamid, &[link.0]);
    }

    /// Replies to a connection that cannot join a session.
    pub fn refuse_bind(streamid: StreamId, error: &Error, out: &mut Vec<u8>) {
        replies::fail(out, streamid, error);
    }

    /// Replies to data on a bound connection that no request announced.
    pub fn refuse_unannounced(&self, streamid: StreamId, link: PathId, out: &mut dyn ReplyOutputs) {
        let text = "Invalid request; only announced data may come on this connection";
        out.count(CountedEvent::Error(ErrorCode::INVALID_REQUEST));
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, text);
    }

    /// Replies to a request of `bytes` bytes that did not arrive completely before its deadline.
    pub fn refuse_overdue(&self, input: &[u8], bytes: usize, link: PathId, out: &mut dyn ReplyOutputs) {
        let streamid = StreamId(input.first_chunk().copied().unwrap_or_default());
        let text = format!("Request did not arrive in time; {} of {bytes} bytes came", input.len());
        out.count(CountedEvent::Error(ErrorCode::INVALID_REQUEST));
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, &text);
    }
}

/// Login.
impl Session {
    /// Reports whether this request can only be taken after the name of the client's host is known.
    /// The driver looks it up and calls [`Session::set_peer_host`].
    pub fn needs_peer_host(&self, front: &RequestFront) -> bool {
        self.client.needs_peer_host(front)
    }

    /// Stores the result of the look-up of the client's host.
    pub fn set_peer_host(&mut self, name: HostName) {
        self.client.set_peer_host(name);
    }

    /// Takes the result of a step.
    pub fn authenticated(&mut self, result: AuthenticationResult, out: &mut dyn ReplyOutputs) -> DriverTask {
        let todo = self.client.authenticated(result, out);
        self.close_if_asked(&todo);
        todo
    }

    /// Refuses a step that the driver could not execute.
    pub fn refuse_step(&mut self, reason: &str, out: &mut dyn ReplyOutputs) -> DriverTask {
        let todo = self.client.refuse_step(reason, out);
        self.close_if_asked(&todo);
        todo
    }

    /// Sends a refusal whose delay has ended.
    pub fn send_delayed_refusal(&mut self, out: &mut dyn ReplyOutputs) {
        self.client.send_delayed_refusal(out);
    }

    /// Ends the session if this task closes it, or if the client has no further attempt to log in.
    pub(crate) fn close_if_asked(&mut self, todo: &DriverTask) {
        match todo {
            DriverTask::Close => self.end(),
            DriverTask::LoginRefused { .. } if self.client.has_no_attempt_left() => {
                self.end();
                self.push(DriverTask::Close);
            }
            _ => {}
        }
    }
}

/// Results of the tasks of the driver.
impl Session {
    fn answers<'a>(&'a mut self, out: &'a mut dyn ReplyOutputs) -> Option<Answers<'a>> {
        let accepts_deferred_reply = self.client.caller.accepts_deferred_reply;
        Some(Answers { work: self.work.as_deref_mut()?, out, accepts_deferred_reply })
    }

    /// Notifies the client that an answer will be late. Has no effect after the answer, or if the
    /// client was notified already.
    pub fn defer_answer(&mut self, id: CallId, seconds: u32, text: &str, out: &mut dyn ReplyOutputs) {
        if let Some(mut answers) = self.answers(out) {
            answers.defer(id, seconds, text);
        }
    }

    /// Reports the answer to a call.
    pub fn answered(&mut self, id: CallId, answer: Answer, out: &mut dyn ReplyOutputs) -> DriverTask {
        self.answers(out).map_or(DriverTask::Nothing, |mut answers| answers.answered(id, answer))
    }

    /// Reports that all data of an announcement has arrived and was written or discarded.
    pub fn received(
        &mut self,
        id: CallId,
        received: ReceiveResult,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let Some(work) = self.present_work() else { return DriverTask::Nothing };
        match (WriteReplies { work, out }.received(id, received)) {
            Ok(todo) => todo,
            Err(UnverifiedPayload { sequence }) => {
                self.client.log_unsigned("it does not match the data");
                self.end();
                self.end_operation(sequence);
                DriverTask::Close
            }
        }
    }

    /// Reports that a read was answered immediately.
    pub fn read_answered(&mut self, task: &ReadTask) {
        if task.sequence.is_some() {
            self.end_operation(task.sequence);
        }
    }

    fn end_operation(&mut self, sequence: Option<SequenceId>) {
        if let Some(work) = self.present_work() {
            work.end_operation(sequence);
        }
    }

    /// Redirects the client for a read.
    pub fn read_redirected(&mut self, task: &ReadTask, to: &RedirectAnswer, out: &mut dyn ReplyOutputs) {
        out.count(CountedEvent::Redirect);
        replies::redirect(out.link(task.link), task.streamid, to);
        self.end_operation(task.sequence);
    }

    /// Redirects the client for a vector read.
    pub fn vector_read_redirected(
        &mut self,
        task: &ReadVectorTask,
        to: &RedirectAnswer,
        out: &mut dyn ReplyOutputs,
    ) {
        out.count(CountedEvent::Redirect);
        replies::redirect(out.link(PathId::CONTROL), task.streamid, to);
        self.end_operation(task.sequence);
    }

    /// Reports that all data of a write has arrived, from which on its time is measured, and before it the time for
    /// which the server refused data.
    pub fn data_arrived(&mut self, id: CallId, refused: Duration) {
        if let Some(work) = self.present_work() {
            work.restart_timer(id, refused);
        }
    }

    /// Registers a read that does not complete immediately, before another request is taken. The reply takes
    /// over the timer of the request.
    pub fn read_began(&mut self, task: &mut ReadTask) -> ReadReply {
        let sequence = self.work().register_read(task);
        ReadReply::of_range(task, sequence)
    }

    /// Registers a vector read that does not complete immediately, as [`Self::read_began`] does.
    pub fn vector_read_began(&mut self, task: &mut ReadVectorTask) -> ReadReply {
        let sequence = self.work().register_vector_read(task);
        ReadReply::of_vector(task, sequence)
    }

    /// Reports the end of a read: its reply is complete, or its connection is lost.
    pub fn read_ended(&mut self, reply: ReadReply) {
        self.end_operation(Some(reply.sequence()));
    }

    /// Reports the failure of a read. The error completes its reply.
    pub fn read_failed(&mut self, reply: ReadReply, error: &Error, out: &mut dyn ReplyOutputs) {
        reply.fail(error, out);
        self.read_ended(reply);
    }
}
