//! The configuration and the state of the front end, shared by all loops.

use crate::failures::Failures;
use crate::registry::Registry;
use crate::stats::{ConnectionCounts, FrontEndFigures, LoopStats, StatisticsText, Totals};
use crate::{
    ARGUMENT_SECONDS_MAX, MEMORY_BYTES, MEMORY_BYTES_MIN, SESSION_ARGUMENT_BYTES_MAX, SESSION_BYTES_FREE,
    SESSION_BYTES_MAX, SESSION_REQUEST_BYTES_MAX, STALLED_SECONDS_MAX,
};
use base::{Ceilings, MemoryBudget, Owner};
use monitor::{FlowMarker, MonitorStreams};
use net::{Socket, TlsServer};
use session::{HostName, LOGIN_TIME_MAX, Peer, Session, Settings};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vfs::{ClientConnection, FileSystem};
use wire::xroot::header::SessionId;

/// Looks up the name of a host. It is known only if it resolves back to the address.
#[derive(Clone)]
pub struct PeerNames(pub Arc<LookUpName>);

/// A look-up that does not block the loop on which its result is awaited.
type LookUpName = dyn Fn(IpAddr) -> Pin<Box<dyn Future<Output = HostName> + Send>> + Send + Sync;

impl std::fmt::Debug for PeerNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerNames")
    }
}

/// Runs expensive steps of authentications on threads, fairly by owner. Returns `false` if too many
/// wait.
#[derive(Clone)]
pub struct LoginPool(pub Arc<RunStep>);

/// Runs one step on a thread.
type RunStep = dyn Fn(Owner, Box<dyn FnOnce() + Send>) -> bool + Send + Sync;

impl std::fmt::Debug for LoginPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginPool")
    }
}

/// Configuration of the front end.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings of the sessions.
    pub settings: Settings,
    /// Deadline for the login of a client, and for the announcement of data on a bound connection.
    pub hail: Duration,
    /// Time from a login to the success of its authentication.
    pub login_timeout: Duration,
    /// Names of the hosts of clients; `None` if only their addresses are known.
    pub peer_names: Option<PeerNames>,
    /// Threads for expensive steps of authentications; `None` if no protocol has any.
    pub login_pool: Option<LoginPool>,
    /// Certificate and threads for TLS; `None` if no connection can be encrypted. It must be set if
    /// [`Settings::tls`] is.
    pub tls: Option<Arc<TlsServer>>,
    /// Idle timeout of connections without work; `None` disables it.
    pub idle: Option<Duration>,
    /// Memory in bytes that all sessions may have in flight, beyond [`SESSION_BYTES_FREE`] of each.
    /// At least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: usize,
    /// The memory of these sessions and of other front ends; `None` for sessions only. See
    /// [`Config::shared_memory`].
    pub memory: Option<Arc<MemoryBudget>>,
    /// Deadline in seconds for the arrival of an argument, in addition to the time for its size.
    pub argument_seconds: u32,
    /// Seconds after which a connection without progress is closed while others wait for memory.
    pub stalled_seconds: u32,
    /// Sends large plain reads without copying where possible.
    pub sendfile: bool,
    /// Makes the text of `query stats`; `None` if it is empty.
    pub statistics: Option<StatisticsText>,
    /// Detailed monitoring; `None` if there is none. [`Settings::has_monitoring`] must be set with it.
    pub streams: Option<Arc<MonitorStreams>>,
    /// Reports flows of data; `None` if none are reported.
    pub marker: Option<Arc<FlowMarker>>,
    /// Logs each login.
    pub log_logins: bool,
    /// Logs the end of each session that had logged in.
    pub log_disconnects: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            hail: Duration::from_secs(30),
            login_timeout: LOGIN_TIME_MAX,
            peer_names: None,
            login_pool: None,
            tls: None,
            idle: None,
            memory_bytes: MEMORY_BYTES,
            memory: None,
            argument_seconds: ARGUMENT_SECONDS_MAX,
            stalled_seconds: STALLED_SECONDS_MAX,
            sendfile: true,
            statistics: None,
            streams: None,
            marker: None,
            log_logins: true,
            log_disconnects: true,
        }
    }
}

