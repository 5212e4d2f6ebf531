//! One connection as a state machine without I/O.
//!
//! Requests become bytes to send, and received bytes become events. It is free of I/O so that tests
//! can split the received bytes at every place. The machine sends the greeting and logs in by
//! itself. It assigns a stream id to each request and finds the request by the id in the reply.
//! Replies may therefore arrive in any order, in pieces (`kXR_oksofar`, partial `kXR_status`), or
//! deferred (`kXR_waitresp`, then `kXR_attn`). File data is passed on from the caller's receive
//! buffer without a copy, for frames of any size. Small frames that arrive in parts are assembled
//! first.
//!
//! | file       | contents                                |
//! |------------|-----------------------------------------|
//! | `mod`      | [`Connection`]: login, requests, events |
//! | `event`    | [`ConnectionEvent`], [`RequestOutcome`]                |
//! | `greeting` | handshake, login, authentication        |
//! | `lane`     | one of its sockets: frame boundaries    |
//! | `requests` | the requests in flight by stream id     |
//!
//! Source: xroot protocol 5.2.0, sections 1.2 to 1.7, 3.

mod event;
mod greeting;
mod lane;
mod requests;

use bytes::Bytes;
use std::io::IoSlice;

use auth::{RequestSigner, SigningRequirements};
use wire::xroot::SessionId;
use wire::xroot::flags::ServerFlags;
use wire::xroot::request::Request;

use crate::encoded::Encoded;
use crate::error::{ConnectionError, SubmitError};
use crate::login::Login;

use self::event::Greeting;
use self::lane::Lane;
use self::requests::Requests;

pub use self::event::{AuthenticationStep, ConnectionEvent, RequestOutcome};

/// Maximum number of requests in flight on one connection: all stream ids but 0, which the login
/// uses.
pub const REQUESTS_IN_FLIGHT_MAX: usize = u16::MAX as usize;

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    phase: LoginPhase,
    login: Login,
    server: ServerInfo,
    /// The lane of its own socket.
    control: Lane,
    /// The data streams bound to its session.
    bound: Vec<Lane>,
    /// Path ids of the data streams.
    paths: Vec<u8>,
    requests: Requests,
    /// The last reply during authentication, for the event about it.
    frame: Vec<u8>,
    /// The requirements of the server for signatures.
    signing: Option<SigningRequirements>,
    signer: Option<RequestSigner>,
    /// Whether the login agreed on a session key.
    has_session_key: bool,
    is_tls: bool,
}

/// The description that a server sent at login.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerInfo {
    /// Protocol version, 0x520 for 5.2.0.
    pub protocol_version: i32,
    /// Role and capabilities.
    pub flags: ServerFlags,
    /// Session id; very old servers send none.
    pub session: Option<SessionId>,
    /// Signatures of writes cover their data. The server refuses requests whose signature cannot do
    /// so: vector writes and writes under a checkpoint.
    pub signs_data: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoginPhase {
    Handshake,
    Protocol,
    /// A TLS handshake precedes the login.
    TlsBeforeLogin,
    Login,
    Authentication,
    /// The login is complete, and a TLS handshake precedes the first request.
    TlsBeforeUse,
    Ready,
}

impl Connection {
    /// Creates a connection whose first bytes are ready to be sent.
    #[must_use]
    pub fn new(login: Login) -> Self {
        let mut control = Lane::default();
        Login::encode_greeting(login.tls, control.outgoing.buffer());
        Self {
            phase: LoginPhase::Handshake,
            login,
            server: ServerInfo::default(),
            control,
            bound: Vec::new(),
            paths: Vec::new(),
            requests: Requests::default(),
            frame: Vec::new(),
            signing: None,
            signer: None,
            has_session_key: false,
            is_tls: false,
        }
    }

    /// Returns the description of the server; complete once the login is done.
    #[must_use]
    pub fn server(&self) -> ServerInfo {
        let signs_data = self.signer.as_ref().is_some_and(RequestSigner::covers_data);
        ServerInfo { signs_data, ..self.server }
    }

