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
//! | `lane`     | one of its sockets: frame boundaries    |
//! | `requests` | the requests in flight by stream id     |
//!
//! Source: xroot protocol 5.2.0, sections 1.2 to 1.7, 3.

mod event;
mod lane;
mod requests;

use bytes::Bytes;
use std::io::IoSlice;
use wire::WireError;
use wire::xroot::flags::{SecurityOptions, ServerFlags};
use wire::xroot::header::HandshakeReply;
use wire::xroot::reply::{LoginReply, ProtocolReply, Reply};
use wire::xroot::request::Request;
use wire::xroot::{RequestCode, ResponseHeader, SessionId, StreamId};

use crate::encoded::Encoded;
use crate::error::{ConnectionError, Demand, SubmitError};
use crate::login::Login;

use self::lane::Lane;
use self::requests::Requests;

pub use self::event::{ConnectionEvent, RequestOutcome};

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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoginPhase {
    Handshake,
    Protocol,
    Login,
    Ready,
}

impl Connection {
    /// Creates a connection whose first bytes are ready to be sent.
    #[must_use]
    pub fn new(login: Login) -> Self {
        let mut control = Lane::default();
        Login::encode_greeting(control.outgoing.buffer());
        Self {
            phase: LoginPhase::Handshake,
            login,
            server: ServerInfo::default(),
            control,
            bound: Vec::new(),
            paths: Vec::new(),
            requests: Requests::default(),
        }
    }

    /// Returns the description of the server; complete once the login is done.
    #[must_use]
    pub const fn server(&self) -> ServerInfo {
        self.server
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
        request.encode(streamid, self.control.outgoing.buffer());
        self.control.outgoing.payload(payload);
        Ok(())
    }

    /// Adds a data stream that is bound to the session under this path id. Returns the number of
    /// its lane, from 1.
    pub fn bind(&mut self, path: u8) -> usize {
        self.bound.push(Lane::default());
        self.paths.push(path);
        self.bound.len()
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
        request.append(streamid, path, self.control.outgoing.buffer());
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
            let Some(frame) = self.control.whole(input)? else { return Ok(None) };
            if self.greet(&frame)? {
                return Ok(Some(ConnectionEvent::Ready));
            }
        }
        self.control.next_event(input, &mut self.requests)
    }

    /// Processes a reply to the handshake, `kXR_protocol` or `kXR_login`. Returns `true` when the
    /// login is complete.
    fn greet(&mut self, frame: &[u8]) -> Result<bool, ConnectionError> {
        let Some((header, body)) = frame.split_first_chunk() else { return Ok(false) };
        let header = ResponseHeader::decode(header);
        let request = match self.phase {
            // The handshake has no request code of its own.
            LoginPhase::Handshake | LoginPhase::Protocol => RequestCode::PROTOCOL,
            LoginPhase::Login | LoginPhase::Ready => RequestCode::LOGIN,
        };
        match Reply::decode(&header, body)? {
            _ if header.streamid != StreamId::default() => {
                return Err(ConnectionError::UnknownStream(header.streamid));
            }
            Reply::Ok(_) => {}
            Reply::Error(error) => {
                let text = String::from_utf8_lossy(error.text).into_owned();
                return Err(ConnectionError::Refused { request, code: error.code, text });
            }
            _ => return Err(ConnectionError::Unexpected { request, status: header.status }),
        }
        match self.phase {
            LoginPhase::Handshake => {
                let bytes = frame.first_chunk().ok_or(WireError::BadLength {
                    field: "handshake reply",
                    bytes: i64::from(header.dlen),
                })?;
                self.server.protocol_version = HandshakeReply::decode(bytes)?.protover;
                self.phase = LoginPhase::Protocol;
            }
            LoginPhase::Protocol => {
                self.take_protocol(&ProtocolReply::decode(body)?)?;
                self.login.encode(self.control.outgoing.buffer());
                self.phase = LoginPhase::Login;
            }
            LoginPhase::Login | LoginPhase::Ready => {
                let reply = LoginReply::decode(body)?;
                if !reply.security.is_empty() {
                    let names: Vec<_> =
                        reply.protocols().map(|offer| String::from_utf8_lossy(offer.name)).collect();
                    return Err(ConnectionError::Demands(Demand::Authentication(names.join(", "))));
                }
                self.server.session = reply.sessid;
                self.phase = LoginPhase::Ready;
            }
        }
        Ok(self.phase == LoginPhase::Ready)
    }

    fn take_protocol(&mut self, reply: &ProtocolReply<'_>) -> Result<(), ConnectionError> {
        self.server.protocol_version = reply.pval;
        self.server.flags = reply.flags;
        if reply.flags.intersects(ServerFlags::GOTO_TLS) {
            return Err(ConnectionError::Demands(Demand::Tls));
        }
        // Without a session key, the server can require only forced signatures.
        if reply.security.is_some_and(|security| security.secopt.contains(SecurityOptions::FORCE)) {
            return Err(ConnectionError::Demands(Demand::Signatures));
        }
        Ok(())
    }
}
