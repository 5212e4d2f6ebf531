//! The state machine of a session: stages, dispatch of requests, life cycle of calls and files.
//!
//! The families of requests are in files of their own (`paths`, `handles`, `query`, ...). They
//! share the calls and files that are kept here.

use crate::files::{Files, Handle};
use crate::framing::{Front, FrontRequest};
use crate::ordering::Waiting;
use crate::replies;
use crate::sequencer::{Access, SequenceId, Sequencer};
use crate::settings::{CALLS_MAX, Peer, Settings};
use crate::signing::Verifier;
use crate::slots::Slots;
use crate::step::{CallId, Destination, FileIndex, LinkId, Receive, Step, Todo};
use base::{Charge, Descriptor, Error, ErrorKind, Identity, Told};
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::{Caller, FileOperation, OpenFile};
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::{Handshake, HandshakeReply, RequestHeader, SessionId, StreamId};
use wire::xroot::limits::{HANDSHAKE_BYTES, PATH_ID_MAX, REQUEST_HEADER_BYTES};
use wire::xroot::request::Request;

/// Output buffers for replies, one per connection. Replies for a lost connection are discarded.
pub trait Outlets {
    /// Returns the output of a connection. Callers append whole frames.
    fn link(&mut self, link: LinkId) -> &mut Vec<u8>;
}

/// The stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Nothing has arrived.
    Handshake,
    /// Before login.
    Greeting,
    /// Logged in.
    Active,
    /// Takes no further requests; files are being released.
    Ending,
}

/// A request without an answer.
pub(crate) struct Call {
    pub(crate) streamid: StreamId,
    /// The connection that takes the reply.
    pub(crate) link: LinkId,
    /// Set if the client was notified that the answer comes later (kXR_waitresp or kXR_wait).
    pub(crate) told_later: bool,
    /// Position among the operations on open files, for an operation on a file.
    pub(crate) sequence: Option<SequenceId>,
    pub(crate) kind: CallKind,
    /// Memory of the request and its reply, held until the request is answered.
    pub(crate) charge: Charge,
    /// Descriptor for the file that this call opens.
    pub(crate) descriptor: Descriptor,
}

/// The kind of a call, which determines the encoding of its answer.
pub(crate) enum CallKind {
    /// An operation on the name space, answered by its value alone.
    Plain,
    /// An operation on a file, answered by its value alone.
    OnFile,
    /// kXR_open.
    Open { compress: bool, stat: bool },
    /// kXR_dirlist. `held` is text that was not sent yet: the last entry, because the very last
    /// entry of a listing ends differently.
    List { detail: vfs::ListDetail, held: Vec<u8>, started: bool },
    /// kXR_statx.
    Kinds,
    /// kXR_fattr.
    Attributes { on_file: bool, subcode: wire::xroot::codes::FattrSubcode, values: bool },
    /// kXR_close.
    Close(FileIndex),
    /// kXR_write.
    Write,
    /// kXR_pgwrite.
    PageWrite { file: FileIndex, offset: u64, length: u32, retry: bool },
    /// kXR_writev. `sync` requests that `files` are synced afterwards.
    VectorWrite { files: Vec<FileIndex>, sync: bool },
    /// kXR_locate and other requests answered by text that ends in a NUL.
    TextWithNul,
    /// A refused request. The error is sent after its data has been discarded.
    Refused(Error),
    /// A request that was refused immediately and whose data is discarded.
    Passed,
    /// Release of a file after the client disconnected. It has no reply.
    Release(FileIndex),
}

impl CallKind {
    /// Reports whether the call operates on an open file.
    pub(crate) fn is_on_file(&self) -> bool {
        match self {
            Self::OnFile
            | Self::Close(_)
            | Self::Write
            | Self::PageWrite { .. }
            | Self::VectorWrite { .. }
            | Self::Release(_) => true,
            Self::Attributes { on_file, .. } => *on_file,
            Self::Plain
            | Self::Open { .. }
            | Self::List { .. }
            | Self::Kinds
            | Self::TextWithNul
            | Self::Refused(_)
            | Self::Passed => false,
        }
    }
}

/// State that a session has only while files are open or calls are in flight. It is allocated on
/// demand because most connections of a large server are idle.
#[derive(Default)]
pub(crate) struct Engaged {
    pub(crate) files: Files,
    pub(crate) calls: Slots<Call>,
    pub(crate) sequencer: Sequencer<Waiting>,
    /// Reads that wait for earlier operations. They have no call.
    pub(crate) reads_waiting: usize,
    ready: VecDeque<Todo>,
    /// Charge of the request that is being taken. The first call made for the request takes it
    /// over.
    pub(crate) arriving: Charge,
    /// Number of calls that open a file.
    opening: usize,
}

