//! One connection as a pure machine: requests go in and become bytes to send, bytes that arrived go in and become events.
//!
//! The machine greets the server and logs in by itself. It gives each request a stream id and finds the request again by
//! the id of the answer, so answers may come in any order and in pieces (`kXR_oksofar`, partial `kXR_status`), or later
//! (`kXR_waitresp`, then `kXR_attn`). File data is handed out as it lies in the caller's receive buffer: nothing of it is
//! copied, however large the frame is. Small frames that the network has cut are put together first.
//!
//! Source: xroot protocol 5.2.0, sections 1.2 to 1.7, 3.

use bytes::Bytes;
use std::io::IoSlice;
use wire::WireError;
use wire::xroot::codes::{AttnCode, ResponseType};
use wire::xroot::flags::{SecurityOptions, ServerFlags};
use wire::xroot::header::HandshakeReply;
use wire::xroot::limits::{ARGUMENT_BYTES_MAX, RESPONSE_HEADER_BYTES};
use wire::xroot::reply::{Attn, ErrorReply, LoginReply, ProtocolReply, Redirect, Reply, StatusFrame, Wait};
use wire::xroot::request::Request;
use wire::xroot::{RequestCode, ResponseHeader, SessionId, Status, StreamId};

use crate::encoded::Encoded;
use crate::error::{ConnectionError, Demand, SubmitError};
use crate::login::Login;
use crate::outgoing::Outgoing;

/// Most requests in flight on one connection: the stream ids but 0, which is for the login.
pub const REQUESTS_IN_FLIGHT_MAX: usize = u16::MAX as usize;

/// Most bytes of a frame that is not file data. The longest texts of servers are listings, cut at 8 KiB by XRootD.
const WHOLE_FRAME_BYTES_MAX: usize = ARGUMENT_BYTES_MAX + RESPONSE_HEADER_BYTES;

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    login: Login,
    server: ServerInfo,
    outgoing: Outgoing,
    /// A frame that the network has cut, or the one that the last event was made of.
    kept: Vec<u8>,
    /// `kept` is done with.
    kept_used: bool,
    /// The frame whose data is being handed out.
    body: Option<Body>,
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

/// The rest of a frame whose data is handed out as it comes.
#[derive(Clone, Copy, Debug)]
struct Body {
    streamid: StreamId,
    tag: u64,
    left: usize,
    /// It ends the answer.
    last: bool,
}

/// Where the bytes lie that an event is made of.
enum Unit<'a> {
    Input(&'a [u8]),
    Kept,
}

impl Connection {
    /// A connection whose first bytes are ready to be sent.
    #[must_use]
    pub fn new(login: Login) -> Self {
        let mut outgoing = Outgoing::default();
        Login::encode_greeting(outgoing.buffer());
        Self {
            phase: Phase::Handshake,
            login,
            server: ServerInfo::default(),
            outgoing,
            kept: Vec::new(),
            kept_used: false,
            body: None,
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
        self.requests.slots.len() - self.requests.free.len()
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
        request.encode(streamid, self.outgoing.buffer());
        self.outgoing.payload(payload);
        Ok(())
    }

    /// The same for a request that was encoded before.
    pub(crate) fn submit_encoded(
        &mut self,
        request: &Encoded,
        payload: Bytes,
        tag: u64,
    ) -> Result<(), SubmitError> {
        if self.phase != Phase::Ready {
            return Err(SubmitError::NotReady);
        }
        let streamid = self.requests.take(tag, request.code()).ok_or(SubmitError::Full)?;
        request.append(streamid, self.outgoing.buffer());
        self.outgoing.payload(payload);
        Ok(())
    }

    /// Whether everything queued is sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Fills `slices` with the bytes to send next and returns how many it used.
    pub fn outgoing<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.outgoing.slices(slices)
    }

    /// The first `count` bytes of [`Connection::outgoing`] are sent.
    pub fn sent(&mut self, count: usize) {
        self.outgoing.sent(count);
    }

    /// The request whose file data comes next, by its tag, and how many bytes of nothing else: they may be thrown away
    /// instead of received.
    #[must_use]
    pub fn discardable(&self) -> Option<(u64, usize)> {
        self.body.filter(|body| body.left > 0).map(|body| (body.tag, body.left))
    }

