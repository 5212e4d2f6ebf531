//! Replies, their bodies, and the status of each error.

use crate::call::CallFailure;
use crate::handover::HandedBody;
use crate::text;
use crate::transfer_status::TrailedParts;
use base::{Error, ErrorKind};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// The type of texts.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The body of success without a result.
const DONE: &str = ":-)";

/// The body of a reply.
pub(crate) enum ReplyBody {
    /// All of it.
    Whole(Bytes),
    /// Parts that are made while it is sent. `left` is the number of bytes that follow, if it is
    /// known.
    Parts { parts: mpsc::Receiver<io::Result<Bytes>>, left: Option<u64> },
    /// Such parts with a trailer behind them.
    Trailed(TrailedParts),
    /// A part of a file that is sent by others.
    Handed(HandedBody),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Trailed(parts) => parts.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::Handed(body) => {
                body.is_wanted();
                Poll::Pending
            }
            Self::Parts { left: Some(0), .. } => Poll::Ready(None),
            Self::Parts { parts, left } => match ready!(parts.poll_recv(context)) {
                Some(Ok(bytes)) => {
                    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    *left = left.map(|left| left.saturating_sub(length));
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Some(Err(error)) => Poll::Ready(Some(Err(error))),
                // A body that ends early must not look complete.
                None if left.is_some() => Poll::Ready(Some(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the body ends early",
                )))),
                None => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Parts { left, .. } => *left == Some(0),
            Self::Trailed(parts) => parts.is_end(),
            Self::Handed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Self::Parts { left: Some(left), .. } => SizeHint::with_exact(*left),
            Self::Handed(body) => SizeHint::with_exact(body.length),
            Self::Parts { left: None, .. } | Self::Trailed(_) => SizeHint::default(),
        }
    }
}

/// A reply.
pub(crate) type RequestReply = Response<ReplyBody>;

/// The reason why a request has no reply of its method.
#[derive(Debug)]
pub(crate) enum RequestRefusal {
    /// A status with a text.
    Status(StatusCode, String),
    /// A call of the file system has no value.
    Call(CallFailure),
}

impl RequestRefusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self::Status(status, text.into())
    }

    /// Returns the status; `None` if another server has the answer.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status, _) => Some(*status),
            Self::Call(CallFailure::Error(error)) => Some(status_of(error)),
            Self::Call(CallFailure::Later(_)) => Some(StatusCode::SERVICE_UNAVAILABLE),
            Self::Call(CallFailure::Redirect(_)) => None,
        }
    }

    /// Returns the status, the text for the client, and the number of seconds after which it may repeat the
    /// request, if that helps.
    pub(crate) fn explained(self) -> (StatusCode, String, Option<u32>) {
        match self {
            Self::Status(status, text) => (status, text, None),
            Self::Call(CallFailure::Error(error)) => (status_of(&error), error.text, None),
            Self::Call(CallFailure::Later(seconds)) => {
                let text =
                    format!("The server is not ready for this request; repeat it after {seconds} seconds.");
                (StatusCode::SERVICE_UNAVAILABLE, text, Some(seconds))
            }
            Self::Call(CallFailure::Redirect(_)) => {
                (StatusCode::BAD_GATEWAY, "another server has the answer".to_owned(), None)
            }
        }
    }
}

impl From<CallFailure> for RequestRefusal {
    fn from(failure: CallFailure) -> Self {
        Self::Call(failure)
    }
}

impl From<Error> for RequestRefusal {
    fn from(error: Error) -> Self {
        Self::Call(CallFailure::Error(error))
    }
}

/// Returns a reply with a body.
pub(crate) fn with_body(status: StatusCode, body: ReplyBody) -> RequestReply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply
}

/// Returns a reply without a body.
pub(crate) fn empty(status: StatusCode) -> RequestReply {
    with_body(status, ReplyBody::Whole(Bytes::new()))
}

/// Returns a reply with a text.
pub(crate) fn text(status: StatusCode, text: String) -> RequestReply {
    let mut reply = with_body(status, ReplyBody::Whole(Bytes::from(text)));
    reply.headers_mut().insert(CONTENT_TYPE, TEXT);
    reply
}