impl Engaged {
    fn is_over(&self) -> bool {
        self.files.len() == 0 && self.calls.is_empty() && self.ready.is_empty() && self.sequencer.is_idle()
    }
}

/// One login session: the control connection and up to 15 bound connections.
///
/// Getters return its state. The driver reports events by `take`, `answered`, `received` and the
/// methods for reads, gives commands by `bind`, `unbind` and `end`, and takes the next task from
/// `next_todo`.
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stage: Stage,
    pub(crate) caller: Arc<Caller>,
    pub(crate) prepares: u32,
    pub(crate) verifier: Verifier,
    /// `None` if nothing is open or in flight.
    engaged: Option<Box<Engaged>>,
    /// Bit p is set if path id p is bound.
    bound: u16,
}

impl Session {
    /// Returns a session that has received nothing. `id` must be unguessable and unique.
    pub fn new(id: SessionId, settings: Arc<Settings>, peer: Peer) -> Self {
        let told = Told { host: &peer.host, ..Told::default() };
        let identity = Identity::new(&told, 0, peer.address, "host");
        Self {
            id,
            settings,
            stage: Stage::Handshake,
            caller: Arc::new(Caller::new(identity, false, false)),
            prepares: 0,
            verifier: Verifier::default(),
            engaged: None,
            bound: 0,
        }
    }

    /// Returns the session id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns the identity for which operations run.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Reports whether the client has logged in.
    pub fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// Reports whether the session is ending.
    pub fn is_ending(&self) -> bool {
        self.stage == Stage::Ending
    }

