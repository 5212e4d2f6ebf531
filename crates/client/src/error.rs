//! What can go wrong between a client and its server, apart from the answers to requests.

use std::fmt;
use std::io;
use wire::WireError;
use wire::xroot::{ErrorCode, RequestCode, Status, StreamId};

use crate::path::NameError;

/// Why a text is no URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UrlError {
    /// There is nothing.
    Empty,
    /// What stands in front of `://` is no protocol we know.
    UnknownScheme(String),
    /// There is no host where one is needed.
    NoHost,
    /// What stands in brackets is no IPv6 address, or the bracket is not closed.
    BadAddress(String),
    /// What stands behind the colon of a host is no port (0 to 65535).
    BadPort(String),
    /// The path holds what no request can carry.
    BadPath(String, NameError),
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the URL is empty"),
            Self::UnknownScheme(scheme) => {
                write!(
                    f,
                    "`{scheme}` is no protocol for files (root, roots, xroot, xroots, http, https, file)"
                )
            }
            Self::NoHost => write!(f, "the URL has no host (root://HOST[:PORT]//PATH)"),
            Self::BadAddress(text) => write!(f, "`{text}` is no IPv6 address in brackets"),
            Self::BadPort(text) => write!(f, "`{text}` is no port (0 to 65535)"),
            Self::BadPath(text, why) => write!(f, "{text:?} cannot be asked for: {why}"),
        }
    }
}

impl std::error::Error for UrlError {}

/// What a server insists on and this client cannot do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand {
    /// One of these authentication protocols, in the server's order.
    Authentication(String),
    /// An encrypted connection.
    Tls,
    /// Signed requests.
    Signatures,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authentication(protocols) => write!(f, "authentication ({protocols})"),
            Self::Tls => write!(f, "TLS"),
            Self::Signatures => write!(f, "signed requests"),
        }
    }
}

/// Why a connection cannot go on. Every request in flight on it is unanswered for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionError {
    /// The server's bytes are not the protocol.
    Wire(WireError),
    /// An answer to no request of ours.
    UnknownStream(StreamId),
    /// A kind of answer that this request cannot get.
    Unexpected {
        /// The request.
        request: RequestCode,
        /// The kind of answer.
        status: Status,
    },
    /// The server refused the handshake, `kXR_protocol` or `kXR_login`.
    Refused {
        /// Which of them.
        request: RequestCode,
        /// The server's error code.
        code: ErrorCode,
        /// The server's text.
        text: String,
    },
    /// The server insists on something that we cannot do.
    Demands(Demand),
}

impl From<WireError> for ConnectionError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => write!(f, "the server does not keep to the protocol: {error}"),
            Self::UnknownStream(stream) => {
                write!(f, "the server answered a request that was not made (stream {stream})")
            }
            Self::Unexpected { request, status } => write!(f, "the server answered {request} with {status}"),
            Self::Refused { request, code, text } => {
                write!(f, "the server refused {request}: {code}: {text}")
            }
            Self::Demands(demand) => write!(f, "the server demands {demand}, which this client cannot do"),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// Why a request was not taken. Nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// The login is not done.
    NotReady,
    /// As many requests are in flight as there are stream ids.
    Full,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => write!(f, "the connection is not logged in yet"),
            Self::Full => write!(f, "all stream ids of the connection are in use"),
        }
    }
}

impl std::error::Error for SubmitError {}

/// Why a [`Session`](crate::Session) has no answer for its caller.
#[derive(Debug)]
pub enum SessionError {
    /// The socket failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// Nothing came in time.
    TimedOut,
    /// The connection cannot go on.
    Connection(ConnectionError),
    /// The request failed.
    Failed {
        /// The server's error code.
        code: ErrorCode,
        /// The server's text.
        text: String,
    },
    /// The file is elsewhere.
    Redirected {
        /// Name or address of the other server, or a whole URL when `port` is `None`.
        host: String,
        /// Its port.
        port: Option<u16>,
        /// To merge into the request's cgi.
        cgi: String,
    },
    /// The answer is not what this request can get.
    BadAnswer(WireError),
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ConnectionError> for SessionError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

impl From<WireError> for SessionError {
    fn from(error: WireError) -> Self {
        Self::BadAnswer(error)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Closed => write!(f, "the server closed the connection"),
            Self::TimedOut => write!(f, "the server did not answer in time"),
            Self::Connection(error) => write!(f, "{error}"),
            Self::Failed { code, text } => write!(f, "{code}: {text}"),
            Self::Redirected { host, port: Some(port), .. } => write!(f, "redirected to {host}:{port}"),
            Self::Redirected { host, port: None, .. } => write!(f, "redirected to {host}"),
            Self::BadAnswer(error) => write!(f, "the server's answer is malformed: {error}"),
        }
    }
}

// Each text tells its cause, so there is no source beside it.
impl std::error::Error for SessionError {}
