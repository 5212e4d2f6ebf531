//! Where a request ends, and requests that are refused because of their headers.

use crate::machine::{CallKind, Outlets, Session, Stage};
use crate::settings::GREETING_ARGUMENT_BYTES_MAX;
use crate::step::{Destination, LinkId, Receive, Todo};
use base::{Error, ErrorKind};
use wire::xroot::codes::{ChkpointOpcode, ErrorCode, RequestCode};
use wire::xroot::header::RequestHeader;
use wire::xroot::limits::{ARGUMENT_BYTES_MAX, HANDSHAKE_BYTES, REQUEST_HEADER_BYTES};

/// Why a request is refused before its argument is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// Nobody has logged in.
    NotLoggedIn,
    /// It means nothing without an argument.
    NoArgument,
}

impl Session {
    /// Bytes from the front of the input that must be there before [`Session::take`] does anything,
    /// as far as the present ones tell. Never more than the largest argument and two headers. A
    /// driver takes memory for a request only once they are there.
    pub fn needed(&self, input: &[u8]) -> usize {
        match self.stage {
            Stage::Handshake => return HANDSHAKE_BYTES,
            Stage::Ending => return 0,
            Stage::Greeting | Stage::Active => {}
        }
        let Some((header, rest)) = input.split_first_chunk::<REQUEST_HEADER_BYTES>() else {
            return REQUEST_HEADER_BYTES;
        };
        let header = RequestHeader::decode(header);
        let Some(counted) = self.counted(&header) else { return REQUEST_HEADER_BYTES };
        let behind = rest.get(..counted).and_then(|payload| list_behind(&header, payload));
        REQUEST_HEADER_BYTES + counted + behind.unwrap_or(0)
    }

    /// Bytes of the argument of a request; `None` for a request that is refused because of its
    /// header.
    pub(crate) fn counted(&self, header: &RequestHeader) -> Option<usize> {
        let length = header.payload_bytes().ok()?;
        if self.refusal(header).is_some() {
            return None;
        }
        // File data is announced, not taken: it may be larger than any buffer.
        let counted = match header.code {
            RequestCode::WRITE | RequestCode::PGWRITE => 0,
            _ => length,
        };
        (counted <= self.argument_max()).then_some(counted)
    }

    /// Bytes of the longest argument that is taken now.
    fn argument_max(&self) -> usize {
        if self.stage == Stage::Active { ARGUMENT_BYTES_MAX } else { GREETING_ARGUMENT_BYTES_MAX }
    }

    /// Is the request allowed at this stage, and does it have the argument it needs?
    fn refusal(&self, header: &RequestHeader) -> Option<Refusal> {
        let code = header.code;
        let greets = matches!(code, RequestCode::LOGIN | RequestCode::PROTOCOL | RequestCode::BIND);
        match self.stage {
            Stage::Greeting if !greets => Some(Refusal::NotLoggedIn),
            Stage::Active if header.dlen == 0 && needs_argument(code) => Some(Refusal::NoArgument),
            _ => None,
        }
    }

    /// Answers a request that is refused because of its header.
    pub(crate) fn refuse_header(&mut self, header: &RequestHeader, out: &mut dyn Outlets) -> Todo {
        let streamid = header.streamid;
        let Ok(length) = header.payload_bytes() else {
            let text = "Invalid request data length";
            self.refuse(streamid, LinkId::CONTROL, ErrorCode::ARG_INVALID, text, out);
            return self.violated();
        };
        match self.refusal(header) {
            Some(Refusal::NotLoggedIn) => {
                let text = "Invalid request; user not logged in";
                self.refuse(streamid, LinkId::CONTROL, ErrorCode::INVALID_REQUEST, text, out);
                self.violated()
            }
            Some(Refusal::NoArgument) => {
                let text = "Required argument not present";
                self.unsign(header.code);
                self.refuse(streamid, LinkId::CONTROL, ErrorCode::ARG_MISSING, text, out)
            }
            None => self.too_long(header, length, out),
        }
    }

    /// An argument that is larger than any request has: it is passed over, or, of somebody unknown,
    /// not listened to.
    fn too_long(&mut self, header: &RequestHeader, length: usize, out: &mut dyn Outlets) -> Todo {
        if header.code == RequestCode::SIGVER && self.stage == Stage::Active {
            return self.bad_signature_length(header.streamid, out);
        }
        let error = Error::new(ErrorKind::ArgTooLong, "Request argument is too long");
        // At once: whoever announced it by mistake waits for the answer and never sends so much.
        self.fail(header.streamid, &error, out);
        if self.stage != Stage::Active {
            return self.violated();
        }
        self.unsign(header.code);
        let call = self.call(header.streamid, LinkId::CONTROL, CallKind::Passed);
        let into = Destination::Discard;
        Todo::Receive(Receive { call, link: LinkId::CONTROL, length, into, checkpoint: false, held: false })
    }
}

/// Bytes of the list that follows the counted bytes of an executed checkpoint of a vector write.
fn list_behind(header: &RequestHeader, payload: &[u8]) -> Option<usize> {
    let opcode = header.body.get(15).copied()?;
    if header.code != RequestCode::CHKPOINT || ChkpointOpcode(opcode) != ChkpointOpcode::XEQ {
        return None;
    }
    let embedded = RequestHeader::decode(payload.first_chunk()?);
    let length = embedded.payload_bytes().ok()?;
    (embedded.code == RequestCode::WRITEV && length <= ARGUMENT_BYTES_MAX).then_some(length)
}

/// Requests that mean nothing without an argument.
fn needs_argument(code: RequestCode) -> bool {
    !matches!(
        code,
        RequestCode::PROTOCOL
            | RequestCode::PING
            | RequestCode::ENDSESS
            | RequestCode::CLOSE
            | RequestCode::SYNC
            | RequestCode::CLONE
            | RequestCode::READ
            | RequestCode::READV
            | RequestCode::PGREAD
            | RequestCode::WRITE
            | RequestCode::WRITEV
            | RequestCode::PGWRITE
            | RequestCode::STAT
            | RequestCode::TRUNCATE
            | RequestCode::QUERY
            | RequestCode::CHKPOINT
            | RequestCode::SIGVER
    )
}
