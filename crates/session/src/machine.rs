//! The session: stages, framing, and the life of calls and files.

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

/// Where replies go: the output of each link. A link that is gone takes them and forgets them.
pub trait Outlets {
    /// The output of a link, to append whole frames to.
    fn link(&mut self, link: LinkId) -> &mut Vec<u8>;
}

/// Where a session is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Nothing came yet.
    Handshake,
    /// Before login.
    Greeting,
    /// Logged in.
    Active,
    /// No further requests; files are being released.
    Ending,
}

/// A request that is not answered yet.
pub(crate) struct Call {
    pub(crate) streamid: StreamId,
    /// Where the reply goes.
    pub(crate) link: LinkId,
    /// The client was told that the answer comes by kXR_attn.
    pub(crate) told_later: bool,
    /// Its place among the operations on open files, if it is one.
    pub(crate) sequence: Option<SequenceId>,
    pub(crate) kind: CallKind,
    /// Memory of the request and its reply until it is answered.
    pub(crate) charge: Charge,
    /// For the file that it opens.
    pub(crate) descriptor: Descriptor,
}

/// What a call was for: decides what its answer looks like.
pub(crate) enum CallKind {
    /// Answered by the value alone.
    Plain,
    /// An operation on a file that is answered by the value alone.
    OnFile,
    /// kXR_open.
    Open { compress: bool, stat: bool },
    /// kXR_dirlist; `held` is what was not sent yet: the last entry, which ends differently if it is the very last.
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
    /// kXR_writev; `sync` are files to bring to stable storage afterwards.
    VectorWrite { files: Vec<FileIndex>, sync: bool },
    /// kXR_locate and the like: text that ends in a NUL.
    TextWithNul,
    /// A refused request whose data must pass first.
    Refused(Error),
    /// A request that was refused at once, whose data is passed over.
    Passed,
    /// The session of a vanished client releases a file. Nobody to answer.
    Release(FileIndex),
}

impl CallKind {
    /// Is it about an open file?
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

/// What a session has only while files are open or calls under way: most connections of a large server sleep, and pay for
/// none of it.
#[derive(Default)]
pub(crate) struct Engaged {
    pub(crate) files: Files,
    pub(crate) calls: Slots<Call>,
    pub(crate) sequencer: Sequencer<Waiting>,
    /// Reads that wait for their turn; they have no call.
    pub(crate) reads_waiting: usize,
    ready: VecDeque<Todo>,
    /// For the request that is being taken: the first call made for it owns this.
    pub(crate) arriving: Charge,
    /// Opens among the calls.
    opening: usize,
}

impl Engaged {
    fn is_over(&self) -> bool {
        self.files.len() == 0 && self.calls.is_empty() && self.ready.is_empty() && self.sequencer.is_idle()
    }
}

/// One login session: the control connection and up to 15 bound ones.
///
/// Getters return its state. The driver reports events by `take`, `answered`, `received` and the methods for reads, gives
/// commands by `bind`, `unbind` and `end`, and takes the next task from `next_todo`.
pub struct Session {
    pub(crate) id: SessionId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stage: Stage,
    pub(crate) caller: Arc<Caller>,
    pub(crate) prepares: u32,
    pub(crate) verifier: Verifier,
    /// `None`: nothing is open or under way.
    engaged: Option<Box<Engaged>>,
    /// Bit p: path id p is bound.
    bound: u16,
}

impl Session {
    /// A session whose first byte has not come yet. `id` must be unguessable and unique.
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

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// For whom operations run.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Did the client log in?
    pub fn is_active(&self) -> bool {
        self.stage == Stage::Active
    }

    /// Was it told to end?
    pub fn is_ending(&self) -> bool {
        self.stage == Stage::Ending
    }

    /// Ended, and every file is released: it may be forgotten.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Ending && self.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        self.engaged.as_ref().is_none_or(|engaged| engaged.is_over())
    }

    /// Gives back what it needs only for files and calls, if there are none. For a driver to call when nothing has come for
    /// a while: the memory is kept from one request to the next.
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

    /// Requests without an answer yet, reads that the driver has begun aside.
    pub fn calls_in_flight(&self) -> usize {
        self.engaged().map_or(0, |engaged| engaged.calls.len() + engaged.reads_waiting)
    }

    /// Files that are open.
    pub fn files_open(&self) -> usize {
        self.engaged.as_ref().map_or(0, |engaged| engaged.files.len())
    }

    /// The table of open files, to put one in.
    pub(crate) fn files(&mut self) -> &mut Files {
        &mut self.engage().files
    }

