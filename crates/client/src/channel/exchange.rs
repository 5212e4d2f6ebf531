//! A request and its reply as they pass between the callers of a channel and its task.

use bytes::Bytes;
use rawclient::{ConnectionError, Encoded, ServerInfo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use wire::xroot::reply::{Redirect, StatusFrame};
use wire::xroot::{ErrorCode, RequestCode};

use super::open_reply::UnclaimedHandle;
use crate::buffer_pool::PooledBuffer;
use crate::listing_memory::{ListingCharge, ListingMemory};
use crate::pacing::RequestPacing;

/// State shared by the task and the callers.
#[derive(Debug)]
pub(super) struct ChannelState {
    pub(super) authority: String,
    pub(super) peer: SocketAddr,
    pub(super) server: ServerInfo,
    pub(super) streams: usize,
    pub(super) is_tls: bool,
    pub(super) has_session_key: bool,
    pub(super) closed: AtomicBool,
    /// Set if later requests shall use another connection, because this one has requests without an answer.
    pub(super) worn: AtomicBool,
    /// Number of files open on this connection. While it is not 0 the connection is not idle.
    pub(super) open_files: AtomicUsize,
    pub(super) in_flight: AtomicUsize,
}

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Silence of a server with outstanding replies after which the connection counts as lost.
    pub(crate) silence: Duration,
    /// Idle time after which the connection is closed.
    pub(crate) idle: Duration,
}

/// A request on its way to the task.
#[derive(Debug)]
pub(super) struct ChannelRequest {
    pub(super) request: Encoded,
    pub(super) payload: Bytes,
    pub(super) sink: ReplySink,
    pub(super) until: Deadlines,
    /// Paused if the server announces that the reply is late.
    pub(super) pacing: Option<Arc<dyn RequestPacing>>,
    /// `None` if no caller waits for the reply.
    pub(super) answer: Option<oneshot::Sender<Result<ServerReply, MissingReply>>>,
}

impl ChannelRequest {
    /// Creates a request whose reply nobody waits for.
    pub(super) fn posted(request: Encoded) -> Self {
        let now = Instant::now();
        let until = Deadlines { answer: now, end: now };
        let (payload, sink) = (Bytes::new(), ReplySink::Body(BodyLimit::ANSWER));
        Self { request, payload, sink, until, pacing: None, answer: None }
    }

    /// Reports whether its caller has left, so that it need not be made. A close is needed all the same.
    pub(super) fn is_abandoned(&self) -> bool {
        let has_left = self.answer.as_ref().is_some_and(oneshot::Sender::is_closed);
        has_left && self.request.code() != RequestCode::CLOSE
    }
}

/// Deadlines of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Deadline without a sign of progress from the server.
    pub(crate) answer: Instant,
    /// Deadline in any case.
    pub(crate) end: Instant,
}

/// The destination of the data of a reply.
#[derive(Debug)]
pub(crate) enum ReplySink {
    /// A buffer that grows with the data, up to a limit.
    Body(BodyLimit),
    /// A block, with the maximum number of bytes.
    Block(PooledBuffer, usize),
    /// None: the caller has given up. The number of bytes is still accepted.
    Nowhere(usize),
}

/// The size limit of the body of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BodyLimit {
    /// Maximum number of bytes.
    pub(crate) bytes: usize,
    /// The memory that the body of a listing is charged to.
    pub(crate) memory: Option<ListingMemory>,
}

/// Minimum charge for a line of a listing: an entry has one or two lines, and an index entry.
pub(super) const LINE_BYTES: usize = 16;

impl BodyLimit {
    /// The limit for everything but listings, such as the status of a million paths or the
    /// attributes of a file.
    pub(crate) const ANSWER: Self = Self { bytes: 16 * 1024 * 1024, memory: None };

    /// Returns the limit for a listing that is charged to `memory`.
    pub(crate) fn listing(memory: &ListingMemory) -> Self {
        Self { bytes: memory.bytes_max(), memory: Some(memory.clone()) }
    }
}

/// A reply of the server.
#[derive(Debug)]
pub(crate) enum ServerReply {
    /// Success.
    Ok(ReplyContent),
    /// The request failed.
    Error {
        /// Error code of the server.
        code: ErrorCode,
        /// Error text of the server.
        text: String,
    },
    /// The request has to be sent to another server.
    Redirect {
        /// Port or flags as sent.
        port: i32,
        /// Host or URL as sent.
        host: Vec<u8>,
    },
    /// The request has to be repeated after a pause.
    Wait {
        /// Length of the pause.
        pause: Duration,
        /// Reason.
        text: String,
    },
}

impl ServerReply {
    /// Builds the redirect in the form of the wire protocol.
    pub(crate) fn redirect(port: i32, host: &[u8]) -> Redirect<'_> {
        Redirect { port, host }
    }
}

/// The content of a successful reply.
#[derive(Debug)]
pub(crate) struct ReplyContent {
    /// The body without the part that was stored in the block.
    pub(crate) body: Vec<u8>,
    /// The block of the request with the received data.
    pub(crate) block: Option<PooledBuffer>,
    /// Page frames and their positions, in the order of their data.
    pub(crate) pages: Vec<PagesAt>,
    /// The charge for the body of a listing.
    pub(crate) charge: Option<ListingCharge>,
    /// The handle in the reply to an open. The file is closed unless it is claimed.
    pub(crate) handle: Option<UnclaimedHandle>,
}

/// A frame of page data and the position of its data in the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesAt {
    pub(crate) frame: StatusFrame,
    pub(crate) at: usize,
}

/// The reason for a missing reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MissingReply {
    /// The connection is lost. `sent` is set if the server may have received the request.
    Lost { reason: ConnectionLoss, sent: bool },
    /// No reply before the deadline, in seconds; the connection is alive.
    TimedOut(u64),
    /// The reply exceeds its limit. The connection is alive, and the rest of the reply is dropped
    /// on arrival.
    TooLarge(BodyLimit),
}

/// The reason for the loss of a connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ConnectionLoss {
    #[error("the server closed the connection")]
    Closed,
    #[error("{0}")]
    Socket(String),
    #[error("the server was silent for {0} s")]
    Silent(u64),
    #[error("{0}")]
    Protocol(ConnectionError),
    #[error("the server sent more data than was asked for")]
    TooMuch,
    #[error("it was not used for long")]
    Idle,
    #[error("the client is shut down")]
    ShutDown,
}
