//! [`ServedConnection`]: a connection, as its requests see it, and the login of its client.

use crate::activity::ConnectionActivity;
use crate::call::{CallFailure, Calls};
use crate::config::{HttpCredentials, HttpIdentity, HttpPeer, HttpRefusal};
use crate::connection::HttpPermit;
use crate::connection_streams::StreamState;
use crate::door::HttpFrontEnd;
use crate::handover::FileHandover;
use crate::memory::{self, ConnectionMemory};
use crate::reply::RequestRefusal;
use crate::service::NoBody;
use crate::{HTTP2_STREAM_WINDOW, LOGIN_AGE_MAX, LOGIN_TIME_MAX};
use auth::Secret;
use base::{Identity, LoginNames};
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::request::Parts;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::timeout;
use vfs::Caller;

/// The name of clients in logs, where sessions of the xroot protocol have that of their login.
const CLIENT_NAME: &str = "http";

/// The authentication of a client before its login.
const UNAUTHENTICATED: &str = "host";

/// Seconds after which a client may repeat a request whose login was late.
const LOGIN_RETRY_SECONDS: u32 = 5;

/// The client of the last request of a connection.
struct KnownClient {
    token: Option<Secret>,
    caller: Arc<Caller>,
    since: Instant,
}

/// Whether a client has disconnected.
#[derive(Default)]
struct ClientDeparture {
    has_happened: AtomicBool,
    waiters: Notify,
}

impl ClientDeparture {
    fn happen(&self) {
        self.has_happened.store(true, Ordering::SeqCst);
        self.waiters.notify_waiters();
    }

    fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::SeqCst)
    }

    async fn awaited(&self) {
        let mut notified = pin!(self.waiters.notified());
        // From here on it is notified, so nothing is missed behind the look.
        notified.as_mut().enable();
        if !self.has_happened() {
            notified.await;
        }
    }
}

/// Returns the bytes of a body over HTTP/2 that can wait in memory.
fn window_bytes(headers: &HeaderMap) -> usize {
    let window = usize::try_from(HTTP2_STREAM_WINDOW).unwrap_or(usize::MAX);
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    length.map_or(window, |length: u64| usize::try_from(length).unwrap_or(window).min(window))
}

/// A connection, as its requests see it. A request of HTTP/2 has one of its own, which ends with its stream.
pub(crate) struct ServedConnection {
    permit: Arc<HttpPermit>,
    peer: HttpPeer,
    /// The certificates of the client.
    certificates: Option<Arc<[Vec<u8>]>>,
    number: u32,
    pub(crate) calls: Calls,
    pub(crate) memory: ConnectionMemory,
    pub(crate) activity: Arc<ConnectionActivity>,
    pub(crate) handover: Arc<FileHandover>,
    departure: ClientDeparture,
    known: Arc<Mutex<Option<KnownClient>>>,
    /// The caller of the last request, for the end of the connection.
    last: std::sync::Mutex<Option<Arc<Caller>>>,
    /// The state of the stream, if this is one of HTTP/2.
    stream: Option<StreamState>,
}

impl ServedConnection {
    pub(crate) fn new(
        permit: HttpPermit,
        address: SocketAddr,
        is_tls: bool,
        certificates: Option<Arc<[Vec<u8>]>>,
    ) -> Arc<Self> {
        let shared = permit.shared();
        let calls = Calls::new(shared.files.clone(), shared.config.delay_max);
        let number = shared.next_number();
        let peer = HttpPeer { address, is_tls };
        let memory = ConnectionMemory::new(shared.memory.clone(), address.ip());
        Arc::new(Self {
            permit: Arc::new(permit),
            peer,
            certificates,
            number,
            calls,
            memory,
            activity: ConnectionActivity::new(),
            handover: Arc::default(),
            departure: ClientDeparture::default(),
            known: Arc::default(),
            last: std::sync::Mutex::default(),
            stream: None,
        })
    }

    /// Returns the state of a request on a stream. It shares the place and the login of the connection.
    pub(crate) fn stream(&self) -> Arc<Self> {
        let shared = self.shared();
        Arc::new(Self {
            permit: self.permit.clone(),
            peer: self.peer,
            certificates: self.certificates.clone(),
            number: self.number,
            calls: Calls::new(shared.files.clone(), shared.config.delay_max),
            memory: ConnectionMemory::new(shared.memory.clone(), self.address()),
            activity: self.activity.clone(),
            handover: Arc::default(),
            departure: ClientDeparture::default(),
            known: self.known.clone(),
            last: std::sync::Mutex::default(),
            stream: Some(StreamState::default()),
        })
    }

    /// Returns the state of the stream, if this is one of HTTP/2.
    pub(crate) fn stream_state(&self) -> Option<&StreamState> {
        self.stream.as_ref()
    }

