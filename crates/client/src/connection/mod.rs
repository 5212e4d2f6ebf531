//! One connection as a pure machine: requests go in and become bytes to send, bytes that arrived go in and become events.
//!
//! The machine greets the server and logs in by itself. It gives each request a stream id and finds the request again by
//! the id of the answer, so answers may come in any order and in pieces (`kXR_oksofar`, partial `kXR_status`), or later
//! (`kXR_waitresp`, then `kXR_attn`). File data is handed out as it lies in the caller's receive buffer: nothing of it is
//! copied, however large the frame is. Small frames that the network has cut are put together first.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Connection`]: login, requests, events |
//! | `lane` | one of its sockets: where frames begin and end |
//! | `requests` | the requests in flight by stream id |
//!
//! Source: xroot protocol 5.2.0, sections 1.2 to 1.7, 3.

mod lane;
mod requests;

use bytes::Bytes;
use std::io::IoSlice;
use wire::WireError;
use wire::xroot::codes::AttnCode;
use wire::xroot::flags::{SecurityOptions, ServerFlags};
use wire::xroot::header::HandshakeReply;
use wire::xroot::reply::{ErrorReply, LoginReply, ProtocolReply, Redirect, Reply, StatusFrame, Wait};
use wire::xroot::request::Request;
use wire::xroot::{RequestCode, ResponseHeader, SessionId, StreamId};

use crate::encoded::Encoded;
use crate::error::{ConnectionError, Demand, SubmitError};
use crate::login::Login;

use self::lane::Lane;
use self::requests::Requests;

/// Most requests in flight on one connection: the stream ids but 0, which is for the login.
pub const REQUESTS_IN_FLIGHT_MAX: usize = u16::MAX as usize;

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    login: Login,
    server: ServerInfo,
    /// Its own socket.
    control: Lane,
    /// The data streams that are bound to its session.
    bound: Vec<Lane>,
    /// Their path ids.
    paths: Vec<u8>,
    requests: Requests,
}

/// What a server said about itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ServerInfo {
    /// Its protocol version, 0x520 for 5.2.0.
    pub protocol_version: i32,
    /// What it is and can do.
    pub flags: ServerFlags,
    /// The session; missing from very old servers.
    pub session: Option<SessionId>,
}

