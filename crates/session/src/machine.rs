//! Requests of a session: takes one after another and passes each to the object of its family
//! (`paths`, `handles`, `query`, ...).
//!
//! It answers requests that belong to no family itself, and those that their header or a missing
//! signature refuses.

use crate::call::CallKind;
use crate::framing::{FrontRequest, HeaderRefusal, RequestFront, is_by_handle, passes_before_authentication};
use crate::greeting::SessionStage;
use crate::handles::FileRequest;
use crate::ids::PathId;
use crate::paths::NamespaceRequest;
use crate::query::QueryRequest;
use crate::reply::{CountedEvent, Replier, ReplyOutputs};
use crate::sequencer::Access;
use crate::signing::{PayloadSignature, is_signature_length};
use crate::state::Session;
use crate::step::{DriverTask, TakeResult};
use crate::work::SessionWork;
use base::{Charge, Error, ErrorKind};
use vfs::FileOperation;
use wire::xroot::codes::{ErrorCode, RequestCode};
use wire::xroot::header::{RequestHeader, SessionId};
use wire::xroot::limits::REQUEST_HEADER_BYTES;
use wire::xroot::request::{Request, Sigver};

/// The text of each refusal for a signature. The reason is in the log only.
pub(crate) const UNVERIFIED: &str = "Request signature not verified";

/// The text for requests that write data, where data must be signed and theirs cannot be.
const UNSIGNABLE: &str = "The data of this request cannot be signed";

impl Session {
    /// Takes one request from the front of the control connection's input. The charge covers all
    /// memory that the request may use; it is returned when the request is answered.
    pub fn take(&mut self, input: &[u8], charge: Charge, out: &mut dyn ReplyOutputs) -> TakeResult {
        match self.front(input) {
            Ok(front) => {
                TakeResult::Took { bytes: front.bytes(), todo: self.take_front(&front, input, charge, out) }
            }
            Err(bytes) => TakeResult::More { bytes },
        }
    }

    /// Takes the request that [`Session::front`] found at the front of this input.
    pub fn take_front(
        &mut self,
        front: &RequestFront,
        input: &[u8],
        charge: Charge,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        if charge.bytes() > 0 {
            self.work().arriving = charge;
        }
        let todo = self.take_request(front, input, out);
        self.close_if_asked(&todo);
        if let Some(work) = self.present_work() {
            work.arriving = Charge::NONE;
        }
        todo
    }

    fn take_request(&mut self, front: &RequestFront, input: &[u8], out: &mut dyn ReplyOutputs) -> DriverTask {
        let Some(FrontRequest { header, counted }) = &front.request else {
            return match self.client.stage {
                SessionStage::Handshake => {
                    let mut reply = Replier::new(Default::default(), out);
                    self.client.handshake(input, &mut reply)
                }
                _ => DriverTask::Nothing,
            };
        };
        let mut reply = Replier::new(header.streamid, out);
        let Some(counted) = *counted else { return self.refuse_header(header, reply) };
        let argument = input.get(REQUEST_HEADER_BYTES..front.bytes()).unwrap_or_default();
        // For an executed checkpoint of a vector write, the list follows the counted bytes.
        let (payload, extra) = argument.split_at_checked(counted).unwrap_or_default();
        if self.client.stage == SessionStage::Authenticating && !passes_before_authentication(header.code) {
            return refuse_unauthenticated(header.code, reply);
        }
        if self.client.verifier_mut().is_some_and(|verifier| verifier.forbids(header, payload)) {
            self.client.log_unsigned(UNSIGNABLE);
            reply.count(CountedEvent::Unsigned);
            return reply.refuse_and_close(ErrorCode::SIGVER_ERR, UNSIGNABLE);
        }
        let is_signed = self.client.verifier_mut().is_some_and(|verifier| verifier.has_signature());
        let signature = match self.client.verifier_mut().map(|verifier| verifier.verify(header, payload)) {
            Some(Err(reason)) => return self.refuse_unsigned(reason, &mut reply),
            Some(Ok(signature)) => signature,
            None => None,
        };
        if is_signed {
            reply.count(CountedEvent::Signed);
        }
        let todo = self.dispatch(header, payload, extra, reply);
        match signature {
            Some(signature) => self.expect_signed(header, todo, signature),
            None => todo,
        }
    }