    /// Reports whether the login is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == LoginPhase::Ready
    }

    /// Returns the number of requests without a complete reply.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Queues a request. `tag` is arbitrary and returned with each event of the request.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<(), SubmitError> {
        self.submit_with_payload(request, Bytes::new(), tag)
    }

    /// Queues a request whose payload is file data: `payload` has the `dlen` bytes that it
    /// announces.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit_with_payload(
        &mut self,
        request: &Request<'_>,
        payload: Bytes,
        tag: u64,
    ) -> Result<(), SubmitError> {
        if self.phase != LoginPhase::Ready {
            return Err(SubmitError::NotReady);
        }
        let streamid = self.requests.take(tag, request.code()).ok_or(SubmitError::Full)?;
        let start = self.control.outgoing.buffer().len();
        request.encode(streamid, self.control.outgoing.buffer());
        self.sign(start, &payload);
        self.control.outgoing.payload(payload);
        Ok(())
    }

    /// Inserts the signature of the request that was appended at `start`, if it needs one.
    fn sign(&mut self, start: usize, payload: &[u8]) {
        let Some(signer) = &mut self.signer else { return };
        let buffer = self.control.outgoing.buffer();
        let signature = buffer.get(start..).and_then(|request| signer.sign(request, payload));
        if let Some(signature) = signature {
            buffer.splice(start..start, signature);
        }
    }

    /// Adds a data stream that is bound to the session under this path id. Returns the number of
    /// its lane, from 1.
    pub fn bind(&mut self, path: u8) -> usize {
        self.bound.push(Lane::default());
        self.paths.push(path);
        self.bound.len()
    }

    /// Reports whether the login has authenticated with credentials that agree on a session key.
    pub const fn has_session_key(&self) -> bool {
        self.has_session_key
    }

    /// Returns the number of lanes; lane 0 is its own socket.
    pub const fn lanes(&self) -> usize {
        1 + self.bound.len()
    }

    fn lane(&mut self, lane: usize) -> Option<&mut Lane> {
        match lane.checked_sub(1) {
            None => Some(&mut self.control),
            Some(bound) => self.bound.get_mut(bound),
        }
    }

    fn lane_ref(&self, lane: usize) -> Option<&Lane> {
        match lane.checked_sub(1) {
            None => Some(&self.control),
            Some(bound) => self.bound.get(bound),
        }
    }

    /// Queues an encoded request. Its data uses this lane, in either direction.
    pub fn submit_encoded(
        &mut self,
        request: &Encoded,
        payload: Bytes,
        lane: usize,
        tag: u64,
    ) -> Result<(), SubmitError> {
        if self.phase != LoginPhase::Ready {
            return Err(SubmitError::NotReady);
        }
        let streamid = self.requests.take(tag, request.code()).ok_or(SubmitError::Full)?;
        let path = lane.checked_sub(1).and_then(|bound| self.paths.get(bound)).copied().unwrap_or(0);
        let start = self.control.outgoing.buffer().len();
        request.append(streamid, path, self.control.outgoing.buffer());
        self.sign(start, &payload);
        if let Some(lane) = self.lane(lane) {
            lane.outgoing.payload(payload);
        }
        Ok(())
    }

    /// Implements [`Connection::is_sent`] for one lane.
    pub fn is_sent_on(&self, lane: usize) -> bool {
        self.lane_ref(lane).is_none_or(|lane| lane.outgoing.is_empty())
    }

    /// Implements [`Connection::outgoing`] for one lane.
    pub fn outgoing_on<'a>(&'a self, lane: usize, slices: &mut [IoSlice<'a>]) -> usize {
        self.lane_ref(lane).map_or(0, |lane| lane.outgoing.slices(slices))
    }

    /// Implements [`Connection::sent`] for one lane.
    pub fn sent_on(&mut self, lane: usize, count: usize) {
        if let Some(lane) = self.lane(lane) {
            lane.outgoing.sent(count);
        }
    }

    /// Implements [`Connection::discardable`] for one lane.
    pub fn discardable_on(&self, lane: usize) -> Option<(u64, usize)> {
        self.lane_ref(lane)?.discardable()
    }

    /// Implements [`Connection::discarded`] for one lane.
    pub fn discarded_on(&mut self, lane: usize, count: usize) {
        if let Some(lane) = self.lane(lane) {
            lane.discarded(count);
        }
    }

    /// Implements [`Connection::next_event`] for one lane, after the login.
    pub fn next_event_on<'a, 'input: 'a>(
        &'a mut self,
        lane: usize,
        input: &mut &'input [u8],
    ) -> Result<Option<ConnectionEvent<'a>>, ConnectionError> {
        let Self { control, bound, requests, .. } = self;
        let lane = match lane.checked_sub(1) {
            None => Some(control),
            Some(place) => bound.get_mut(place),
        };
        lane.map_or(Ok(None), |lane| lane.next_event(input, requests))
    }

    /// Reports whether all queued bytes are sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.control.outgoing.is_empty()
    }

    /// Fills `slices` with the bytes to send next and returns the number of slices used.
    pub fn outgoing<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.control.outgoing.slices(slices)
    }

    /// Records that the first `count` bytes of [`Connection::outgoing`] are sent.
    pub fn sent(&mut self, count: usize) {
        self.control.outgoing.sent(count);
    }

    /// Returns the tag of the request whose file data comes next, and the number of bytes of that
    /// data. They may be discarded instead of received.
    #[must_use]
    pub fn discardable(&self) -> Option<(u64, usize)> {
        self.control.discardable()
    }

    /// Records that `count` of the [`Connection::discardable`] bytes were discarded. If this
    /// completes the reply, [`Connection::next_event`] returns its end.
    pub fn discarded(&mut self, count: usize) {
        self.control.discarded(count);
    }

    /// Takes the bytes of the next event from the front of `input`, which holds received bytes in
    /// order. Returns `None` when the input is used up.
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection and its requests in flight are lost.
    pub fn next_event<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<ConnectionEvent<'a>>, ConnectionError> {
        while self.phase != LoginPhase::Ready {
            if self.awaits_tls() {
                // Its first bytes in clear text come after the switch.
                return if input.is_empty() { Ok(None) } else { Err(ConnectionError::NoTls) };
            }
            let Some(frame) = self.control.whole(input)? else { return Ok(None) };
            match self.greet(frame)? {
                Greeting::Continues => {}
                Greeting::StartTls => return Ok(Some(ConnectionEvent::StartTls)),
                Greeting::Complete => return Ok(Some(ConnectionEvent::Ready)),
                Greeting::NeedsCredentials => return Ok(Some(self.authentication_event())),
            }
        }
        self.control.next_event(input, &mut self.requests)
    }
}
