//! The entry point of the front end: detection, its runtime, drain.

use crate::config::{Config, StaticHeader};
use crate::connection::{self, HttpPermit};
use crate::copy::HttpCopySlots;
use crate::counters::HttpCounters;
use crate::dashboard::DashboardFeed;
use crate::host_shares::{HostShares, SharedPart};
use crate::http2::PREFACE;
use crate::memory::HttpMemory;
use crate::{CHUNKS_MAX, DESCRIPTORS_SHARE, METRICS_REQUESTS_MAX, REFUSAL_WARNING, THREADS_MAX};
use base::LineLimit;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};
use net::{Arrival, LoopPresence, ProtocolMatch};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use vfs::FileSystem;

/// Interval between checks whether a drain has ended.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Maximum time in which requests end after their connections were closed.
const REMOVAL_TIME: Duration = Duration::from_secs(2);

/// Maximum length of the name of a method.
const METHOD_BYTES_MAX: usize = 16;

/// The first bytes of a TLS record with a handshake.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];

/// The end that a connection must come to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ConnectionEnd {
    /// None.
    Open,
    /// The end after the present request.
    AfterRequest,
    /// The end at once.
    Now,
}

/// State that all connections share.
pub(crate) struct HttpFrontEnd {
    pub(crate) config: Config,
    pub(crate) files: Arc<dyn FileSystem>,
    /// Headers of replies, those of one method with the method.
    pub(crate) static_headers: Vec<(Option<Method>, HeaderName, HeaderValue)>,
    /// The memory for chunks of files, see [`CHUNKS_MAX`].
    pub(crate) chunks: Arc<Semaphore>,
    pub(crate) memory: Arc<HttpMemory>,
    pub(crate) ends: watch::Receiver<ConnectionEnd>,
    pub(crate) shares: Arc<HostShares>,
    pub(crate) counters: Arc<HttpCounters>,
    /// Requests for metrics, see [`METRICS_REQUESTS_MAX`].
    pub(crate) metrics: Semaphore,
    pub(crate) dashboard: DashboardFeed,
    pub(crate) copy_slots: HttpCopySlots,
    refused: Mutex<RefusedConnections>,
    /// Lines about certificates of clients that are refused.
    pub(crate) refused_certificates: LineLimit,
    /// Connections, and requests whose connections have ended before.
    connections: AtomicUsize,
    next_number: AtomicU32,
    draining: AtomicBool,
}

impl HttpFrontEnd {
    /// Returns a number for a connection.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Reports whether no further requests are taken.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Reports whether all connections are closed, with requests in progress.
    pub(crate) fn closes_connections(&self) -> bool {
        *self.ends.borrow() == ConnectionEnd::Now
    }

    pub(crate) fn leave(&self, connected: Duration) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.counters.left(connected);
        self.config.descriptors.disconnect();
    }

    /// Takes a place for a connection, if there is one.
    fn enter(self: &Arc<Self>, peer: IpAddr, presence: LoopPresence) -> Option<HttpPermit> {
        let share = self.shares.take(peer, SharedPart::Connection)?;
        if !self.config.descriptors.connect() {
            return None;
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.counters.arrived();
        Some(HttpPermit::new(self.clone(), share, presence))
    }

    /// Counts a connection or handshake that is refused, and warns at intervals.
    pub(crate) fn refuse(&self, peer: IpAddr) {
        self.counters.refused();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = refused.count(Instant::now()) {
            tracing::warn!(
                "{number} HTTP connections were refused, the last one of {peer}: too many of this host, of all \
                 hosts, or of this process; see the limits in docs/http.md"
            );
        }
    }
}

/// Connections that were refused since the last warning.
#[derive(Default)]
struct RefusedConnections {
    number: u64,
    warned: Option<Instant>,
}

impl RefusedConnections {
    /// Counts one. Returns the number if it is time for a warning.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.number = self.number.saturating_add(1);
        let is_early = |warned| now.saturating_duration_since(warned) < REFUSAL_WARNING;
        if self.warned.is_some_and(is_early) {
            return None;
        }
        self.warned = Some(now);
        Some(std::mem::take(&mut self.number))
    }
}

/// HTTP on the shared port.
pub struct HttpDoor {
    shared: Arc<HttpFrontEnd>,
    ends: watch::Sender<ConnectionEnd>,
    runtime: Option<Runtime>,
}

impl HttpDoor {
    /// Starts the runtime of a front end for `files`.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    pub fn start(config: Config, files: Arc<dyn FileSystem>) -> io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(1)
            .thread_name("http")
            .enable_all()
            .build()?;
        let static_headers = static_headers(&config)?;
        let (ends, received) = watch::channel(ConnectionEnd::Open);
        let shares = HostShares::new(config.descriptors.limit() / DESCRIPTORS_SHARE);
        let memory = HttpMemory::new(config.memory.clone());
        let shared = HttpFrontEnd {
            memory,
            config,
            shares,
            counters: Arc::default(),
            metrics: Semaphore::new(METRICS_REQUESTS_MAX),
            dashboard: DashboardFeed::default(),
            copy_slots: HttpCopySlots::new(),
            refused: Mutex::default(),
            refused_certificates: LineLimit::default(),
            files,
            static_headers,
            chunks: Arc::new(Semaphore::new(CHUNKS_MAX)),
            ends: received,
            connections: AtomicUsize::new(0),
            next_number: AtomicU32::new(1),
            draining: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared), ends, runtime: Some(runtime) })
    }

    /// Returns the number of connections, with requests whose connections have ended before them.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<HttpCounters> {
        &self.shared.counters
    }

    /// Takes no further requests, waits at most `limit` for those in progress, then closes all
    /// connections. Returns the number of connections that had to be closed.
    pub fn drain(&self, limit: Duration) -> impl Future<Output = usize> + Send + 'static {
        let (shared, ends) = (self.shared.clone(), self.ends.clone());
        async move {
            shared.draining.store(true, Ordering::Relaxed);
            ends.send_replace(ConnectionEnd::AfterRequest);
            let until = Instant::now() + limit;
            let count = || shared.connections.load(Ordering::Relaxed);
            while count() > 0 && Instant::now() < until {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
            let left = count();
            ends.send_replace(ConnectionEnd::Now);
            // Requests without a connection remove their unfinished files.
            let until = Instant::now() + REMOVAL_TIME;
            while count() > 0 && Instant::now() < until {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
            left
        }
    }
}