    /// `count` of the [`Connection::discardable`] bytes were thrown away. The answer may be done now:
    /// [`Connection::next_event`] tells.
    pub fn discarded(&mut self, count: usize) {
        if let Some(body) = &mut self.body {
            body.left = body.left.saturating_sub(count);
        }
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
        if std::mem::take(&mut self.kept_used) {
            self.kept.clear();
        }
        loop {
            if let Some(body) = &mut self.body {
                if body.left > 0 {
                    let (bytes, rest) = input.split_at(body.left.min(input.len()));
                    *input = rest;
                    body.left -= bytes.len();
                    return Ok((!bytes.is_empty()).then_some(Event::Data { tag: body.tag, bytes }));
                }
                let body = *body;
                self.body = None;
                if body.last {
                    self.requests.release(body.streamid);
                    return Ok(Some(Event::Done { tag: body.tag, outcome: Outcome::Ok(&[]) }));
                }
            }
            let Some(unit) = self.unit(input)? else { return Ok(None) };
            if self.phase != Phase::Ready {
                if self.greet(&unit)? {
                    return Ok(Some(Event::Ready));
                }
            } else if !self.begin_body(&unit)? {
                let bytes = match unit {
                    Unit::Input(bytes) => bytes,
                    Unit::Kept => {
                        self.kept_used = true;
                        &self.kept
                    }
                };
                return event(bytes, &mut self.requests, &mut self.body).map(Some);
            }
        }
    }

    /// The next bytes that have to be whole, if they are: a frame, or the header of one whose data is handed out as it
    /// comes.
    fn unit<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Unit<'a>>, ConnectionError> {
        if self.kept.is_empty()
            && let Wanted::Whole(bytes) = self.wanted(input)?
            && let Some((unit, rest)) = input.split_at_checked(bytes)
        {
            *input = rest;
            return Ok(Some(Unit::Input(unit)));
        }
        loop {
            let wanted = self.wanted(&self.kept)?;
            let (Wanted::More(bytes) | Wanted::Whole(bytes)) = wanted;
            let missing = bytes.saturating_sub(self.kept.len());
            let (piece, rest) = input.split_at(missing.min(input.len()));
            self.kept.extend_from_slice(piece);
            *input = rest;
            if piece.len() < missing {
                return Ok(None);
            }
            if matches!(wanted, Wanted::Whole(_)) {
                return Ok(Some(Unit::Kept));
            }
        }
    }

    /// How many of the bytes that begin with `bytes` have to be whole.
    fn wanted(&self, bytes: &[u8]) -> Result<Wanted, ConnectionError> {
        let Some((header, body)) = bytes.split_first_chunk() else {
            return Ok(Wanted::More(RESPONSE_HEADER_BYTES));
        };
        let header = ResponseHeader::decode(header);
        let length = header.body_bytes()?;
        let whole = length.saturating_add(RESPONSE_HEADER_BYTES);
        if self.is_streamed(&header)? && (header.status == Status::OKSOFAR || body.len() < length) {
            return Ok(Wanted::Whole(RESPONSE_HEADER_BYTES));
        }
        if whole > WHOLE_FRAME_BYTES_MAX && !self.is_streamed(&header)? {
            let error = WireError::TooLong { field: "frame", limit: WHOLE_FRAME_BYTES_MAX, bytes: whole };
            return Err(error.into());
        }
        Ok(Wanted::Whole(whole))
    }

    /// Whether the body of this frame may be handed out in pieces.
    fn is_streamed(&self, header: &ResponseHeader) -> Result<bool, ConnectionError> {
        if self.phase != Phase::Ready || !matches!(header.status, Status::OK | Status::OKSOFAR) {
            return Ok(false);
        }
        let (_, code) = self.requests.get(header.streamid)?;
        Ok(matches!(code, RequestCode::READ | RequestCode::READV | RequestCode::DIRLIST))
    }

    /// If the unit is no more than the header of a frame with data, makes ready to hand the data out.
    fn begin_body(&mut self, unit: &Unit<'_>) -> Result<bool, ConnectionError> {
        let bytes = match unit {
            Unit::Input(bytes) => bytes,
            Unit::Kept => self.kept.as_slice(),
        };
        let Some((header, [])) = bytes.split_first_chunk() else { return Ok(false) };
        let header = ResponseHeader::decode(header);
        if !self.is_streamed(&header)? {
            return Ok(false);
        }
        let (tag, _) = self.requests.get(header.streamid)?;
        let last = header.status == Status::OK;
        self.body = Some(Body { streamid: header.streamid, tag, left: header.body_bytes()?, last });
        self.kept.clear();
        Ok(true)
    }

    /// Takes an answer to the handshake, `kXR_protocol` or `kXR_login`; `true` when the login is done.
    fn greet(&mut self, unit: &Unit<'_>) -> Result<bool, ConnectionError> {
        let frame = match unit {
            Unit::Input(bytes) => (*bytes).to_vec(),
            Unit::Kept => std::mem::take(&mut self.kept),
        };
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
                self.login.encode(self.outgoing.buffer());
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

/// How many bytes have to be whole.
enum Wanted {
    /// At least so many, to tell.
    More(usize),
    /// Exactly so many.
    Whole(usize),
}

/// Makes an event of a whole frame.
fn event<'a>(
    frame: &'a [u8],
    requests: &mut Requests,
    streamed: &mut Option<Body>,
) -> Result<Event<'a>, ConnectionError> {
    let short = WireError::Short { field: "header", need: RESPONSE_HEADER_BYTES, have: frame.len() };
    let (header, body) = frame.split_first_chunk().ok_or(short)?;
    let header = ResponseHeader::decode(header);
    let reply = Reply::decode(&header, body)?;
    match reply {
        Reply::Attn(Attn::Other { actnum, rest }) => Ok(Event::Notice { action: actnum, rest }),
        Reply::Attn(Attn::Response { header, body }) => {
            answer(&header, Reply::decode(&header, body)?, requests, streamed)
        }
        reply => answer(&header, reply, requests, streamed),
    }
}

