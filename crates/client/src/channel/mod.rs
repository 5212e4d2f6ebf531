//! A connection shared by many callers.
//!
//! One task drives it; each request has its own deadline and reply. It exists so that all
//! operations of a process on one server need one login and one socket.
//!
//! | file     | contents                                                  |
//! |----------|-----------------------------------------------------------|
//! | `mod`    | [`Channel`]: the callers' side; [`Answer`]: a reply       |
//! | `driver` | the task: sends, receives, checks deadlines               |
//! | `book`   | the requests in flight and the destinations of their data |

mod book;
mod driver;

use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::flags::ServerFlags;
use wire::xroot::reply::{Redirect, StatusFrame};

use crate::blocks::{Block, Blocks};
use crate::connection::{Connection, ServerInfo};
use crate::encoded::Encoded;
use crate::error::ConnectionError;
use crate::listing_memory::{Charge, ListingMemory};

/// A logged-in connection. Clones of the [`Arc`] share it. It closes when the last one is dropped,
/// or when it was idle for its time to live.
#[derive(Debug)]
pub struct Channel {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

/// State shared by the task and the callers.
#[derive(Debug)]
struct Shared {
    authority: String,
    peer: SocketAddr,
    server: ServerInfo,
    streams: usize,
    closed: AtomicBool,
    /// Number of files open on this connection. While it is not 0 the connection is not idle.
    open_files: AtomicUsize,
    in_flight: AtomicUsize,
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
struct Command {
    request: Encoded,
    payload: Bytes,
    sink: Sink,
    until: Until,
    /// `None` if no caller waits for the reply.
    answer: Option<oneshot::Sender<Result<Answer, Failed>>>,
}

/// Deadlines of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Deadline without a sign of progress from the server.
    pub(crate) answer: Instant,
    /// Deadline in any case.
    pub(crate) end: Instant,
}

/// The destination of the data of a reply.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A buffer that grows with the data, up to a limit.
    Body(BodyLimit),
    /// A block, with the maximum number of bytes.
    Block(Block, usize),
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
const LINE_BYTES: usize = 16;

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
pub(crate) enum Answer {
    /// Success.
    Ok(Received),
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

impl Answer {
    /// Builds the redirect in the form of the wire protocol.
    pub(crate) fn redirect(port: i32, host: &[u8]) -> Redirect<'_> {
        Redirect { port, host }
    }
}

/// The content of a successful reply.
#[derive(Debug)]
pub(crate) struct Received {
    /// The body without the part that was stored in the block.
    pub(crate) body: Vec<u8>,
    /// The block of the request with the received data.
    pub(crate) block: Option<Block>,
    /// Page frames and their positions, in the order of their data.
    pub(crate) pages: Vec<PagesAt>,
    /// The charge for the body of a listing.
    pub(crate) charge: Option<Charge>,
}

/// A frame of page data and the position of its data in the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesAt {
    pub(crate) frame: StatusFrame,
    pub(crate) at: usize,
}

/// The reason for a missing reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// The connection is lost. `sent` is set if the server may have received the request.
    Lost { reason: Lost, sent: bool },
    /// No reply before the deadline, in seconds; the connection is alive.
    TimedOut(u64),
    /// The reply exceeds its limit. The connection is alive, and the rest of the reply is dropped
    /// on arrival.
    TooLarge(BodyLimit),
}

/// The reason for the loss of a connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Lost {
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

impl Channel {
    /// Drives a logged-in connection on the runtime of the caller. `streams` are the sockets of its
    /// lanes.
    pub(crate) fn start(
        authority: String,
        streams: Vec<TcpStream>,
        peer: SocketAddr,
        machine: Connection,
        patience: Patience,
        blocks: Blocks,
    ) -> Arc<Self> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            authority,
            peer,
            server: machine.server(),
            streams: machine.lanes(),
            closed: AtomicBool::new(false),
            open_files: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
        });
        let driver = driver::Driver::new(streams, machine, receiver, shared.clone(), patience, blocks);
        tokio::spawn(driver.run());
        Arc::new(Self { commands, shared })
    }

    /// Sends a request and waits for its reply. Dropping the future abandons the reply, not the
    /// request.
    pub(crate) async fn call(
        &self,
        request: Encoded,
        payload: Bytes,
        sink: Sink,
        until: Until,
    ) -> Result<Answer, Failed> {
        let (answer, receiver) = oneshot::channel();
        let unsent = Failed::Lost { reason: Lost::Closed, sent: false };
        let command = Command { request, payload, sink, until, answer: Some(answer) };
        self.commands.send(command).map_err(|_| unsent)?;
        // The task answers each request it takes, unless its runtime is gone.
        receiver.await.unwrap_or(Err(Failed::Lost { reason: Lost::ShutDown, sent: true }))
    }

    /// Sends a request without waiting for its reply.
    pub(crate) fn post(&self, request: Encoded) {
        let now = Instant::now();
        let until = Until { answer: now, end: now };
        let (payload, sink) = (Bytes::new(), Sink::Body(BodyLimit::ANSWER));
        // On a lost connection nothing remains to be done.
        let _ = self.commands.send(Command { request, payload, sink, until, answer: None });
    }

    /// Returns `host:port` as it was requested.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.shared.authority
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// Returns the description that the server sent at login.
    #[must_use]
    pub fn server(&self) -> ServerInfo {
        self.shared.server
    }

    /// Returns the number of TCP connections that carry its data: 1 plus the number of bound
    /// streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.shared.streams
    }

    /// Reports whether the server redirects instead of serving data.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        self.shared.server.flags.intersects(ServerFlags::IS_MANAGER)
    }

    /// Reports whether the server supports `kXR_pgread` and `kXR_pgwrite`.
    #[must_use]
    pub fn has_page_io(&self) -> bool {
        self.shared.server.flags.intersects(ServerFlags::SUPPGRW)
    }

    /// Returns the number of requests without a complete reply.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Reports whether it accepts no more requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire) || self.commands.is_closed()
    }

    /// Keeps the connection open without requests as long as the guard lives.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.shared.open_files.fetch_add(1, Ordering::AcqRel);
        Hold(self.clone())
    }
}

/// A guard that keeps an idle channel open.
#[derive(Debug)]
pub(crate) struct Hold(Arc<Channel>);

impl Hold {
    pub(crate) const fn channel(&self) -> &Arc<Channel> {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.shared.open_files.fetch_sub(1, Ordering::AcqRel);
    }
}
