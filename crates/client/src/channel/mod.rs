//! A connection that many callers share: one task drives it, each request has its own deadline and gets its own answer.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Channel`]: what callers have; [`Answer`]: what they get |
//! | `driver` | the task: sends, receives, watches the time |
//! | `book` | the requests in flight and where their data goes |

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

/// A logged-in connection. Clones of the [`Arc`] share it; it closes when the last is gone, or after its time to live
/// without use.
#[derive(Debug)]
pub struct Channel {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

/// What the task and the callers both look at.
#[derive(Debug)]
struct Shared {
    authority: String,
    peer: SocketAddr,
    server: ServerInfo,
    streams: usize,
    closed: AtomicBool,
    /// Files open on this connection: it is in use even when nothing is asked.
    open_files: AtomicUsize,
    in_flight: AtomicUsize,
}

/// How long a connection is waited for and kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Silence of a server that owes answers, after which it counts as gone.
    pub(crate) silence: Duration,
    /// Time without use after which the connection is closed.
    pub(crate) idle: Duration,
}

/// A request on its way to the task.
#[derive(Debug)]
struct Command {
    request: Encoded,
    payload: Bytes,
    sink: Sink,
    until: Until,
    /// `None` when nobody waits.
    answer: Option<oneshot::Sender<Result<Answer, Failed>>>,
}

/// Until when a request is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Without a sign of the server that it works on it.
    pub(crate) answer: Instant,
    /// In any case.
    pub(crate) end: Instant,
}

/// Where the data of an answer goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Into memory of its own, as it comes, up to a limit.
    Body(BodyLimit),
    /// Into a block, at most so many bytes.
    Block(Block, usize),
    /// Nowhere: nobody waits for it. So many bytes are still taken.
    Nowhere(usize),
}

/// How large the body of an answer may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BodyLimit {
    /// Most bytes.
    pub(crate) bytes: usize,
    /// The memory that it is charged to, of a listing.
    pub(crate) memory: Option<ListingMemory>,
}

/// What a line of a listing is charged at least: an entry has one or two, and an index entry beside them.
const LINE_BYTES: usize = 16;

impl BodyLimit {
    /// Of everything but listings: the status of a million paths, the attributes of a file.
    pub(crate) const ANSWER: Self = Self { bytes: 16 * 1024 * 1024, memory: None };

    /// Of a listing that is charged to this memory.
    pub(crate) fn listing(memory: &ListingMemory) -> Self {
        Self { bytes: memory.bytes_max(), memory: Some(memory.clone()) }
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Success.
    Ok(Received),
    /// The request failed.
    Error {
        /// The server's code.
        code: ErrorCode,
        /// The server's text.
        text: String,
    },
    /// It is to be made elsewhere.
    Redirect {
        /// Port or flags as sent.
        port: i32,
        /// Host or URL as sent.
        host: Vec<u8>,
    },
    /// It is to be made again after so long.
    Wait {
        /// How long.
        pause: Duration,
        /// Why.
        text: String,
    },
}

impl Answer {
    /// The redirect as the protocol has it.
    pub(crate) fn redirect(port: i32, host: &[u8]) -> Redirect<'_> {
        Redirect { port, host }
    }
}

/// What came with a success.
#[derive(Debug)]
pub(crate) struct Received {
    /// The body, but for what went into the block.
    pub(crate) body: Vec<u8>,
    /// The block of the request with what came for it.
    pub(crate) block: Option<Block>,
    /// Page frames in the order of their data, with the place of it.
    pub(crate) pages: Vec<PagesAt>,
    /// The memory that the body of a listing takes.
    pub(crate) charge: Option<Charge>,
}

/// A frame of page data and where its data begins in the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesAt {
    pub(crate) frame: StatusFrame,
    pub(crate) at: usize,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// The connection is gone. `sent` when the server may have got the request.
    Lost { reason: Lost, sent: bool },
    /// No answer in time; the connection is alive. Whole seconds.
    TimedOut(u64),
    /// The answer is larger than its limit. The connection is alive, and the rest of the answer is dropped as it comes.
    TooLarge(BodyLimit),
}

/// Why a connection is gone.
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
    /// Drives a connection that is logged in, on the runtime of the caller. `streams` are the sockets of the machine's
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

    /// Makes a request and waits for its answer. Dropping the future gives the answer up, not the request.
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
        // The task answers everything it takes, unless its runtime is gone.
        receiver.await.unwrap_or(Err(Failed::Lost { reason: Lost::ShutDown, sent: true }))
    }

    /// Makes a request whose answer nobody waits for.
    pub(crate) fn post(&self, request: Encoded) {
        let now = Instant::now();
        let until = Until { answer: now, end: now };
        let (payload, sink) = (Bytes::new(), Sink::Body(BodyLimit::ANSWER));
        // On a connection that is gone nothing is left to be said.
        let _ = self.commands.send(Command { request, payload, sink, until, answer: None });
    }

    /// `host:port` as it was asked for.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.shared.authority
    }

    /// The address of the server.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// What the server said about itself.
    #[must_use]
    pub fn server(&self) -> ServerInfo {
        self.shared.server
    }

    /// TCP connections that carry its data: 1, or that many more than 1 as were bound to it.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.shared.streams
    }

    /// Whether the server redirects rather than serves.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        self.shared.server.flags.intersects(ServerFlags::IS_MANAGER)
    }

    /// Whether the server has `kXR_pgread` and `kXR_pgwrite`.
    #[must_use]
    pub fn has_page_io(&self) -> bool {
        self.shared.server.flags.intersects(ServerFlags::SUPPGRW)
    }

    /// Requests without their whole answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Whether it takes no more requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire) || self.commands.is_closed()
    }

    /// Keeps it open although nothing is asked, as long as the guard lives.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.shared.open_files.fetch_add(1, Ordering::AcqRel);
        Hold(self.clone())
    }
}

/// Keeps a channel from being closed for lack of use.
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