    /// Reports whether the session has ended and released all files, so that it can be dropped.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Ending && self.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        self.engaged.as_ref().is_none_or(|engaged| engaged.is_over())
    }

    /// Frees the state for files and calls if there are none. The driver calls this when nothing
    /// has arrived for a while. Until then the memory is kept for the next request.
    pub fn shrink(&mut self) {
        if self.is_at_rest() {
            self.engaged = None;
        }
    }

    pub(crate) fn engage(&mut self) -> &mut Engaged {
        self.engaged.get_or_insert_default()
    }

    pub(crate) fn engaged(&self) -> Option<&Engaged> {
        self.engaged.as_deref()
    }

    pub(crate) fn engaged_mut(&mut self) -> Option<&mut Engaged> {
        self.engaged.as_deref_mut()
    }

    /// Returns the number of requests without an answer, except reads that the driver has begun.
    pub fn calls_in_flight(&self) -> usize {
        self.engaged().map_or(0, |engaged| engaged.calls.len() + engaged.reads_waiting)
    }

    /// Returns the number of open files.
    pub fn files_open(&self) -> usize {
        self.engaged.as_ref().map_or(0, |engaged| engaged.files.len())
    }

    /// Returns the table of open files, for insertion.
    pub(crate) fn files(&mut self) -> &mut Files {
        &mut self.engage().files
    }

    /// Returns a file that accepts operations.
    pub(crate) fn handle(&self, index: FileIndex) -> Option<&Handle> {
        self.engaged.as_ref()?.files.get(index)
    }

    /// Returns a file, even if it is being closed.
    pub(crate) fn any_handle(&mut self, index: FileIndex) -> Option<&mut Handle> {
        self.engaged.as_mut()?.files.any(index)
    }

    /// Reports whether the session accepts another request. If not, the driver waits for an answer
    /// (back-pressure).
    pub fn has_room(&self) -> bool {
        self.calls_in_flight() < CALLS_MAX
    }

    /// Returns a file of the session. The driver also finds a file whose close waits for a read
    /// that the driver was given.
    pub fn file(&self, index: FileIndex) -> Option<&Arc<dyn OpenFile>> {
        self.engaged()?.files.known(index).map(|handle| &handle.file)
    }

    /// Reports whether a connection belongs to the session.
    pub fn is_bound(&self, link: LinkId) -> bool {
        link == LinkId::CONTROL || (link.0 <= PATH_ID_MAX && self.bound & (1 << link.0) != 0)
    }

    /// Returns the next task that has become possible.
    pub fn next_todo(&mut self) -> Option<Todo> {
        self.engaged.as_mut()?.ready.pop_front()
    }

    /// Takes one request from the front of the control connection's input. The charge covers all
    /// memory that the request may use; it is returned when the request is answered.
    pub fn take(&mut self, input: &[u8], charge: Charge, out: &mut dyn Outlets) -> Step {
        match self.front(input) {
            Ok(front) => {
                Step::Took { bytes: front.bytes(), todo: self.take_front(&front, input, charge, out) }
            }
            Err(bytes) => Step::More { bytes },
        }
    }

    /// Takes the request that [`Session::front`] found at the front of this input.
    pub fn take_front(&mut self, front: &Front, input: &[u8], charge: Charge, out: &mut dyn Outlets) -> Todo {
        if charge.bytes() > 0 {
            self.engage().arriving = charge;
        }
        let todo = self.take_request(front, input, out);
        if let Some(engaged) = &mut self.engaged {
            engaged.arriving = Charge::NONE;
        }
        todo
    }

    /// Returns the charge of an unanswered request, for the driver to adapt.
    pub fn charge_mut(&mut self, id: CallId) -> Option<&mut Charge> {
        self.call_mut(id).map(|call| &mut call.charge)
    }

    fn take_request(&mut self, front: &Front, input: &[u8], out: &mut dyn Outlets) -> Todo {
        let Some(FrontRequest { header, counted }) = &front.request else {
            return match self.stage {
                Stage::Handshake => self.take_handshake(input, out),
                _ => Todo::Nothing,
            };
        };
        let Some(counted) = *counted else { return self.refuse_header(header, out) };
        let argument = input.get(REQUEST_HEADER_BYTES..front.bytes()).unwrap_or_default();
        // For an executed checkpoint of a vector write, the list follows the counted bytes.
        let (payload, extra) = argument.split_at_checked(counted).unwrap_or_default();
        let refused = self.verify(header, payload, out);
        refused.unwrap_or_else(|| self.dispatch(header, payload, extra, out))
    }

    fn take_handshake(&mut self, input: &[u8], out: &mut dyn Outlets) -> Todo {
        match input.first_chunk::<HANDSHAKE_BYTES>() {
            Some(bytes) if Handshake::is(bytes) => {
                self.stage = Stage::Greeting;
                let is_server = self.settings.flags.contains(wire::xroot::flags::ServerFlags::IS_SERVER);
                let role =
                    if is_server { HandshakeReply::DATA_SERVER } else { HandshakeReply::LOAD_BALANCER };
                let reply = HandshakeReply { protover: wire::xroot::PROTOCOL_VERSION, role };
                out.link(LinkId::CONTROL).extend_from_slice(&reply.encode());
                Todo::Nothing
            }
            _ => self.violated(),
        }
    }

    fn dispatch(
        &mut self,
        header: &RequestHeader,
        payload: &[u8],
        extra: &[u8],
        out: &mut dyn Outlets,
    ) -> Todo {
        let id = header.streamid;
        let request = match Request::decode(header, payload) {
            Ok(request) => request,
            Err(error) => {
                // The embedded request is missing, so the end of its data is unknown.
                let text = format!("Invalid request; {error}");
                self.refuse(id, LinkId::CONTROL, ErrorCode::ARG_INVALID, &text, out);
                return self.violated();
            }
        };
        match request {
            Request::Protocol(m) => self.protocol(id, &m, out),
            Request::Login(m) if self.stage == Stage::Greeting => self.login(id, &m, out),
            Request::Bind(m) if self.stage == Stage::Greeting => {
                Todo::Bind { streamid: id, session: m.sessid }
            }
            Request::Login(_) | Request::Bind(_) | Request::Auth(_) | Request::Unknown(_) => {
                self.refuse(id, LinkId::CONTROL, ErrorCode::INVALID_REQUEST, "Invalid request code", out)
            }
            Request::Ping(_) => self.done(id, out),
            Request::Endsess(m) => self.end_session(id, m.sessid, out),
            Request::Set(m) => self.set(id, &m, out),
            Request::Sigver(m) => self.signature(header, &m, out),
            Request::Gpfile(_) => self.refuse(
                id,
                LinkId::CONTROL,
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

    /// Replies with an error and keeps the session.
    pub(crate) fn refuse(
        &mut self,
        streamid: StreamId,
        link: LinkId,
        code: ErrorCode,
        text: &str,
        out: &mut dyn Outlets,
    ) -> Todo {
        replies::error(out.link(link), streamid, code, text);
        Todo::Nothing
    }

    /// Replies with an error of our own crates and keeps the session.
    pub(crate) fn fail(&mut self, streamid: StreamId, error: &Error, out: &mut dyn Outlets) -> Todo {
        self.refuse(streamid, LinkId::CONTROL, crate::wire_code(error.kind), &error.text, out)
    }

    /// Replies that the request succeeded, without data.
    pub(crate) fn done(&mut self, streamid: StreamId, out: &mut dyn Outlets) -> Todo {
        replies::ok(out.link(LinkId::CONTROL), streamid, &[]);
        Todo::Nothing
    }

    /// Ends the session after the reply to a protocol violation. The rest of the input is ignored.
    pub(crate) fn violated(&mut self) -> Todo {
        self.end();
        Todo::Close
    }

    /// Registers a request that will be answered later.
    pub(crate) fn call(&mut self, streamid: StreamId, link: LinkId, kind: CallKind) -> CallId {
        let engaged = self.engage();
        let charge = std::mem::take(&mut engaged.arriving);
        engaged.opening += usize::from(matches!(kind, CallKind::Open { .. }));
        let descriptor = Descriptor::NONE;
        let call = Call { streamid, link, told_later: false, sequence: None, kind, charge, descriptor };
        CallId(engaged.calls.insert(call))
    }

    pub(crate) fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.engaged.as_mut()?.calls.get_mut(id.0)
    }

    pub(crate) fn finish_call(&mut self, id: CallId) -> Option<Call> {
        let engaged = self.engaged.as_mut()?;
        let call = engaged.calls.remove(id.0)?;
        engaged.opening -= usize::from(matches!(call.kind, CallKind::Open { .. }));
        Some(call)
    }

    /// Takes a descriptor for a file that is about to be opened.
    pub(crate) fn take_descriptor(&self) -> Result<Descriptor, Error> {
        let own = self.files_open() + self.engaged.as_ref().map_or(0, |engaged| engaged.opening);
        let descriptor =
            if own < self.settings.files_max { self.settings.descriptors.open(own) } else { None };
        descriptor.ok_or_else(|| Error::new(ErrorKind::Overloaded, "too many open files in this session"))
    }

    /// Appends a task to the queue of [`Session::next_todo`].
    pub fn push(&mut self, todo: Todo) {
        if !matches!(todo, Todo::Nothing) {
            self.engage().ready.push_back(todo);
        }
    }

    /// Announces data to discard. Then the error is sent on the connection `reply`.
    pub(crate) fn discard(
        &mut self,
        streamid: StreamId,
        reply: LinkId,
        (link, length): (LinkId, usize),
        error: Error,
    ) -> Todo {
        let call = self.call(streamid, reply, CallKind::Refused(error));
        let into = Destination::Discard;
        Todo::Receive(Receive { call, link, length, into, checkpoint: false, held: false })
    }

    /// Gives the lowest free path id to a connection from `address`.
    pub fn bind(&mut self, address: Option<std::net::IpAddr>) -> Result<LinkId, Error> {
        match self.stage {
            Stage::Handshake | Stage::Greeting => {
                return Err(Error::new(ErrorKind::ArgInvalid, "session not logged in"));
            }
            Stage::Ending => return Err(Error::new(ErrorKind::NotFound, "session just closed")),
            Stage::Active => {}
        }
        if address != self.caller.identity.address {
            return Err(Error::new(ErrorKind::NotAuthorized, "cross-host bind not allowed"));
        }
        let free = (1..=PATH_ID_MAX).find(|&p| self.bound & (1 << p) == 0);
        let Some(path) = free else { return Err(Error::new(ErrorKind::NoMemory, "bind limit exceeded")) };
        self.bound |= 1 << path;
        Ok(LinkId(path))
    }

    /// Replies to a kXR_bind whose connection has joined.
    pub fn bound(&self, streamid: StreamId, link: LinkId, out: &mut dyn Outlets) {
        replies::ok(out.link(link), streamid, &[link.0]);
    }

    /// Replies to a connection that cannot join a session.
    pub fn refuse_bind(streamid: StreamId, error: &Error, out: &mut Vec<u8>) {
        replies::fail(out, streamid, error);
    }

    /// Replies to data on a bound connection that no request announced.
    pub fn refuse_unannounced(&self, streamid: StreamId, link: LinkId, out: &mut dyn Outlets) {
        let text = "Invalid request; only announced data may come on this connection";
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, text);
    }

    /// Replies to a request of `bytes` bytes that did not arrive completely before its deadline.
    pub fn refuse_overdue(&self, input: &[u8], bytes: usize, link: LinkId, out: &mut dyn Outlets) {
        let streamid = StreamId(input.first_chunk().copied().unwrap_or_default());
        let text = format!("Request did not arrive in time; {} of {bytes} bytes came", input.len());
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, &text);
    }

    /// Frees the path id of a bound connection that was lost.
    pub fn unbind(&mut self, link: LinkId) {
        if link.0 <= PATH_ID_MAX {
            self.bound &= !(1 << link.0);
        }
    }
}