    /// Adds a signature that covers data to the announcement of the data. A request that was refused
    /// and whose data is not awaited needs none.
    fn expect_signed(
        &mut self,
        header: &RequestHeader,
        todo: DriverTask,
        signature: PayloadSignature,
    ) -> DriverTask {
        let DriverTask::Receive(mut announcement) = todo else { return todo };
        if header.payload_bytes() == Ok(announcement.length) {
            announcement.signature = Some(Box::new(signature));
            if let Some(call) = self.work().call_mut(announcement.call) {
                call.is_signed = true;
            }
        }
        DriverTask::Receive(announcement)
    }

    fn dispatch<'a>(
        &'a mut self,
        header: &RequestHeader,
        payload: &[u8],
        extra: &[u8],
        mut reply: Replier<'a>,
    ) -> DriverTask {
        let request = match Request::decode(header, payload) {
            Ok(request) => request,
            Err(error) => {
                // The embedded request is missing, so the end of its data is unknown.
                let text = format!("Invalid request; {error}");
                return reply.refuse_and_close(ErrorCode::ARG_INVALID, &text);
            }
        };
        match request {
            Request::Read(m) => self.on_file(reply).read(&m),
            Request::Readv(m) => self.on_file(reply).read_vector(&m),
            Request::Pgread(m) => self.on_file(reply).page_read(&m),
            Request::Write(m) => self.on_file(reply).write(&m, false),
            Request::Pgwrite(m) => self.on_file(reply).page_write(&m, false),
            Request::Writev(m) => self.on_file(reply).vector_write(&m, false),
            Request::Chkpoint(m) => self.on_file(reply).checkpoint(&m, extra),
            Request::Sync(m) => {
                self.on_file(reply).on_file(m.fhandle, "sync", (Access::READ_ALL, FileOperation::Sync))
            }
            Request::Close(m) => self.on_file(reply).close(m.fhandle),
            Request::Clone(m) => self.on_file(reply).clone_ranges(&m),
            Request::Truncate(m) => self.on_file(reply).truncate(&m, false),
            Request::Stat(m) => self.on_file(reply).stat(&m),
            Request::Fattr(m) => self.on_file(reply).attributes(&m),
            Request::Query(m) => self.query(reply).query(&m),
            Request::Set(m) => self.query(reply).set(&m),
            Request::Protocol(m) => self.client.protocol(&m, &mut reply),
            Request::Login(m) if self.client.stage == SessionStage::Greeting => {
                self.client.login(&m, &mut reply)
            }
            Request::Bind(m) if self.client.stage == SessionStage::Greeting => {
                DriverTask::Bind { streamid: reply.id, session: m.sessid }
            }
            Request::Auth(m) => self.client.authenticate(&m, &mut reply),
            Request::Login(_) | Request::Bind(_) | Request::Unknown(_) => {
                reply.refuse(ErrorCode::INVALID_REQUEST, "Invalid request code")
            }
            Request::Ping(_) => reply.succeed(&[]),
            Request::Endsess(m) => self.end_session(m.sessid, reply),
            Request::Sigver(m) => self.signature(&m, reply),
            Request::Gpfile(_) if self.client.gpfile_needs_tls() => {
                reply.refuse(ErrorCode::TLS_REQUIRED, "gpfile requires TLS")
            }
            Request::Gpfile(_) => reply.refuse(ErrorCode::UNSUPPORTED, "gpfile request is not supported"),
            other => self.on_path(reply).start(&other),
        }
    }

    fn on_file<'a>(&'a mut self, reply: Replier<'a>) -> FileRequest<'a> {
        let links = self.links;
        FileRequest { work: self.work(), links, reply }
    }

    fn on_path<'a>(&'a mut self, reply: Replier<'a>) -> NamespaceRequest<'a> {
        let work = SessionWork::begin(&mut self.work, self.client.is_ending());
        NamespaceRequest { client: &self.client, work, prepares: &mut self.prepares, reply }
    }

    fn query<'a>(&'a mut self, reply: Replier<'a>) -> QueryRequest<'a> {
        let work = SessionWork::begin(&mut self.work, self.client.is_ending());
        let on_file = FileRequest { work, links: self.links, reply };
        QueryRequest { settings: &self.client.settings, caller: &self.client.caller, on_file }
    }

    /// Ends a session. The driver ends another one than this, because a session knows no others.
    fn end_session(&mut self, session: SessionId, mut reply: Replier<'_>) -> DriverTask {
        if session == self.client.id {
            // The client expects the connection to close, not a reply.
            return DriverTask::Close;
        }
        if self.is_authenticating() && session != SessionId::default() {
            return end_unauthenticated(reply);
        }
        if session == SessionId::default() {
            // No session has this id. Version 5.5.3 replies and keeps the session.
            return reply.succeed(&[]);
        }
        let call = self.work().call(reply.id, PathId::CONTROL, CallKind::Plain);
        DriverTask::EndSession { call, session }
    }

    /// Takes a signature for the next request.
    fn signature(&mut self, m: &Sigver<'_>, mut reply: Replier<'_>) -> DriverTask {
        if !is_signature_length(m.signature.len()) {
            return refuse_signature_length(reply);
        }
        // A signature that is not required is accepted and ignored.
        let Some(verifier) = self.client.verifier_mut() else {
            reply.count(CountedEvent::UnneededSignature);
            return DriverTask::Nothing;
        };
        match verifier.take(reply.id, m) {
            Ok(()) => DriverTask::Nothing,
            Err(reason) => self.refuse_unsigned(reason, &mut reply),
        }
    }

    /// Refuses a request and ends the session. The reason is for the log, because the client needs
    /// only one text.
    fn refuse_unsigned(&self, reason: &str, reply: &mut Replier<'_>) -> DriverTask {
        self.client.log_unsigned(reason);
        reply.count(CountedEvent::Unsigned);
        reply.refuse_and_close(ErrorCode::SIGVER_ERR, UNVERIFIED)
    }

    /// Consumes the signature of a request that is refused before verification.
    fn skip_signature(&mut self, code: RequestCode) {
        if let Some(verifier) = self.client.verifier_mut() {
            verifier.skip(code);
        }
    }

    /// Replies to a request that is refused because of its header.
    fn refuse_header(&mut self, header: &RequestHeader, mut reply: Replier<'_>) -> DriverTask {
        let Ok(length) = header.payload_bytes() else {
            return reply.refuse_and_close(ErrorCode::ARG_INVALID, "Invalid request data length");
        };
        match self.client.stage.refusal(header) {
            Some(HeaderRefusal::NotLoggedIn) => {
                reply.refuse_and_close(ErrorCode::INVALID_REQUEST, "Invalid request; user not logged in")
            }
            Some(HeaderRefusal::NotAuthenticated) => refuse_unauthenticated(header.code, reply),
            Some(HeaderRefusal::NoArgument) => {
                self.skip_signature(header.code);
                reply.refuse(ErrorCode::ARG_MISSING, "Required argument not present")
            }
            None => self.refuse_length(header.code, length, reply),
        }
    }

    /// Refuses an argument that exceeds the limit. After login the argument is discarded; before
    /// login the session ends.
    fn refuse_length(&mut self, code: RequestCode, length: usize, mut reply: Replier<'_>) -> DriverTask {
        let is_active = self.is_active();
        if code == RequestCode::SIGVER && is_active {
            return refuse_signature_length(reply);
        }
        // Sent before the argument arrives, because a client that announced a wrong length may wait
        // for the reply and never send the bytes.
        reply.fail(&Error::new(ErrorKind::ArgTooLong, "Request argument is too long"));
        if !is_active {
            return DriverTask::Close;
        }
        self.skip_signature(code);
        self.work().discard_silently(reply.id, length)
    }
}

/// Refuses a request of a client that is not authenticated yet. Requests by handle get the error of
/// a file that is not open, because no handle exists; all others end the session.
fn refuse_unauthenticated(code: RequestCode, mut reply: Replier<'_>) -> DriverTask {
    if is_by_handle(code) {
        return reply.refuse(ErrorCode::FILE_NOT_OPEN, "file is not open; user not authenticated");
    }
    end_unauthenticated(reply)
}

/// Refuses a request that requires authentication, and ends the session.
fn end_unauthenticated(mut reply: Replier<'_>) -> DriverTask {
    reply.refuse_and_close(ErrorCode::INVALID_REQUEST, "Invalid request; user not authenticated")
}

/// Refuses a signature of invalid length and ends the session.
fn refuse_signature_length(mut reply: Replier<'_>) -> DriverTask {
    reply.refuse_and_close(ErrorCode::ARG_INVALID, "Invalid signature data length")
}
