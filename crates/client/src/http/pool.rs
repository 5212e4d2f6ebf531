//! [`HttpPool`]: the connections to HTTP servers.
//!
//! A connection makes one request at a time, and is kept for the next one. The permit of a connection, and
//! its count, belong to the task that drives it, so they last as long as the connection.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use super::address::HttpServer;
use super::bearer::BearerCache;
use super::object_store::ObjectStore;
use super::stream::HttpStream;
use super::user_stores::UserStores;
use crate::client::Client;
use crate::connect::connect_stream;
use crate::connection_limits::{ConnectionLimits, ConnectionPermit};
use crate::failure::Cause;
use crate::url::Url;

/// Maximum number of unused connections to one server.
const UNUSED_MAX: usize = 64;
/// Maximum time for which an unused connection is kept. Most servers close it after a minute or less.
const UNUSED_TIME: Duration = Duration::from_secs(50);
/// Interval at which connections that are unused for too long are closed.
const SWEEP_PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of headers of a reply.
const HEADERS_MAX: usize = 128;
/// Maximum size of the headers of a reply, and of the data that one receive takes.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Time for which it counts whether a server offers WebDAV. Then it may have been configured anew.
const DAV_TIME: Duration = Duration::from_secs(300);
/// Maximum number of servers of which is known whether they offer WebDAV.
const DAV_SERVERS_MAX: usize = 1024;

/// The connections of a client to HTTP servers.
#[derive(Default)]
pub(crate) struct HttpPool {
    state: Arc<Mutex<HttpPoolState>>,
    limits: OnceLock<ConnectionLimits>,
    /// The object store that is reached by these connections, if it is one.
    store: OnceLock<Arc<ObjectStore>>,
    user_stores: UserStores,
    pub(super) bearer: BearerCache,
}

#[derive(Default)]
struct HttpPoolState {
    unused: HashMap<HttpServer, VecDeque<UnusedSender>>,
    /// Number of connections to each server, used or not.
    open: HashMap<HttpServer, usize>,
    /// Connections of an earlier generation are not used again.
    generation: u64,
    is_swept: bool,
    /// Whether servers offer WebDAV, as far as it is known, and since when.
    dav: HashMap<HttpServer, (bool, Instant)>,
}

/// A connection that no request uses.
struct UnusedSender {
    since: Instant,
    sender: SendRequest<Full<Bytes>>,
}

/// A connection for one request. [`HttpConnection::release`] keeps it for others; otherwise it ends.
pub(super) struct HttpConnection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// It has served a request before, so the server may have closed it meanwhile.
    pub(super) is_reused: bool,
    server: HttpServer,
    generation: u64,
    state: Arc<Mutex<HttpPoolState>>,
}

/// A connection that is open until this value is dropped.
struct OpenConnection {
    server: HttpServer,
    state: Weak<Mutex<HttpPoolState>>,
    _permit: Option<ConnectionPermit>,
}

/// An unused connection, to be closed to make room for others.
pub(crate) struct UnusedHttpConnection {
    /// The time since which nothing uses it.
    pub(crate) since: Instant,
    server: HttpServer,
    state: Arc<Mutex<HttpPoolState>>,
}

fn lock(state: &Mutex<HttpPoolState>) -> MutexGuard<'_, HttpPoolState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let mut state = lock(&state);
        if let Some(count) = state.open.get_mut(&self.server) {
            *count -= 1;
            if *count == 0 {
                state.open.remove(&self.server);
            }
        }
    }
}

impl UnusedHttpConnection {
    /// Closes the connection, unless a request has taken it meanwhile.
    pub(crate) fn close(self) {
        let mut state = lock(&self.state);
        let of_server = state.unused.get_mut(&self.server);
        let is_first = |senders: &&mut VecDeque<UnusedSender>| {
            senders.front().is_some_and(|unused| unused.since == self.since)
        };
        drop(of_server.filter(is_first).and_then(VecDeque::pop_front));
    }
}

impl HttpConnection {
    /// Keeps the connection for later requests. The reply was read to its end.
    pub(super) fn release(self) {
        let mut state = lock(&self.state);
        if state.generation != self.generation || self.sender.is_closed() {
            return;
        }
        let unused = state.unused.entry(self.server).or_default();
        if unused.len() >= UNUSED_MAX {
            unused.pop_front();
        }
        unused.push_back(UnusedSender { since: Instant::now(), sender: self.sender });
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.state)));
        }
    }
}

/// Closes connections that are unused for too long, until there are none.
async fn sweep(pool: Weak<Mutex<HttpPoolState>>) {
    loop {
        tokio::time::sleep(SWEEP_PAUSE).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = lock(&pool);
        state.unused.retain(|_, senders| {
            senders.retain(|unused| !unused.sender.is_closed() && unused.since.elapsed() < UNUSED_TIME);
            !senders.is_empty()
        });
        if state.unused.is_empty() {
            state.is_swept = false;
            return;
        }
    }
}

