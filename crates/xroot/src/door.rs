//! The door: accepts connections for the xroot protocol, drains, and tells what it does.

use crate::failures::Failures;
use crate::hub::Hub;
use crate::link;
use crate::registry::Registry;
use crate::stats::{Attendance, Identification, LoopStats, Totals, xml};
use crate::{
    ARGUMENT_SECONDS_MAX, MEMORY_BYTES, MEMORY_BYTES_MIN, SESSION_ARGUMENT_BYTES_MAX, SESSION_BYTES_FREE,
    SESSION_BYTES_MAX, SESSION_REQUEST_BYTES_MAX, STALLED_SECONDS_MAX,
};
use base::{Ceilings, MemoryBudget};
use net::{Arrival, Claim, LoopHandle, Presence};
use session::{Peer, Session, Settings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use vfs::FileSystem;
use wire::xroot::header::{Handshake, SessionId};
use wire::xroot::limits::HANDSHAKE_BYTES;

/// Between looks at whether a drain has ended.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// How the door works.
#[derive(Clone, Debug)]
pub struct Config {
    /// What sessions are told.
    pub settings: Settings,
    /// A client must have logged in within this time, and data on a joined connection must have been announced.
    pub hail: Duration,
    /// Silent connections without work are closed after this time; `None` keeps them.
    pub idle: Option<Duration>,
    /// Bytes of memory that all sessions may have in flight, beyond [`SESSION_BYTES_FREE`] of each; at least
    /// [`MEMORY_BYTES_MIN`].
    pub memory_bytes: usize,
    /// Seconds in which an argument that has begun must arrive, beside the time for its size.
    pub argument_seconds: u32,
    /// Seconds after which a connection that moves nothing is closed while others wait for memory.
    pub stalled_seconds: u32,
    /// Send large plain reads without copying where that is possible.
    pub sendfile: bool,
    /// How the server names itself in statistics.
    pub identification: Identification,
    /// Log each login.
    pub log_logins: bool,
    /// Log the end of each session that had logged in.
    pub log_disconnects: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            hail: Duration::from_secs(30),
            idle: None,
            memory_bytes: MEMORY_BYTES,
            argument_seconds: ARGUMENT_SECONDS_MAX,
            stalled_seconds: STALLED_SECONDS_MAX,
            sendfile: true,
            identification: Identification::default(),
            log_logins: true,
            log_disconnects: true,
        }
    }
}

/// What all loops of the door share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    settings: Arc<Settings>,
    pub(crate) files: Arc<dyn FileSystem>,
    pub(crate) registry: Registry,
    pub(crate) memory: Arc<MemoryBudget>,
    loops: Mutex<Vec<Arc<LoopStats>>>,
    draining: AtomicBool,
    started: SystemTime,
    pub(crate) attendance: Arc<Attendance>,
    pub(crate) failures: Failures,
}

impl Shared {
    pub(crate) fn add_loop(&self, stats: Arc<LoopStats>) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn statistics(&self, selection: &str) -> String {
        xml(&self.config.identification, self.started, &self.totals(), &self.attendance, selection)
    }

    pub(crate) fn new_session(&self, peer: SocketAddr) -> Session {
        let address = peer.ip().to_canonical();
        let peer = Peer { address: Some(address), host: address.to_string() };
        Session::new(new_session_id(), self.settings.clone(), peer)
    }
}

/// Sixteen random bytes: a session that can be guessed can be ended by others.
fn new_session_id() -> SessionId {
    let mut id = [0; 16];
    // A kernel without random numbers runs nothing of today.
    if rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()).is_err() {
        tracing::error!("no random numbers for a session id");
        std::process::abort();
    }
    SessionId(id)
}

/// The xroot protocol on the shared port.
pub struct Door {
    shared: Arc<Shared>,
}

impl Door {
    /// A door to `files`.
    pub fn new(config: Config, files: Arc<dyn FileSystem>) -> Self {
        let settings = Arc::new(config.settings.clone());
        let attendance = Arc::new(Attendance::new(settings.descriptors.clone()));
        let memory = MemoryBudget::new(
            Ceilings::shares_of(config.memory_bytes.max(MEMORY_BYTES_MIN)),
            Ceilings {
                argument: SESSION_ARGUMENT_BYTES_MAX,
                request: SESSION_REQUEST_BYTES_MAX,
                data: SESSION_BYTES_MAX,
            },
            SESSION_BYTES_FREE,
        );
        Self {
            shared: Arc::new(Shared {
                config,
                settings,
                files,
                failures: Failures::default(),
                registry: Registry::default(),
                memory,
                loops: Mutex::default(),
                draining: AtomicBool::new(false),
                attendance,
                started: SystemTime::now(),
            }),
        }
    }

    /// What was counted since the start.
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Sessions now, also those that have not logged in.
    pub fn sessions(&self) -> usize {
        self.shared.registry.len()
    }

    /// Bytes of memory that sessions have claimed for what is in flight.
    pub fn memory_claimed(&self) -> usize {
        self.shared.memory.claimed()
    }

    /// Who is connected.
    pub fn clients(&self) -> Vec<base::Identity> {
        self.shared.registry.identities()
    }

    /// Takes no further request, waits at most `limit` for what is in flight, then closes everything. Tells whose requests
    /// did not end in time.
    pub async fn drain(&self, loops: &[LoopHandle], limit: Duration) -> Vec<base::Identity> {
        self.shared.draining.store(true, Ordering::Relaxed);
        let on_all = |work: fn(&Hub)| {
            for handle in loops {
                let shared = self.shared.clone();
                handle.run(move || work(&Hub::of(&shared)));
            }
        };
        on_all(Hub::drain);
        let until = Instant::now() + limit;
        while self.sessions() > 0 && Instant::now() < until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        let left = self.clients();
        on_all(Hub::abort);
        left
    }
}

impl net::Door for Door {
    fn name(&self) -> &'static str {
        "xroot"
    }

    fn claims(&self, first: &[u8]) -> Claim {
        match first.first_chunk::<HANDSHAKE_BYTES>() {
            Some(bytes) if Handshake::is(bytes) => Claim::Mine,
            None if Handshake::may_become(first) => Claim::NeedMore,
            _ => Claim::NotMine,
        }
    }

    fn serve(&self, arrival: Arrival, presence: Presence) {
        link::serve(&self.shared, arrival, presence);
    }
}
