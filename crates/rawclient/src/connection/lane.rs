//! One socket of a connection: finds frame boundaries and the request of the next data.
//!
//! A connection has a lane for its own socket and one for each data stream bound to its session.
//! All lanes share the requests in flight. Source: xroot protocol 5.2.0, sections 1.5, 1.9, 3.

use wire::FixedLayout;
use wire::WireError;
use wire::xroot::codes::ResponseType;
use wire::xroot::limits::{ARGUMENT_BYTES_MAX, RESPONSE_HEADER_BYTES};
use wire::xroot::reply::{Attn, Reply};
use wire::xroot::{RequestCode, ResponseHeader, Status, StreamId};

use super::event::{ConnectionEvent, RequestOutcome};
use super::requests::Requests;
use crate::error::ConnectionError;
use crate::outgoing::Outgoing;

/// Maximum size of a frame that is not file data. The longest texts are listings, which XRootD
/// splits at 8 KiB.
const WHOLE_FRAME_BYTES_MAX: usize = ARGUMENT_BYTES_MAX + RESPONSE_HEADER_BYTES;

/// The first bytes of a TLS record with an alert. As those of a reply they would have a status that
/// does not exist.
const TLS_ALERT: [u8; 3] = [21, 3, 3];

/// One socket of a connection.
#[derive(Default, Debug)]
pub(super) struct Lane {
    pub(super) outgoing: Outgoing,
    /// A partially received frame, or the frame of the last event.
    kept: Vec<u8>,
    /// Set if `kept` is processed.
    kept_used: bool,
    /// The frame whose data is being delivered.
    body: Option<Body>,
}

/// The rest of a frame whose data is delivered as it arrives.
#[derive(Clone, Copy, Debug)]
struct Body {
    streamid: StreamId,
    tag: u64,
    left: usize,
    /// Set if it ends the reply.
    last: bool,
}

/// The location of the bytes of an event.
enum Unit<'a> {
    Input(&'a [u8]),
    Kept,
}

impl Lane {
    /// Returns the request whose data comes next and the number of bytes of that data.
    pub(super) fn discardable(&self) -> Option<(u64, usize)> {
        self.body.filter(|body| body.left > 0).map(|body| (body.tag, body.left))
    }

    /// Records that `count` bytes were discarded.
    pub(super) fn discarded(&mut self, count: usize) {
        if let Some(body) = &mut self.body {
            body.left = body.left.saturating_sub(count);
        }
    }

    /// Returns a whole frame of the login phase.
    pub(super) fn whole(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, ConnectionError> {
        Ok(match self.unit(input, None)? {
            None => None,
            Some(Unit::Input(bytes)) => Some(bytes.to_vec()),
            Some(Unit::Kept) => Some(std::mem::take(&mut self.kept)),
        })
    }

    /// Takes the bytes of the next event from the front of `input`.
    pub(super) fn next_event<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEvent<'a>>, ConnectionError> {
        if std::mem::take(&mut self.kept_used) {
            self.kept.clear();
        }
        loop {
            if let Some(body) = &mut self.body {
                if body.left > 0 {
                    let (bytes, rest) = input.split_at(body.left.min(input.len()));
                    *input = rest;
                    body.left -= bytes.len();
                    return Ok((!bytes.is_empty()).then_some(ConnectionEvent::Data { tag: body.tag, bytes }));
                }
                let body = *body;
                self.body = None;
                if body.last {
                    requests.release(body.streamid);
                    return Ok(Some(ConnectionEvent::Done {
                        tag: body.tag,
                        outcome: RequestOutcome::Ok(&[]),
                    }));
                }
            }
            let Some(unit) = self.unit(input, Some(requests))? else { return Ok(None) };
            if !self.begin_body(&unit, requests)? {
                let bytes = match unit {
                    Unit::Input(bytes) => bytes,
                    Unit::Kept => {
                        self.kept_used = true;
                        &self.kept
                    }
                };
                return event(bytes, requests, &mut self.body).map(Some);
            }
        }
    }

    /// Returns the next complete unit: a frame, or the header of a frame whose data is delivered as
    /// it arrives.
    fn unit<'a>(
        &mut self,
        input: &mut &'a [u8],
        requests: Option<&Requests>,
    ) -> Result<Option<Unit<'a>>, ConnectionError> {
        if self.kept.is_empty()
            && let FrameSize::Whole(bytes) = wanted(input, requests)?
            && let Some((unit, rest)) = input.split_at_checked(bytes)
        {
            *input = rest;
            return Ok(Some(Unit::Input(unit)));
        }
        loop {
            let wanted = wanted(&self.kept, requests)?;
            let (FrameSize::More(bytes) | FrameSize::Whole(bytes)) = wanted;
            let missing = bytes.saturating_sub(self.kept.len());
            let (piece, rest) = input.split_at(missing.min(input.len()));
            self.kept.extend_from_slice(piece);
            *input = rest;
            if piece.len() < missing {
                return Ok(None);
            }
            if matches!(wanted, FrameSize::Whole(_)) {
                return Ok(Some(Unit::Kept));
            }
        }
    }

    /// Prepares the delivery of data if the unit is only the header of a frame with data.
    fn begin_body(&mut self, unit: &Unit<'_>, requests: &Requests) -> Result<bool, ConnectionError> {
        let bytes = match unit {
            Unit::Input(bytes) => bytes,
            Unit::Kept => self.kept.as_slice(),
        };
        let Some((header, [])) = bytes.split_first_chunk() else { return Ok(false) };
        let header = ResponseHeader::from_bytes(header);
        if !is_streamed(&header, Some(requests))? {
            return Ok(false);
        }
        let (tag, _) = requests.get(header.streamid)?;
        let last = header.status == Status::OK;
        self.body = Some(Body { streamid: header.streamid, tag, left: header.body_bytes()?, last });
        self.kept.clear();
        Ok(true)
    }
}