    /// A file that takes operations.
    pub(crate) fn handle(&self, index: FileIndex) -> Option<&Handle> {
        self.engaged.as_ref()?.files.get(index)
    }

    /// A file, also one that is being closed.
    pub(crate) fn any_handle(&mut self, index: FileIndex) -> Option<&mut Handle> {
        self.engaged.as_mut()?.files.any(index)
    }

    /// May more requests be taken now? If not, wait until an answer has come.
    pub fn has_room(&self) -> bool {
        self.calls_in_flight() < CALLS_MAX
    }

    /// A file of the session. For a read that the driver was given also one whose close waits for that read.
    pub fn file(&self, index: FileIndex) -> Option<&Arc<dyn OpenFile>> {
        self.engaged()?.files.known(index).map(|handle| &handle.file)
    }

    /// Path ids that are bound.
    pub fn is_bound(&self, link: LinkId) -> bool {
        link == LinkId::CONTROL || (link.0 <= PATH_ID_MAX && self.bound & (1 << link.0) != 0)
    }

    /// The next thing that became possible.
    pub fn next_todo(&mut self) -> Option<Todo> {
        self.engaged.as_mut()?.ready.pop_front()
    }

    /// Takes one request from the front of the control link's input. The charge covers all memory that the request may take; it
    /// is returned when the request is answered.
    pub fn take(&mut self, input: &[u8], charge: Charge, out: &mut dyn Outlets) -> Step {
        match self.front(input) {
            Ok(front) => {
                Step::Took { bytes: front.bytes(), todo: self.take_front(&front, input, charge, out) }
            }
            Err(bytes) => Step::More { bytes },
        }
    }

    /// Takes the request that [`Session::front`] has found at the front of this input.
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
        // An executed checkpoint of a vector write has its list behind the counted bytes.
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
                // An embedded request that is not there: where the data behind it ends cannot be told.
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

    /// Replies with an error, and goes on.
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

    /// Replies with an error of our own rooms, and goes on.
    pub(crate) fn fail(&mut self, streamid: StreamId, error: &Error, out: &mut dyn Outlets) -> Todo {
        self.refuse(streamid, LinkId::CONTROL, crate::wire_code(error.kind), &error.text, out)
    }

    /// Replies that it is done.
    pub(crate) fn done(&mut self, streamid: StreamId, out: &mut dyn Outlets) -> Todo {
        replies::ok(out.link(LinkId::CONTROL), streamid, &[]);
        Todo::Nothing
    }

    /// A violation of the protocol was answered: the rest of the stream means nothing.
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

    /// Takes a descriptor for a file that is to be opened.
    pub(crate) fn take_descriptor(&self) -> Result<Descriptor, Error> {
        let own = self.files_open() + self.engaged.as_ref().map_or(0, |engaged| engaged.opening);
        let descriptor =
            if own < self.settings.files_max { self.settings.descriptors.open(own) } else { None };
        descriptor.ok_or_else(|| Error::new(ErrorKind::Overloaded, "too many open files in this session"))
    }

    /// Puts something that the driver is to do behind all that [`Session::next_todo`] returns
    /// first.
    pub fn push(&mut self, todo: Todo) {
        if !matches!(todo, Todo::Nothing) {
            self.engage().ready.push_back(todo);
        }
    }

    /// Announces data that is to be thrown away before the error is sent by the link `reply`.
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

    /// Replies to the request by which a connection has joined.
    pub fn bound(&self, streamid: StreamId, link: LinkId, out: &mut dyn Outlets) {
        replies::ok(out.link(link), streamid, &[link.0]);
    }

    /// Replies to a connection that cannot join a session.
    pub fn refuse_bind(streamid: StreamId, error: &Error, out: &mut Vec<u8>) {
        replies::fail(out, streamid, error);
    }

    /// Replies to data on a bound connection that no request has announced.
    pub fn refuse_unannounced(&self, streamid: StreamId, link: LinkId, out: &mut dyn Outlets) {
        let text = "Invalid request; only announced data may come on this connection";
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, text);
    }

    /// Replies to a request of `bytes` bytes whose end did not come in time.
    pub fn refuse_overdue(&self, input: &[u8], bytes: usize, link: LinkId, out: &mut dyn Outlets) {
        let streamid = StreamId(input.first_chunk().copied().unwrap_or_default());
        let text = format!("Request did not arrive in time; {} of {bytes} bytes came", input.len());
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, &text);
    }

    /// A bound connection is gone.
    pub fn unbind(&mut self, link: LinkId) {
        if link.0 <= PATH_ID_MAX {
            self.bound &= !(1 << link.0);
        }
    }
}
