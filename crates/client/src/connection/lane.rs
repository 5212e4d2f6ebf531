//! One socket of a connection: where its frames begin and end, and whose data comes next.
//!
//! A connection has a lane for its own socket and one for each data stream bound to its session; the requests in flight are
//! the same for all. Source: xroot protocol 5.2.0, sections 1.5, 1.9, 3.

use wire::WireError;
use wire::xroot::codes::ResponseType;
use wire::xroot::limits::{ARGUMENT_BYTES_MAX, RESPONSE_HEADER_BYTES};
use wire::xroot::reply::{Attn, Reply};
use wire::xroot::{RequestCode, ResponseHeader, Status, StreamId};

use super::requests::Requests;
use super::{Event, Outcome};
use crate::error::ConnectionError;
use crate::outgoing::Outgoing;

/// Most bytes of a frame that is not file data. The longest texts of servers are listings, cut at 8 KiB by XRootD.
const WHOLE_FRAME_BYTES_MAX: usize = ARGUMENT_BYTES_MAX + RESPONSE_HEADER_BYTES;

/// One socket of a connection.
#[derive(Default, Debug)]
pub(super) struct Lane {
    pub(super) outgoing: Outgoing,
    /// A frame that the network has cut, or the one that the last event was made of.
    kept: Vec<u8>,
    /// `kept` is done with.
    kept_used: bool,
    /// The frame whose data is being handed out.
    body: Option<Body>,
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

impl Lane {
    /// Whose data comes next, and how many bytes of nothing else.
    pub(super) fn discardable(&self) -> Option<(u64, usize)> {
        self.body.filter(|body| body.left > 0).map(|body| (body.tag, body.left))
    }

    /// So many of them were taken away.
    pub(super) fn discarded(&mut self, count: usize) {
        if let Some(body) = &mut self.body {
            body.left = body.left.saturating_sub(count);
        }
    }

    /// A whole frame of the time before the login is done.
    pub(super) fn whole(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, ConnectionError> {
        Ok(match self.unit(input, None)? {
            None => None,
            Some(Unit::Input(bytes)) => Some(bytes.to_vec()),
            Some(Unit::Kept) => Some(std::mem::take(&mut self.kept)),
        })
    }

    /// Takes from the front of `input` what the next event needs.
    pub(super) fn next_event<'a, 'input: 'a>(
        &'a mut self,
        input: &mut &'input [u8],
        requests: &mut Requests,
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
                    requests.release(body.streamid);
                    return Ok(Some(Event::Done { tag: body.tag, outcome: Outcome::Ok(&[]) }));
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

    /// The next bytes that have to be whole, if they are: a frame, or the header of one whose data is handed out as it
    /// comes.
    fn unit<'a>(
        &mut self,
        input: &mut &'a [u8],
        requests: Option<&Requests>,
    ) -> Result<Option<Unit<'a>>, ConnectionError> {
        if self.kept.is_empty()
            && let Wanted::Whole(bytes) = wanted(input, requests)?
            && let Some((unit, rest)) = input.split_at_checked(bytes)
        {
            *input = rest;
            return Ok(Some(Unit::Input(unit)));
        }
        loop {
            let wanted = wanted(&self.kept, requests)?;
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

    /// If the unit is no more than the header of a frame with data, makes ready to hand the data out.
    fn begin_body(&mut self, unit: &Unit<'_>, requests: &Requests) -> Result<bool, ConnectionError> {
        let bytes = match unit {
            Unit::Input(bytes) => bytes,
            Unit::Kept => self.kept.as_slice(),
        };
        let Some((header, [])) = bytes.split_first_chunk() else { return Ok(false) };
        let header = ResponseHeader::decode(header);
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

/// How many of the bytes that begin with `bytes` have to be whole.
fn wanted(bytes: &[u8], requests: Option<&Requests>) -> Result<Wanted, ConnectionError> {
    let Some((header, body)) = bytes.split_first_chunk() else {
        return Ok(Wanted::More(RESPONSE_HEADER_BYTES));
    };
    let header = ResponseHeader::decode(header);
    let length = header.body_bytes()?;
    let whole = length.saturating_add(RESPONSE_HEADER_BYTES);
    if is_streamed(&header, requests)? && (header.status == Status::OKSOFAR || body.len() < length) {
        return Ok(Wanted::Whole(RESPONSE_HEADER_BYTES));
    }
    if whole > WHOLE_FRAME_BYTES_MAX && !is_streamed(&header, requests)? {
        let error = WireError::TooLong { field: "frame", limit: WHOLE_FRAME_BYTES_MAX, bytes: whole };
        return Err(error.into());
    }
    Ok(Wanted::Whole(whole))
}

/// Whether the body of this frame may be handed out in pieces.
fn is_streamed(header: &ResponseHeader, requests: Option<&Requests>) -> Result<bool, ConnectionError> {
    let Some(requests) = requests.filter(|_| matches!(header.status, Status::OK | Status::OKSOFAR)) else {
        return Ok(false);
    };
    let (_, code) = requests.get(header.streamid)?;
    Ok(matches!(code, RequestCode::READ | RequestCode::READV | RequestCode::DIRLIST))
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
