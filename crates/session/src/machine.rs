//! The state machine of a session: takes one request after another and passes each to its family
//! of requests (`paths`, `handles`, `query`, ...).

use crate::framing::{FrontRequest, RequestFront, passes_before_authentication};
use crate::ids::PathId;
use crate::sequencer::Access;
use crate::state::{ReplyOutputs, Session, SessionStage};
use crate::step::{DriverTask, TakeResult};
use base::Charge;
use vfs::FileOperation;
use wire::Encode;
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::{Handshake, HandshakeReply, RequestHeader};
use wire::xroot::limits::{HANDSHAKE_BYTES, REQUEST_HEADER_BYTES};
use wire::xroot::request::Request;

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
            self.engage().arriving = charge;
        }
        let todo = self.take_request(front, input, out);
        if let Some(engaged) = &mut self.engaged {
            engaged.arriving = Charge::NONE;
        }
        todo
    }

    fn take_request(&mut self, front: &RequestFront, input: &[u8], out: &mut dyn ReplyOutputs) -> DriverTask {
        let Some(FrontRequest { header, counted }) = &front.request else {
            return match self.stage {
                SessionStage::Handshake => self.take_handshake(input, out),
                _ => DriverTask::Nothing,
            };
        };
        let Some(counted) = *counted else { return self.refuse_header(header, out) };
        let argument = input.get(REQUEST_HEADER_BYTES..front.bytes()).unwrap_or_default();
        // For an executed checkpoint of a vector write, the list follows the counted bytes.
        let (payload, extra) = argument.split_at_checked(counted).unwrap_or_default();
        if self.stage == SessionStage::Authenticating && !passes_before_authentication(header.code) {
            return self.refuse_unauthenticated(header, out);
        }
        let refused = self.verify(header, payload, out);
        refused.unwrap_or_else(|| self.dispatch(header, payload, extra, out))
    }

    fn take_handshake(&mut self, input: &[u8], out: &mut dyn ReplyOutputs) -> DriverTask {
        match input.first_chunk::<HANDSHAKE_BYTES>() {
            Some(bytes) if Handshake::is(bytes) => {
                self.stage = SessionStage::Greeting;
                let is_server = self.settings.flags.contains(wire::xroot::flags::ServerFlags::IS_SERVER);
                let role =
                    if is_server { HandshakeReply::DATA_SERVER } else { HandshakeReply::LOAD_BALANCER };
                let reply = HandshakeReply { protover: wire::xroot::PROTOCOL_VERSION, role };
                reply.encode(out.link(PathId::CONTROL));
                DriverTask::Nothing
            }
            _ => self.violated(),
        }
    }

    fn dispatch(
        &mut self,
        header: &RequestHeader,
        payload: &[u8],
        extra: &[u8],
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        let id = header.streamid;
        let request = match Request::decode(header, payload) {
            Ok(request) => request,
            Err(error) => {
                // The embedded request is missing, so the end of its data is unknown.
                let text = format!("Invalid request; {error}");
                self.refuse(id, PathId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
                return self.violated();
            }
        };
        match request {
            Request::Protocol(m) => self.protocol(id, &m, out),
            Request::Login(m) if self.stage == SessionStage::Greeting => self.login(id, &m, out),
            Request::Bind(m) if self.stage == SessionStage::Greeting => {
                DriverTask::Bind { streamid: id, session: m.sessid }
            }
            Request::Auth(m) => self.authenticate(id, &m, out),
            Request::Login(_) | Request::Bind(_) | Request::Unknown(_) => {
                self.refuse(id, PathId::CONTROL, ErrorCode::INVALID_REQUEST, "Invalid request code", out)
            }
            Request::Ping(_) => self.done(id, out),
            Request::Endsess(m) => self.end_session(id, m.sessid, out),
            Request::Set(m) => self.set(id, &m, out),
            Request::Sigver(m) => self.signature(header, &m, out),
            Request::Gpfile(_) if self.gpfile_needs_tls() => {
                self.refuse(id, PathId::CONTROL, ErrorCode::TLS_REQUIRED, "gpfile requires TLS", out)
            }
            Request::Gpfile(_) => self.refuse(
                id,
                PathId::CONTROL,
                ErrorCode::UNSUPPORTED,
                "gpfile request is not supported",
                out,
            ),
            Request::Read(m) => self.read(id, &m, out),
            Request::Readv(m) => self.read_vector(id, &m, out),
            Request::Pgread(m) => self.page_read(id, &m, out),
            Request::Write(m) => self.write(id, &m, false, out),
            Request::Pgwrite(m) => self.page_write(id, &m, false, out),
            Request::Writev(m) => self.vector_write(id, &m, false, out),
            Request::Chkpoint(m) => self.checkpoint(id, &m, extra, out),
            Request::Sync(m) => {
                self.on_file(id, m.fhandle, "sync", (Access::READ_ALL, FileOperation::Sync), out)
            }
            Request::Close(m) => self.close(id, m.fhandle, out),
            Request::Clone(m) => self.clone_ranges(id, &m, out),
            Request::Truncate(m) => self.truncate(id, &m, false, out),
            Request::Stat(m) => self.stat(id, &m, out),
            Request::Query(m) => self.query(id, &m, out),
            Request::Fattr(m) => self.attributes(id, &m, out),
            other => self.on_path(id, &other, out),
        }
    }
}