    /// Takes the memory of a request. Reports whether there is some.
    pub(crate) fn admit(&self, head: &Parts) -> bool {
        let has_window = self.stream.is_some() && head.extensions.get::<NoBody>().is_none();
        let body = if has_window { window_bytes(&head.headers) } else { 0 };
        self.memory.admit(memory::bytes_of(&head.method) + body)
    }

    pub(crate) fn shared(&self) -> &Arc<HttpFrontEnd> {
        self.permit.shared()
    }

    /// Counts the connection as idle, or no longer. Reports whether there was a place for it.
    pub(crate) fn count_as_idle(&self, is_idle: bool) -> bool {
        self.permit.count_as_idle(is_idle)
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.peer.address.ip()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.peer.is_tls
    }

    /// Marks the client as gone, so that operations which only serve it may end.
    pub(crate) fn disconnect(&self) {
        self.departure.happen();
        let last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(caller) = last {
            caller.disconnect();
        }
    }

    /// Frees the state of the last request. A client whose credentials have not decided its login logs in again with its
    /// next one.
    pub(crate) async fn free_request_state(&self) {
        let mut known = self.known.lock().await;
        if known.as_ref().is_some_and(|known| known.caller.entity().is_none()) {
            *known = None;
            *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        }
        self.memory.settle_idle();
    }

    /// Returns the memory of a request that has been answered. A stream keeps it until its reply was sent.
    pub(crate) fn settle(&self) {
        if self.stream.is_none() {
            self.memory.settle();
        }
    }

    /// Waits for logins of other streams.
    async fn wait_for_login(&self) -> Result<MutexGuard<'_, Option<KnownClient>>, RequestRefusal> {
        tokio::select! {
            known = timeout(LOGIN_TIME_MAX, self.known.lock()) => {
                known.map_err(|_| CallFailure::Later(LOGIN_RETRY_SECONDS).into())
            }
            () = self.departure.awaited() => Err(disconnected()),
        }
    }

    /// Makes `caller` that of the last request. A stream gets one of its own, which ends with it.
    fn last_caller(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        let caller = match self.stream {
            Some(_) => Arc::new(caller.detached()),
            None => caller.clone(),
        };
        *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(caller.clone());
        if self.departure.has_happened() {
            // The client has disconnected during its login.
            caller.disconnect();
        }
        caller
    }

    /// Logs the client in, unless that takes too long or the client leaves.
    async fn log_in(&self, token: Option<Secret>) -> Result<HttpIdentity, RequestRefusal> {
        let credentials = HttpCredentials { token, certificates: self.certificates.clone() };
        let login = self.shared().config.login.log_in(self.peer, credentials);
        let decided = tokio::select! {
            decided = timeout(LOGIN_TIME_MAX, login) => decided,
            () = self.departure.awaited() => return Err(disconnected()),
        };
        // Nobody knows how long a name server or an issuer of tokens will be late.
        let Ok(decided) = decided else { return Err(CallFailure::Later(LOGIN_RETRY_SECONDS).into()) };
        decided.map_err(|refusal| match refusal {
            HttpRefusal::Unauthorized(text) => RequestRefusal::new(StatusCode::UNAUTHORIZED, text),
            HttpRefusal::Forbidden(text) => RequestRefusal::new(StatusCode::FORBIDDEN, text),
            HttpRefusal::Unavailable(text) => RequestRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text),
        })
    }

    /// Returns the caller of a request. The result of the last login counts for a while.
    pub(crate) async fn caller(
        &self,
        token: Option<Secret>,
        application: &str,
    ) -> Result<Arc<Caller>, RequestRefusal> {
        // It is free unless another stream logs in.
        let mut known = match self.known.try_lock() {
            Ok(known) => known,
            Err(_) => self.wait_for_login().await?,
        };
        if let Some(known) = &*known {
            let is_same = match (&known.token, &token) {
                (None, None) => true,
                (Some(known), Some(token)) => known.is_equal(token.expose()),
                _ => false,
            };
            let has_expired = known.caller.entity().is_some_and(auth::Entity::has_expired);
            if is_same && !has_expired && known.since.elapsed() < LOGIN_AGE_MAX {
                return Ok(match self.stream {
                    Some(_) => self.last_caller(&known.caller),
                    None => known.caller.clone(),
                });
            }
        }
        let HttpIdentity { entity, host } = self.log_in(token.clone()).await?;
        let names = LoginNames { user: CLIENT_NAME, host: &host, application, ..LoginNames::default() };
        let address = self.peer.address.ip().to_canonical();
        let identity = Identity::new(&names, self.number, Some(address), UNAUTHENTICATED);
        let caller = Caller::new(identity, true, false).with_protection(self.peer.is_tls);
        let caller = match entity {
            Some(entity) => caller.with_entity(entity),
            None => caller,
        };
        let caller = Arc::new(caller);
        let last = self.last_caller(&caller);
        *known = Some(KnownClient { token, caller, since: Instant::now() });
        Ok(last)
    }
}

fn disconnected() -> RequestRefusal {
    RequestRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "The client has disconnected.")
}