/// Returns how many of the bytes that begin with `bytes` have to be complete.
fn wanted(bytes: &[u8], requests: Option<&Requests>) -> Result<FrameSize, ConnectionError> {
    // An alert is shorter than the header of a reply.
    if bytes.starts_with(&TLS_ALERT) {
        return Err(ConnectionError::UnannouncedTls);
    }
    let Some((header, body)) = bytes.split_first_chunk() else {
        return Ok(FrameSize::More(RESPONSE_HEADER_BYTES));
    };
    let header = ResponseHeader::from_bytes(header);
    let length = header.body_bytes()?;
    let whole = length.saturating_add(RESPONSE_HEADER_BYTES);
    if is_streamed(&header, requests)? && (header.status == Status::OKSOFAR || body.len() < length) {
        return Ok(FrameSize::Whole(RESPONSE_HEADER_BYTES));
    }
    if whole > WHOLE_FRAME_BYTES_MAX && !is_streamed(&header, requests)? {
        let error = WireError::TooLong { field: "frame", limit: WHOLE_FRAME_BYTES_MAX, bytes: whole };
        return Err(error.into());
    }
    Ok(FrameSize::Whole(whole))
}

/// Reports whether the body of this frame may be delivered in pieces.
fn is_streamed(header: &ResponseHeader, requests: Option<&Requests>) -> Result<bool, ConnectionError> {
    let Some(requests) = requests.filter(|_| matches!(header.status, Status::OK | Status::OKSOFAR)) else {
        return Ok(false);
    };
    let (_, code) = requests.get(header.streamid)?;
    Ok(matches!(code, RequestCode::READ | RequestCode::READV | RequestCode::DIRLIST))
}

/// The number of bytes that have to be complete.
enum FrameSize {
    /// At least this number, to determine the length.
    More(usize),
    /// Exactly this number.
    Whole(usize),
}

/// Builds an event from a whole frame.
fn event<'a>(
    frame: &'a [u8],
    requests: &mut Requests,
    streamed: &mut Option<Body>,
) -> Result<ConnectionEvent<'a>, ConnectionError> {
    let short = WireError::Short { field: "header", need: RESPONSE_HEADER_BYTES, have: frame.len() };
    let (header, body) = frame.split_first_chunk().ok_or(short)?;
    let header = ResponseHeader::from_bytes(header);
    let reply = Reply::decode(&header, body)?;
    match reply {
        Reply::Attn(Attn::Other { actnum, rest }) => Ok(ConnectionEvent::Notice { action: actnum, rest }),
        Reply::Attn(Attn::Response { header, body }) => {
            answer(&header, Reply::decode(&header, body)?, requests, streamed)
        }
        reply => answer(&header, reply, requests, streamed),
    }
}

/// Builds an event from a decoded reply.
fn answer<'a>(
    header: &ResponseHeader,
    reply: Reply<'a>,
    requests: &mut Requests,
    streamed: &mut Option<Body>,
) -> Result<ConnectionEvent<'a>, ConnectionError> {
    let (tag, request) = requests.get(header.streamid)?;
    let unexpected = ConnectionError::Unexpected { request, status: header.status };
    let outcome = match reply {
        Reply::Ok(body) => RequestOutcome::Ok(body),
        Reply::Error(error) => RequestOutcome::Error(error),
        Reply::Redirect(redirect) => RequestOutcome::Redirect(redirect),
        Reply::Wait(wait) => RequestOutcome::Wait(wait),
        Reply::Oksofar(bytes) => return Ok(ConnectionEvent::Data { tag, bytes }),
        Reply::Waitresp(wait) => return Ok(ConnectionEvent::Later { tag, wait }),
        Reply::Status(frame) => {
            let pages = matches!(request, RequestCode::PGREAD | RequestCode::PGWRITE);
            let left = usize::try_from(frame.dlen).ok().filter(|_| pages && frame.request == request);
            let left = left.ok_or(unexpected)?;
            let last = frame.resptype == ResponseType::FINAL;
            *streamed = Some(Body { streamid: header.streamid, tag, left, last });
            return Ok(ConnectionEvent::Pages { tag, frame });
        }
        // No authentication is in progress, and replies do not nest.
        Reply::Authmore(_) | Reply::Attn(_) | Reply::Unknown { .. } => return Err(unexpected),
    };
    requests.release(header.streamid);
    Ok(ConnectionEvent::Done { tag, outcome })
}
