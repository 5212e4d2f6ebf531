//! The state of a session: its stage, its open files, its requests without an answer, and its
//! connections.
//!
//! `machine` takes requests; the families of requests are in files of their own (`paths`,
//! `handles`, `query`, ...). They share the state here.

use crate::authentication::SessionSecurity;
use crate::call::{BlockedOperation, CallKind, UnansweredCall};
use crate::files::{FileTable, SessionFile};
use crate::ids::{CallId, FileIndex, PathId};
use crate::replies;
use crate::sequencer::Sequencer;
use crate::settings::{CALLS_MAX, Peer, Settings};
use crate::slots::StableKeyTable;
use crate::step::{Destination, DriverTask, PayloadAnnouncement};
use crate::tls::LinkEncryption;
use base::{Charge, Descriptor, Error, ErrorKind, Identity, LoginNames};
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::{Caller, OpenFile};
use wire::xroot::codes::ErrorCode;
use wire::xroot::header::{SessionId, StreamId};
use wire::xroot::limits::PATH_ID_MAX;

/// Output buffers for replies, one per connection. Replies for a lost connection are discarded.
pub trait ReplyOutputs {
    /// Returns the output of a connection. Callers append whole frames.
    fn link(&mut self, link: PathId) -> &mut Vec<u8>;
}

/// The stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionStage {
    /// Nothing has arrived.
    Handshake,
    /// Before login.
    Greeting,
    /// Logged in; the client must authenticate before it can use anything.
    Authenticating,
    /// Logged in and identified.
    Active,
    /// Takes no further requests; files are being released.
    Ending,
}

/// State that a session has only while files are open or calls are in flight. It is allocated on
/// demand because most connections of a large server are idle.
#[derive(Default)]
pub(crate) struct ActiveState {
    pub(crate) files: FileTable,
    pub(crate) calls: StableKeyTable<UnansweredCall>,
    pub(crate) sequencer: Sequencer<BlockedOperation>,
    /// Reads that wait for earlier operations. They have no call.
    pub(crate) reads_waiting: usize,
    ready: VecDeque<DriverTask>,
    /// Charge of the request that is being taken. The first call made for the request takes it
    /// over.
    pub(crate) arriving: Charge,
    /// Number of calls that open a file.
    opening: usize,
}

impl ActiveState {
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
    pub(crate) stage: SessionStage,
    pub(crate) caller: Arc<Caller>,
    pub(crate) prepares: u32,
    /// `None` if the client neither has to authenticate nor to sign.
    pub(crate) security: Option<Box<SessionSecurity>>,
    /// `None` if nothing is open or in flight.
    pub(crate) engaged: Option<Box<ActiveState>>,
    /// Protocol version of the client; 0 if unknown.
    pub(crate) client_version: i32,
    /// Port of the client.
    pub(crate) port: u16,
    /// Bit p is set if path id p is bound.
    bound: u16,
    pub(crate) encryption: LinkEncryption,
}

