//! Errors of a connection, apart from error replies to requests.

use std::fmt;
use std::io;
use wire::WireError;
use wire::xroot::{ErrorCode, RequestCode, Status, StreamId};

/// A requirement of a server that this client cannot meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Demand {
    /// One of these authentication protocols, in the order of the server.
    Authentication(String),
    /// An encrypted connection.
    Tls,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authentication(protocols) => write!(f, "authentication ({protocols})"),
            Self::Tls => write!(f, "TLS"),
        }
    }
}

/// The reason why a connection cannot continue. All its requests in flight remain unanswered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionError {
    /// The bytes of the server violate the protocol.
    Wire(WireError),
    /// A reply with a stream id that is not in use.
    UnknownStream(StreamId),
    /// A kind of reply that is invalid for this request.
    Unexpected {
        /// The request.
        request: RequestCode,
        /// The kind of reply.
        status: Status,
    },
    /// The server refused the handshake, `kXR_protocol` or `kXR_login`.
    Refused {
        /// The refused request.
        request: RequestCode,
        /// Error code of the server.
        code: ErrorCode,
        /// Error text of the server.
        text: String,
    },
    /// The server has a requirement that this client cannot meet.
    Demands(Demand),
    /// The client requires TLS, and the server does not switch to it.
    NoTls,
    /// The server sends TLS on a connection in clear text.
    UnannouncedTls,
    /// The client has no authorities or no credentials for this server.
    Insecure(String),
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
            Self::Insecure(reason) => f.write_str(reason),
            Self::NoTls => write!(f, "the server has no TLS, which roots:// requires"),
            Self::UnannouncedTls => write!(
                f,
                "the server requires TLS, which its greeting did not announce; \
                 somebody may have changed the greeting on its way: use roots://"
            ),
            Self::Demands(demand) => write!(f, "the server demands {demand}, which this client cannot do"),
        }
    }
}

impl std::error::Error for ConnectionError {}

/// The reason why a request was refused. Nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// The login is not complete.
    NotReady,
    /// All stream ids are in use.
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

/// The reason why a [`BlockingSession`](crate::BlockingSession) returns no reply.
#[derive(Debug)]
pub enum SessionError {
    /// The socket failed.
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// The server sent nothing before the timeout.
    TimedOut,
    /// The connection cannot continue.
    Connection(ConnectionError),
    /// The request failed.
    Failed {
        /// Error code of the server.
        code: ErrorCode,
        /// Error text of the server.
        text: String,
    },
    /// The file is at another server.
    Redirected {
        /// Name or address of the other server, or a whole URL if `port` is `None`.
        host: String,
        /// Port of the other server.
        port: Option<u16>,
        /// Text to merge into the cgi of the request.
        cgi: String,
    },
    /// The reply is invalid for this request.
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

// Each text includes its cause, so `source` returns `None`.
impl std::error::Error for SessionError {}
