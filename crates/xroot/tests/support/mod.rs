//! A server in this process, on a directory of its own, whose storage fails as the test requires.
//!
//! It runs in the test's process so that tests can inject faults and read counters.
// each test file uses a part
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)]

pub mod client;
#[path = "../../../session/tests/support/codes.rs"]
pub mod codes;
#[path = "../../../session/tests/support/raw.rs"]
pub mod raw;

pub use client::Client;
pub use codes::*;
pub use raw::{Raw, Reply, segment};

use base::LogicalPath;
use logical::config::{Config as LogicalConfig, ExportConfig};
use logical::{Journals, Logical, LogicalParts, NumberedUsers};
use net::{Listener, ListenerConfig, Loops, Refusals, SocketConfig};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use storage::faulty::{FaultRules, Faulty};
use storage::posix::Posix;
use storage::{Backend, Pool};
use vfs::FileSystem;

/// Timeout of conditions, far longer than they need. A test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "timeout while waiting for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory that is removed with its content.
pub struct Directory(pub PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // `plain` includes this module several times in one process.
        let here = module_path!().replace("::", "-");
        let path = std::env::temp_dir().join(format!("scalla-{here}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A leftover directory is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct SystemClock(Instant);

impl base::Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Options of a test server.
pub struct Wish {
    pub config: xroot::Config,
    pub socket: SocketConfig,
    pub loops: usize,
    /// Directories with a pool of one thread each, as if they were separate file systems.
    pub pools: Vec<&'static str>,
    pub wrap: fn(Arc<Logical>) -> Arc<dyn FileSystem>,
    /// Readers and writers exclude each other.
    pub lock: bool,
    /// Cold reads use io_uring if the kernel allows it.
    pub ring: bool,
    /// Connections that are ready together share system calls if the kernel allows it.
    pub together: bool,
}

impl Default for Wish {
    fn default() -> Self {
        let socket = SocketConfig { keepalive: None, buffer_bytes: None };
        Self {
            config: xroot::Config::default(),
            socket,
            loops: 2,
            pools: Vec::new(),
            wrap: |logical| logical,
            lock: true,
            ring: false,
            // The tests in `plain` run without batching.
            together: !module_path!().starts_with("plain"),
        }
    }
}

/// A server and its directory.
pub struct Server {
    pub door: Arc<xroot::XrootDoor>,
    pub loops: Arc<Loops>,
    pub rules: Arc<FaultRules>,
    pub address: SocketAddr,
    /// The port stays open while this exists.
    _alive: tokio::sync::oneshot::Sender<()>,
    directory: Directory,
}

impl Server {
    pub fn new() -> Self {
        Self::with(Wish::default())
    }

    pub fn with(wish: Wish) -> Self {
        let directory = Directory::new();
        let root = directory.0.join("data");
        std::fs::create_dir_all(&root).unwrap();
        let posix: Arc<dyn Backend> = Arc::new(Posix::new(&storage::posix::Config::new(&root)).unwrap());
        let mut faulty = Faulty::new(posix);
        for path in &wish.pools {
            std::fs::create_dir_all(root.join(path.trim_start_matches('/'))).unwrap();
            faulty = faulty.with_pool(&LogicalPath::parse(path.as_bytes()).unwrap(), Pool::new("own", 1));
        }
        let rules = faulty.rules().clone();
        let export = ExportConfig { lock: wish.lock, ..ExportConfig::new(LogicalPath::root()) };
        let config = LogicalConfig::new(vec![export], directory.0.join("admin"));
        let journals = Journals::on_disk(&config);
        let parts = LogicalParts {
            config,
            backend: Arc::new(faulty),
            clock: Arc::new(SystemClock(Instant::now())),
            users: Arc::new(NumberedUsers),
            locator: None,
            accounts: None,
            journals,
        };
        let files = (wish.wrap)(Logical::new(parts).unwrap());
        let socket = wish.socket.clone();
        let door = Arc::new(xroot::XrootDoor::new(wish.config, files));
        let loops = Arc::new(Loops::start(wish.loops).unwrap());
        if wish.ring {
            loops.handles().iter().for_each(install_ring);
        }
        if wish.together {
            for handle in loops.handles() {
                // Batching needs io_uring; where the kernel forbids it, the server runs without.
                handle.run(|| net::enable_batching().unwrap_or_default());
            }
        }
        let listener = Listener::bind(ListenerConfig {
            port: 0,
            address: Some([127, 0, 0, 1].into()),
            socket,
            hail: Duration::from_secs(30),
            connections_max: 10_000,
        });
        let listener = listener.unwrap();
        let address = listener.local_address().unwrap();
        let doors: Arc<[Arc<dyn net::Door>]> = Arc::new([door.clone() as Arc<dyn net::Door>]);
        let everybody: net::Admission = Arc::new(|_| Box::pin(async { true }));
        let (alive, ends) = tokio::sync::oneshot::channel::<()>();
        let serving = loops.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                tokio::select! {
                    _ = listener.serve(serving, doors, everybody, Arc::new(Refusals::default())) => {}
                    _ = ends => {}
                }
            });
        });
        Self { door, loops, rules, address, _alive: alive, directory }
    }

    /// Returns the path of a file in the directory, to access it without the server.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.0.join("data").join(path.trim_start_matches('/'))
    }

    pub fn put(&self, path: &str, content: &[u8]) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Evicts a file from the page cache, if its file system supports that.
    pub fn evict(&self, path: &str) {
        let file = std::fs::File::open(self.path(path)).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    pub fn content(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }

    /// Returns a client that has logged in.
    pub fn client(&self) -> Client {
        Client::login(self.address)
    }

    pub fn totals(&self) -> xroot::Totals {
        self.door.totals()
    }

    /// Waits until `count` sessions remain.
    pub fn until_sessions(&self, count: usize) {
        until(&format!("{count} sessions, {} now", self.door.sessions()), || self.door.sessions() == count);
    }
}

/// Lets a loop read cold data by io_uring. Where the kernel forbids that, the pool continues to do
/// it.
fn install_ring(handle: &net::LoopHandle) {
    handle.spawn(|| async {
        let ring = storage::ring::install();
        let Ok((wake, driver)) = ring.and_then(|ring| Ok((net::LoopWaker::new(ring.event()?)?, ring))) else {
            return;
        };
        while wake.arrived().await {
            driver.complete();
        }
    });
}

pub fn logical_path(path: &str) -> LogicalPath {
    LogicalPath::parse(path.as_bytes()).unwrap()
}

/// Returns content in which adjacent offsets differ, as in the recorded exchanges.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| ((7 * i + 13 * (i >> 8) + 5) % 256) as u8).collect()
}

/// Computes the CRC-32C of a page bit by bit, independent of `digest`.
pub fn crc32c(data: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in data {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A reproducible pseudo-random number generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}