impl Session {
    /// Returns a session that has received nothing. `id` must be unguessable and unique.
    pub fn new(id: SessionId, settings: Arc<Settings>, peer: Peer) -> Self {
        let told = LoginNames { host: &peer.host, ..LoginNames::default() };
        let identity = Identity::new(&told, 0, peer.address, auth::host::HOST);
        Self {
            id,
            settings,
            stage: SessionStage::Handshake,
            caller: Arc::new(Caller::new(identity, false, false)),
            prepares: 0,
            security: None,
            engaged: None,
            client_version: 0,
            port: peer.port,
            bound: 0,
            encryption: LinkEncryption::Unsupported,
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

    /// Reports whether the client has logged in and is identified.
    pub fn is_active(&self) -> bool {
        self.stage == SessionStage::Active
    }

    /// Reports whether the session is ending.
    pub fn is_ending(&self) -> bool {
        self.stage == SessionStage::Ending
    }

    /// Reports whether the session has ended and released all files, so that it can be dropped.
    pub fn is_finished(&self) -> bool {
        self.stage == SessionStage::Ending && self.is_at_rest()
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

    pub(crate) fn engage(&mut self) -> &mut ActiveState {
        self.engaged.get_or_insert_default()
    }

    pub(crate) fn engaged(&self) -> Option<&ActiveState> {
        self.engaged.as_deref()
    }

    pub(crate) fn engaged_mut(&mut self) -> Option<&mut ActiveState> {
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
    pub(crate) fn files(&mut self) -> &mut FileTable {
        &mut self.engage().files
    }

    /// Returns a file that accepts operations.
    pub(crate) fn handle(&self, index: FileIndex) -> Option<&SessionFile> {
        self.engaged.as_ref()?.files.get(index)
    }

    /// Returns a file, even if it is being closed.
    pub(crate) fn any_handle(&mut self, index: FileIndex) -> Option<&mut SessionFile> {
        self.engaged.as_mut()?.files.any(index)
    }

    /// Reports whether the session accepts another request. If not, the driver waits for an answer
    /// (back-pressure).
    pub fn has_room(&self) -> bool {
        self.calls_in_flight() < CALLS_MAX && (self.security.is_none() || !self.is_login_busy())
    }

    /// Returns a file of the session. The driver also finds a file whose close waits for a read
    /// that the driver was given.
    pub fn file(&self, index: FileIndex) -> Option<&Arc<dyn OpenFile>> {
        self.engaged()?.files.known(index).map(|handle| &handle.file)
    }

    /// Reports whether a connection belongs to the session.
    pub fn is_bound(&self, link: PathId) -> bool {
        link == PathId::CONTROL || (link.0 <= PATH_ID_MAX && self.bound & (1 << link.0) != 0)
    }

    /// Returns the next task that has become possible.
    pub fn next_todo(&mut self) -> Option<DriverTask> {
        self.engaged.as_mut()?.ready.pop_front()
    }

    /// Returns the charge of an unanswered request, for the driver to adapt.
    pub fn charge_mut(&mut self, id: CallId) -> Option<&mut Charge> {
        self.call_mut(id).map(|call| &mut call.charge)
    }

    /// Replies with an error and keeps the session.
    pub(crate) fn refuse(
        &mut self,
        streamid: StreamId,
        link: PathId,
        code: ErrorCode,
        text: &str,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        replies::error(out.link(link), streamid, code, text);
        DriverTask::Nothing
    }

    /// Replies with an error of our own crates and keeps the session.
    pub(crate) fn fail(
        &mut self,
        streamid: StreamId,
        error: &Error,
        out: &mut dyn ReplyOutputs,
    ) -> DriverTask {
        self.refuse(streamid, PathId::CONTROL, crate::wire_code(error.kind), &error.text, out)
    }

    /// Replies that the request succeeded, without data.
    pub(crate) fn done(&mut self, streamid: StreamId, out: &mut dyn ReplyOutputs) -> DriverTask {
        replies::ok(out.link(PathId::CONTROL), streamid, &[]);
        DriverTask::Nothing
    }

    /// Ends the session after the reply to a protocol violation. The rest of the input is ignored.
    pub(crate) fn violated(&mut self) -> DriverTask {
        self.end();
        DriverTask::Close
    }

    /// Registers a request that will be answered later.
    pub(crate) fn call(&mut self, streamid: StreamId, link: PathId, kind: CallKind) -> CallId {
        let engaged = self.engage();
        let charge = std::mem::take(&mut engaged.arriving);
        engaged.opening += usize::from(matches!(kind, CallKind::Open { .. }));
        let descriptor = Descriptor::NONE;
        let call =
            UnansweredCall { streamid, link, is_deferred: false, sequence: None, kind, charge, descriptor };
        CallId(engaged.calls.insert(call))
    }

    pub(crate) fn call_mut(&mut self, id: CallId) -> Option<&mut UnansweredCall> {
        self.engaged.as_mut()?.calls.get_mut(id.0)
    }

    pub(crate) fn finish_call(&mut self, id: CallId) -> Option<UnansweredCall> {
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
    pub fn push(&mut self, todo: DriverTask) {
        if !matches!(todo, DriverTask::Nothing) {
            self.engage().ready.push_back(todo);
        }
    }

    /// Announces data to discard. Then the error is sent on the connection `reply`.
    pub(crate) fn discard(
        &mut self,
        streamid: StreamId,
        reply: PathId,
        (link, length): (PathId, usize),
        error: Error,
    ) -> DriverTask {
        let call = self.call(streamid, reply, CallKind::Refused(error));
        let into = Destination::Discard;
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint: false, held: false })
    }

    /// Gives the lowest free path id to a connection from `address`, which is encrypted or not.
    pub fn bind(&mut self, address: Option<std::net::IpAddr>, is_tls: bool) -> Result<PathId, Error> {
        match self.stage {
            SessionStage::Handshake | SessionStage::Greeting | SessionStage::Authenticating => {
                return Err(Error::new(ErrorKind::ArgInvalid, "session not logged in"));
            }
            SessionStage::Ending => return Err(Error::new(ErrorKind::NotFound, "session just closed")),
            SessionStage::Active => {}
        }
        if address != self.caller.identity.address {
            return Err(Error::new(ErrorKind::NotAuthorized, "cross-host bind not allowed"));
        }
        if !is_tls && self.needs_tls_on_links() {
            return Err(Error::new(ErrorKind::TlsRequired, "bind requires TLS"));
        }
        let free = (1..=PATH_ID_MAX).find(|&p| self.bound & (1 << p) == 0);
        let Some(path) = free else { return Err(Error::new(ErrorKind::NoMemory, "bind limit exceeded")) };
        self.bound |= 1 << path;
        Ok(PathId(path))
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
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, text);
    }

    /// Replies to a request of `bytes` bytes that did not arrive completely before its deadline.
    pub fn refuse_overdue(&self, input: &[u8], bytes: usize, link: PathId, out: &mut dyn ReplyOutputs) {
        let streamid = StreamId(input.first_chunk().copied().unwrap_or_default());
        let text = format!("Request did not arrive in time; {} of {bytes} bytes came", input.len());
        replies::error(out.link(link), streamid, ErrorCode::INVALID_REQUEST, &text);
    }

    /// Frees the path id of a bound connection that was lost.
    pub fn unbind(&mut self, link: PathId) {
        if link.0 <= PATH_ID_MAX {
            self.bound &= !(1 << link.0);
        }
    }
}