impl Drop for HttpDoor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The door may be dropped by a task, which must not block.
            runtime.shutdown_background();
        }
    }
}

impl net::Door for HttpDoor {
    fn name(&self) -> &'static str {
        "http"
    }

    fn claims(&self, first: &[u8]) -> ProtocolMatch {
        claims(first, self.shared.config.tls.is_some(), self.shared.config.http2)
    }

    fn serve(&self, arrival: Arrival, presence: LoopPresence) {
        let Some(runtime) = &self.runtime else { return };
        let Some(permit) = self.shared.enter(arrival.peer.ip(), presence) else {
            self.shared.refuse(arrival.peer.ip());
            return;
        };
        let Arrival { socket, peer, received, .. } = arrival;
        let Ok((socket, rest)) = socket.release() else { return };
        let first = [received.as_slice(), &rest].concat();
        // The buffer belongs to the loop.
        net::give_small(received);
        let Some(socket) = socket.into_stream() else { return };
        runtime.spawn(connection::serve(permit, socket, peer, first));
    }
}

/// Returns the headers that the configuration adds to replies.
fn static_headers(config: &Config) -> io::Result<Vec<(Option<Method>, HeaderName, HeaderValue)>> {
    let parse = |header: &StaticHeader| {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("no header: {}", header.name));
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_str(&header.value).map_err(|_| invalid())?;
        let method = header.method.as_ref().map(|method| Method::from_bytes(method.as_bytes()));
        Ok((method.transpose().map_err(|_| invalid())?, name, value))
    };
    config.static_headers.iter().map(parse).collect()
}

/// Decides whether first bytes are those of HTTP: a method, TLS if there is a certificate, or the preface of HTTP/2, which is
/// waited for.
fn claims(first: &[u8], has_tls: bool, has_http2: bool) -> ProtocolMatch {
    if has_tls && first.iter().zip(TLS_HANDSHAKE).all(|(byte, expected)| *byte == expected) {
        return match first.len() {
            0 | 1 => ProtocolMatch::NeedMore,
            _ => ProtocolMatch::Mine,
        };
    }
    if has_http2 && first.len() < PREFACE.len() && PREFACE.starts_with(first) {
        return ProtocolMatch::NeedMore;
    }
    let letters = first.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match first.get(letters) {
        Some(b' ') if (1..=METHOD_BYTES_MAX).contains(&letters) => ProtocolMatch::Mine,
        None if letters <= METHOD_BYTES_MAX => ProtocolMatch::NeedMore,
        _ => ProtocolMatch::NotMine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connections_are_counted_between_warnings() {
        let mut refused = RefusedConnections::default();
        let begin = Instant::now();
        assert_eq!(refused.count(begin), Some(1));
        assert_eq!([refused.count(begin), refused.count(begin + REFUSAL_WARNING / 2)], [None; 2]);
        assert_eq!(refused.count(begin + REFUSAL_WARNING), Some(3));
    }

    #[test]
    fn the_preface_of_http2_is_waited_for() {
        let (mine, more) = (ProtocolMatch::Mine, ProtocolMatch::NeedMore);
        for length in 0..PREFACE.len() {
            assert_eq!(claims(&PREFACE[..length], false, true), more, "{length}");
        }
        assert_eq!(claims(PREFACE, false, true), mine);
        // A method with this name, and a server without HTTP/2.
        assert_eq!(claims(b"PRI /", false, true), mine);
        assert_eq!(claims(&PREFACE[..4], false, false), mine);
    }

    #[test]
    fn methods_and_tls_are_recognized_and_xroot_is_not() {
        let all = |bytes: &[u8]| (claims(bytes, true, true), claims(bytes, false, false));
        let (mine, more, other) = (ProtocolMatch::Mine, ProtocolMatch::NeedMore, ProtocolMatch::NotMine);
        assert_eq!(all(b"GET / HTTP/1.1\r\n"), (mine, mine));
        assert_eq!(all(b"PROPFIND /"), (mine, mine));
        assert_eq!(all(b"PROPF"), (more, more));
        assert_eq!(all(b""), (more, more));
        assert_eq!(all(b"\x16\x03\x01"), (mine, other));
        assert_eq!(all(b"\x16"), (more, other));
        // The handshake of xroot, other binary protocols, text that is no request.
        for bytes in [&[0; 20][..], &[0], b"\x16\x04", b"get / HTTP/1.1", b" GET", b"SSH-2.0", b"\r\nGET /"] {
            assert_eq!(all(bytes), (other, other), "{bytes:?}");
        }
        assert_eq!(all(&[b'A'; METHOD_BYTES_MAX + 1]), (other, other));
        assert_eq!(all(&[b'A'; METHOD_BYTES_MAX]), (more, more));
    }
}