/// Returns the reply to a change that has succeeded.
pub(crate) fn done(status: StatusCode) -> RequestReply {
    text(status, DONE.to_owned())
}

/// Returns the reply to HEAD of a body with this length.
pub(crate) fn head(length: u64) -> RequestReply {
    let mut reply = empty(StatusCode::OK);
    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    reply
}

/// Sets a header. Values that no header can have are left out.
pub(crate) fn set(reply: &mut RequestReply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

/// Returns the reply to a request that is refused with a status.
pub(crate) fn refused(status: StatusCode, what: &str) -> RequestReply {
    refuse(RequestRefusal::new(status, what))
}

/// Returns the reply that asks to repeat a request later.
pub(crate) fn later(seconds: u32) -> RequestReply {
    refuse(CallFailure::Later(seconds).into())
}

/// Returns the reply to a request that is refused.
pub(crate) fn refuse(refusal: RequestRefusal) -> RequestReply {
    let (status, what, retry) = refusal.explained();
    let mut reply = text(status, format!("{}\n", text::xml(&what)));
    add_refusal_headers(&mut reply, retry);
    reply
}

/// Adds the headers of every refusal with the status of this reply.
pub(crate) fn add_refusal_headers(reply: &mut RequestReply, retry: Option<u32>) {
    if reply.status() == StatusCode::UNAUTHORIZED {
        set(reply, WWW_AUTHENTICATE, "Bearer");
    }
    if let Some(seconds) = retry {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// Returns the status of an error. The number of the system is more exact where it has no kind of its own.
pub(crate) fn status_of(error: &Error) -> StatusCode {
    let number = error.source.as_ref().and_then(io::Error::raw_os_error);
    match (error.kind, number) {
        (ErrorKind::FsError, Some(20)) => StatusCode::CONFLICT, // ENOTDIR
        (ErrorKind::FsError, Some(18)) => StatusCode::UNPROCESSABLE_ENTITY, // EXDEV
        (ErrorKind::FsError, Some(40)) => StatusCode::LOOP_DETECTED, // ELOOP
        (ErrorKind::FsError, Some(27)) => StatusCode::PAYLOAD_TOO_LARGE, // EFBIG
        (ErrorKind::FsError, Some(6 | 29 | 75)) => StatusCode::BAD_REQUEST, // ENXIO ESPIPE EOVERFLOW
        (ErrorKind::FsError, Some(4 | 11 | 16 | 23 | 24)) => StatusCode::SERVICE_UNAVAILABLE, // EINTR EAGAIN EBUSY ENFILE EMFILE
        (kind, _) => status_of_kind(kind),
    }
}

/// Returns the status of a kind of errors. Source: protocol/http.md, section 3.
fn status_of_kind(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::ArgInvalid
        | ErrorKind::ArgMissing
        | ErrorKind::FileNotOpen
        | ErrorKind::InvalidRequest
        | ErrorKind::BadPayload
        | ErrorKind::SignatureError
        | ErrorKind::DecryptError => StatusCode::BAD_REQUEST,
        ErrorKind::ArgTooLong => StatusCode::URI_TOO_LONG,
        ErrorKind::FileLocked => StatusCode::LOCKED,
        ErrorKind::NotAuthorized | ErrorKind::FsReadOnly | ErrorKind::TlsRequired => StatusCode::FORBIDDEN,
        ErrorKind::AuthFailed => StatusCode::UNAUTHORIZED,
        ErrorKind::NotFound | ErrorKind::NoReplicas | ErrorKind::AttributeNotFound => StatusCode::NOT_FOUND,
        ErrorKind::IsDirectory | ErrorKind::NotFile | ErrorKind::ItExists | ErrorKind::Conflict => {
            StatusCode::CONFLICT
        }
        ErrorKind::NoSpace | ErrorKind::OverQuota => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::NoMemory | ErrorKind::InProgress | ErrorKind::Overloaded => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorKind::RequestTimedOut | ErrorKind::TimerExpired => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::NoServer => StatusCode::BAD_GATEWAY,
        ErrorKind::FsError
        | ErrorKind::IoError
        | ErrorKind::ServerError
        | ErrorKind::Cancelled
        | ErrorKind::ChecksumError
        | ErrorKind::Impossible
        | ErrorKind::TooManyErrors => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