/// Makes an event of a decoded answer.
fn answer<'a>(
    header: &ResponseHeader,
    reply: Reply<'a>,
    requests: &mut Requests,
    streamed: &mut Option<Body>,
) -> Result<Event<'a>, ConnectionError> {
    let (tag, request) = requests.get(header.streamid)?;
    let unexpected = ConnectionError::Unexpected { request, status: header.status };
    let outcome = match reply {
        Reply::Ok(body) => Outcome::Ok(body),
        Reply::Error(error) => Outcome::Error(error),
        Reply::Redirect(redirect) => Outcome::Redirect(redirect),
        Reply::Wait(wait) => Outcome::Wait(wait),
        Reply::Oksofar(bytes) => return Ok(Event::Data { tag, bytes }),
        Reply::Waitresp(wait) => return Ok(Event::Later { tag, wait }),
        Reply::Status(frame) => {
            let pages = matches!(request, RequestCode::PGREAD | RequestCode::PGWRITE);
            let left = usize::try_from(frame.dlen).ok().filter(|_| pages && frame.request == request);
            let left = left.ok_or(unexpected)?;
            let last = frame.resptype == ResponseType::FINAL;
            *streamed = Some(Body { streamid: header.streamid, tag, left, last });
            return Ok(Event::Pages { tag, frame });
        }
        // No authentication is under way, and an answer within an answer does not nest.
        Reply::Authmore(_) | Reply::Attn(_) | Reply::Unknown { .. } => return Err(unexpected),
    };
    requests.release(header.streamid);
    Ok(Event::Done { tag, outcome })
}

/// Requests in flight by stream id, which is the place in `slots` plus one.
#[derive(Default, Debug)]
struct Requests {
    slots: Vec<Option<(u64, RequestCode)>>,
    free: Vec<u16>,
}

impl Requests {
    /// Finds a stream id; `None` when all are in use.
    fn take(&mut self, tag: u64, code: RequestCode) -> Option<StreamId> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.slots.len() + 1).ok()?;
                self.slots.push(None);
                number
            }
        };
        *self.slots.get_mut(usize::from(number) - 1)? = Some((tag, code));
        Some(StreamId(number.to_be_bytes()))
    }

    fn get(&self, streamid: StreamId) -> Result<(u64, RequestCode), ConnectionError> {
        let place = usize::from(u16::from_be_bytes(streamid.0)).checked_sub(1);
        place.and_then(|place| *self.slots.get(place)?).ok_or(ConnectionError::UnknownStream(streamid))
    }

    fn release(&mut self, streamid: StreamId) {
        let number = u16::from_be_bytes(streamid.0);
        let slot = usize::from(number).checked_sub(1).and_then(|place| self.slots.get_mut(place));
        if slot.and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }
}