impl Config {
    /// Returns the memory of sessions, for another front end that takes from it too.
    pub fn shared_memory(&mut self) -> Arc<MemoryBudget> {
        let memory = self.memory.take().unwrap_or_else(|| self.new_memory());
        self.memory.insert(memory).clone()
    }

    fn new_memory(&self) -> Arc<MemoryBudget> {
        MemoryBudget::new(
            Ceilings::shares_of(self.memory_bytes.max(MEMORY_BYTES_MIN)),
            Ceilings {
                argument: SESSION_ARGUMENT_BYTES_MAX,
                request: SESSION_REQUEST_BYTES_MAX,
                data: SESSION_BYTES_MAX,
            },
            SESSION_BYTES_FREE,
        )
    }
}

/// State of the front end, shared by all loops.
pub(crate) struct FrontEnd {
    pub(crate) config: Config,
    settings: Arc<Settings>,
    pub(crate) files: Arc<dyn FileSystem>,
    pub(crate) registry: Registry,
    pub(crate) memory: Arc<MemoryBudget>,
    loops: Mutex<Vec<Arc<LoopStats>>>,
    pub(crate) draining: AtomicBool,
    pub(crate) attendance: Arc<ConnectionCounts>,
    pub(crate) failures: Failures,
}

impl FrontEnd {
    /// Returns a front end for `files`, without sessions.
    pub(crate) fn new(config: Config, files: Arc<dyn FileSystem>) -> Self {
        let settings = Arc::new(config.settings.clone());
        let attendance = Arc::new(ConnectionCounts::new(settings.descriptors.clone()));
        let memory = config.memory.clone().unwrap_or_else(|| config.new_memory());
        Self {
            config,
            settings,
            files,
            failures: Failures::default(),
            registry: Registry::default(),
            memory,
            loops: Mutex::default(),
            draining: AtomicBool::new(false),
            attendance,
        }
    }

    pub(crate) fn add_loop(&self, stats: Arc<LoopStats>) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals::of(&self.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn statistics(&self, selection: &str) -> String {
        let make =
            self.config.statistics.as_ref().map(|StatisticsText(make)| make(&self.figures(), selection));
        make.unwrap_or_default()
    }

    pub(crate) fn figures(&self) -> FrontEndFigures {
        let (connections, connections_most) = self.attendance.figures();
        FrontEndFigures {
            totals: self.totals(),
            connections,
            connections_most,
            memory_claimed: self.memory.claimed(),
            sessions: self.registry.len(),
            descriptors: self.attendance.descriptors(),
        }
    }

    /// Returns the address at which a client has connected, if it is needed.
    pub(crate) fn needed_address(&self, socket: &Socket) -> Option<SocketAddr> {
        if self.settings.has_local_files { socket.local_address().ok() } else { None }
    }

    /// Returns the session of a connection from `client` to `server`, if that is needed.
    pub(crate) fn new_session(&self, client: SocketAddr, server: Option<SocketAddr>) -> Session {
        let connection = server.map(|server| Arc::new(ClientConnection { client, server }));
        let address = client.ip().to_canonical();
        let peer =
            Peer { address: Some(address), port: client.port(), host: address.to_string(), connection };
        Session::new(new_session_id(), self.settings.clone(), peer)
    }
}

/// Returns sixteen random bytes. A session with a predictable id could be ended by others.
fn new_session_id() -> SessionId {
    let mut id = [0; 16];
    // Supported kernels always provide random numbers.
    if rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()).is_err() {
        tracing::error!("cannot create a session id: the kernel provides no random numbers; aborting");
        std::process::abort();
    }
    SessionId(id)
}
