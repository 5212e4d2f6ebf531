//! A connection shared by many callers.
//!
//! One task drives it; each request has its own deadline and reply. It exists so that all
//! operations of a process on one server need one login and one socket.
//!
//! | file            | contents                                                  |
//! |-----------------|-----------------------------------------------------------|
//! | `mod`           | [`Channel`]: the callers' side                            |
//! | `exchange`      | requests and replies ([`ServerReply`]), deadlines         |
//! | `driver`        | the task: sends, receives, checks deadlines               |
//! | `request_table` | the requests in flight and the destinations of their data |
//! | `open_reply`    | the handle in the reply to an open, until somebody takes it |

mod driver;
mod exchange;
mod open_reply;
mod request_table;

use bytes::Bytes;
use rawclient::{Connection, Encoded, ServerInfo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};
use wire::xroot::flags::ServerFlags;
use wire::xroot::request::{Ping, Request};

use self::exchange::{ChannelRequest, ChannelState};
use crate::buffer_pool::DataBufferPool;
use crate::connection_limits::ConnectionPermit;
use crate::pacing::RequestPacing;
use crate::server_stream::ServerStream;

pub(crate) use self::exchange::{
    BodyLimit, ConnectionLoss, Deadlines, MissingReply, PagesAt, Patience, ReplyContent, ReplySink,
    ServerReply,
};

/// A logged-in connection. Clones of the [`Arc`] share it. It closes when the last one is dropped,
/// or when it was idle for its time to live.
#[derive(Debug)]
pub struct Channel {
    commands: mpsc::UnboundedSender<ChannelRequest>,
    shared: Arc<ChannelState>,
}

impl Channel {
    /// Drives a logged-in connection on the runtime of the caller. `streams` are the sockets of its
    /// lanes, and `permit` is held until it ends.
    pub(crate) fn start(
        authority: String,
        streams: Vec<ServerStream>,
        peer: SocketAddr,
        machine: Connection,
        patience: Patience,
        blocks: DataBufferPool,
        permit: Option<ConnectionPermit>,
    ) -> Arc<Self> {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(ChannelState {
            authority,
            peer,
            server: machine.server(),
            streams: machine.lanes(),
            is_tls: streams.first().is_some_and(ServerStream::is_tls),
            has_session_key: machine.has_session_key(),
            closed: AtomicBool::new(false),
            worn: AtomicBool::new(false),
            open_files: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
        });
        let commands_of_itself = (commands.downgrade(), receiver);
        let driver = driver::ChannelDriver::new(
            streams,
            machine,
            commands_of_itself,
            shared.clone(),
            patience,
            blocks,
        );
        tokio::spawn(async move {
            driver.run().await;
            drop(permit);
        });
        Arc::new(Self { commands, shared })
    }

    /// Sends a request and waits for its reply. `pacing` is paused if the server announces that the
    /// reply is late. Dropping the future abandons the reply, not the request, and the turn of the
    /// request ends with the request.
    pub(crate) async fn call(
        &self,
        request: Encoded,
        payload: Bytes,
        sink: ReplySink,
        until: Deadlines,
        pacing: Option<&Arc<dyn RequestPacing>>,
    ) -> Result<ServerReply, MissingReply> {
        let (answer, receiver) = oneshot::channel();
        let unsent = MissingReply::Lost { reason: ConnectionLoss::Closed, sent: false };
        let command =
            ChannelRequest { request, payload, sink, until, pacing: pacing.cloned(), answer: Some(answer) };
        self.commands.send(command).map_err(|_| unsent)?;
        // The task answers each request it takes, unless its runtime is gone.
        receiver.await.unwrap_or(Err(MissingReply::Lost { reason: ConnectionLoss::ShutDown, sent: true }))
    }

    /// Sends a request without waiting for its reply.
    pub(crate) fn post(&self, request: Encoded) {
        // On a lost connection nothing remains to be done.
        let _ = self.commands.send(ChannelRequest::posted(request));
    }

    /// Makes later requests use another connection. This one ends as soon as nobody needs it, and with it the
    /// files that were not closed.
    pub(crate) fn retire(&self) {
        self.shared.worn.store(true, Ordering::Release);
        // Without a request the task would not look.
        self.post(Encoded::new(&Request::Ping(Ping)));
    }

    /// Returns `host:port` as it was requested.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.shared.authority
    }

    /// Reports whether requests are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.shared.is_tls
    }

    /// Reports whether the login has authenticated with credentials that agree on a session key, as
    /// those of `gsi` do.
    #[must_use]
    pub fn has_session_key(&self) -> bool {
        self.shared.has_session_key
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

    /// Reports whether new requests shall use another connection. Those about files that are open on it
    /// still use it.
    pub(crate) fn is_worn(&self) -> bool {
        self.shared.worn.load(Ordering::Acquire)
    }

    /// Keeps the connection open without requests as long as the guard lives.
    pub(crate) fn guard(self: &Arc<Self>) -> ChannelGuard {
        self.shared.open_files.fetch_add(1, Ordering::AcqRel);
        ChannelGuard(self.clone())
    }
}

/// A guard that keeps an idle channel open.
#[derive(Debug)]
pub(crate) struct ChannelGuard(Arc<Channel>);

impl ChannelGuard {
    pub(crate) const fn channel(&self) -> &Arc<Channel> {
        &self.0
    }
}

impl Drop for ChannelGuard {
    fn drop(&mut self) {
        self.0.shared.open_files.fetch_sub(1, Ordering::AcqRel);
    }
}
