//! Framing of requests: finds the end of the next request, and the requests that are refused by
//! their headers.
//!
//! It runs before any argument is decoded, so that the driver takes memory only for arguments that
//! the session accepts.

use crate::greeting::SessionStage;
use crate::settings::{CREDENTIAL_BYTES_MAX, GREETING_ARGUMENT_BYTES_MAX};
use wire::FixedLayout;
use wire::xroot::codes::{ChkpointOpcode, RequestCode};
use wire::xroot::header::RequestHeader;
use wire::xroot::limits::{ARGUMENT_BYTES_MAX, HANDSHAKE_BYTES, REQUEST_HEADER_BYTES};

/// The reason to refuse a request before its argument is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderRefusal {
    /// No client has logged in on this connection.
    NotLoggedIn,
    /// The client has logged in and is not authenticated yet.
    NotAuthenticated,
    /// The request requires an argument and has none.
    NoArgument,
}

/// The next request, complete at the front of the input. Its header is decoded once.
#[derive(Clone, Copy, Debug)]
pub struct RequestFront {
    bytes: usize,
    pub(crate) request: Option<FrontRequest>,
}

/// A request whose header has been checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontRequest {
    pub(crate) header: RequestHeader,
    /// Length of the argument in bytes; `None` if the request is refused because of its header.
    pub(crate) counted: Option<usize>,
}

impl RequestFront {
    /// Returns the number of bytes that [`crate::Session::take_front`] takes from the input.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the header, or `None` for the handshake and for input after the end of the session.
    pub fn header(&self) -> Option<&RequestHeader> {
        self.request.as_ref().map(|request| &request.header)
    }
}

impl SessionStage {
    /// Returns the next request if it is complete. Otherwise returns the number of bytes that must
    /// be there first, as far as the present bytes show it: at most the largest argument and two
    /// headers.
    pub(crate) fn front(self, input: &[u8]) -> Result<RequestFront, usize> {
        let whole = |bytes, request| {
            if bytes <= input.len() { Ok(RequestFront { bytes, request }) } else { Err(bytes) }
        };
        match self {
            Self::Handshake => return whole(HANDSHAKE_BYTES, None),
            // Input after the end of the session is ignored.
            Self::Ending => return whole(input.len(), None),
            Self::Greeting | Self::Authenticating | Self::Active => {}
        }
        let (header, rest) = input.split_first_chunk::<REQUEST_HEADER_BYTES>().ok_or(REQUEST_HEADER_BYTES)?;
        let header = RequestHeader::from_bytes(header);
        let counted = self.counted(&header);
        let argument = counted.map_or(0, |counted| {
            let behind = rest.get(..counted).and_then(|payload| list_behind(&header, payload));
            counted + behind.unwrap_or(0)
        });
        whole(REQUEST_HEADER_BYTES + argument, Some(FrontRequest { header, counted }))
    }

    /// Returns the length of the argument in bytes, or `None` for a request that is refused because
    /// of its header.
    fn counted(self, header: &RequestHeader) -> Option<usize> {
        let length = header.payload_bytes().ok()?;
        if self.refusal(header).is_some() {
            return None;
        }
        // File data is not part of the argument because it may be larger than any buffer.
        // Before authentication there is no file, so the data is discarded like an argument.
        let counted = match header.code {
            RequestCode::WRITE | RequestCode::PGWRITE if self == Self::Active => 0,
            _ => length,
        };
        (counted <= self.argument_max(header.code)).then_some(counted)
    }

    /// Returns the maximum length of an argument at this stage.
    fn argument_max(self, code: RequestCode) -> usize {
        match (self, code) {
            (Self::Active, _) => ARGUMENT_BYTES_MAX,
            (Self::Authenticating, RequestCode::AUTH) => CREDENTIAL_BYTES_MAX,
            _ => GREETING_ARGUMENT_BYTES_MAX,
        }
    }

    /// Returns the reason if the request is not allowed at this stage or lacks its argument.
    pub(crate) fn refusal(self, header: &RequestHeader) -> Option<HeaderRefusal> {
        let code = header.code;
        let greets = matches!(code, RequestCode::LOGIN | RequestCode::PROTOCOL | RequestCode::BIND);
        match self {
            Self::Greeting if !greets => Some(HeaderRefusal::NotLoggedIn),
            Self::Authenticating if !(passes_before_authentication(code) || is_by_handle(code)) => {
                Some(HeaderRefusal::NotAuthenticated)
            }
            Self::Active if header.dlen == 0 && needs_argument(code) => Some(HeaderRefusal::NoArgument),
            _ => None,
        }
    }
}

/// Returns the length of the list that follows the counted bytes of an executed checkpoint of a
/// vector write.
fn list_behind(header: &RequestHeader, payload: &[u8]) -> Option<usize> {
    let opcode = header.body.get(15).copied()?;
    if header.code != RequestCode::CHKPOINT || ChkpointOpcode(opcode) != ChkpointOpcode::XEQ {
        return None;
    }
    let embedded = RequestHeader::from_bytes(payload.first_chunk()?);
    let length = embedded.payload_bytes().ok()?;
    (embedded.code == RequestCode::WRITEV && length <= ARGUMENT_BYTES_MAX).then_some(length)
}

/// Reports whether a request is served between login and authentication.
pub(crate) fn passes_before_authentication(code: RequestCode) -> bool {
    matches!(code, RequestCode::AUTH | RequestCode::PROTOCOL | RequestCode::PING | RequestCode::ENDSESS)
}

/// Reports whether a request always names an open file.
pub(crate) fn is_by_handle(code: RequestCode) -> bool {
    matches!(
        code,
        RequestCode::READ
            | RequestCode::READV
            | RequestCode::PGREAD
            | RequestCode::WRITE
            | RequestCode::WRITEV
            | RequestCode::PGWRITE
            | RequestCode::CLOSE
            | RequestCode::SYNC
            | RequestCode::CHKPOINT
            | RequestCode::CLONE
    )
}

/// Reports whether a request requires an argument.
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