/// What has happened on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The login is done; requests are welcome.
    Ready,
    /// Data of the answer to a request, in order: what follows the last one of the same `kXR_read`, `kXR_readv` or
    /// `kXR_dirlist`, or what follows the last [`Event::Pages`].
    Data {
        /// Tag of the request.
        tag: u64,
        /// Some bytes of it.
        bytes: &'a [u8],
    },
    /// `frame.dlen` bytes of data of a page request follow. Frames of one answer may come in any order.
    Pages {
        /// Tag of the request.
        tag: u64,
        /// Where the data belongs.
        frame: StatusFrame,
    },
    /// The answer will come later by itself.
    Later {
        /// Tag of the request.
        tag: u64,
        /// For how long to wait for it, and why.
        wait: Wait<'a>,
    },
    /// The request is answered; nothing more comes for its tag.
    Done {
        /// Tag of the request.
        tag: u64,
        /// How it ended.
        outcome: Outcome<'a>,
    },
    /// The server says something that belongs to no request.
    Notice {
        /// What kind.
        action: AttnCode,
        /// The rest of the message.
        rest: &'a [u8],
    },
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// Success, with the body, or what of it did not come as [`Event::Data`].
    Ok(&'a [u8]),
    /// It failed.
    Error(ErrorReply<'a>),
    /// It is to be made elsewhere.
    Redirect(Redirect<'a>),
    /// It is to be made again later.
    Wait(Wait<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Handshake,
    Protocol,
    Login,
    Ready,
}

impl Connection {
    /// A connection whose first bytes are ready to be sent.
    #[must_use]
    pub fn new(login: Login) -> Self {
        let mut control = Lane::default();
        Login::encode_greeting(control.outgoing.buffer());
        Self {
            phase: Phase::Handshake,
            login,
            server: ServerInfo::default(),
            control,
            bound: Vec::new(),
            paths: Vec::new(),
            requests: Requests::default(),
        }
    }

    /// What the server said about itself; complete once the login is done.
    #[must_use]
    pub const fn server(&self) -> ServerInfo {
        self.server
    }

    /// Whether the login is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Requests without their whole answer.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Queues a request; `tag` comes back with every event about it, and may be anything.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<(), SubmitError> {
        self.submit_with_payload(request, Bytes::new(), tag)
    }

    /// The same for a request whose payload is file data: `payload` has the `dlen` bytes it announces.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit_with_payload(
        &mut self,
        request: &Request<'_>,
        payload: Bytes,
        tag: u64,
    ) -> Result<(), SubmitError> {
        if self.phase != Phase::Ready {
            return Err(SubmitError::NotReady);
        }
        let streamid = self.requests.take(tag, request.code()).ok_or(SubmitError::Full)?;
        request.encode(streamid, self.control.outgoing.buffer());
        self.control.outgoing.payload(payload);
        Ok(())
    }

    /// Adds a data stream that is bound to the session under this path id; returns the number of its lane, from 1.
    pub(crate) fn bind(&mut self, path: u8) -> usize {
        self.bound.push(Lane::default());
        self.paths.push(path);
        self.bound.len()
    }

    /// Its lanes: its own socket is 0.
    pub(crate) const fn lanes(&self) -> usize {
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

    /// Queues a request that was encoded before; its data goes through this lane, in whichever direction it has any.
    pub(crate) fn submit_encoded(
        &mut self,
        request: &Encoded,
        payload: Bytes,
        lane: usize,
        tag: u64,
    ) -> Result<(), SubmitError> {
        if self.phase != Phase::Ready {
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

    /// As [`Connection::is_sent`], for one lane.
    pub(crate) fn is_sent_on(&self, lane: usize) -> bool {
        self.lane_ref(lane).is_none_or(|lane| lane.outgoing.is_empty())
    }

    /// As [`Connection::outgoing`], for one lane.
    pub(crate) fn outgoing_on<'a>(&'a self, lane: usize, slices: &mut [IoSlice<'a>]) -> usize {
        self.lane_ref(lane).map_or(0, |lane| lane.outgoing.slices(slices))
    }

    /// As [`Connection::sent`], for one lane.
    pub(crate) fn sent_on(&mut self, lane: usize, count: usize) {
        if let Some(lane) = self.lane(lane) {
            lane.outgoing.sent(count);
        }
    }

    /// As [`Connection::discardable`], for one lane.
    pub(crate) fn discardable_on(&self, lane: usize) -> Option<(u64, usize)> {
        self.lane_ref(lane)?.discardable()
    }

    /// As [`Connection::discarded`], for one lane.
    pub(crate) fn discarded_on(&mut self, lane: usize, count: usize) {
        if let Some(lane) = self.lane(lane) {
            lane.discarded(count);
        }
    }

    /// As [`Connection::next_event`], for one lane. Once the login is done.
    pub(crate) fn next_event_on<'a, 'input: 'a>(
        &'a mut self,
        lane: usize,
        input: &mut &'input [u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        let Self { control, bound, requests, .. } = self;
        let lane = match lane.checked_sub(1) {
            None => Some(control),
            Some(place) => bound.get_mut(place),
        };
        lane.map_or(Ok(None), |lane| lane.next_event(input, requests))
    }

    /// Whether everything queued is sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.control.outgoing.is_empty()
    }

    /// Fills `slices` with the bytes to send next and returns how many it used.
    pub fn outgoing<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.control.outgoing.slices(slices)
    }

    /// The first `count` bytes of [`Connection::outgoing`] are sent.
    pub fn sent(&mut self, count: usize) {
        self.control.outgoing.sent(count);
    }

    /// The request whose file data comes next, by its tag, and how many bytes of nothing else: they may be thrown away
    /// instead of received.
    #[must_use]
    pub fn discardable(&self) -> Option<(u64, usize)> {
        self.control.discardable()
    }

    /// `count` of the [`Connection::discardable`] bytes were thrown away. The answer may be done now:
    /// [`Connection::next_event`] tells.
    pub fn discarded(&mut self, count: usize) {
        self.control.discarded(count);
    }

    /// Takes from the front of `input`, bytes in the order in which they arrived, what the next event needs. `None` when
    /// the input is used up.
    ///
    /// # Errors
    /// [`ConnectionError`]: the connection is lost, and so are the requests in flight.
    pub fn next_event<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        while self.phase != Phase::Ready {
            let Some(frame) = self.control.whole(input)? else { return Ok(None) };
            if self.greet(&frame)? {
                return Ok(Some(Event::Ready));
            }
        }
        self.control.next_event(input, &mut self.requests)
    }

    /// Takes an answer to the handshake, `kXR_protocol` or `kXR_login`; `true` when the login is done.
    fn greet(&mut self, frame: &[u8]) -> Result<bool, ConnectionError> {
        let Some((header, body)) = frame.split_first_chunk() else { return Ok(false) };
        let header = ResponseHeader::decode(header);
        let request = match self.phase {
            // The handshake has no code of its own.
            Phase::Handshake | Phase::Protocol => RequestCode::PROTOCOL,
            Phase::Login | Phase::Ready => RequestCode::LOGIN,
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
            Phase::Handshake => {
                let bytes = frame.first_chunk().ok_or(WireError::BadLength {
                    field: "handshake reply",
                    bytes: i64::from(header.dlen),
                })?;
                self.server.protocol_version = HandshakeReply::decode(bytes)?.protover;
                self.phase = Phase::Protocol;
            }
            Phase::Protocol => {
                self.take_protocol(&ProtocolReply::decode(body)?)?;
                self.login.encode(self.control.outgoing.buffer());
                self.phase = Phase::Login;
            }
            Phase::Login | Phase::Ready => {
                let reply = LoginReply::decode(body)?;
                if !reply.security.is_empty() {
                    let names: Vec<_> =
                        reply.protocols().map(|offer| String::from_utf8_lossy(offer.name)).collect();
                    return Err(ConnectionError::Demands(Demand::Authentication(names.join(", "))));
                }
                self.server.session = reply.sessid;
                self.phase = Phase::Ready;
            }
        }
        Ok(self.phase == Phase::Ready)
    }

    fn take_protocol(&mut self, reply: &ProtocolReply<'_>) -> Result<(), ConnectionError> {
        self.server.protocol_version = reply.pval;
        self.server.flags = reply.flags;
        if reply.flags.intersects(ServerFlags::GOTO_TLS) {
            return Err(ConnectionError::Demands(Demand::Tls));
        }
        // Without a session key only a forced signature can be asked of us.
        if reply.security.is_some_and(|security| security.secopt.contains(SecurityOptions::FORCE)) {
            return Err(ConnectionError::Demands(Demand::Signatures));
        }
        Ok(())
    }
}