impl HttpPool {
    fn state(&self) -> MutexGuard<'_, HttpPoolState> {
        lock(&self.state)
    }

    /// Limits the connections from now on. Only the first limits count.
    pub(crate) fn limit(&self, limits: ConnectionLimits) {
        self.limits.set(limits).ok();
    }

    /// Has requests be those of an object store from now on. Only the first store counts.
    pub(crate) fn use_object_store(&self, store: Arc<ObjectStore>) {
        self.store.set(store).ok();
    }

    pub(crate) fn object_store(&self) -> Option<&Arc<ObjectStore>> {
        self.store.get()
    }

    /// Returns the object store of requests for a URL, if they are those of one.
    ///
    /// # Errors
    /// The reason for which the store of the URL is not known.
    pub(super) fn store_of(&self, client: &Client, url: &Url) -> Result<Option<Arc<ObjectStore>>, String> {
        match self.object_store() {
            None if url.is_object() => self.user_stores.store_of(client, url).map(Some),
            store => Ok(store.cloned()),
        }
    }

    /// Connects again for later requests.
    pub(crate) fn forget_connections(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.unused.clear();
    }

    /// Reports whether there is a connection to a server.
    pub(crate) fn is_connected(&self, host: &str, port: u16) -> bool {
        let is_it = |server: &HttpServer| server.port == port && server.host.eq_ignore_ascii_case(host);
        self.state().open.keys().any(is_it)
    }

    /// Returns the connection that is unused for longest, to any server or to one.
    pub(crate) fn longest_unused(&self, server: Option<(&str, u16)>) -> Option<UnusedHttpConnection> {
        let is_wanted = |known: &HttpServer| {
            server.is_none_or(|(host, port)| known.host.eq_ignore_ascii_case(host) && known.port == port)
        };
        let state = self.state();
        let wanted = state.unused.iter().filter(|(server, _)| is_wanted(server));
        let first = wanted.filter_map(|(server, senders)| Some((senders.front()?.since, server)));
        let (since, server) = first.min_by_key(|(since, _)| *since)?;
        Some(UnusedHttpConnection { since, server: server.clone(), state: self.state.clone() })
    }

    /// Returns whether a server offers WebDAV, if it is known.
    pub(super) fn offers_dav(&self, server: &HttpServer) -> Option<bool> {
        let known = self.state().dav.get(server).copied();
        known.filter(|(_, since)| since.elapsed() < DAV_TIME).map(|(offers, _)| offers)
    }

    /// Records whether a server offers WebDAV.
    pub(super) fn record_dav(&self, server: &HttpServer, offers: bool) {
        let dav = &mut self.state().dav;
        if dav.len() >= DAV_SERVERS_MAX {
            dav.clear();
        }
        dav.insert(server.clone(), (offers, Instant::now()));
    }

    /// Returns the unused connection that was used last.
    fn take_unused(&self, server: &HttpServer) -> Option<HttpConnection> {
        let mut state = self.state();
        let senders = state.unused.get_mut(server)?;
        let sender = loop {
            let unused = senders.pop_back()?;
            if !unused.sender.is_closed() && unused.since.elapsed() < UNUSED_TIME {
                break unused.sender;
            }
        };
        let (state, generation) = (self.state.clone(), state.generation);
        Some(HttpConnection { sender, is_reused: true, server: server.clone(), generation, state })
    }

    /// Returns a connection to a server: an unused one, unless a new one is wanted.
    pub(super) async fn connection(
        &self,
        client: &Client,
        server: &HttpServer,
        is_new: bool,
        until: Instant,
    ) -> Result<HttpConnection, Cause> {
        while !is_new && let Some(mut unused) = self.take_unused(server) {
            // The end of its last reply may be in progress. If it waits, the server has sent too much.
            if let Ok(Ok(())) =
                timeout_at(until.min(Instant::now() + READY_TIME), unused.sender.ready()).await
            {
                return Ok(unused);
            }
        }
        self.connect(client, server, until).await
    }

    async fn connect(
        &self,
        client: &Client,
        server: &HttpServer,
        until: Instant,
    ) -> Result<HttpConnection, Cause> {
        let settings = client.settings();
        let until = until.min(Instant::now() + Duration::from_secs(settings.connection_window.max(1)));
        let HttpServer { host, port, .. } = server;
        let permit = match self.limits.get() {
            Some(limits) => Some(limits.permit((host, *port), until).await?),
            None => None,
        };
        let generation = self.state().generation;
        let (sender, connection) = open_connection(client, server, until, |_| {}).await?;
        *self.state().open.entry(server.clone()).or_default() += 1;
        let open =
            OpenConnection { server: server.clone(), state: Arc::downgrade(&self.state), _permit: permit };
        tokio::spawn(drive(connection, open));
        let (server, state) = (server.clone(), self.state.clone());
        Ok(HttpConnection { sender, is_reused: false, server, generation, state })
    }
}

/// Connects to a server, with encryption if its URL asks for it. `on_connect` gets the address before anything
/// is sent.
///
/// # Errors
/// The cause for which there is no connection at `until`.
pub(super) async fn open_connection<B>(
    client: &Client,
    server: &HttpServer,
    until: Instant,
    on_connect: impl FnOnce(SocketAddr),
) -> Result<(SendRequest<B>, Connection<TokioIo<HttpStream>, B>), Cause>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (pool, settings) = (client.pool(), client.settings());
    let HttpServer { tls, host, port } = server;
    let (mut stream, peer) = connect_stream(host, *port, settings, pool.filter(), until).await?;
    on_connect(peer);
    if *tls {
        let handshake = pool.tls().encrypt(&mut stream, host);
        let silent = || Cause::Unreachable(format!("{peer} took the connection and then said nothing"));
        timeout_at(until, handshake).await.map_err(|_| silent())??;
    }
    let mut builder = Builder::new();
    // Some servers, XRootD 5.5 among them, know headers by one spelling.
    builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX).title_case_headers(true);
    let made = builder.handshake(TokioIo::new(HttpStream(stream))).await;
    made.map_err(|error| Cause::Lost(error.to_string()))
}

/// Time within which an unused connection has ended its last reply.
const READY_TIME: Duration = Duration::from_millis(100);

/// Drives a connection until it ends, which it does without its sender.
async fn drive(connection: Connection<TokioIo<HttpStream>, Full<Bytes>>, open: OpenConnection) {
    if let Err(error) = connection.await {
        tracing::debug!(server = open.server.authority(), %error, "the connection has ended");
    }
}
